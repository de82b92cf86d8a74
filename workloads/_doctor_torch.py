"""The steps for the torch of this Python, from the import to the first kernels."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Optional

Answer = dict[str, Any]
Step = Callable[..., Optional[Answer]]
"""Runs a step: its name, the function, and its arguments. Returns the answer, or None if the function raised."""

_ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_PIN = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*\(?\s*==\s*([^;,)\s]+)\)?\s*(?:;(.*))?", re.ASCII)
_OTHER_PLATFORM = re.compile(r"extra|Windows|win32|Darwin|python_version|python_full_version")
_PINNED = re.compile(r"nvidia[-_]|torch|triton")
_CUDA_FILE = re.compile(r"/(lib(?:cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvJitLink|torch_cuda)\.so[\w.]*)$")
_PARSER = "_accelerator_setAllocatorSettings"
_OLDER_PARSER = "_cuda_cudaCachingAllocator_set_allocator_settings"
_ERROR_TEXT = 500


def query_torch(step: Step, excluded: list[str]) -> None:
    """Runs all steps.

    Args:
        step: Runs a step.
        excluded: UUIDs of GPUs that must not be used, or ``all``.
    """
    python = step("python", _python)
    if python is None or not python["has_torch"]:
        return
    step("packages", _packages)
    torch = step("import", _import_torch)
    if torch is None:
        return
    step("build", _build)
    step("allocator", _allocator)
    available = step("available", _available)
    if torch["cuda"] is None or available is None:
        return
    if not available["available"]:
        step("start", _start_cuda)
        return
    devices = step("devices", _torch_devices)
    listed = devices["devices"] if devices else []
    used = [ordinal for ordinal, device in enumerate(listed) if _may_use(device["uuid"], excluded)]
    for ordinal in used:
        step(f"kernel {ordinal}", _kernel, ordinal)
    if used:
        step("cublas", _cublas, used[0])
        step("cudnn", _cudnn, used[0])
    step("nccl", _nccl)
    step("libraries", _cuda_libraries)


def _may_use(uuid: str, excluded: list[str]) -> bool:
    """Whether kernels may run on a GPU. If this torch reports no UUIDs, any exclusion excludes all GPUs."""
    names = [name for name in excluded if name]
    return not names or ("all" not in names and uuid != "" and uuid not in names)


def _python() -> Answer:
    spec = importlib.util.find_spec("torch")
    return {
        "version": platform.python_version(),
        "prefix": sys.prefix,
        "has_torch": spec is not None and spec.origin is not None,
    }


def _packages() -> Answer:
    """All installed packages, and the exact versions that the packages around torch require."""
    installed, pins = [], []
    for package in metadata.distributions():
        name = str(package.metadata["Name"] or "")
        installed.append([name, str(package.version)])
        if _PINNED.match(name.lower()):
            matches = (_PIN.fullmatch(required.strip()) for required in package.requires or [])
            pins += [[name, pin[1], pin[2]] for pin in matches if pin and _applies(pin[3] or "")]
    return {"installed": sorted(installed), "pins": sorted(pins)}


def _applies(marker: str) -> bool:
    """Whether a requirement applies to this system; a marker that needs a full parser counts as not applicable."""
    if _OTHER_PLATFORM.search(marker):
        return False
    return "platform_machine" not in marker or platform.machine() in marker


def _import_torch() -> Answer:
    import torch

    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "file": str(torch.__file__),
    }


def _build() -> Answer:
    import torch

    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()  # noqa: SLF001 - the public function returns nothing if CUDA does not initialize
    return {"architectures": (flags or "").split()}


def _allocator() -> Answer:
    """For each variable that is set, the error of this torch's parser; empty if it accepts the value."""
    import torch

    inner = torch._C  # noqa: SLF001 - there is no public parser
    accept = getattr(inner, _PARSER, None) or getattr(inner, _OLDER_PARSER, None)
    said = {}
    for name in _ALLOCATOR_VARIABLES:
        if os.environ.get(name) and accept is not None:
            try:
                accept(os.environ[name])
                said[name] = ""
            except (RuntimeError, ValueError) as error:
                said[name] = str(error).splitlines()[0][:_ERROR_TEXT]
    return {"said": said}


def _available() -> Answer:
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available, count = torch.cuda.is_available(), torch.cuda.device_count()
    return {
        "available": available,
        "count": count,
        "warnings": [str(warning.message)[:_ERROR_TEXT] for warning in caught],
    }


def _start_cuda() -> Answer:
    """Initializes CUDA, which raises the reason if it is not available."""
    import torch

    torch.cuda.init()
    return {}


def _torch_devices() -> Answer:
    import torch

    devices = []
    for ordinal in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(ordinal)
        uuid = getattr(properties, "uuid", None)
        devices.append(
            {
                "name": str(properties.name),
                "uuid": "" if uuid is None else "GPU-" + str(uuid).replace("GPU-", ""),
                "capability": [int(properties.major), int(properties.minor)],
            }
        )
    return {"devices": devices}


def _kernel(ordinal: int) -> Answer:
    import torch

    return {"is_right": int(torch.arange(64, device=torch.device("cuda", ordinal)).sum()) == 2016}


def _cublas(ordinal: int) -> Answer:
    import torch

    ones = torch.ones(16, 16, device=torch.device("cuda", ordinal))
    return {"is_right": float((ones @ ones).sum()) == 16**3}


def _cudnn(ordinal: int) -> Answer:
    import torch

    device = torch.device("cuda", ordinal)
    result = torch.nn.functional.conv2d(torch.ones(1, 1, 4, 4, device=device), torch.ones(1, 1, 3, 3, device=device))
    return {
        "is_right": float(result.sum()) == 36,
        "is_there": bool(torch.backends.cudnn.is_available()),
        "version": torch.backends.cudnn.version(),
    }


def _nccl() -> Answer:
    import torch

    built = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    version = torch.cuda.nccl.version() if built else ()
    return {"is_there": built, "version": ".".join(map(str, version))}


def _cuda_libraries() -> Answer:
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line[line.index("/") :] for line in lines if "/" in line}
    return {"paths": sorted(path for path in paths if _CUDA_FILE.search(path))}
