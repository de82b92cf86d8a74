"""How a training run was started, so that it can be started again."""

from pathlib import Path
from typing import Final

from gpumon.core.procfs import read_small
from gpumon.distributed.process_facts import ProcessFactsCache
from gpumon.insight.bottlenecks.try_line import StartCommand
from gpumon.operations.doctor.redaction import without_secrets

_MAX_LENGTH: Final = 600


def start_command(pid: int, world_size: int | None) -> StartCommand | None:
    """The command line of a process, of a rank that of its launcher; None if it is unknown, long, or has a secret.

    Args:
        pid: The process.
        world_size: Number of processes of its job; None without a job.
    """
    if (world_size or 1) > 1:
        processes = ProcessFactsCache()
        processes.refresh((pid,))
        launchers = [ancestor.pid for ancestor in processes.ancestors(pid) if ancestor.launcher]
        if not launchers:
            return None
        pid = launchers[0]
    folder = Path("/proc", str(pid))
    try:
        raw, place = read_small(f"{folder}/cmdline"), str((folder / "cwd").readlink())
    except OSError:
        return None
    text = raw.rstrip(b"\0").decode(errors="replace")
    words = text.split("\0")
    shown = " ".join(words)
    if not text or len(text) > _MAX_LENGTH or not shown.isprintable() or without_secrets(shown) != shown:
        return None
    return StartCommand(tuple(words), "" if place == str(Path.cwd()) else place)
