"""Why NVML does not start, told as exactly as files can tell it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpumon.collect.nvml import ERROR_UNKNOWN, NvmlError
from gpumon.core.problems import Problem, ProblemCode

_CONTAINER_LOST_GPU: Final = Problem(
    ProblemCode.CONTAINER_LOST_GPU,
    "NVML cannot start and gives no cause (unknown error), as in a container that has lost its GPU devices.",
    "In a container, restart it; otherwise check that /dev/nvidiactl and /dev/nvidia0 can be opened.",
)


def start_problem(failed: NvmlError, proc: Path = Path("/proc")) -> Problem:
    """Why NVML could not be started.

    An unknown error has a usual cause at the start that it has nowhere else, and a mismatch is only useful with the
    two versions that do not match.
    """
    if failed.code == ERROR_UNKNOWN:
        return _CONTAINER_LOST_GPU
    if failed.problem.code is ProblemCode.LIBRARY_MISMATCH:
        library = library_version(proc) or "version unknown"
        kernel = kernel_driver_version(proc) or "version unknown"
        return replace(
            failed.problem,
            reason=f"The NVIDIA library ({library}) and the loaded kernel driver ({kernel}) are of different versions.",
        )
    return failed.problem


def kernel_driver_version(proc: Path = Path("/proc")) -> str | None:
    """Version of the NVIDIA kernel module that is loaded, or None."""
    return _first_match(proc / "driver/nvidia/version", r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)")


def library_version(proc: Path = Path("/proc")) -> str | None:
    """Version of the NVML library that this process has mapped, from its file name; None when the name has none."""
    return _first_match(proc / "self/maps", r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)")


def _first_match(path: Path, pattern: str) -> str | None:
    try:
        found = re.search(pattern, path.read_text())
    except OSError:
        return None
    return found and found[1]
