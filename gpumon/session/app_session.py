"""The state of one open gpumon: one `ViewState` for each draw, and everything that the user can change."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.core.inbox import Bell
from gpumon.core.model import Frame
from gpumon.core.problems import Problem
from gpumon.core.store import Store
from gpumon.core.timeline import DEFAULT_HISTORY_SECONDS
from gpumon.health.alerts import DEFAULT_THRESHOLDS, Alert, Thresholds
from gpumon.session.alert_notifier import NO_NOTICES, AlertNotifier, NotifySettings
from gpumon.session.background import Deliver, ResultT, run_in_background
from gpumon.session.costs import CostSample
from gpumon.session.frame_session import FrameSession
from gpumon.session.job_registry import JobRegistry
from gpumon.session.pace import change_pace, seek_by
from gpumon.session.probe_registry import ProbeRegistry, Watcher
from gpumon.session.process_registry import ProcessesState, ProcessRegistry
from gpumon.session.recorder import Recorder
from gpumon.session.signal_controller import SignalController
from gpumon.session.table_memory import TableMemory
from gpumon.session.view_state import JobsState, ViewState
from gpumon.session.wait_registry import WaitRegistry
from gpumon.session.workload_controller import WorkloadController
from gpumon.streams.base import DEMO_TITLE, Stream, SupportsCallStats, SupportsOnDemand

if TYPE_CHECKING:
    from gpumon.fleet.settings import FleetSource
    from gpumon.operations.fleet.history import HostHistoryStream
    from gpumon.operations.fleet.ssh import HostStream
    from gpumon.session.fleet_registry import FleetRegistry

_RATE_SECONDS: Final = 10.0
"""Rates of costs are those of this time."""
_MAX_COST_SAMPLES: Final = 200
_TOUR_KEYS: Final = 5
"""The tour of the demo disappears after this many keys."""


class Bells(NamedTuple):
    """Called from any thread when something has arrived that the session has to drain."""

    frames: Bell
    runs: Bell
    probes: Bell


class Demand(NamedTuple):
    """What the open screens show of the values that are expensive to read.

    Attributes:
        device_keys: Devices in detail, by `Device.key`.
        process_keys: Devices of which only the processes are shown.
        costs: Whether gpumon's own costs are shown.
        probes: Whether the probes are shown.
        processes: Whether processes are shown with what started them.
        fleet: Whether the fleet is shown.
        usage_seconds: Range of the fleet's usage, if that is shown, otherwise 0.
        jobs: Whether the training jobs are shown.
        job_key: The training job whose ranks are shown; empty for none.
    """

    device_keys: frozenset[str] = frozenset()
    process_keys: frozenset[str] = frozenset()
    costs: bool = False
    probes: bool = False
    processes: bool = False
    fleet: bool = False
    usage_seconds: float = 0.0
    jobs: bool = False
    job_key: str = ""

    @classmethod
    def of_all(cls, demands: Sequence["Demand"]) -> "Demand":
        """What several screens show together; the last one that shows a training job decides which."""
        return cls(
            device_keys=frozenset().union(*(demand.device_keys for demand in demands)),
            process_keys=frozenset().union(*(demand.process_keys for demand in demands)),
            costs=any(demand.costs for demand in demands),
            probes=any(demand.probes for demand in demands),
            processes=any(demand.processes for demand in demands),
            fleet=any(demand.fleet for demand in demands),
            usage_seconds=max((demand.usage_seconds for demand in demands), default=0.0),
            jobs=any(demand.jobs for demand in demands),
            job_key=next((demand.job_key for demand in reversed(demands) if demand.job_key), ""),
        )


class AppSession:
    """Frames, alerts, runs, probes and costs.

    Args:
        stream: Source of the frames; started by the caller.
        bells: What to ring.
        deliver: Calls a function in the thread that draws; may be called from any thread.
        open_watcher: Makes the connection to the probes.
        history_seconds: Length of the history.
        thresholds: The values from which on a metric raises an alert.
        columns: The columns that the configuration names, by table.
        notify: How to notify the user of new alerts of this host.
        report: Called with what is wrong with notifications.
        is_read_only: Whether nothing may be changed: no signals, no requests to empty a cache, no workloads.
        load_probe: Before a probe is loaded into a process: ``ask``; ``own`` asks for other users only; or ``never``.
        fleet: Where a fleet comes from, or None.
    """

    def __init__(
        self,
        stream: Stream,
        bells: Bells,
        deliver: Deliver,
        open_watcher: Callable[[], Watcher],
        *,
        history_seconds: float = DEFAULT_HISTORY_SECONDS,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        columns: Mapping[str, Sequence[str]] = MappingProxyType({}),
        notify: NotifySettings = NO_NOTICES,
        report: Callable[[Problem], None] = lambda _: None,
        is_read_only: bool = False,
        load_probe: str = "ask",
        fleet: "FleetSource | None" = None,
    ) -> None:
        self._bells = bells
        self._deliver = deliver
        self.home = FrameSession(stream, history_seconds, thresholds)
        """What gpumon was started with; only its frames can be of the GPUs that workloads and probes use."""
        self.workloads = WorkloadController(bells.runs, self._in_background)
        self.probes = ProbeRegistry(open_watcher, bells.probes, self._in_background)
        self.signals = SignalController(self._in_background, self._workload_pids)
        self.processes = ProcessRegistry(self._in_background, bells.frames)
        self.jobs = JobRegistry(self._in_background, bells.frames, self.probes, thresholds)
        self.tables = TableMemory(self._in_background, columns)
        self.notifier = AlertNotifier(notify, self._in_background, report)
        self.waits = WaitRegistry(self.notifier.run_command_for)
        self.recorder = Recorder(self._in_background)
        self.fleet = None if fleet is None else self._fleet_registry(fleet)
        self.is_read_only = is_read_only
        self._load_probe = "never" if is_read_only else load_probe
        self._history_seconds = history_seconds
        self._thresholds = thresholds
        self._guest: FrameSession | None = None
        """The demo, or a host of the fleet, while it is shown."""
        self._tour_keys_left = _TOUR_KEYS
        self._demand = Demand()
        self._met_demand: tuple[Stream, Demand] | None = None
        """The last demand, and the stream from which it is met."""
        self._cost_samples: deque[CostSample] = deque(maxlen=_MAX_COST_SAMPLES)
        if self.home.is_this_host:
            self.home.reported = lambda frame: (*self.probes.ooms.findings(frame), *self.jobs.findings(frame))
            self.home.on_frame += [
                self.probes.observe,
                self.signals.observe,
                self.processes.observe,
                self.jobs.observe,
                self._record,
                lambda frame: self.workloads.registry.observe(frame, self.home.store),
            ]
            self.home.on_frame.append(self.waits.observe)
            if notify != NO_NOTICES:
                self.home.on_frame.append(lambda frame: self.notifier.observe(frame, self.home.alert_history.changes))

    @property
    def shown(self) -> FrameSession:
        """The demo or the host of the fleet that is open, else what gpumon was started with."""
        return self._guest or self.home

    @property
    def stream(self) -> Stream:
        """The stream that is shown."""
        return self.shown.stream

    @property
    def store(self) -> Store:
        """The store that is shown."""
        return self.shown.store

    @property
    def can_toggle_demo(self) -> bool:
        """Whether there is a demo to open or to close."""
        return self.home.stream.title != DEMO_TITLE

    def start(self) -> None:
        """Ring for frames from now on."""
        self.home.stream.inbox.on_arrival(self._bells.frames)

    def drain_frames(self) -> None:
        """Apply every frame that has arrived, of the hidden frame session too."""
        self.home.drain()
        if self.home.needs_history:  # after the first picture, which must not wait for it
            self.home.needs_history = False
            self._in_background(partial(_earlier_history, self._history_seconds), self.home.adopt)
        if self._guest is not None:
            self._guest.drain()

    def drain_runs(self) -> None:
        """Apply the events of all runs."""
        self.workloads.drain(self.home.store.frame if self.home.is_this_host else None)

    def toggle_pause(self) -> None:
        """Pause or resume; frames, alerts and probes freeze together."""
        self.shown.toggle_pause()
        self.probes.freeze(self.home.is_paused)
        self.jobs.freeze(self.home.is_paused)

    def change_pace(self, direction: int) -> None:
        """Make the stream that is shown faster (1) or slower (-1)."""
        change_pace(self.stream, direction)

    def seek_by(self, seconds: float) -> None:
        """Move the recording that is shown."""
        seek_by(self.stream, seconds)

    def acknowledge(self, alert: Alert) -> None:
        """Leave an alert of the frame session that is shown out of the header, or take that back."""
        self.shown.acknowledge(alert)

    def toggle_demo(self) -> None:
        """Open the bundled recording, or go back to what gpumon was started with.

        Raises:
            CommandError: The recording cannot be opened.
        """
        if self.stream.title == DEMO_TITLE:
            self.close_guest()
            return
        from gpumon.streams.replay import open_demo  # late: few sessions need it

        self._open_guest(open_demo())
        self._tour_keys_left = _TOUR_KEYS

    def open_host(self, host: str) -> "HostHistoryStream | HostStream | None":
        """Show a host of the fleet over time; returns its stream, or None if the host reports no GPU."""
        stream = None if self.fleet is None else self.fleet.host_stream(host)
        if stream is not None:
            self._open_guest(stream)
        return stream

    def read_hosts(self, hosts: tuple[str, ...]) -> None:
        """Read hosts through ssh from now on, instead of what the fleet was."""
        from gpumon.fleet.settings import HostsSettings  # late, as below: few sessions have a fleet

        if self.fleet is not None:
            self.fleet.close()
        self.fleet = self._fleet_registry(HostsSettings(hosts))

    @property
    def shows_host(self) -> bool:
        """Whether a host of the fleet is shown."""
        return self._guest is not None and self.stream.title != DEMO_TITLE

    def close_guest(self) -> None:
        """Show what gpumon was started with."""
        if self._guest is not None:
            self._guest.stream.close()
            self._guest = None
            self.home.unhide()

    def _open_guest(self, stream: Stream) -> None:
        """Show another stream in place of what gpumon was started with."""
        self.close_guest()
        stream.start()
        self.home.hide()
        self._guest = FrameSession(stream, self._history_seconds, self._thresholds)
        stream.inbox.on_arrival(self._bells.frames)

    def count_tour_key(self, *, ends: bool) -> bool:
        """Count a key that was pressed while the tour is shown, and return whether the tour has ended with it.

        Args:
            ends: Whether the key ends the tour at once.
        """
        if not self._has_tour:
            return False
        self._tour_keys_left = 0 if ends else self._tour_keys_left - 1
        return not self._has_tour

    @property
    def _has_tour(self) -> bool:
        return self._tour_keys_left > 0 and self.stream.title == DEMO_TITLE

    def set_demand(self, demand: Demand) -> None:
        """Read what the open screens show, and no longer what they do not."""
        if self.fleet is not None:
            self.fleet.set_shown(demand.fleet, demand.usage_seconds)  # also while nothing changes: what it read ages
        if self.recorder.is_recording and self.store.frame is not None:  # as `gpumon record` does
            demand = demand._replace(device_keys=frozenset(device.key for device in self.store.frame.devices))
        stream = self.stream
        if self._met_demand == (stream, demand):
            return
        self._met_demand = stream, demand
        if isinstance(stream, SupportsOnDemand):
            stream.request_on_demand(demand.device_keys, demand.process_keys)
        if isinstance(stream, SupportsCallStats):
            stream.set_call_stats(demand.costs)
        self.probes.set_shown(demand.probes)
        self.processes.set_shown(demand.processes and self.shown.is_this_host)
        self.jobs.set_shown(demand.jobs and self.shown.is_this_host, demand.job_key)
        if not demand.costs:
            self._cost_samples.clear()
        self._demand = demand

    def view_state(self, terminal_bytes: int | None = None) -> ViewState | None:
        """The state to draw; None while the screen keeps what it shows.

        Args:
            terminal_bytes: Bytes sent to the terminal up to now.
        """
        state = self.shown.view_state()
        if state is None:
            return None
        if self._demand.costs:
            self._measure(terminal_bytes)
        return state._replace(
            has_tour=self._has_tour,
            workloads=self.workloads.state(),
            probes=self.shown_probes.state(),
            processes=self.processes.state if state.is_this_host else ProcessesState(),
            costs=tuple(self._cost_samples),
            is_read_only=self.is_read_only,
            load_probe=self._load_probe,
            wait_count=len(self.waits.armed),
            is_recording=self.recorder.is_recording,
            fleet=None if self.fleet is None else self.fleet.state(),
            jobs=self.jobs.state if state.is_this_host else self._recorded_jobs(state.frame),
        )

    def close(self) -> None:
        """Stop all workloads and close every stream; waits for nothing. Guard processes end workloads that remain."""
        self.workloads.registry.cancel_all()
        self.probes.close()
        self.recorder.stop()
        if self.fleet is not None:
            self.fleet.close()
        for frames in (self.shown, self.home):
            frames.stream.close()

    @property
    def shown_probes(self) -> ProbeRegistry:
        """The probes of this host, or those of the recording that is shown."""
        recorded = self.shown.recorded
        return self.probes if recorded is None else recorded.registry

    def _recorded_jobs(self, frame: Frame) -> JobsState:
        """The jobs of a recording; where it has none, those that its processes show, while a screen shows them."""
        recorded = None if self.shown.recorded is None else self.shown.recorded.jobs
        if recorded is not None:
            return recorded
        if not self._demand.jobs:
            return JobsState()
        from gpumon.operations.training_jobs.host_report import frame_jobs  # late: few sessions need it

        return JobsState(frame_jobs(frame), is_read=True)

    def _fleet_registry(self, settings: "FleetSource") -> "FleetRegistry":
        from gpumon.session.fleet_registry import FleetRegistry

        return FleetRegistry(settings, self._bells.frames, self._in_background)

    def _record(self, frame: Frame) -> None:
        """Write a frame to the recording, if one runs, with what the processes of this host report."""
        if self.recorder.is_recording:
            from gpumon.session.host_reports import reports_document  # late: few sessions record

            jobs = [report for report in self.jobs.state.reports if report.gpus]
            reports = reports_document(frame, self.probes.probes, jobs, self.probes.ooms.notices)
            self.recorder.observe(replace(frame, reports=reports))

    def _workload_pids(self) -> set[int]:
        """Processes of the workloads that run."""
        runs = self.workloads.state().runs
        return {pid for run in runs if not run.ended and (pid := run.child.pid) is not None}

    def _measure(self, terminal_bytes: int | None) -> None:
        samples = self._cost_samples
        samples.append(self.shown.costs(terminal_bytes))
        while samples[-1].at_seconds - samples[0].at_seconds > _RATE_SECONDS:
            samples.popleft()

    def _in_background(self, work: Callable[[], ResultT], then: Callable[[ResultT], None]) -> None:
        run_in_background(work, then, self._deliver)


def _earlier_history(history_seconds: float) -> Store | None:
    """The history of this host before gpumon was opened."""
    from gpumon.session.earlier_history import earlier_history  # late: the first frame must not wait for it
    from gpumon.streams.ring import host_ring

    return earlier_history(host_ring(), history_seconds)
