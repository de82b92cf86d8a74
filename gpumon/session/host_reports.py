"""What the processes of a host report, as a part of recorded frames: probes, training jobs, out-of-memory deaths."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from gpumon.core.frames import NOT_RECORDED
from gpumon.core.inbox import Inbox
from gpumon.core.record_codec import from_json, to_json
from gpumon.operations.training_jobs.report import TrainingJobReport
from gpumon.probe.messages import Answer, Probe
from gpumon.session.background import run_in_background
from gpumon.session.job_registry import CPU_SHARE, JobRegistry
from gpumon.session.probe_registry import ProbeRegistry
from gpumon.session.view_state import OomNotice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpumon.core.json_fields import Json
    from gpumon.core.model import Frame
    from gpumon.core.problems import Problem
    from gpumon.health.alerts import DeviceFinding
    from gpumon.probe.messages import ProbeMessage, RequestKind
    from gpumon.session.background import ResultT
    from gpumon.session.view_state import JobsState

_MAX_ITEMS: Final = 1024


def reports_document(
    frame: Frame, probes: Mapping[int, Probe], reports: Sequence[TrainingJobReport], ooms: Sequence[OomNotice]
) -> Json:
    """The reports of a recorded frame; empty if there are none."""
    jobs = (replace(report, ranks=tuple(map(_without_process, report.ranks))) for report in reports)
    document: Json = {
        "probes": [to_json(probe) for probe in probes.values() if probe.reading is not None],
        "jobs": [to_json(report) for report in jobs],
        "ooms": [to_json(notice) for notice in ooms],
    }
    times = {"time_seconds": frame.time_seconds, "monotonic_seconds": frame.monotonic_seconds}
    return {**times, **document} if any(document.values()) else {}


def _without_process(rank: Any) -> Any:  # noqa: ANN401
    """A rank without what the frame has already, and without the stack of its collective."""
    collective = None if rank.collective is None else replace(rank.collective, frames=())
    return replace(rank, process=None, collective=collective)


class HostReports:
    """Reads what a recording keeps: the probes and training jobs of this host.

    Args:
        jobs_cpu_share: What looking for training jobs may take of a core.
    """

    def __init__(self, jobs_cpu_share: float = CPU_SHARE) -> None:
        from gpumon.probe.client import ProbeWatcher

        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        in_background = partial(run_in_background, deliver=self._calls.put)
        self._probes = ProbeRegistry(ProbeWatcher, lambda: None, in_background)
        self._jobs = JobRegistry(in_background, lambda: None, self._probes, cpu_share=jobs_cpu_share)
        self._probes.start()

    def read(self, frame: Frame) -> Json:
        """The reports at the moment of a frame."""
        try:
            while True:
                self._calls.get_nowait()()
        except Empty:
            pass
        self._probes.drain()
        self._probes.observe(frame)
        self._jobs.observe(frame)
        jobs = [report for report in self._jobs.state.reports if report.gpus]
        return reports_document(frame, self._probes.probes, jobs, self._probes.ooms.notices)

    def findings(self, frame: Frame) -> Iterator[DeviceFinding]:
        """What the alerts report at the moment of a frame."""
        yield from self._probes.ooms.findings(frame)
        yield from self._jobs.findings(frame)

    def has_run_out(self, pid: int) -> bool:
        """Whether the probe of a process has reported that GPU memory ran out."""
        return any(notice.pid == pid for notice in self._probes.ooms.notices)

    def close(self) -> None:
        """Stop."""
        self._probes.close()


class RecordedReports:
    """Replays the reports of a recording, as if the probes were connected.

    Attributes:
        inbox: The messages of the probes, for `probes`.
        registry: The probes. Each refuses what would change a process.
    """

    def __init__(self) -> None:
        self.inbox: Inbox[ProbeMessage] = Inbox()
        self.problems: tuple[Problem, ...] = ()
        self.registry = ProbeRegistry(lambda: self, lambda: None, _never)
        self.registry.is_own = lambda _: False
        self.registry.clock = lambda: self._now
        self.registry.start()
        self._jobs = JobRegistry(_never, lambda: None, self.registry)
        self._probes: dict[int, Probe] = {}
        self._now = 0.0
        self._asked = 0

    @property
    def probes(self) -> Mapping[int, Probe]:
        """The probes at the moment of the last frame."""
        return self._probes

    @property
    def jobs(self) -> JobsState | None:
        """The training jobs, or None if the recording has none."""
        return self._jobs.state if self._jobs.state.is_read else None

    def observe(self, frame: Frame) -> None:
        """Apply a frame; a report that cannot be read is left out."""
        self._now = frame.monotonic_seconds
        if not (frame.reports or self._probes or self._jobs.state.is_read):
            return
        reports = moved_reports(frame.reports, frame)
        probes = {probe.pid: probe for probe in _decoded(Probe, reports, "probes")}
        gone = (replace(probe, connected=False) for pid, probe in self._probes.items() if pid not in probes)
        self.inbox.put(*gone, *probes.values())
        self._probes = probes
        self.registry.drain()
        self.registry.observe(frame)
        self.registry.ooms.notices = list(_decoded(OomNotice, reports, "ooms"))
        self._jobs.restore(tuple(_decoded(TrainingJobReport, reports, "jobs")))

    def findings(self, frame: Frame) -> Iterator[DeviceFinding]:
        """What the alerts report."""
        yield from self.registry.ooms.findings(frame)
        yield from self._jobs.findings(frame)

    def start(self) -> None:
        """Nothing to start."""

    def close(self) -> None:
        """Nothing to stop."""

    def set_pace(self, seconds: float) -> None:
        """The pace is that of the recording."""

    def ask(self, pid: int, ask: RequestKind, **_: object) -> int:
        """Answer that the recording does not have it."""
        self._asked += 1
        self.inbox.put(Answer(pid, self._asked, ask, problem=NOT_RECORDED))
        return self._asked


def moved_reports(reports: Mapping[str, Any], frame: Frame) -> Json:
    """The reports with their times moved to those of a frame: a demo repeats, and a recording may be of two hosts."""
    try:
        seconds = frame.time_seconds - reports["time_seconds"]
        monotonic = frame.monotonic_seconds - reports["monotonic_seconds"]
    except (KeyError, TypeError):
        return {}
    moved: Json = _moved(dict(reports), seconds, monotonic) if seconds or monotonic else dict(reports)
    return moved


def _moved(value: Any, seconds: float, monotonic: float, name: str = "") -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {key: _moved(item, seconds, monotonic, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, seconds, monotonic) for item in value]
    if isinstance(value, float | int) and name.endswith(("_monotonic", "monotonic_seconds")):
        return value + monotonic
    return value + seconds if name == "time_seconds" and isinstance(value, float | int) else value


def _decoded(kind: type[Any], reports: Mapping[str, Any], name: str) -> Iterator[Any]:
    """The records of one kind; those that are damaged are left out."""
    raw = reports.get(name)
    for item in raw[:_MAX_ITEMS] if isinstance(raw, list) else ():
        try:
            yield from_json(kind, item)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError):
            continue


def _never(work: Callable[[], ResultT], then: Callable[[ResultT], None]) -> None:
    """Files of the recorded host are not on this one."""
