"""The state of the fleet: the newest report, why there is no newer one, and the usage while it is shown."""

import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.core.inbox import Bell
from gpumon.core.problems import Problem
from gpumon.fleet.poller import FleetPoller
from gpumon.fleet.settings import FleetSettings, FleetSource, HostsSettings
from gpumon.fleet.slurm_queue import SlurmQueue, has_slurm, read_queue
from gpumon.operations.fleet.history import HostHistoryStream
from gpumon.operations.fleet.queries import FleetUsage, read_usage
from gpumon.operations.fleet.report import FleetReport
from gpumon.operations.fleet.slurm import SlurmJoin
from gpumon.operations.fleet.ssh import HostStream, SshFleet
from gpumon.session.background import RunInBackground

if TYPE_CHECKING:
    from gpumon.fleet.model import FleetSnapshot

_USAGE_SECONDS: Final = 300.0
"""The usage is read again when it is shown and older than this."""
_QUEUE_SECONDS: Final = 30.0
"""The queue of Slurm is read at most this often."""
_QUEUE_PAUSE: Final = 20.0
"""Pause after reading it, in multiples of the time that it took: for thousands of jobs, Slurm works for seconds."""


class FleetState(NamedTuple):
    """The fleet at the moment of a draw.

    Attributes:
        settings: What is read.
        report: The newest report, or None before the first.
        problem: Why there is no newer one, or None.
        age_seconds: Age of the report.
        usage: The usage that was read last, or None.
        is_reading_usage: Whether Prometheus is adding up the usage.
    """

    settings: FleetSource
    report: FleetReport | None = None
    problem: Problem | None = None
    age_seconds: float = 0.0
    usage: FleetUsage | None = None
    is_reading_usage: bool = False


class FleetRegistry:
    """Reads the fleet: Prometheus while a screen shows it, hosts from then on; the last values stay.

    Args:
        settings: What is read.
        ring: Called from any thread when something has changed.
        in_background: Runs what may take seconds.
    """

    def __init__(self, settings: FleetSource, ring: Bell, in_background: RunInBackground) -> None:
        self.settings = settings
        self._ring = ring
        self._in_background = in_background
        self._poller: FleetPoller | SshFleet | None = None
        self._report: FleetReport | None = None
        self._snapshot: FleetSnapshot | None = None
        self._problem: Problem | None = None
        self._usage: FleetUsage | None = None
        self._queried_monotonic = 0.0
        self._usage_at = 0.0
        self._reading_seconds = 0.0
        self._slurm: SlurmJoin | None = None
        self._is_reading_queue = self._is_other_queue = False
        self._queue_at = 0.0
        self._queue_due = 0.0

    def set_shown(self, shown: bool, usage_seconds: float = 0.0) -> None:
        """Read the fleet from now on, or no longer.

        Args:
            shown: Whether a screen shows the fleet.
            usage_seconds: Range of the usage, if that is shown too, otherwise 0.
        """
        if shown and self._poller is None:
            settings = self.settings
            self._poller = SshFleet(settings) if isinstance(settings, HostsSettings) else FleetPoller(settings)
            self._poller.on_change(self._ring)
            self._poller.start()
        elif not shown and isinstance(
            self._poller, FleetPoller
        ):  # connections stay: what they saw cannot be read again
            self.close()
        if shown:
            self._read_queue()
        if not isinstance(self.settings, FleetSettings):
            return
        if usage_seconds and self._report is not None and not self._reading_seconds:
            is_current = self._usage is not None and self._usage.seconds == usage_seconds
            if not is_current or time.monotonic() - self._usage_at > _USAGE_SECONDS:
                self._reading_seconds = usage_seconds
                exporters = tuple(self._report.snapshot.exporters)
                read = partial(read_usage, self.settings, exporters, usage_seconds)
                self._in_background(read, self._keep_usage)

    def refresh(self) -> None:
        """Query now; the usage is read again if it is shown."""
        self._usage_at = 0.0
        if self._poller is not None:
            self._poller.refresh()

    def state(self) -> FleetState:
        """The state to draw."""
        poller = self._poller
        if poller is not None:
            snapshot = poller.snapshot
            if snapshot is not None and self._snapshot is not snapshot:
                self._queried_monotonic = time.monotonic() - snapshot.seconds
            if snapshot is not None and (self._snapshot is not snapshot or self._is_other_queue):
                self._snapshot, self._is_other_queue = snapshot, False
                self._report = FleetReport(snapshot, self._slurm)
            self._problem = poller.problem
        age = 0.0 if self._report is None else time.monotonic() - self._queried_monotonic
        usage, is_reading = self._usage, bool(self._reading_seconds)
        return FleetState(self.settings, self._report, self._problem, age, usage, is_reading)

    def host_stream(self, host: str) -> HostHistoryStream | HostStream | None:
        """A stream of a host's GPUs over time; None if it reports none."""
        if isinstance(self._poller, SshFleet):
            return self._poller.follow(host)
        if self._report is None or not isinstance(self.settings, FleetSettings):
            return None
        snapshot: FleetSnapshot = self._report.snapshot
        gpus = [gpu for position in self._report.by_host.get(host, ()) if (gpu := snapshot.gpus[position]).uuid]
        return HostHistoryStream(self.settings, gpus) if gpus else None

    def host_problem(self, host: str) -> Problem | None:
        """Why a host reports nothing, if that is known."""
        return None if self._report is None else self._report.snapshot.host_problems.get(host)

    def close(self) -> None:
        """End the process that reads Prometheus, or the connections."""
        if self._poller is not None:
            self._poller.close()
            self._poller = None

    def _read_queue(self) -> None:
        """Read the queue of Slurm if it is old, and Slurm is installed here."""
        now = time.monotonic()
        if self._is_reading_queue or now < self._queue_due:
            return
        self._queue_at, self._queue_due = now, now + _QUEUE_SECONDS
        if has_slurm():
            self._is_reading_queue = True
            needs_details = self._slurm is not None and self._slurm.queue.needs_details
            self._in_background(partial(read_queue, needs_details=needs_details), self._keep_queue)

    def _keep_queue(self, queue: SlurmQueue) -> None:
        """Join with the queue from now on; jobs of the queue before stay if this one could not be read."""
        now = time.monotonic()
        self._is_reading_queue = False
        self._queue_due = max(self._queue_due, now + _QUEUE_PAUSE * (now - self._queue_at))
        before = None if self._slurm is None else self._slurm.queue
        if queue.problem is not None and not queue.jobs and before is not None:
            queue = before._replace(problem=queue.problem)
        if queue != before:
            self._slurm, self._is_other_queue = SlurmJoin(queue), True
            self._ring()

    def _keep_usage(self, usage: FleetUsage) -> None:
        self._usage, self._usage_at, self._reading_seconds = usage, time.monotonic(), 0.0
        self._ring()
