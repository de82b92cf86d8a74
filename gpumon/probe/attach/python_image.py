"""The CPython in the memory of a process: its functions, its version, and whether it is initialized."""

import re
import struct
from typing import Final

from gpumon.probe.attach.address_space import AddressSpace, Image
from gpumon.probe.attach.cpu import cpu

_INTERPRETER: Final = re.compile(r"python[\d.]*[a-z]*|libpython\d.*")
_VERSION_SYMBOLS: Final = (
    ((3, 14), "PyUnicodeWriter_Create"),
    ((3, 13), "Py_IsFinalizing"),
    ((3, 12), "PyType_FromMetaclass"),
    ((3, 11), "Py_Version"),
    ((3, 10), "Py_NewRef"),
    ((3, 9), "PyFrame_GetCode"),
    ((3, 8), "Py_InitializeFromConfig"),
)
"""A function or constant that each version has added to the C API (docs.python.org/3/c-api, "Added in version")."""
_WITHOUT_GIL: Final = "_Py_MergeZeroLocalRefcount"
"""Exported by free-threaded builds only."""
_LOCKING: Final = ("Py_AddPendingCall", "Py_MakePendingCalls", "PyThread_acquire_lock_timed", "PyThread_release_lock")
"""Functions in which a thread may hold the lock of the pending calls."""
_FINISHING_OFFSET: Final = 0x258
"""Of ``ceval.pending.finishing`` in `_PyRuntime` of Python 3.8: from there on `Py_AddPendingCall` prints an error."""


class NoPythonError(Exception):
    """There is no CPython with dynamic symbols in the process."""


class PythonImage:
    """The functions of a CPython.

    Args:
        space: The memory of its process.
        program: The file that the process runs.

    Raises:
        NoPythonError: There is none, or its symbols were removed.
        OSError: The process has ended.
    """

    def __init__(self, space: AddressSpace, program: str) -> None:
        self._space = space
        self._image = _image(space, program)
        self.add_pending_call = self._address("Py_AddPendingCall")
        self.run_string = self._address("PyRun_SimpleString")
        self.version = next((version for version, name in _VERSION_SYMBOLS if self._image.find(name)), (0, 0))
        self.is_free_threaded = self._image.find(_WITHOUT_GIL) is not None
        self._ranges = [symbol for symbol in map(self._image.find, _LOCKING) if symbol]
        self._flag = self._initialized_address()

    def is_ready(self) -> bool:
        """Whether the interpreter is initialized and not about to end.

        Raises:
            OSError: The process has ended.
        """
        if not self._flag or self._int(self._flag) != 1:
            return False
        return self.version != (3, 8) or self._int(self._address("_PyRuntime") + _FINISHING_OFFSET) != 1

    def may_hold_lock(self, addresses: tuple[int, ...]) -> bool:
        """Whether one of these addresses, of a thread's instructions, is in a function that takes a lock."""
        return any(start <= address < start + size for start, size in self._ranges for address in addresses)

    def _address(self, name: str) -> int:
        symbol = self._image.find(name)
        if symbol is None:
            raise NoPythonError(name)
        return symbol[0]

    def _initialized_address(self) -> int:
        """Where `Py_IsInitialized` reads its result; 0 if its code is unknown."""
        start = self._address("Py_IsInitialized")
        return cpu.flag_address(self._space.read(start, 32), start, self._address("_PyRuntime"))

    def _int(self, address: int) -> int:
        return int(struct.unpack("<i", self._space.read(address, 4))[0])


def _image(space: AddressSpace, program: str) -> Image:
    """The first program file with the functions of Python."""
    files = {item.path: item for item in reversed(space.mappings) if item.offset == 0 and item.path.startswith("/")}
    for item in reversed(files.values()):
        if item.path.removesuffix(" (deleted)") == program or _INTERPRETER.fullmatch(item.file_name):
            try:
                image = Image(space, item.start)
                if image.find("Py_AddPendingCall"):
                    return image
            except (ValueError, struct.error, OSError):
                continue
    raise NoPythonError("Py_AddPendingCall")
