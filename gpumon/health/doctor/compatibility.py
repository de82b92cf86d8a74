"""Whether a torch fits the driver, the GPUs, and the packages around it."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.model import Device, Frame, bare_uuid
from gpumon.core.problems import Problem
from gpumon.core.text import safe_text
from gpumon.core.units import counted
from gpumon.health.checks import CheckResult, fail, ok, skip, warn
from gpumon.health.doctor.check import gpus_of, gpus_text
from gpumon.health.doctor.facts import Python

WHEELS: Final = "https://pytorch.org/get-started/locally"

_COMPILED: Final = "compiled from PTX at the first start"
_ORDER_FIX: Final = "Set CUDA_DEVICE_ORDER=PCI_BUS_ID to give CUDA the same order as NVML."


def cuda_of(python: Python) -> str | None:
    """The CUDA version that its torch was built with, such as ``12.8``."""
    version = python.steps.value("import", "cuda")
    return version if isinstance(version, str) else None


def no_cuda(python: Python) -> CheckResult:
    """Skipped: this Python has no working CUDA."""
    if python.steps.ended_by or python.steps.get("import") is None:
        return not_reached(python)
    return skip("This torch has no CUDA." if cuda_of(python) is None else "CUDA does not initialize in this torch.")


def not_reached(python: Python) -> CheckResult:
    """Skipped: the step was not reached."""
    if python.steps.ended_by:
        return skip(f"Not reached: Python ended earlier, in step {python.steps.ended_in or 'start'}.")
    return skip("torch cannot be imported.")


def fits_driver(python: Python, frame: Frame | Problem) -> CheckResult:
    """The driver supports the CUDA version of this torch."""
    version = cuda_of(python)
    if version is None:
        return no_cuda(python)
    supported = None if isinstance(frame, Problem) else frame.cuda_driver_version
    if supported is None:
        return skip("The driver does not report the CUDA version that it supports.")
    own, driver = _version_numbers(version), _version_numbers(supported)
    if own <= driver:
        return ok(f"CUDA {version}; the driver supports up to {supported}")
    fix = f"Update the driver, or install a torch for CUDA {driver[0]}: {WHEELS}."
    if own[0] == driver[0]:
        text = f"torch was built with CUDA {version}, newer than the driver's {supported}."
        return warn(f"{text} It works, but compilation at run time may fail.", fix)
    return fail(f"torch needs CUDA {version}, but the driver supports only up to {supported}.", fix)


def architectures(python: Python, frame: Frame | Problem) -> CheckResult:
    """This torch has kernels for each GPU."""
    if cuda_of(python) is None:
        return no_cuda(python)
    built_for = python.steps.value("build", "architectures")
    gpus = gpus_of(frame)
    if isinstance(gpus, Problem):
        return skip(gpus.reason)
    if not built_for:
        return skip("This torch does not report the architectures that it was built for.")
    known = [device for device in gpus.devices if device.compute_capability is not None]
    if not known:
        return skip("The driver does not report the compute capability of the GPUs.")
    return _architectures_finding(known, built_for)


def _architectures_finding(devices: Sequence[Device], built_for: Sequence[str]) -> CheckResult:
    ways = {device.index: _matching_code(_version_numbers(device.compute_capability), built_for) for device in devices}
    fix = f"Install a torch that was built for this architecture: {WHEELS}."
    without = [device for device in devices if not ways[device.index]]
    if without:
        kinds = ", ".join(
            sorted({f"{device.name}, compute capability {device.compute_capability}" for device in without})
        )
        return fail(f"torch has no kernels for {gpus_text(without)} ({kinds}). It has {' '.join(built_for)}.", fix)
    compiled = [device for device in devices if ways[device.index] == _COMPILED]
    if compiled:
        return warn(f"Kernels for {gpus_text(compiled)} are {_COMPILED}, which takes minutes.", fix)
    return ok(", ".join(sorted(set(ways.values()))))


def _matching_code(capability: tuple[int, int], built_for: Sequence[str]) -> str:
    """The architecture whose code runs on such a GPU, `_COMPILED` if only PTX does, or an empty text.

    Code for one minor version runs on later ones of the same major version; code with the suffix ``a`` runs on exactly
    one version.
    """
    major, minor = capability
    for older_minor in range(minor, -1, -1):
        if f"sm_{major}{older_minor}" in built_for:
            return f"sm_{major}{older_minor}"
    if f"sm_{major}{minor}a" in built_for:
        return f"sm_{major}{minor}a"
    ptx = [name.removeprefix("compute_") for name in built_for if name.startswith("compute_")]
    has_ptx = any(version.isdecimal() and int(version) <= major * 10 + minor for version in ptx)
    return _COMPILED if has_ptx else ""


def _version_numbers(version: str | None) -> tuple[int, int]:
    """``12.8`` as numbers."""
    major, _, minor = (version or "").partition(".")
    return int(major) if major.isdecimal() else 0, int(minor) if minor.isdecimal() else 0


def devices(python: Python, frame: Frame | Problem) -> CheckResult:
    """The GPUs of torch are the visible ones of NVML, with the same names, in the intended order."""
    error = python.steps.error("devices")
    if error:
        return fail(f"torch cannot read the properties of the GPUs: {error}", "Check for an Xid: dmesg | grep -i xid.")
    listed = python.steps.value("devices", "devices")
    if listed is None:
        return no_cuda(python)
    if isinstance(frame, Problem) or not frame.devices:
        return skip("NVML reports no GPU to compare with.")
    if not all(entry.get("uuid") for entry in listed):
        return skip("This torch is too old to report UUIDs.")
    by_uuid = {bare_uuid(device.uuid or ""): device for device in frame.devices}
    matches = [by_uuid.get(bare_uuid(entry["uuid"])) for entry in listed]
    known = [device for device in matches if device is not None]
    if len(known) < len(matches):
        return skip("torch has a device that NVML does not list, such as a MIG instance.")
    return _devices_finding(known, [str(entry.get("name")) for entry in listed], frame)


def _devices_finding(torch_devices: Sequence[Device], names: Sequence[str], frame: Frame) -> CheckResult:
    """Compares the GPUs of torch, in its order and with its names, with those of NVML."""
    visible = sum(device.cuda_index is not None for device in frame.devices)
    count = counted(len(torch_devices), "GPU")
    if visible and len(torch_devices) != visible:
        return fail(
            f"torch finds {count}, but {visible} should be visible.",
            "Check nvidia-smi for a failed GPU, and check CUDA_VISIBLE_DEVICES.",
        )
    misnamed = [device for device, name in zip(torch_devices, names, strict=True) if device.name != name]
    if misnamed:
        fix = "Reboot: the libraries probably do not match the loaded driver."
        return warn(f"torch and NVML report different names for {gpus_text(misnamed)}.", fix)
    indices = [device.index for device in torch_devices]
    if indices == sorted(indices):
        return ok(f"{count} with the UUIDs and names of NVML, in the same order")
    moved = ", ".join(f"cuda:{ordinal} is GPU {index}" for ordinal, index in enumerate(indices) if ordinal != index)
    if all(device.cuda_index == ordinal for ordinal, device in enumerate(torch_devices)):
        return ok(f"in the order of CUDA_VISIBLE_DEVICES: {moved}")
    return warn(f"The order differs from NVML's: {moved}.", _ORDER_FIX)


Installed = Sequence[Sequence[str]]
"""Name and version of each package."""
Pins = Sequence[Sequence[str]]
"""A package, the name of a package that it requires, and the exact version that it requires."""

_FOR_CUDA: Final = re.compile(r"nvidia-.*-cu(\d\d)", re.ASCII)
_BUILT_FOR: Final = re.compile(r"\+(cu\d+|cpu|rocm[\d.]*)$", re.ASCII)
_FAMILY: Final = ("torch", "torchvision", "torchaudio")
_MAX_PINS: Final = 3


def package_conflicts(installed: Installed, pins: Pins, cuda: str | None) -> Iterator[str]:
    """Packages that do not fit together, one sentence each."""
    versions: dict[str, set[str]] = defaultdict(set)
    for name, version in installed:
        versions[_canonical(name)].add(version)
    for name in _FAMILY:
        if len(versions[name]) > 1:
            yield f"{name} is installed twice: {', '.join(sorted(versions[name]))}."
    yield from _unmet_pins(versions, pins)
    builds = {name: build[1] for name in _FAMILY for text in versions[name] if (build := _BUILT_FOR.search(text))}
    if len(set(builds.values())) > 1:
        yield f"Builds for different targets are mixed: {', '.join(f'{name} for {cu}' for name, cu in builds.items())}."
    majors = {match[1] for name in versions if versions[name] and (match := _FOR_CUDA.fullmatch(name))}
    own = "" if cuda is None else cuda.partition(".")[0]
    foreign = sorted(majors - {own})
    if own and foreign:
        yield f"NVIDIA packages for CUDA {', '.join(foreign)} are installed next to a torch for CUDA {own}."


def loaded_twice(paths: Sequence[str]) -> Iterator[str]:
    """CUDA libraries that a process has loaded from two paths, one sentence each."""
    by_library: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        folder, _, file = safe_text(path).rpartition("/")
        by_library[file.partition(".so")[0]].add(f"{folder}/{file}")
    for library, files in by_library.items():
        if len(files) > 1:
            yield f"{library} is loaded twice: {', '.join(sorted(files))}."


def _unmet_pins(versions: dict[str, set[str]], pins: Pins) -> Iterator[str]:
    unmet = []
    for package, required, version in pins:
        present = versions.get(_canonical(required)) or set()
        if present and not any(_satisfies(version, text) for text in present):
            unmet.append(f"{package} requires {required}=={version}, but =={', =='.join(sorted(present))} is installed")
        elif not present:
            unmet.append(f"{package} requires {required}=={version}, which is not installed")
    if unmet:
        rest = len(unmet) - _MAX_PINS
        yield f"{'; '.join(unmet[:_MAX_PINS])}{f'; and {rest} more' if rest > 0 else ''}."


def _satisfies(required: str, present: str) -> bool:
    """Whether a version is the required one. ``12.*`` matches many; a local part after ``+`` may differ."""
    if required.endswith(".*"):
        return f"{present}.".startswith(required[:-1])
    return present == required or present.partition("+")[0] == required


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
