"""The process that ends a workload and all its children when gpumon dies.

PR_SET_PDEATHSIG would follow the thread of gpumon that started the workload, and a thread of the workload may be
blocked in a CUDA call. Therefore a process that is forked before torch is imported polls the control pipe, which
hangs up when gpumon exits for any reason. A second pipe hangs up when the workload itself exits; the guard then kills
its children.

Children that started a session are in another process group, and no longer descendants once their parent has exited.
The guard recognizes them by an environment variable that gpumon sets for this run and that every child inherits. Only
a child that was started without the environment and in another session is not found.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

MARK = "GPUMON_WORKLOAD_RUN"
"""The environment variable that all processes of one run have."""
_GRACE_MILLISECONDS = 3000
"""After the workload has exited, gpumon gets this long to end the process group itself."""


def start_guard(control: int) -> None:
    """Forks the guard. The caller must lead its process group and have no other thread yet.

    Args:
        control: Read end of the control pipe; the guard only polls it for a hang-up.
    """
    alive, held = os.pipe()
    group = os.getpgrp()
    if os.fork():
        os.close(alive)
        os.set_inheritable(held, False)
        return  # `held` stays open until this process exits, and no other process has it
    with suppress(BaseException):
        _watch(control, alive, group)
    os._exit(0)


def _watch(control: int, alive: int, group: int) -> None:
    os.setsid()  # gpumon kills the process group of the workload, and the guard must outlive it
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    keep = {control, alive}
    # The guard must not keep pipes of the workload open.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - only the names are needed
        if int(name) not in keep:
            with suppress(OSError):
                os.close(int(name))
    poll = select.poll()
    poll.register(control, 0)
    poll.register(alive, 0)
    ended = {descriptor for descriptor, _ in poll.poll()}
    if ended == {alive}:
        poll.unregister(alive)
        ended |= {descriptor for descriptor, _ in poll.poll(_GRACE_MILLISECONDS)}
    if ended != {control, alive}:  # the workload runs, or its exit code was not read: its group id is not reused
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    if MARK in os.environ:
        _kill_marked(f"{MARK}={os.environ[MARK]}".encode())


def _kill_marked(mark: bytes) -> None:
    """Kills every other process whose environment has a variable, until no new one is found."""
    done = {os.getpid()}
    while True:
        pids = {int(name) for name in os.listdir("/proc") if name.isdecimal()} - done  # noqa: PTH208
        marked = {pid for pid in pids if mark in _environment(pid)}
        for pid in marked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not marked:
            return
        done |= marked


def _environment(pid: int) -> list[bytes]:
    """The environment with which a process was started; empty if it has ended or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
