"""Memory: what torch's allocator holds, and how much a demonstration may take."""

from __future__ import annotations

import os
from typing import Any

from _kit.events import NotHereError

GIBIBYTE = 1 << 30
_PAGE_BYTES = 2 << 20


def budget_of(limit_bytes: int, free_bytes: int, least_bytes: int) -> int:
    """What a demonstration may take, in bytes: the limit, or a quarter of what is free, in whole pages of 2 MiB.

    Raises:
        NotHereError: That is less than ``least_bytes``.
    """
    budget = min(limit_bytes, free_bytes // 4) // _PAGE_BYTES * _PAGE_BYTES
    if budget < least_bytes:
        raise NotHereError(
            f"Only {free_bytes / GIBIBYTE:.2f} GiB are free on this GPU, and a quarter of that is less than the "
            f"{least_bytes / GIBIBYTE:.2f} GiB that this needs. It takes no more than a quarter, so that others are "
            "not harmed."
        )
    return budget


def memory_of(torch: Any, device: Any) -> dict[str, int]:
    """The allocator's state, in bytes; zeros before its first use."""
    stats = torch.cuda.memory_stats_as_nested_dict(device)
    found: dict[str, int] = {}
    for name in ("allocated_bytes", "active_bytes", "reserved_bytes", "inactive_split_bytes"):
        both = stats.get(name, {}).get("all", {})
        found[name] = int(both.get("current", 0))
        found[f"peak_{name}"] = int(both.get("peak", 0))
    found["alloc_retries"] = int(stats.get("num_alloc_retries", 0))
    found["ooms"] = int(stats.get("num_ooms", 0))
    return found


def resident_bytes() -> int:
    """Host memory of this process."""
    with open("/proc/self/statm") as statm:  # noqa: PTH123 - read twice a second
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def summary_of(torch: Any, device: Any) -> str:
    """``torch.cuda.memory_summary()`` in full."""
    return str(torch.cuda.memory_summary(device))
