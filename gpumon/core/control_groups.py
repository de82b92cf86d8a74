"""The control groups of a process, versions 1 and 2: their folders, and the CPU quota that they set."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_MAX_BYTES: Final = 16 << 10


def read_groups(folder: Path) -> str:
    """The file ``cgroup`` of a process; empty if it has ended, or if the kernel has no control groups.

    Args:
        folder: Its folder, such as ``/proc/7``.
    """
    return _text(folder / "cgroup")


def control_groups(folder: Path, root: Path = Path("/sys/fs/cgroup")) -> Iterator[Path]:
    """The folders of the control groups for memory and CPU of a process, each followed by its ancestors.

    Args:
        folder: The folder of the process in /proc.
        root: Where the control groups are.
    """
    for line in read_groups(folder).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        names = [name for name in controllers.split(",") if name in {"memory", "cpu"}]
        for base in [root / name for name in names] if controllers else [root]:
            below = base / path.lstrip("/")
            yield from (group for group in (below, *below.parents) if group.is_relative_to(base))


def cpu_quota(group: Path) -> float | None:
    """The CPU quota of a control group in cores; None without one.

    Args:
        group: Its folder.
    """
    quota, _, period = _text(group / "cpu.max").strip().partition(" ")
    if not quota:
        quota, period = (_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _text(path: Path) -> str:
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError, ProcessLookupError), path.open("rb") as file:
        return file.read(_MAX_BYTES).decode("utf-8", "replace")
    return ""
