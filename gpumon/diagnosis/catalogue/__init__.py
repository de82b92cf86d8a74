"""The catalogue of known errors: data only, with one module per section; it is independent of how a log is searched.

To add an error, add an entry to the module of its section, and a sample of its text to the file of the same name in
`tests/diagnosis/samples`. `tests/diagnosis/test_catalogue.py` checks both.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpumon.diagnosis.catalogue import (
    checkpoints,
    compilation,
    containers,
    distributed,
    distributed_training,
    driver,
    host,
    inference,
    jax_tensorflow,
    kernel_log,
    kernels,
    libraries,
    memory,
    models,
    network,
    numerics,
    operators,
    rocm,
    serving,
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
    *kernels.ERRORS,
    *startup.ERRORS,
    *containers.ERRORS,
    *operators.ERRORS,
    *libraries.ERRORS,
    *training.ERRORS,
    *toolchain.ERRORS,
    *compilation.ERRORS,
    *models.ERRORS,
    *distributed.ERRORS,
    *distributed_training.ERRORS,
    *sharded_training.ERRORS,
    *serving.ERRORS,
    *checkpoints.ERRORS,
    *network.ERRORS,
    *numerics.ERRORS,
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
