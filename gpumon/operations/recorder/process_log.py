"""A log of the processes that use GPUs: when each began and ended, and what it did with its GPUs meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpumon.core.device_use import IDLE_PERCENT, NO_WORK_PERCENT
from gpumon.core.json_fields import Json
from gpumon.core.model import DeviceState, ProcessKind

_MAX_GAP_SECONDS: Final = 120.0
"""A longer time between two frames was not measured."""


@dataclass(slots=True)
class GpuTime:
    """What a process did on one GPU.

    Attributes:
        uuid: The GPU.
        label: NVML's index.
        begin_seconds: Unix time at which the process was first seen on it.
        seconds: How long it was on it, as far as that was measured.
        busy_seconds: The part in which a kernel or a copy ran on the GPU, of any process.
        sm_seconds: The part in which multiprocessors were busy, of the time in ``sm_measured_seconds``.
        sm_measured_seconds: The time in which SM activity was measured.
        idle_seconds: The time in which the GPU did nothing.
        peak_bytes: Most memory of the process on it.
        total_bytes: Memory of the GPU.
    """

    uuid: str
    label: str = ""
    begin_seconds: float = 0.0
    seconds: float = 0.0
    busy_seconds: float = 0.0
    sm_seconds: float = 0.0
    sm_measured_seconds: float = 0.0
    idle_seconds: float = 0.0
    peak_bytes: float = 0.0
    total_bytes: float = 0.0


@dataclass(slots=True)
class LoggedProcess:
    """A process that used GPUs.

    Attributes:
        pid: Its PID.
        start_ticks: Start time in clock ticks since boot; 0 if unknown.
        user: Login name; empty if unknown.
        command: Command line.
        begin_seconds: Unix time at which it was first seen on a GPU.
        end_seconds: Unix time at which it was last seen on one.
        gpus: What it did on each.
        job: Job of a scheduler or pod of Kubernetes, such as ``slurm 4711.0``; empty for none.
        training_job: What the ranks of its training job have in common; empty for none.
        rank: Its rank.
        how: How it ended, such as ``exit 0``, ``SIGKILL`` or ``ended``; empty while it runs.
    """

    pid: int
    start_ticks: int = 0
    user: str = ""
    command: str = ""
    begin_seconds: float = 0.0
    end_seconds: float = 0.0
    gpus: tuple[GpuTime, ...] = ()
    job: str = ""
    training_job: str = ""
    rank: int | None = None
    how: str = ""


class ProcessLog:
    """Follows the processes of one host.

    Args:
        how: Returns how a process ended, or None while that may still become known.
    """

    def __init__(self, how: Callable[[LoggedProcess, float], str | None]) -> None:
        self.running: dict[int, LoggedProcess] = {}
        self._how = how
        self._gone: dict[int, LoggedProcess] = {}
        self._last: float | None = None

    def observe(self, document: Json) -> Iterator[LoggedProcess]:
        """Add the document of a frame; yields the processes that began with it, and those that have ended."""
        now, monotonic = document["time_seconds"], document["monotonic_seconds"]
        passed = 0.0 if self._last is None else monotonic - self._last
        self._last = monotonic
        seconds = passed if 0.0 < passed <= _MAX_GAP_SECONDS else 0.0
        seen: set[int] = set()
        for device in document["devices"]:
            key = device.get("uuid") or f"index:{device['index']}"
            if device.get("processes") is None or device["state"] != DeviceState.OK.value:
                seen |= {process.pid for process in self.running.values() if any(g.uuid == key for g in process.gpus)}
                continue
            used = _gpu_time(device, key, now, seconds)
            for raw in device["processes"]:
                if raw["kinds"] != [ProcessKind.GRAPHICS.value]:
                    seen.add(raw["pid"])
                    yield from self._add(raw, used, now)
        for pid in self.running.keys() - seen:
            self._gone[pid] = self.running.pop(pid)
        yield from self._ended(now)

    def resume(self, processes: Sequence[LoggedProcess]) -> None:
        """Continue with the processes that an earlier recorder has left."""
        self.running = {process.pid: process for process in processes}

    def _add(self, raw: Json, used: GpuTime, now: float) -> Iterator[LoggedProcess]:
        """Add to a process in place, since each second does it for every process, what its GPU did meanwhile."""
        pid, ticks = raw["pid"], raw.get("start_ticks") or 0
        process = self.running.get(pid) or self._gone.pop(pid, None)
        if process is not None and process.start_ticks and ticks and process.start_ticks != ticks:
            self._gone[pid] = process
            yield from self._ended(now, is_replaced=pid)
            process = None
        is_new = process is None
        if process is None:
            process = LoggedProcess(pid, begin_seconds=now)
        gpu = next((gpu for gpu in process.gpus if gpu.uuid == used.uuid), None)
        if gpu is None:
            gpu = GpuTime(used.uuid, used.label, now)
            process.gpus += (gpu,)
        else:
            gpu.seconds += used.seconds
            gpu.busy_seconds += used.busy_seconds
            gpu.sm_seconds += used.sm_seconds
            gpu.sm_measured_seconds += used.sm_measured_seconds
            gpu.idle_seconds += used.idle_seconds
        gpu.peak_bytes = max(gpu.peak_bytes, raw.get("memory_bytes") or 0)
        gpu.total_bytes = used.total_bytes or gpu.total_bytes
        process.start_ticks = ticks or process.start_ticks
        process.user = raw.get("user") or process.user
        process.command = raw.get("command") or process.command
        process.end_seconds = now
        self.running[pid] = process
        if is_new:
            yield process

    def _ended(self, now: float, is_replaced: int | None = None) -> Iterator[LoggedProcess]:
        for pid, process in list(self._gone.items()):
            how = self._how(process, now - process.end_seconds)
            if how is not None or pid == is_replaced:
                del self._gone[pid]
                yield replace(process, how=how or "ended")


def _gpu_time(device: Json, key: str, now: float, seconds: float) -> GpuTime:
    """What a GPU did in the time since the frame before."""
    utilization, activity = device.get("utilization_gpu_percent"), device.get("sm_activity_percent")
    is_idle = utilization is not None and utilization < IDLE_PERCENT and (activity or 0.0) < NO_WORK_PERCENT
    return GpuTime(
        key,
        str(device["index"]),
        now,
        seconds,
        busy_seconds=seconds * (utilization or 0.0) / 100,
        sm_seconds=seconds * (activity or 0.0) / 100,
        sm_measured_seconds=0.0 if activity is None else seconds,
        idle_seconds=seconds if is_idle else 0.0,
        total_bytes=device.get("memory_total_bytes") or 0.0,
    )
