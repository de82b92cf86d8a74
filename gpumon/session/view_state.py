"""The state of one moment, from which a screen is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpumon.health.alerts import DEFAULT_THRESHOLDS, Alert, EndedAlert, Thresholds, oom_subject
from gpumon.session.process_registry import ProcessesState

if TYPE_CHECKING:
    from gpumon.core.model import Frame
    from gpumon.core.problems import Problem
    from gpumon.core.store import Store
    from gpumon.operations.training_jobs.report import TrainingJobReport
    from gpumon.operations.workload import WorkloadRun
    from gpumon.probe.messages import Answer, Probe, RequestKind
    from gpumon.session.costs import CostSample
    from gpumon.session.fleet_registry import FleetState
    from gpumon.session.memory_history import MemoryHistory
    from gpumon.workload_runs.catalogue import Catalogue
    from gpumon.workload_runs.interpreter import Interpreter

EarlierResult = Mapping[str, Any]
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


class WorkloadsState(NamedTuple):
    """Workloads and their runs.

    Attributes:
        runs: All runs of this gpumon, the newest first.
        catalogue: The workloads that can be run, or None while gpumon searches for them.
        interpreter: The Python that workloads run with, why there is none, or None while gpumon searches for one.
        earlier: Saved results of earlier sessions, the newest first.
        now_seconds: Unix time of the draw; runs do not freeze with the screen.
    """

    runs: tuple[WorkloadRun, ...] = ()
    catalogue: Catalogue | None = None
    interpreter: Interpreter | Problem | None = None
    earlier: tuple[EarlierResult, ...] = ()
    now_seconds: float = 0.0

    @property
    def running_count(self) -> int:
        """How many runs have not ended."""
        return sum(not run.ended for run in self.runs)

    def run(self, key: str) -> WorkloadRun | None:
        """The run with a key, or None once it was dropped from the list."""
        return next((run for run in self.runs if run.key == key), None)


class ProbeRequest(NamedTuple):
    """A request to a probe, and its answer.

    Attributes:
        kind: The request.
        requested_monotonic: When it was sent, in monotonic seconds.
        refusal: Why it was not sent, in a sentence; empty if it was.
        answer: The answer, or None while there is none.
        answered_monotonic: When the answer arrived, in monotonic seconds.
    """

    kind: RequestKind
    requested_monotonic: float
    refusal: str = ""
    answer: Answer | None = None
    answered_monotonic: float = 0.0


class OomNotice(NamedTuple):
    """A process ran out of memory, and its probe wrote a file.

    Attributes:
        pid: The process.
        path: The file.
        time_seconds: Unix time.
        number: How many files the process had written with this one.
        device_key: The device whose memory ran out; None if neither the file nor the probe names it.
    """

    pid: int
    path: str
    time_seconds: float
    number: int = 1
    device_key: str | None = None

    @property
    def subject(self) -> str:
        """The subject of its alert."""
        return oom_subject(self.pid, self.number)


class ProbesState(NamedTuple):
    """The probes of this host; while the screen is paused, as they were when it was paused.

    Attributes:
        probes: Connected probes by PID.
        now_monotonic: The moment of ``probes``, in monotonic seconds.
        problems: Why some probes cannot be read.
        ooms: Processes that ran out of memory, the newest last.
        histories: Memory of each process on each device, by PID and `Device.key`. The histories themselves go on while
            the screen is paused; the time range that is drawn ends at the frame.
        requests: Requests to probes by the number in `ProbeRequested`; they do not freeze.
        clock_monotonic: Time of the draw in monotonic seconds, for the age of requests and answers.
    """

    probes: Mapping[int, Probe] = _NONE
    now_monotonic: float = 0.0
    problems: tuple[Problem, ...] = ()
    ooms: tuple[OomNotice, ...] = ()
    histories: Mapping[tuple[int, str], MemoryHistory] = _NONE
    requests: Mapping[int, ProbeRequest] = _NONE
    clock_monotonic: float = 0.0


class JobsState(NamedTuple):
    """The training jobs at the moment of a draw.

    Attributes:
        reports: The jobs, those with the most ranks first.
        is_read: Whether they were read at least once.
        frames: The frames of the last minute, oldest first, while there is a job of several ranks.
    """

    reports: tuple[TrainingJobReport, ...] = ()
    is_read: bool = False
    frames: tuple[Frame, ...] = ()

    def report(self, key: str) -> TrainingJobReport | None:
        """The job with a key; None if there is none."""
        return next((report for report in self.reports if report.key == key), None)


class ViewState(NamedTuple):
    """One moment, ready to be drawn.

    Attributes:
        store: History of the devices; not a copy. The time range that is drawn ends at the frame.
        frame: The moment.
        alerts: Current alerts, the most severe first; `Alert.needs_attention` selects those that the header counts.
        source: Where the frames come from and its state, such as ``live 1s``.
        position: The moment of a recording, such as ``06:44``; empty for another source.
        silence_seconds: How long no frame has arrived, if that is too long; every value is older by as much.
        is_this_host: Whether the GPUs are those of the host that gpumon runs on.
        alerts_over: Alerts that have ended, the oldest first.
        thresholds: The values from which on a metric raises an alert.
        is_paused: Whether the screen is paused.
        workloads: Workloads and their runs.
        probes: Probes of this host; empty while the frames are not of this host.
        has_tour: Whether the demo has just been opened, so that the overview names keys to try.
        processes: What started the processes of this host, and their recent values.
        costs: Samples of gpumon's own costs over the last seconds, the newest last; empty unless a screen shows them.
        is_read_only: Whether nothing may be changed: no signals, no requests to empty a cache, no workloads.
        load_probe: Before a probe is loaded into a process: ``ask``; ``own`` asks for other users only; or ``never``.
        wait_count: Number of things that gpumon will notify the user of.
        is_recording: Whether the frames of this host are written to a file.
        fleet: The hosts of the fleet, or None if none are configured.
        jobs: The training jobs of this host.
    """

    store: Store
    frame: Frame
    alerts: tuple[Alert, ...]
    source: str
    silence_seconds: float = 0.0
    is_this_host: bool = False
    alerts_over: tuple[EndedAlert, ...] = ()
    thresholds: Thresholds = DEFAULT_THRESHOLDS
    is_paused: bool = False
    has_tour: bool = False
    workloads: WorkloadsState = WorkloadsState()
    probes: ProbesState = ProbesState()
    processes: ProcessesState = ProcessesState()
    costs: tuple[CostSample, ...] = ()
    is_read_only: bool = False
    load_probe: str = "ask"
    wait_count: int = 0
    is_recording: bool = False
    fleet: FleetState | None = None
    jobs: JobsState = JobsState()
    position: str = ""

    @property
    def is_changeable(self) -> bool:
        """Whether the processes are live ones of this host, to which signals and requests may be sent."""
        return self.is_this_host and not self.is_read_only
