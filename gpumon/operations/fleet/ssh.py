"""A few hosts through ssh as a fleet: the newest frame of each host, and the snapshot of all of them."""

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isnan, nan
from pathlib import Path
from typing import Final

from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.core.source_file import open_input
from gpumon.fleet.model import BUSIEST, IDLE_SECONDS, FleetSnapshot
from gpumon.fleet.settings import HostsSettings
from gpumon.fleet.slurm import expand_hosts
from gpumon.operations.fleet.report import HostFrame, frames_snapshot
from gpumon.streams.base import FrameInbox, Stream
from gpumon.streams.remote.stream import RemoteStream

MAX_HOSTS: Final = 64
_MAX_HOSTS_BYTES: Final = 1 << 20
READ_SECONDS: Final = 15.0
"""How long `read_hosts` waits for a host: ssh itself gives up after 10 s."""
_HOST: Final = re.compile(r"(?:[\w.+-]{1,64}@)?[\w.:\[\]-]{1,255}", re.ASCII)
_TICK_SECONDS: Final = 0.5
_CLOSE_SECONDS: Final = 0.45
_RECENT_FRAMES: Final = 120
"""Frames of a host with which the charts of an opened host start."""
_ALL_RECENT_FRAMES: Final = 600
"""Of all hosts together: each takes some memory."""
NO_FRAME: Final = Problem(ProblemCode.NOT_READ, "No frame has arrived yet.")
_OLD_SECONDS: Final = 30.0
"""A host whose newest frame is older than this reports nothing."""


@dataclass
class _HostState:
    """What is known about a host."""

    name: str
    stream: Stream
    frame: Frame | None = None
    arrived_monotonic: float = 0.0
    recent: "deque[Frame]" = field(default_factory=deque)
    followers: "list[HostStream]" = field(default_factory=list)


class SshFleet:
    """Follows hosts, and makes a snapshot at an interval.

    Attributes:
        snapshot: The newest snapshot, or None before the first.
        problem: Always None: what is wrong with a host is part of the snapshot.
    """

    def __init__(self, settings: HostsSettings, make: Callable[[str, float], Stream] = RemoteStream) -> None:
        self.snapshot: FleetSnapshot | None = None
        self.problem: Problem | None = None
        self._interval = settings.interval_seconds
        recent = min(_RECENT_FRAMES, _ALL_RECENT_FRAMES // max(1, len(settings.hosts)))
        self._hosts = {
            host: _HostState(host, make(host, self._interval), recent=deque(maxlen=recent)) for host in settings.hosts
        }
        self._busy: dict[str, _BusyHistory] = {}
        self._ring: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        """Held while frames are handed over."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpumon-hosts", daemon=True)

    def on_change(self, ring: Callable[[], None]) -> None:
        """Set what is called, in another thread, after every snapshot."""
        self._ring = ring

    def start(self) -> None:
        """Connect to every host."""
        for host in self._hosts.values():
            host.stream.start()
        self._thread.start()

    def close(self) -> None:
        """Disconnect from all hosts at once: one whose ssh does not react must not delay the others."""
        self._closing.set()
        closers = [threading.Thread(target=host.stream.close, daemon=True) for host in self._hosts.values()]
        deadline = time.monotonic() + _CLOSE_SECONDS
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(max(0.0, deadline - time.monotonic()))

    def refresh(self) -> None:
        """Connect again at once where a connection has failed; frames arrive by themselves."""
        for host in self._hosts.values():
            if isinstance(host.stream, RemoteStream):
                host.stream.connect_now()

    def follow(self, host: str) -> "HostStream | None":
        """A stream of the frames of a host that has sent one."""
        state = self._hosts.get(host)
        return None if state is None or state.frame is None else HostStream(self, host)

    def attach(self, stream: "HostStream") -> None:
        """Hand the frames of a host to a stream from now on, the last minutes first."""
        state = self._hosts[stream.title]
        with self._lock:
            state.followers.append(stream)
            stream.inbox.put(*state.recent)

    def detach(self, stream: "HostStream") -> None:
        """Hand it no more frames."""
        with self._lock, suppress(ValueError):
            self._hosts[stream.title].followers.remove(stream)

    def host_problem(self, host: str) -> Problem | None:
        """Why a host sends no frames now, or None."""
        return self._hosts[host].stream.problem

    def _run(self) -> None:
        while not self._closing.is_set():
            self.snapshot = self._collect(time.monotonic())
            self._ring()
            self._closing.wait(max(_TICK_SECONDS, self._interval))

    def _collect(self, now: float) -> FleetSnapshot:
        problems = {}
        shown = []
        for host in self._hosts.values():
            self._take_frames(host, now)
            age = now - host.arrived_monotonic
            problem = host.stream.problem
            if host.frame is None or age > _OLD_SECONDS:
                problems[host.name] = problem or NO_FRAME
                continue
            problem = problem or host.frame.problems.get("driver")
            if problem is not None:
                problems[host.name] = problem
            shown.append(HostFrame(host.name, host.frame, age))
        snapshot = frames_snapshot(shown, problems)
        utilization, busiest = snapshot.values["utilization_gpu_percent"], snapshot.values[BUSIEST]
        for position, gpu in enumerate(snapshot.gpus):
            history = self._busy.setdefault(f"{gpu.host}/{gpu.uuid}/{gpu.label}", _BusyHistory())
            busiest[position] = history.add(now, utilization[position])
        return snapshot

    def _take_frames(self, host: _HostState, now: float) -> None:
        frames = [arrival for arrival in host.stream.inbox.drain() if isinstance(arrival, Frame)]
        if not frames:
            return
        host.frame, host.arrived_monotonic = frames[-1], now
        with self._lock:
            host.recent.extend(frames)
            for follower in host.followers:
                follower.inbox.put(*frames)


class HostStream:
    """The frames of one host of a fleet, which arrive over the connection of the fleet."""

    def __init__(self, fleet: SshFleet, host: str) -> None:
        self.title = host
        self.inbox = FrameInbox()
        self._fleet = fleet

    @property
    def problem(self) -> Problem | None:
        """Why there are no frames now, or None."""
        return self._fleet.host_problem(self.title)

    def start(self) -> None:
        """Start receiving frames."""
        self._fleet.attach(self)

    def close(self) -> None:
        """Stop receiving frames; the connection stays."""
        self._fleet.detach(self)


def read_hosts(
    settings: HostsSettings, wait_seconds: float = READ_SECONDS, make: Callable[[str, float], Stream] = RemoteStream
) -> FleetSnapshot:
    """The first frame of every host, or why there is none."""
    fleet = SshFleet(settings, make)
    changed = threading.Event()
    fleet.on_change(changed.set)
    fleet.start()
    try:
        deadline = time.monotonic() + wait_seconds
        while True:
            changed.wait(max(0.0, deadline - time.monotonic()))
            changed.clear()
            snapshot, is_late = fleet.snapshot, time.monotonic() >= deadline
            waiting = (
                []
                if snapshot is None
                else [host for host, problem in snapshot.host_problems.items() if problem is NO_FRAME]
            )
            if snapshot is not None and (is_late or not waiting):
                late = Problem(ProblemCode.UNRESPONSIVE, f"The host sent nothing within {wait_seconds:g} s.")
                return replace(snapshot, host_problems={**snapshot.host_problems, **dict.fromkeys(waiting, late)})
    finally:
        fleet.close()


class _BusyHistory:
    """The highest utilization of each minute of the last half hour."""

    def __init__(self) -> None:
        self._minutes: dict[int, float] = {}
        self._first: int | None = None

    def add(self, now: float, percent: float) -> float:
        """Add a value; returns the highest of the last half hour, or NaN until that long was watched."""
        minute, kept = int(now // 60), IDLE_SECONDS // 60
        self._first = minute if self._first is None else self._first
        if not isnan(percent):
            self._minutes[minute] = max(percent, self._minutes.get(minute, 0.0))
        for old in [known for known in self._minutes if known < minute - kept]:
            del self._minutes[old]
        return max(self._minutes.values()) if self._minutes and minute - self._first >= kept else nan


def parse_hosts(hosts: str | None, file: Path | None) -> list[str]:
    """The hosts of a list, also in Slurm's notation, and of a file with one host per line, each once.

    Raises:
        CommandError: A name is not valid, there are too many or none, or the file cannot be read.
    """
    names = hosts.split(",") if hosts is not None and ":" in hosts else list(expand_hosts(hosts or ""))
    if file is not None:
        try:
            with open_input(file) as opened:
                lines = opened.read(_MAX_HOSTS_BYTES).decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError.usage(ProblemCode.INVALID_VALUE, f"{file} cannot be read: {error}.") from error
        names += [fields[0] for line in lines if (fields := line.partition("#")[0].split())]
    unique = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    for name in unique:
        if not _HOST.fullmatch(name) or name.startswith("-"):
            raise CommandError.usage(ProblemCode.INVALID_VALUE, f"{name!r} is not the name of a host.")
    if not unique or len(unique) > MAX_HOSTS:
        reason = f"{len(unique)} hosts were given; possible are 1 to {MAX_HOSTS}."
        raise CommandError.usage(ProblemCode.INVALID_VALUE, reason, "For more hosts, use --prometheus.")
    return unique
