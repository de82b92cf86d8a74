"""The catalogue of known errors: data only, with one module per section; it is independent of how a log is searched.

To add an error, add an entry to the module of its section, and a sample of its text to the file of the same name in
`tests/diagnosis/samples`. `tests/diagnosis/test_catalogue.py` checks both.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpumon.diagnosis.catalogue import distributed, driver, kernels, libraries, memory, operators, startup, xids
from gpumon.diagnosis.known import KnownError

ERRORS: Final[tuple[KnownError, ...]] = (
    *memory.ERRORS,
    *kernels.ERRORS,
    *startup.ERRORS,
    *operators.ERRORS,
    *libraries.ERRORS,
    *distributed.ERRORS,
    *driver.ERRORS,
    *xids.ERRORS,
)
"""Every known error, grouped by section. Of two entries that match a line equally well, the first one wins."""

BY_ID: Final[Mapping[str, KnownError]] = MappingProxyType({error.id: error for error in ERRORS})
