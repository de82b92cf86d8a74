"""What the driver answers to a program that begins to use CUDA, without a context: device nodes, libraries, GPUs."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any, Callable, Optional

Answer = dict[str, Any]
Step = Callable[..., Optional[Answer]]
"""Makes a step: its name, what asks, and with which arguments; returns the answer, or None where that raised."""

_LIBRARIES = {"libcuda.so.1": "/libcuda.so", "libnvidia-ml.so.1": "/libnvidia-ml.so"}
"""What a program asks for, and how the file that it gets is called."""
_NODES = ("nvidiactl", "nvidia-uvm")
_ERROR_TEXT = 500


def ask_driver(step: Step) -> None:
    """Opens the device nodes and starts CUDA, without a context."""
    step("nodes", _open_nodes)
    step("libraries", _load_libraries)
    cuda = step("version", _driver_version)
    if cuda is None:
        return
    began = step("init", _init)
    if began is not None and began["code"] == 0:
        step("devices", _devices)
        step("peers", _peers)


def _open_nodes() -> Answer:
    """Of each device node, how opening it failed, or nothing."""
    found = {}
    folder = Path("/dev")
    for path in (*(folder / name for name in _NODES), *sorted(folder.glob("nvidia[0-9]*"))):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
            found[str(path)] = ""
        except OSError as error:
            found[str(path)] = errno.errorcode.get(error.errno or 0, str(error.errno))
    return {"opened": found}


def _load_libraries() -> Answer:
    """Of each library, the file that the loader takes, or why it takes none."""
    found = {}
    for name, part in _LIBRARIES.items():
        try:
            ctypes.CDLL(name)
        except OSError as error:
            found[name] = {"path": "", "error": str(error)[:_ERROR_TEXT]}
        else:
            found[name] = {"path": _mapped(part), "error": ""}
    return {"libraries": found}


def _mapped(part: str) -> str:
    """The file with this in its path that is mapped into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next((line[line.index("/") :] for line in lines if part in line), "")


def _cuda() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _checked(code: int, call: str) -> None:
    if code:
        raise RuntimeError(f"{call} answered {_error_name(code)}")


def _error_name(code: int) -> str:
    name = ctypes.c_char_p()
    _cuda().cuGetErrorName(code, ctypes.byref(name))
    return (name.value or b"").decode() or f"error {code}"


def _driver_version() -> Answer:
    version = ctypes.c_int()
    _checked(_cuda().cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
    return {"version": version.value}


def _init() -> Answer:
    code = _cuda().cuInit(0)
    return {"code": code, "name": _error_name(code) if code else ""}


def _count() -> int:
    count = ctypes.c_int()
    _checked(_cuda().cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    return count.value


def _devices() -> Answer:
    cuda = _cuda()
    found = []
    for ordinal in range(_count()):
        name, uuid = ctypes.create_string_buffer(128), (ctypes.c_ubyte * 16)()
        _checked(cuda.cuDeviceGetName(name, 128, ordinal), "cuDeviceGetName")
        _checked(getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)(uuid, ordinal), "cuDeviceGetUuid")
        digits = bytes(uuid).hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        found.append({"name": name.value.decode(errors="replace"), "uuid": "GPU-" + "-".join(parts)})
    return {"devices": found}


def _peers() -> Answer:
    """Which GPU can reach the memory of which other one; those that cannot."""
    cuda, count, can = _cuda(), _count(), ctypes.c_int()
    apart = []
    for one in range(count):
        for other in range(count):
            if one != other:
                _checked(cuda.cuDeviceCanAccessPeer(ctypes.byref(can), one, other), "cuDeviceCanAccessPeer")
                if not can.value:
                    apart.append([one, other])
    return {"count": count, "apart": apart}
