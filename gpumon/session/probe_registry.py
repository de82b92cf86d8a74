"""All probes of this host: their newest statistics, the memory history of their processes, and requests to them.

The watcher's thread rings a bell; the thread that draws then lets the registry drain what has arrived.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from gpumon.core.model import Device, Frame, same_uuid
from gpumon.core.problems import Problem, ProblemCode
from gpumon.session.memory_history import MemoryHistory, Series
from gpumon.session.oom_notices import OomNotices, recent_oom_files
from gpumon.session.view_state import ProbeRequest, ProbesState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpumon.core.allocator import ProbedProcess
    from gpumon.core.inbox import Inbox
    from gpumon.operations.oom_files import OomDevice
    from gpumon.probe.messages import Answer, Probe, ProbeMessage, RequestKind
    from gpumon.session.background import RunInBackground

SHOWN_INTERVAL_SECONDS: Final = 0.5
DEFAULT_INTERVAL_SECONDS: Final = 1.0
"""Interval of the probes' statistics while a screen shows them, and otherwise."""
PROBES_AT_FULL_RATE: Final = 32
"""Twice as many have half the rate, and so on."""
_MAX_HISTORIES: Final = 256
_MAX_REQUESTS: Final = 32
_ANSWER_TIMEOUT_SECONDS: Final = 40.0
"""By then the watcher has answered for a process that does not."""
_LOST: Final = Problem(
    ProblemCode.DROPPED, "The answer was lost: too many messages arrived.", "Send the request again."
)


class Watcher(Protocol):
    """The connection to the probes: `gpumon.probe.client.ProbeWatcher`."""

    inbox: Inbox[ProbeMessage]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why some probes cannot be read."""

    @property
    def probes(self) -> Mapping[int, Probe]:
        """Connected probes by PID."""

    def start(self) -> None:
        """Start to search for probes."""

    def close(self) -> None:
        """Stop."""

    def set_pace(self, seconds: float) -> None:
        """Set the interval of the statistics of all probes."""

    def ask(self, pid: int, ask: RequestKind, **more: Any) -> int:  # noqa: ANN401
        """Send a request to a process; the answer arrives in the inbox with the number that this returns."""


class ProbeRegistry:
    """The probes of this host.

    Args:
        open_watcher: Makes the watcher; called once and late, since it starts a thread and imports modules.
        ring: Called from any thread when a message of a probe has arrived.
        in_background: Runs what may take long.
    """

    def __init__(
        self, open_watcher: Callable[[], Watcher], ring: Callable[[], None], in_background: RunInBackground
    ) -> None:
        self.ooms = OomNotices(self._oom_device_key, self._draw_soon, in_background)
        self._devices: tuple[Device, ...] = ()
        self.clock = time.monotonic
        self.on_answer: Callable[[Answer], None] = lambda _: None
        """Called with every answer, also to the requests of `ask`."""
        self.is_own: Callable[[int], bool] = is_own
        """Whether a process belongs to the user."""
        self._open_watcher = open_watcher
        self._ring = ring
        self._in_background = in_background
        self._watcher: Watcher | None = None
        self._is_closed = False
        self._probes: dict[int, Probe] = {}
        self._frozen: ProbesState | None = None
        self._histories: dict[tuple[int, str], MemoryHistory] = {}
        self._processes: dict[int, ProbedProcess] = {}
        self._device_keys: dict[tuple[int, int], str] = {}
        self._requests: dict[int, ProbeRequest] = {}
        self._unanswered: dict[int, tuple[int, int]] = {}
        """Number of a request, and PID, by the watcher's number."""
        self._lost_count = 0
        self._is_draw_due = False
        """Whether something has changed that is not drawn with the next frame anyway."""
        self._interval = DEFAULT_INTERVAL_SECONDS
        self._is_shown = False

    def start(self) -> None:
        """Start to search for probes, unless that has started already."""
        if self._watcher is None and not self._is_closed:
            self._watcher = self._open_watcher()
            self._watcher.set_pace(self._interval)
            self._watcher.inbox.on_arrival(self._ring)
            self._watcher.start()

    def close(self) -> None:
        """Stop for good."""
        self._is_closed = True
        if self._watcher is not None:
            self._watcher.close()

    def freeze(self, is_frozen: bool) -> None:
        """Keep what is shown as it is now, or resume."""
        if not is_frozen:
            self._frozen = None
        elif self._frozen is None:
            self._frozen = self.state()._replace(probes=dict(self._probes))

    def set_shown(self, is_shown: bool) -> None:
        """Set whether a screen shows the probes; only then are their statistics read often."""
        self._is_shown = is_shown
        self._set_pace()

    def _set_pace(self) -> None:
        """Request statistics often while they are shown, and more rarely of many processes: each message costs time."""
        interval = SHOWN_INTERVAL_SECONDS if self._is_shown else DEFAULT_INTERVAL_SECONDS
        interval *= max(1, -(-len(self._probes) // PROBES_AT_FULL_RATE))
        if interval != self._interval:
            self._interval = interval
            if self._watcher is not None:
                self._watcher.set_pace(interval)

    def state(self) -> ProbesState:
        """The state to draw."""
        now = self.clock()
        if self._frozen is not None:
            return self._frozen._replace(requests=self._requests, clock_monotonic=now)
        problems = () if self._watcher is None else self._watcher.problems
        ooms = tuple(self.ooms.notices)
        return ProbesState(self._probes, now, problems, ooms, self._histories, self._requests, now)

    def drain(self) -> bool:
        """Apply all messages that have arrived; returns whether to draw before the next frame."""
        if self._watcher is None:
            return False
        from gpumon.probe.messages import Answer  # late, as below: the first values must not wait for it

        for message in self._watcher.inbox.drain():
            if isinstance(message, Answer):
                self._apply_answer(message)
            else:
                self._apply_probe(message)
                if not message.connected:
                    self._forget(message)
        if self._watcher.inbox.lost != self._lost_count:  # one of the lost messages may be that a probe has gone
            self._lost_count = self._watcher.inbox.lost
            connected = self._watcher.probes
            for probe in [probe for pid, probe in self._probes.items() if pid not in connected]:
                self._forget(probe)
        self._set_pace()
        is_draw_due, self._is_draw_due = self._is_draw_due, False
        return is_draw_due

    def observe(self, frame: Frame) -> None:
        """Record the memory of the processes as the driver reports it, and which device is which to them."""
        self._expire_requests()
        self._devices = frame.devices
        if not self._probes:
            return
        for device in frame.devices:
            if frame.is_fresh(device):
                self._observe_device(device, frame.monotonic_seconds)

    def history(self, pid: int, key: str) -> MemoryHistory | None:
        """The memory of a process on a device over time."""
        return self._histories.get((pid, key))

    def request(self, number: int, shown: Probe, kind: RequestKind, **options: Any) -> None:  # noqa: ANN401
        """Send a request to a process; the answer becomes part of the state under the number.

        A request that changes something in the process is refused unless `refusal` permits it now.
        """
        if self._watcher is None:
            return
        from gpumon.probe.messages import RequestKind

        while len(self._requests) >= _MAX_REQUESTS:
            del self._requests[next(iter(self._requests))]
        refusal = self.refusal(shown) if kind is RequestKind.EMPTY_CACHE else ""
        self._requests[number] = ProbeRequest(kind, self.clock(), refusal)
        if not refusal:
            self._unanswered[self._watcher.ask(shown.pid, kind, **options)] = (number, shown.pid)

    @property
    def probes(self) -> Mapping[int, Probe]:
        """Connected probes by PID, also while the screen is paused; a copy."""
        return dict(self._probes)

    def ask(self, pid: int, kind: RequestKind, **arguments: int) -> int:
        """Send a request that changes nothing in the process; from any thread.

        Args:
            pid: The process.
            kind: The request.
            arguments: As for `ProbeWatcher.ask`.

        Returns:
            The number of the answer, which goes to `on_answer`; 0 without a connection to probes.
        """
        return 0 if self._watcher is None else self._watcher.ask(pid, kind, **arguments)

    def refusal(self, shown: Probe) -> str:
        """Why a process may not be asked to do something, in a sentence; empty if it may.

        Args:
            shown: Its probe when the user decided; another process may have the PID now.
        """
        from gpumon.core.allocator import ProbeState

        pid, probe = shown.pid, self._probes.get(shown.pid)
        if probe is None or probe.reading is None or probe.reading.state is not ProbeState.LIVE:
            return f"PID {pid} has exited, or PyTorch in it is not running."
        if probe.process != shown.process:
            return f"PID {pid} has exited; another process has its PID now."
        if not self.is_own(pid):
            return f"PID {pid} belongs to another user; only the user who owns a process may change it."
        return ""

    def _apply_answer(self, answer: Answer) -> None:
        self.on_answer(answer)
        number, _ = self._unanswered.pop(answer.id, (0, 0))
        request = self._requests.get(number)
        if request is not None:
            self._is_draw_due = True
            self._requests[number] = request._replace(answer=answer, answered_monotonic=self.clock())

    def _expire_requests(self) -> None:
        """Answer requests whose answer has not come by now: it was pushed out of a full inbox."""
        if not self._unanswered:
            return
        from gpumon.probe.messages import Answer

        latest = self.clock() - _ANSWER_TIMEOUT_SECONDS
        for answer_id, (number, pid) in list(self._unanswered.items()):
            request = self._requests.get(number)
            if request is None:
                del self._unanswered[answer_id]
            elif request.requested_monotonic < latest:
                self._apply_answer(Answer(pid, answer_id, request.kind, problem=_LOST))

    def _apply_probe(self, probe: Probe) -> None:
        if self._processes.get(probe.pid) != probe.process:  # the PID belonged to another process before
            self._histories = {key: history for key, history in self._histories.items() if key[0] != probe.pid}
            self._processes[probe.pid] = probe.process
        self._probes[probe.pid] = probe
        reading = probe.reading
        if reading is None:
            return
        for statistics in reading.devices:
            key = self._device_keys.get((probe.pid, statistics.ordinal))
            history = None if key is None else self._history(probe.pid, key)
            if history is not None:
                history.record(probe.arrived_monotonic, statistics)
        if not probe.is_foreign:
            self.ooms.add(probe.pid, reading.oom_files)

    def _forget(self, probe: Probe) -> None:
        """Drop a probe that has gone.

        The history of its process stays. Its OOM files are searched for, since it may have had no time to report them.
        """
        pid = probe.pid
        del self._probes[pid]
        kept_pids = {*self._probes, *(owner_pid for owner_pid, _ in self._histories)}
        self._processes = {owner: process for owner, process in self._processes.items() if owner in kept_pids}
        self._device_keys = {ordinal: key for ordinal, key in self._device_keys.items() if ordinal[0] != pid}

        self._in_background(partial(recent_oom_files, probe.process.own_pid), partial(self.ooms.add, pid))

    def _observe_device(self, device: Device, seconds: float) -> None:
        from gpumon.operations.gpu_processes import owners_of

        for owner in owners_of(device, self._probes).owners:
            if owner.statistics is None or owner.probe is None:
                continue
            history = self._history(owner.pid, device.key)
            if history is None:
                return
            if (owner.pid, owner.statistics.ordinal) not in self._device_keys:
                self._device_keys[owner.pid, owner.statistics.ordinal] = device.key
                history.record(owner.probe.arrived_monotonic, owner.statistics)
            if owner.memory_bytes is not None:
                history.add(Series.HELD, seconds, owner.memory_bytes)

    def _history(self, pid: int, key: str) -> MemoryHistory | None:
        """A history, created if need be; a new one may only replace that of a process that has exited."""
        history = self._histories.get((pid, key))
        if history is not None:
            return history
        if len(self._histories) >= _MAX_HISTORIES:
            exited = next((name for name in self._histories if name[0] not in self._probes), None)
            if exited is None:
                return None
            del self._histories[exited]
        self._histories[pid, key] = MemoryHistory()
        return self._histories[pid, key]

    def _draw_soon(self) -> None:
        self._is_draw_due = True
        self._ring()

    def _oom_device_key(self, pid: int, oom: OomDevice | None) -> str | None:
        """The device by its UUID, else by its ordinal, else the only one on which the process had memory."""
        if oom is not None:
            for device in self._devices:
                if same_uuid(device.uuid, oom.uuid):
                    return device.key
            if (pid, oom.ordinal) in self._device_keys:
                return self._device_keys[pid, oom.ordinal]
        keys = [key for owner_pid, key in self._histories if owner_pid == pid]
        return keys[0] if len(keys) == 1 else None


def is_own(pid: int) -> bool:
    """Whether a process belongs to the user that gpumon runs as."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    except OSError:
        return False
