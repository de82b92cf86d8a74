"""Signals to processes: examined and sent in the background, logged, and followed until the process has ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.core.groups import grouped
from gpumon.core.units import bytes_text
from gpumon.operations.signals import SentSignal, SignalRefusal, SignalResult, SignalSender, SignalTarget

if TYPE_CHECKING:
    from gpumon.core.model import Device, Frame, Process
    from gpumon.session.background import RunInBackground

REMINDER_SECONDS: Final = 10.0
"""A process that still runs this long after a signal is reported."""
_FOLLOW_SECONDS: Final = 120.0

Examined = Sequence[SignalTarget | SignalRefusal]


class SignalNotice(NamedTuple):
    """A sentence about a signal, and whether it needs attention."""

    text: str
    is_warning: bool = False


class _Followed:
    """A process that got a signal.

    Attributes:
        sent_monotonic: When gpumon saw the first frame after that, in monotonic seconds.
        used_bytes: Memory in use of each of its devices in the last frame with the process, by `Device.key`.
    """

    def __init__(self, result: SignalResult) -> None:
        self.result = result
        self.sent_monotonic: float | None = None
        self.used_bytes: dict[str, float] = {}
        self.is_reminded = False


class SignalController:
    """The signals of one open gpumon.

    Args:
        in_background: Runs what may take a moment.
        workload_pids: Returns the processes of the workloads that gpumon runs, which are no targets.
        sender: Sends the signals.
    """

    def __init__(
        self,
        in_background: RunInBackground,
        workload_pids: Callable[[], Collection[int]],
        sender: SignalSender | None = None,
    ) -> None:
        self.sender = sender or SignalSender()
        self.report: Callable[[SignalNotice], object] = lambda _: None
        """Called with what becomes of a process after its signal."""
        self._in_background = in_background
        self._workload_pids = workload_pids
        self._followed: dict[tuple[int, int], _Followed] = {}

    def examine(self, processes: Sequence[Process], then: Callable[[Examined], None]) -> None:
        """Examine processes of the newest frame of this host; ``then`` receives a target or a refusal for each PID."""
        distinct = {process.pid: process for process in processes}
        pids = self._workload_pids()
        self._in_background(lambda: [self.sender.examine(process, pids) for process in distinct.values()], then)

    def send(self, targets: Sequence[SignalTarget], sent: SentSignal) -> None:
        """Send a signal to each target; `report` receives what became of it."""
        self._in_background(partial(self._send, targets, sent, self._workload_pids()), self._report_sent)

    def _send(
        self, targets: Sequence[SignalTarget], sent: SentSignal, workload_pids: Collection[int]
    ) -> list[tuple[SignalResult, str]]:
        """Send and log; returns each result and why it could not be logged, or an empty text."""
        from gpumon.operations.signal_log import log_signal  # late: the first values must not wait for it

        results = [self.sender.send(target, sent, workload_pids) for target in targets]
        return [(result, str(log_signal(result) or "")) for result in results]

    def _report_sent(self, results: Sequence[tuple[SignalResult, str]]) -> None:
        for result, log_problem in results:
            text = result.refusal or f"{result.sent.title} sent to PID {result.target.pid}: {result.target.command}"
            self.report(SignalNotice(text, is_warning=bool(result.refusal)))
            if log_problem:
                self.report(SignalNotice(log_problem, is_warning=True))
            if not result.refusal:
                self._followed[result.target.pid, result.target.start_ticks] = _Followed(result)

    def observe(self, frame: Frame) -> None:
        """Follow the processes that got a signal, in a frame of this host."""
        if not self._followed:
            return
        devices = grouped(
            ((process.pid, process.start_ticks or 0), device)
            for device in frame.devices
            for process in device.processes or ()
        )
        is_complete = all(device.processes is not None for device in frame.devices)
        for identity, followed in list(self._followed.items()):
            if followed.sent_monotonic is None:
                followed.sent_monotonic = frame.monotonic_seconds
            waited = frame.monotonic_seconds - followed.sent_monotonic
            if identity in devices:
                self._note_running(followed, devices[identity], waited)
            elif is_complete:
                del self._followed[identity]
                self.report(SignalNotice(_end_text(followed, frame)))
            if waited > _FOLLOW_SECONDS:
                self._followed.pop(identity, None)

    def _note_running(self, followed: _Followed, devices: Sequence[Device], waited: float) -> None:
        followed.used_bytes = {
            device.key: used for device in devices if (used := device.get("memory_used_bytes")) is not None
        }
        if waited >= REMINDER_SECONDS and not followed.is_reminded:
            followed.is_reminded = True
            result = followed.result
            text = f"PID {result.target.pid} still uses a GPU {waited:.0f} s after {result.sent.title}."
            if result.sent is not SentSignal.KILL:
                text += " SIGKILL ends it at once, without saving anything."
            self.report(SignalNotice(text, is_warning=True))


def _end_text(followed: _Followed, frame: Frame) -> str:
    """That a process no longer uses a GPU, and by how much the memory in use fell on each GPU that it used."""
    changes = []
    for device in frame.devices:
        before, after = followed.used_bytes.get(device.key), device.get("memory_used_bytes")
        if before is not None and after is not None and not device.is_stale("memory_used_bytes"):
            what = f"fell by {bytes_text(before - after)}" if before > after else "did not fall"
            changes.append(f" Memory in use on GPU {device.label} {what}.")
    return f"PID {followed.result.target.pid} no longer uses a GPU.{''.join(changes)}"
