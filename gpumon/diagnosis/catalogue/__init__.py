"""The catalogue of known errors: data only, with one module per section; it is independent of how a log is searched.

To add an error, add an entry to the module of its section, and a sample of its text to the file of the same name in
`tests/diagnosis/samples`. `tests/diagnosis/test_catalogue.py` checks both.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpumon.diagnosis.catalogue import (
    autograd,
    checkpoints,
    cluster,
    compilation,
    containers,
    cuda_calls,
    distributed,
    distributed_training,
    driver,
    environment,
    host,
    inference,
    jax_tensorflow,
    kernel_libraries,
    kernel_log,
    kernels,
    libraries,
    memory,
    model_kernels,
    models,
    network,
    nodes,
    numerics,
    operators,
    packages,
    parallel_setup,
    precision,
    processes,
    rocm,
    runtime,
    serving,
    serving_kernels,
    sharded_state,
    sharded_training,
    startup,
    toolchain,
    training,
    xids,
    xids_nvlink,
    xids_units,
)
from gpumon.diagnosis.known import KnownError

ERRORS: Final[tuple[KnownError, ...]] = (
    *memory.ERRORS,
    *host.ERRORS,
    *processes.ERRORS,
    *kernels.ERRORS,
    *runtime.ERRORS,
    *cuda_calls.ERRORS,
    *startup.ERRORS,
    *containers.ERRORS,
    *nodes.ERRORS,
    *cluster.ERRORS,
    *environment.ERRORS,
    *operators.ERRORS,
    *libraries.ERRORS,
    *packages.ERRORS,
    *training.ERRORS,
    *autograd.ERRORS,
    *toolchain.ERRORS,
    *compilation.ERRORS,
    *models.ERRORS,
    *model_kernels.ERRORS,
    *distributed.ERRORS,
    *distributed_training.ERRORS,
    *sharded_training.ERRORS,
    *sharded_state.ERRORS,
    *parallel_setup.ERRORS,
    *serving.ERRORS,
    *serving_kernels.ERRORS,
    *kernel_libraries.ERRORS,
    *checkpoints.ERRORS,
    *network.ERRORS,
    *numerics.ERRORS,
    *precision.ERRORS,
    *inference.ERRORS,
    *jax_tensorflow.ERRORS,
    *rocm.ERRORS,
    *driver.ERRORS,
    *kernel_log.ERRORS,
    *xids.ERRORS,
    *xids_nvlink.ERRORS,
    *xids_units.ERRORS,
)
"""Every known error, grouped by section. Of two entries that match a line equally well, the first one wins."""

BY_ID: Final[Mapping[str, KnownError]] = MappingProxyType({error.id: error for error in ERRORS})
