"""Whether a torch fits the driver and the GPUs: its CUDA, and the architectures that it has code for."""

from collections.abc import Sequence
from typing import Final

from gpumon.core.model import Device, Frame
from gpumon.core.problems import Problem
from gpumon.diagnosis.checks import Finding, fail, ok, skip, warn
from gpumon.diagnosis.doctor.facts import Python
from gpumon.diagnosis.doctor.rule import gpus_of
from gpumon.diagnosis.doctor.wording import gpus_text

WHEELS: Final = "https://pytorch.org/get-started/locally"

_COMPILED: Final = "compiled at the first start"
_UNTOLD: Final = "The driver does not tell what the GPUs can do."


def cuda_of(python: Python) -> str | None:
    """The CUDA that its torch was built with, such as ``12.8``."""
    version = python.steps.value("import", "cuda")
    return version if isinstance(version, str) else None


def no_cuda(python: Python) -> Finding:
    """Why nothing can be said of CUDA in this Python."""
    if python.steps.ended_by or python.steps.get("import") is None:
        return not_reached(python)
    return skip("This torch has no CUDA." if cuda_of(python) is None else "CUDA does not start in this torch.")


def not_reached(python: Python) -> Finding:
    """Why a step was not made."""
    if python.steps.ended_by:
        return skip(f"It was not reached: Python ended before, in {python.steps.ended_in or 'its start'}.")
    return skip("torch cannot be imported.")


def fits_driver(python: Python, frame: Frame | Problem) -> Finding:
    """The driver can run the CUDA of this torch."""
    version = cuda_of(python)
    if version is None:
        return no_cuda(python)
    most = None if isinstance(frame, Problem) else frame.cuda_driver_version
    if most is None:
        return skip("The driver does not tell which CUDA it can run.")
    own, driver = _numbers(version), _numbers(most)
    if own <= driver:
        return ok(f"CUDA {version}, and the driver can run up to {most}")
    fix = f"Update the driver, or install a torch for CUDA {driver[0]}: {WHEELS}."
    if own[0] == driver[0]:
        text = f"torch has CUDA {version}, the driver CUDA {most}: it runs, but what is compiled at run time may fail."
        return warn(text, fix)
    return fail(f"torch has CUDA {version}, and the driver can run no more than {most}.", fix)


def architectures(python: Python, frame: Frame | Problem) -> Finding:
    """This torch has code for each GPU."""
    if cuda_of(python) is None:
        return no_cuda(python)
    listed = python.steps.value("build", "architectures")
    gpus = gpus_of(frame)
    if isinstance(gpus, Problem):
        return skip(gpus.reason)
    if not listed:
        return skip("This torch does not tell what it was built for.")
    known = [device for device in gpus.devices if device.compute_capability is not None]
    return _judged(known, listed) if known else skip(_UNTOLD)


def _judged(devices: Sequence[Device], listed: Sequence[str]) -> Finding:
    ways = {device.index: _way(_capability(device), listed) for device in devices}
    fix = f"Install a torch that was built for it: {WHEELS}."
    without = [device for device in devices if not ways[device.index]]
    if without:
        kinds = ", ".join(sorted({f"{each.name}, compute capability {each.compute_capability}" for each in without}))
        return fail(f"torch has no code for {gpus_text(without)} ({kinds}). It has {' '.join(listed)}.", fix)
    compiled = [device for device in devices if ways[device.index] == _COMPILED]
    if compiled:
        return warn(f"torch has no ready code for {gpus_text(compiled)}: it is {_COMPILED}, which takes minutes.", fix)
    return ok(", ".join(sorted(set(ways.values()))))


def _way(capability: tuple[int, int], listed: Sequence[str]) -> str:
    """The architecture whose code runs on such a GPU, `_COMPILED` if it has to be made of PTX, or nothing.

    Code for one minor version runs on later ones of the same major version; with an ``a`` behind it, on that one alone.
    """
    major, minor = capability
    for least in range(minor, -1, -1):
        if f"sm_{major}{least}" in listed:
            return f"sm_{major}{least}"
    if f"sm_{major}{minor}a" in listed:
        return f"sm_{major}{minor}a"
    portable = [each.removeprefix("compute_") for each in listed if each.startswith("compute_")]
    has_portable = any(each.isdecimal() and int(each) <= major * 10 + minor for each in portable)
    return _COMPILED if has_portable else ""


def _capability(device: Device) -> tuple[int, int]:
    major, minor = _numbers(device.compute_capability or "")
    return major, minor


def _numbers(version: str) -> tuple[int, int]:
    """``12.8`` as numbers."""
    major, _, minor = version.partition(".")
    return int(major) if major.isdecimal() else 0, int(minor) if minor.isdecimal() else 0
