"""Processes as a test sees them: a tree, its threads, and whatever of it is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpumon.collect.processes import INITIAL_PID_NAMESPACE
from gpumon.core.procfs import find_stat, read_stat

PROC = Path("/proc")
IS_INITIAL = str((PROC / "self/ns/pid").readlink()) == INITIAL_PID_NAMESPACE
"""Whether the PIDs of the driver are those of this process: in a container nothing proves it."""


def sleeper(environment: dict[str, str] | None = None, folder: Path | None = None) -> "subprocess.Popen[bytes]":
    """A Python that sleeps for a minute; /proc shows its environment already."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environment, cwd=folder)
    while not (PROC / str(child.pid) / "environ").read_bytes():
        time.sleep(0.01)
    return child


@contextmanager
def started_programs() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts programs, which end with the test; each has said its first line, ``on``, when it is returned."""
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str, env: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def start_ticks(pid: int) -> int:
    """Start time of a process in clock ticks since boot."""
    return read_stat(PROC / str(pid)).start_ticks


def tree(pid: int) -> list[int]:
    """A process and all its descendants, including those in other sessions."""
    result, todo = [], [pid]
    while todo:
        parent = todo.pop()
        result.append(parent)
        try:
            for task in (PROC / str(parent) / "task").iterdir():
                todo += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
    return result


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    return state(pid) not in {None, "Z", "X"}


def state(pid: int) -> str | None:
    """The one letter of /proc for a process, or None without one."""
    stat = find_stat(PROC / str(pid))
    return None if stat is None else stat.state


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU seconds of all threads of some processes."""
    tasks = [task for pid in pids for task in (PROC / str(pid) / "task").glob("*/schedstat")]
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def threads(pid: int) -> int:
    """Number of threads."""
    return len(list((PROC / str(pid) / "task").iterdir()))


def eventually(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Waits for something to become true; returns whether it did."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_gone(pid: int, seconds: float) -> bool:
    """Waits for the end of a process that need not be a child; returns whether it came."""
    return eventually(lambda: not is_running(pid), seconds)


def kill(pid: int) -> None:
    """Kills a process that may be gone already."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_marked(variable: str, value: str) -> None:
    """Kills every process that was started with ``variable`` set to ``value``, whoever its parent is now."""
    wanted = f"{variable}={value}".encode()
    for folder in PROC.glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                kill(int(folder.name))
        except OSError:
            continue
