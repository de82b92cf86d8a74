"""Chooses GPUs for a program that is about to start: free ones first, then by NVLink, then by free memory."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Final, NamedTuple

from gpumon.core.device_use import FreeCheck, IdleTime, computing_processes, is_idle, is_unattributed, is_utilized
from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.topology import PathLevel, Topology
from gpumon.core.units import bytes_text, duration_text
from gpumon.operations.device_selection import is_split, select_devices, with_instances
from gpumon.operations.one_shot import live_frames
from gpumon.operations.pick_reservations import ProcessStart, Reservation, locked_reservations, reserve
from gpumon.operations.topology import read_topology

_INTERVAL_SECONDS: Final = 0.5
"""Between frames while GPUs are picked."""
_MAX_COMBINATIONS: Final = 20_000
_MAX_NAMED: Final = 3
"""Processes of one GPU that a sentence names."""
_NVLINK_WEIGHT: Final = 10


class PickRequest(NamedTuple):
    """What a program needs.

    Attributes:
        number: Number of GPUs.
        free_bytes: Free memory that each needs. Other processes may then use the GPU too; None excludes such GPUs.
        idle_seconds: A GPU whose processes have not computed for this long counts as free; None for no such GPU.
        devices: Devices to choose from, as `select_devices` reads them.
        owner: The process for which the GPUs are reserved.
    """

    number: int
    free_bytes: float | None
    idle_seconds: float | None
    devices: str
    owner: ProcessStart


class PickedDevices(NamedTuple):
    """GPUs that were picked, and are reserved.

    Attributes:
        devices: The GPUs, or MIG instances, by index.
        pid: The process for which they are reserved.
    """

    devices: tuple[Device, ...]
    pid: int

    @property
    def visible_devices(self) -> str:
        """The value of ``CUDA_VISIBLE_DEVICES``: their UUIDs, separated by commas."""
        return ",".join(device.uuid or "" for device in self.devices)


class PickCandidate(NamedTuple):
    """A device, and why it cannot be picked now; the reason is empty if it can."""

    device: Device
    refusal: str
    is_free: bool

    @property
    def free_bytes(self) -> float:
        """Free memory."""
        return self.device.get("memory_free_bytes") or 0.0


class Picker:
    """Picks as soon as enough GPUs fit.

    The topology is read once, and only if the choice depends on it.
    """

    def __init__(self, request: PickRequest, read_topology: Callable[[], Topology]) -> None:
        self._request = request
        self._read_topology = read_topology
        self._topology: Topology | None = None
        self._idle: dict[str, IdleTime] = {}
        self._free: dict[str, FreeCheck] = {}

    def pick(self, frame: Frame) -> tuple[Device, ...]:
        """The picked devices, which are now reserved.

        Raises:
            CommandError: Too few devices fit; the reason names who holds them.
        """
        chosen = select_devices(self._request.devices, frame.devices)
        devices = with_instances(chosen, frame.devices)
        for device in frame.devices:
            self._free.setdefault(device.key, FreeCheck()).add(device)
        for device in devices:
            self._idle.setdefault(device.key, IdleTime()).add(
                frame.monotonic_seconds, is_idle(device), 3 * frame.interval_seconds
            )
        fitting = [item for item in self._candidates(devices, (), frame) if not item.refusal]
        if self._request.number > 1 and len(fitting) > self._request.number and self._topology is None:
            self._topology = self._topology_or_empty()  # before the lock, because it takes a moment
        with locked_reservations(frame.devices) as reservations:
            candidates = list(self._candidates(devices, reservations, frame))
            fitting = [item for item in candidates if not item.refusal]
            if len(fitting) < self._request.number:
                raise CommandError(_none_fits(self._request, candidates, len(fitting)), ExitCode.BAD_VERDICT)
            picked = best_set(fitting, self._request.number, self._topology or Topology())
            reservations += [reserve(device.uuid or "", self._request.owner) for device in picked]
        return picked

    def _topology_or_empty(self) -> Topology:
        """The topology; without it the choice is worse, but possible."""
        try:
            return self._read_topology()
        except CommandError:
            return Topology()

    def _candidates(
        self, devices: Iterable[Device], reservations: Sequence[Reservation], frame: Frame
    ) -> Iterator[PickCandidate]:
        owners = {item.uuid: item.owner for item in reservations}
        for device in devices:
            refusal, is_free = self._refusal(device, owners, frame.monotonic_seconds)
            yield PickCandidate(device, refusal, is_free)

    def _refusal(self, device: Device, owners: Mapping[str, ProcessStart], now: float) -> tuple[str, bool]:
        """Why a device cannot be picked, and whether no process uses it."""
        never = _why_never(device, self._request.number)
        if never:
            return never, False
        owner = owners.get(device.uuid or "")
        if owner is not None:
            return f"is reserved for PID {owner.pid} by gpumon pick", False
        is_free = self._free[device.key].is_free
        needed = self._request.free_bytes
        if needed is not None:
            free = device.get("memory_free_bytes")
            if free is not None and free >= needed:
                return "", is_free
            return f"has {bytes_text(free)} free, the rest is held{_held_by(device)}", False
        return ("", True) if is_free else (self._why_busy(device, now), False)

    def _why_busy(self, device: Device, now: float) -> str:
        """Why a device that processes use cannot be picked; empty if they have been idle for long enough."""
        if self._request.idle_seconds is None:
            return f"is in use{_held_by(device)}"
        since = self._idle[device.key].since if device.key in self._idle else None
        seconds = 0.0 if since is None else now - since.seconds
        if seconds >= self._request.idle_seconds:
            return ""
        return f"is in use{_held_by(device)}, idle for {duration_text(seconds)}"


def _why_never(device: Device, number: int) -> str:
    """Why a device cannot be picked whatever runs on it; empty if it can."""
    if device.state is not DeviceState.OK:
        return f"is {device.state.value}"
    if device.uuid is None:
        return "has no known UUID"
    if is_split(device):
        return "is split by MIG and has no instance"
    if device.instance is not None and number > 1:
        return "is a MIG instance, of which CUDA uses only one"
    return ""


def best_set(candidates: Sequence[PickCandidate], count: int, topology: Topology) -> tuple[Device, ...]:
    """The best devices: the most free ones, then the best connected ones, then those with the most free memory."""
    ranked = sorted(candidates, key=lambda item: (not item.is_free, -item.free_bytes, item.device.index))
    while comb(len(ranked), count) > _MAX_COMBINATIONS:
        ranked.pop()
    best = max(combinations(ranked, count), key=lambda chosen: _score(chosen, topology))
    return tuple(sorted((item.device for item in best), key=lambda device: device.index))


def _score(chosen: Sequence[PickCandidate], topology: Topology) -> tuple[float, ...]:
    weights = [_weight(topology, one.device.index, other.device.index) for one, other in combinations(chosen, 2)]
    return (
        sum(item.is_free for item in chosen),
        min(weights, default=0),
        sum(weights),
        sum(item.free_bytes for item in chosen),
    )


def _weight(topology: Topology, one: int, other: int) -> int:
    """How well two GPUs are connected."""
    pair = topology.pair(one, other)
    if pair.nvlinks:
        return _NVLINK_WEIGHT * pair.nvlinks
    return 0 if pair.level is None else PathLevel.SYS.distance - pair.level.distance


def _held_by(device: Device) -> str:
    """Who holds the memory of a device, as the end of a clause."""
    users = sorted(computing_processes(device), key=lambda process: -(process.memory_bytes or 0))
    if not users:
        held = device.get("memory_unattributed_bytes") or 0
        if is_unattributed(device):
            return f": {bytes_text(held)} by no visible process"
        return " by a process that is not visible here" if is_utilized(device) else ", or was in use a moment ago"
    texts = [
        f"{process.user or 'unknown user'} (PID {process.pid}, {bytes_text(process.memory_bytes)})"
        for process in users[:_MAX_NAMED]
    ]
    more = len(users) - len(texts)
    return f" by {', '.join(texts)}{f' and {more} more' if more else ''}"


def _none_fits(request: PickRequest, candidates: Sequence[PickCandidate], fitting: int) -> Problem:
    noun = "GPU" if request.number == 1 else "GPUs"
    reasons = "; ".join(f"GPU {item.device.label} {item.refusal}" for item in candidates if item.refusal)
    number = "No GPU fits" if not fitting else f"Only {fitting} of {request.number} {noun} fit"
    if not reasons:
        reasons = f"{len(candidates)} can be chosen"
    is_busy = any(item.refusal.startswith("is in use") for item in candidates)
    remedy = "With --free-memory 20G, GPUs in use are chosen too; --wait waits." if is_busy else ""
    return Problem(ProblemCode.NO_DEVICES, f"{number}: {reasons}.", remedy)


def pick_from(frames: Iterator[Frame], picker: Picker, deadline: float | None) -> tuple[Device, ...]:
    """Pick from the first frame in which enough devices fit.

    The deadline is in monotonic seconds; None for never.

    Raises:
        CommandError: Too few devices fit at the deadline, or the driver is missing.
    """
    for frame in frames:
        problem = frame.problems.get("driver")
        if problem is not None and not frame.devices:
            raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)
        try:
            return picker.pick(frame)
        except CommandError as error:
            is_final = error.exit_code is not ExitCode.BAD_VERDICT
            if is_final or (deadline is not None and time.monotonic() >= deadline - frame.interval_seconds):
                raise
    raise CommandError.failure(ProblemCode.NO_DEVICES, "No GPU fits in time.")


def pick_devices(
    count: int,
    *,
    devices: str,
    free_bytes: float | None,
    idle_seconds: float | None,
    wait_seconds: float | None,
    pid: int,
) -> PickedDevices:
    """Pick GPUs of this host as soon as enough fit, and reserve them.

    Args:
        count: Number of GPUs.
        devices: Devices to choose from, as `select_devices` reads them.
        free_bytes: Free memory that each needs; see `PickRequest`.
        idle_seconds: When a GPU that is used counts as free; see `PickRequest`.
        wait_seconds: How long to wait; None: without end. If it is 0 and idle GPUs count, they are watched that long.
        pid: The process for which they are reserved.

    Raises:
        CommandError: Too few devices fit in time, there is no driver, or there is no such process.
    """
    owner = ProcessStart.of(pid)
    if owner is None:
        raise CommandError.usage(ProblemCode.NOT_FOUND, f"There is no process {pid}.")
    if wait_seconds == 0 and idle_seconds is not None:
        wait_seconds = idle_seconds + 2 * _INTERVAL_SECONDS
    deadline = None if wait_seconds is None else time.monotonic() + wait_seconds
    picker = Picker(PickRequest(count, free_bytes, idle_seconds, devices, owner), read_topology)
    with live_frames(_INTERVAL_SECONDS) as source:
        return PickedDevices(pick_from(source.frames(), picker, deadline), owner.pid)
