"""Calls of the CUDA driver library that torch does not offer; every error becomes a sentence."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Optional

from _kit.events import UnsupportedError

if TYPE_CHECKING:
    from _kit.context import Context

HOST = -1
"""CU_DEVICE_CPU: the host as a place for managed memory."""
MANAGED_MEMORY = 83
CONCURRENT_MANAGED_ACCESS = 89
PAGE_TABLES_OF_THE_HOST = 100
"""Values of CUdevice_attribute in cuda.h. The last is 1 where the GPU reads host memory through the host's tables."""
SET_READ_MOSTLY = 1
"""CU_MEM_ADVISE_SET_READ_MOSTLY."""
_ATTACH_GLOBAL = 1
_POINTER, _SIZE = ctypes.c_uint64, ctypes.c_size_t


class DriverError(RuntimeError):
    """A call of the CUDA driver failed; the text names the call and the error."""


class Driver:
    """The CUDA driver library.

    The functions are called by the names that the library exports. A name without a suffix keeps its first signature
    forever: ``cuMemPrefetchAsync`` and ``cuMemAdvise`` take the number of a device, while the headers of CUDA 13 use
    these names for ``_v2``, which takes a structure.

    Args:
        context: The run, whose device the calls are for.

    Raises:
        UnsupportedError: The library cannot be loaded.
    """

    def __init__(self, context: Context) -> None:
        try:
            self._library = self._load()
        except OSError as error:
            raise UnsupportedError(f"The CUDA driver library cannot be loaded: {error}.") from error
        self._context = context
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(context.device.index or 0))

    def attribute(self, number: int) -> Optional[int]:
        """Returns an attribute of the device, or None if this driver does not know it."""
        value = ctypes.c_int()
        code = self._library.cuDeviceGetAttribute(ctypes.byref(value), ctypes.c_int(number), self._device)
        return None if code else value.value

    def allocate_managed(self, size: int) -> int:
        """Allocates managed memory, which host and GPU can use; returns its address.

        Args:
            size: Bytes.
        """
        address = _POINTER()
        self._call("cuMemAllocManaged", ctypes.byref(address), _SIZE(size), ctypes.c_uint(_ATTACH_GLOBAL))
        return address.value

    def free(self, address: int) -> None:
        """Frees memory."""
        self._call("cuMemFree_v2", _POINTER(address))

    def prefetch(self, address: int, size: int, *, to_host: bool = False) -> None:
        """Moves managed memory to the GPU, or to the host, on the current stream; returns before it is done."""
        place = ctypes.c_int(HOST) if to_host else self._device
        stream = ctypes.c_void_p(self._context.torch.cuda.current_stream(self._context.device).cuda_stream)
        self._call("cuMemPrefetchAsync", _POINTER(address), _SIZE(size), place, stream)

    def advise(self, address: int, size: int, advice: int) -> None:
        """Gives the driver a hint about managed memory, such as `SET_READ_MOSTLY`."""
        self._call("cuMemAdvise", _POINTER(address), _SIZE(size), ctypes.c_int(advice), self._device)

    def _load(self) -> Any:
        return ctypes.CDLL("libcuda.so.1")

    def _call(self, name: str, *arguments: Any) -> None:
        """Calls a function.

        Raises:
            DriverError: The library does not have the function, or the call failed.
        """
        function = getattr(self._library, name, None)
        if function is None:
            raise DriverError(f"This NVIDIA driver has no {name}. Install a newer driver.")
        code = function(*arguments)
        if code:
            raise DriverError(f"{name} failed: {self._error_text(code)}.")

    def _error_text(self, code: int) -> str:
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(name))
        self._library.cuGetErrorString(code, ctypes.byref(text))
        known = [value.value.decode(errors="replace") for value in (name, text) if value.value]
        return ", ".join(known) or f"error {code}"
