"""Who uses a GPU: the user, the program, the number of its ranks, other users, and since when the GPU is idle."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpumon.core.device_use import IdleSince, is_free
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
        user: Login name of the owner of the largest process; empty if no process is known.
        program: Short name of its program; for a GPU without a process, what stands in its place, such as ``free``.
        ranks: Number of processes on this host with the same user and command line.
        others: Number of processes of other users on the GPU.
        idle: For how long the GPU has had no work.
        is_free: Whether no process computes on the GPU; the graphics of a desktop do not count.
    """

    user: str = ""
    program: str = MISSING
    ranks: int = 1
    others: int = 0
    idle: IdleDuration = IdleDuration()
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


def owner_of(device: Device, jobs: Jobs, idle: IdleDuration, instances: int = 0) -> DeviceOwner:
    """Who uses a GPU or a MIG instance.

    Args:
        device: The device.
        jobs: The processes of the host, by `jobs_of`.
        idle: For how long the device has had no work.
        instances: Number of MIG instances of the device.
    """
    if instances:
        return DeviceOwner(program=f"MIG ×{instances}")
    if device.state is not DeviceState.OK or device.processes is None:
        return DeviceOwner()
    if not device.processes:
        return DeviceOwner(program="free" if is_free(device) else "unattributed", idle=idle, is_free=is_free(device))
    main = max(device.processes, key=_importance)
    others = sum(process.user != main.user for process in device.processes)
    program = f"PID {main.pid}" if main.command is None else program_name(main.command)
    ranks = 1 if main.command is None else jobs.get((main.user, main.command), 1)
    return DeviceOwner(main.user or MISSING, program, ranks, others, idle, is_free(device))


def _importance(process: Process) -> tuple[bool, int, int]:
    """Compute before graphics, then the memory, then the PID, so that equal processes do not take turns."""
    return process.computes, process.memory_bytes or 0, -process.pid
