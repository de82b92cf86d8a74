"""The catalogue of known errors, as data; it knows nothing of how a log is searched."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpumon.diagnosis.catalogue import (
    distributed,
    distributed_end,
    driver,
    hardware,
    kernels,
    launches,
    libraries,
    math_libraries,
    memory,
    memory_sharing,
    operators,
    startup,
    startup_driver,
    xids,
    xids_memory,
)
from gpumon.diagnosis.known import KnownError

ERRORS: Final[tuple[KnownError, ...]] = (
    *memory.ERRORS,
    *memory_sharing.ERRORS,
    *kernels.ERRORS,
    *launches.ERRORS,
    *hardware.ERRORS,
    *startup.ERRORS,
    *startup_driver.ERRORS,
    *operators.ERRORS,
    *math_libraries.ERRORS,
    *libraries.ERRORS,
    *distributed.ERRORS,
    *distributed_end.ERRORS,
    *driver.ERRORS,
    *xids.ERRORS,
    *xids_memory.ERRORS,
)
"""Every known error, the entries of a section together."""

BY_ID: Final[Mapping[str, KnownError]] = MappingProxyType({error.id: error for error in ERRORS})
