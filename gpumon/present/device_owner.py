"""Who uses a GPU: the user, the program, the number of its ranks, other users, and since when the GPU is idle."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpumon.core.device_use import IdleSince, is_unattributed, is_utilized
from gpumon.core.groups import grouped
from gpumon.core.model import Device, DeviceState, Process
from gpumon.core.units import MISSING, duration_text
from gpumon.operations.program_name import program_name

MIN_IDLE_SECONDS: Final = 60.0
"""A shorter pause is a step of the program, not an idle GPU."""


class IdleDuration(NamedTuple):
    """For how long a GPU has had no work.

    Attributes:
        seconds: The time; 0 while the GPU works, and where nothing is known.
        is_at_least: Whether the history does not reach back to the last work.
    """

    seconds: float = 0.0
    is_at_least: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether the time is long enough to call the GPU idle."""
        return self.seconds >= MIN_IDLE_SECONDS

    @property
    def text(self) -> str:
        """The time, coarse: ``41m``, ``>5m``; empty while the GPU is not idle."""
        return f"{'>' if self.is_at_least else ''}{duration_text(self.seconds)}" if self.is_idle else ""


class DeviceOwner(NamedTuple):
    """Who uses a GPU.

    Attributes:
        user: Login name of the owner of the largest program; empty if no process is known.
        program: Short name of that program; for a GPU without a process, what stands in its place, such as ``free``.
        ranks: Number of processes on this host with the same user and command line.
        memory_bytes: Memory of the program on this GPU; None if unknown.
        more: Number of other programs of that user on this GPU.
        others: The largest program of each other user: the user and the name.
        idle: For how long the GPU has had no work.
        held_bytes: Memory in use on the GPU.
        is_free: Whether the GPU is free.
    """

    user: str = ""
    program: str = MISSING
    ranks: int = 1
    memory_bytes: float | None = None
    more: int = 0
    others: tuple[tuple[str, str], ...] = ()
    idle: IdleDuration = IdleDuration()
    held_bytes: float | None = None
    is_free: bool = False


Jobs = Mapping[tuple[str | None, str | None], int]
"""Number of processes by user and command line."""


def idle_duration(since: IdleSince | None, now_seconds: float) -> IdleDuration:
    """For how long a GPU has been idle.

    Args:
        since: The beginning of the idle time, or None for a GPU that works.
        now_seconds: The moment that is shown, on the same clock.
    """
    if since is None:
        return IdleDuration()
    return IdleDuration(max(0.0, now_seconds - since.seconds), since.is_at_least)


def jobs_of(devices: Iterable[Device]) -> Jobs:
    """The processes of the host by user and command line: the ranks of a job have both in common."""
    processes = {process.pid: process for device in devices for process in device.processes or ()}
    return Counter((process.user, process.command) for process in processes.values())


def owner_of(
    device: Device, jobs: Jobs, idle: IdleDuration, instances: int = 0, *, is_free: bool = False
) -> DeviceOwner:
    """Who uses a GPU or a MIG instance.

    Args:
        device: The device.
        jobs: The processes of the host, by `jobs_of`.
        idle: For how long the device has had no work.
        instances: Number of MIG instances of the device.
        is_free: Whether the device is free.
    """
    if instances:
        return DeviceOwner(program=f"MIG ×{instances}")
    if device.state is not DeviceState.OK or device.processes is None:
        return DeviceOwner()
    held = device.get("memory_used_bytes")
    if not device.processes:
        return DeviceOwner(program=_without_process(device, is_free), idle=idle, held_bytes=held, is_free=is_free)
    processes = sorted(device.processes, key=_importance, reverse=True)
    by_program = grouped(((process.user, _program(process)), process) for process in processes)
    (user, program), members = next(iter(by_program.items()))
    others = {owner: name for owner, name in reversed(by_program) if owner != user}
    memory = [process.memory_bytes for process in members if process.memory_bytes is not None]
    return DeviceOwner(
        user or MISSING,
        program,
        1 if members[0].command is None else jobs.get((user, members[0].command), 1),
        sum(memory) if memory else None,
        sum(owner == user for owner, _ in by_program) - 1,
        tuple((owner or MISSING, name) for owner, name in reversed(others.items())),
        idle,
        held,
        is_free,
    )


def _without_process(device: Device, is_free: bool) -> str:
    """What stands in the place of a program."""
    if is_free:
        return "free"
    if is_utilized(device):
        return "in use (process not visible)"
    return "unattributed" if is_unattributed(device) else "just ended"


def _program(process: Process) -> str:
    name = f"PID {process.pid}" if process.command is None else program_name(process.command)
    return f"zombie {process.pid}" if process.is_zombie else name


def _importance(process: Process) -> tuple[bool, bool, int, int]:
    """Living and computing processes first, by memory, then the PID, so that equal processes do not take turns."""
    return not process.is_zombie, process.computes, process.memory_bytes or 0, -process.pid
