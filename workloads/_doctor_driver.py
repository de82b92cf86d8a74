"""The steps for the driver, without a CUDA context: device nodes, libraries, cuInit, GPUs, and peer access."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any, Callable, Optional

Answer = dict[str, Any]
Step = Callable[..., Optional[Answer]]
"""Runs a step: its name, the function, and its arguments. Returns the answer, or None if the function raised."""

_LIBRARIES = {"libcuda.so.1": "/libcuda.so", "libnvidia-ml.so.1": "/libnvidia-ml.so"}
"""The library that a program loads, and part of the path of the file that the loader maps."""
_NODES = ("nvidiactl", "nvidia-uvm")
_ERROR_TEXT = 500
_ATTRIBUTES = {
    "shared_memory_per_block_bytes": 8,
    "warp_size": 10,
    "sm_count": 16,
    "l2_bytes": 38,
    "max_threads_per_sm": 39,
    "shared_memory_per_sm_bytes": 81,
    "registers_per_sm": 82,
    "shared_memory_per_block_optin_bytes": 97,
}
"""Values of CUdevice_attribute in cuda.h."""


def query_driver(step: Step) -> None:
    """Opens the device nodes and initializes CUDA, without a context."""
    step("nodes", _open_nodes)
    step("libraries", _load_libraries)
    cuda = step("version", _driver_version)
    if cuda is None:
        return
    init = step("init", _init)
    if init is not None and init["code"] == 0:
        step("devices", _devices)
        step("peers", _peers)


def _open_nodes() -> Answer:
    """For each device node, the error name of opening it; empty for success."""
    opened = {}
    folder = Path("/dev")
    for path in (*(folder / name for name in _NODES), *sorted(folder.glob("nvidia[0-9]*"))):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
            opened[str(path)] = ""
        except OSError as error:
            opened[str(path)] = errno.errorcode.get(error.errno or 0, str(error.errno))
    return {"opened": opened}


def _load_libraries() -> Answer:
    """For each library, the file that the loader maps, or why loading fails."""
    libraries = {}
    for name, part in _LIBRARIES.items():
        try:
            ctypes.CDLL(name)
        except OSError as error:
            libraries[name] = {"path": "", "error": str(error)[:_ERROR_TEXT]}
        else:
            libraries[name] = {"path": _mapped(part), "error": ""}
    return {"libraries": libraries}


def _mapped(part: str) -> str:
    """The file mapped into this process whose path contains ``part``."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next((line[line.index("/") :] for line in lines if part in line), "")


def _cuda() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _checked(code: int, call: str) -> None:
    if code:
        raise RuntimeError(f"{call} returned {_error_name(code)}")


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
    devices = []
    for ordinal in range(_count()):
        name, uuid = ctypes.create_string_buffer(128), (ctypes.c_ubyte * 16)()
        _checked(cuda.cuDeviceGetName(name, 128, ordinal), "cuDeviceGetName")
        _checked(getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)(uuid, ordinal), "cuDeviceGetUuid")
        digits = bytes(uuid).hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        devices.append({
            "name": name.value.decode(errors="replace"),
            "uuid": "GPU-" + "-".join(parts),
            "attributes": _attributes(cuda, ordinal),
        })  # fmt: skip
    return {"devices": devices}


def _attributes(cuda: Any, ordinal: int) -> dict[str, int]:
    """The attributes of a GPU that the driver knows; a query creates no context."""
    known, value = {}, ctypes.c_int()
    for name, number in _ATTRIBUTES.items():
        query = getattr(cuda, "cuDeviceGetAttribute", None)
        if query is not None and not query(ctypes.byref(value), number, ordinal):
            known[name] = value.value
    return known


def _peers() -> Answer:
    """The pairs of GPUs without peer access."""
    cuda, count, can = _cuda(), _count(), ctypes.c_int()
    apart = []
    for one in range(count):
        for other in range(count):
            if one != other:
                _checked(cuda.cuDeviceCanAccessPeer(ctypes.byref(can), one, other), "cuDeviceCanAccessPeer")
                if not can.value:
                    apart.append([one, other])
    return {"count": count, "apart": apart}
