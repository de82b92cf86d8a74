"""Memory of torch's allocator, and the budget of a demonstration."""

from __future__ import annotations

import os
from typing import Any, Optional

from _kit.events import UnsupportedError

GIBIBYTE = 1 << 30
_PAGE_BYTES = 2 << 20


def budget_of(limit_bytes: int, free_bytes: int, min_bytes: int) -> int:
    """Returns the memory that a demonstration may use: the limit, or a quarter of free memory, in multiples of 2 MiB.

    Raises:
        UnsupportedError: The budget is less than ``min_bytes``.
    """
    budget = min(limit_bytes, free_bytes // 4) // _PAGE_BYTES * _PAGE_BYTES
    if budget < min_bytes:
        raise UnsupportedError(
            f"Only {free_bytes / GIBIBYTE:.2f} GiB are free on this GPU. The workload uses at most a quarter of free "
            f"memory, to protect other processes, and needs at least {min_bytes / GIBIBYTE:.2f} GiB."
        )
    return budget


def size_text(size: float) -> str:
    """Returns ``1 KiB``, ``16 MiB`` or ``1 GiB``."""
    for unit, name in ((GIBIBYTE, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size / 1024:.4g} KiB"


def memory_of(torch: Any, device: Any) -> dict[str, int]:
    """Returns the state of the allocator in bytes; zeros before its first use."""
    stats = torch.cuda.memory_stats_as_nested_dict(device)
    state: dict[str, int] = {}
    for name in ("allocated_bytes", "active_bytes", "reserved_bytes", "inactive_split_bytes"):
        values = stats.get(name, {}).get("all", {})
        state[name] = int(values.get("current", 0))
        state[f"peak_{name}"] = int(values.get("peak", 0))
    state["alloc_retries"] = int(stats.get("num_alloc_retries", 0))
    state["ooms"] = int(stats.get("num_ooms", 0))
    return state


def resident_bytes() -> int:
    """Returns the resident memory of this process in bytes."""
    with open("/proc/self/statm") as statm:  # noqa: PTH123 - cheaper than Path, and read twice per second
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def reset_peak_resident() -> bool:
    """Resets the peak of the resident memory of this process to its value now; returns False if that is refused."""
    try:
        with open("/proc/self/clear_refs", "w") as clear:  # noqa: PTH123 - a write in one call
            clear.write("5")
    except OSError:
        return False
    return True


def peak_resident_bytes() -> Optional[int]:
    """Returns the peak of the resident memory of this process in bytes since its start or reset, or None if unknown."""
    try:
        with open("/proc/self/status") as status:  # noqa: PTH123
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def summary_of(torch: Any, device: Any) -> str:
    """Returns the complete ``torch.cuda.memory_summary()``."""
    return str(torch.cuda.memory_summary(device))
