"""A stand-in for torch whose allocator is a table; it keeps the same books under the same names."""

import types

__version__ = "2.11.0+cu130"


class OutOfMemoryError(RuntimeError):
    """As torch's own."""


class _Library(types.ModuleType):
    OutOfMemoryError = OutOfMemoryError


_C = _Library("torch._C")

from . import cuda  # noqa: F401
