"""Chips that have no memory of their own: their programs live in the host's memory, and NVML tells none.

What /proc says of the host stands in for it, on such chips alone. On any other, memory that NVML does not tell is
unknown.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpumon.core.problems import Problem, ProblemCode

SHARED: Final = Problem(
    ProblemCode.MEMORY_SHARED,
    "This chip has no memory of its own: what is shown is the host's, with all its programs.",
)
"""Why a chip has neither a driver's reserve nor memory that no process owns."""

_CAPABILITIES: Final = frozenset({"5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1"})
"""Those of Tegra X1, X2, Xavier, Orin, Thor (under its former number too) and GB10. No card has them."""
_NAMES: Final = re.compile(r"\b(GB10|Tegra|Xavier|Orin|Thor|Jetson|nvgpu)\b", re.IGNORECASE)
_LINE: Final = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def is_unified(name: str | None, compute_capability: str | None) -> bool:
    """Whether a chip shares the host's memory, as far as its name and its compute capability tell."""
    return compute_capability in _CAPABILITIES or (name is not None and _NAMES.search(name) is not None)


def host_memory(proc: Path = Path("/proc")) -> dict[str, float]:
    """The host's memory by metric: total, used and free; nothing if the kernel does not tell. Cache counts as free."""
    try:
        told = dict(_LINE.findall((proc / "meminfo").read_text()))
        total, free = int(told["MemTotal"]) << 10, int(told["MemAvailable"]) << 10
    except (OSError, KeyError):
        return {}
    return {"memory_total_bytes": total, "memory_used_bytes": total - free, "memory_free_bytes": free}


def share_host_memory(
    readings: dict[str, float], problems: dict[str, Problem], read: Callable[[], dict[str, float]] = host_memory
) -> None:
    """Puts the host's memory among the readings of a chip that shares it, where NVML tells none."""
    if "memory_total_bytes" in readings:
        return
    found = read()
    readings.update(found)
    for metric in found:
        problems.pop(metric, None)
    problems["memory_reserved_bytes"] = SHARED
