"""What this process may take of the machine, as the kernel tells it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpumon.diagnosis.doctor.facts import HostLimits
from gpumon.operations.doctor.files import MACHINE, read_text

_LIMIT: Final = re.compile(r"^Max (.+?)\s{2,}(\S+)", re.MULTILINE)
_TOTAL: Final = re.compile(r"^MemTotal:\s+(\d+) kB", re.MULTILINE)


def host_limits(root: Path = MACHINE) -> HostLimits:
    """The limits of this process."""
    soft = dict(_LIMIT.findall(read_text(root / "proc/self/limits")))
    total = _TOTAL.search(read_text(root / "proc/meminfo"))
    total_bytes = None if total is None else int(total[1]) * 1024
    shared = _file_system(root / "dev/shm")
    groups = list(_groups(root))
    return HostLimits(
        shared_bytes=None if shared is None else shared[0],
        shared_free_bytes=None if shared is None else shared[1],
        locked_bytes=_number(soft.get("locked memory")),
        open_files=_number(soft.get("open files")),
        processes=_number(soft.get("processes")),
        memory_bytes=_least_memory(groups, total_bytes),
        memory_total_bytes=total_bytes,
        cpus_quota=_least_cpus(groups),
        cpus_allowed=frozenset(os.sched_getaffinity(0)),
        has_infiniband=any((root / "sys/class/infiniband").glob("*")),
    )


def _file_system(path: Path) -> tuple[int, int] | None:
    """Size and free bytes of a mounted file system."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _groups(root: Path) -> Iterator[Path]:
    """Folders of this process's control groups and of those above them, in the first and the second version."""
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        base = root / "sys/fs/cgroup"
        names = [name for name in controllers.split(",") if name in {"memory", "cpu"}]
        for folder in [base / name for name in names] if controllers else [base]:
            below = folder / path.lstrip("/")
            yield from (each for each in (below, *below.parents) if each.is_relative_to(folder))


def _least_memory(groups: list[Path], total: int | None) -> int | None:
    """The tightest limit; one that is not below the machine's own memory is none."""
    texts = (read_text(group / name) for group in groups for name in ("memory.max", "memory.limit_in_bytes"))
    found = [int(text) for text in texts if text.strip().isdecimal()]
    least = min(found, default=None)
    return None if least is None or (total is not None and least >= total) else least


def _least_cpus(groups: list[Path]) -> float | None:
    quotas = []
    for group in groups:
        quota, _, period = read_text(group / "cpu.max").strip().partition(" ")
        if not quota:
            quota, period = (read_text(group / f"cpu.cfs_{each}_us").strip() for each in ("quota", "period"))
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
