"""The state of a run, built from its events; only `apply` and `record_start` of `RunState` change the state."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpumon.core.workload_metrics import Measurement, WorkloadMetric, declared_metric
from gpumon.workload_runs.catalogue import RunRequest
from gpumon.workload_runs.protocol import RunEvent, RunEventKind, VerdictKind
from gpumon.workload_runs.supervised_run import RunArrival, RunEnded

UNSUPPORTED_ERROR: Final = "UnsupportedError"
"""Class of the exception of a workload that cannot run on this device or with this version of PyTorch."""
_MAX_SAMPLES: Final = 600


@dataclass(frozen=True, slots=True)
class MetricSample:
    """A live value at a moment (Unix time)."""

    time_seconds: float
    value: float


@dataclass(frozen=True, slots=True)
class MemorySample:
    """The workload's allocator at a moment (Unix time), in bytes; on the CPU only the resident memory is known."""

    time_seconds: float
    allocated_bytes: int | None = None
    active_bytes: int | None = None
    reserved_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    resident_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RunError:
    """An error that the workload reported.

    Attributes:
        kind: Class of the exception.
        text: Message of the exception.
        expected: Whether the workload raises the error on purpose, to demonstrate it.
    """

    kind: str
    text: str
    expected: bool


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run.

    Attributes:
        verdict: The verdict.
        why: The explanation, in sentences.
        measurements: The measured values.
    """

    verdict: VerdictKind
    why: str
    measurements: tuple[Measurement, ...] = ()


class RunState:
    """The state of a run.

    Args:
        request: The request that started the run.
    """

    def __init__(self, request: RunRequest) -> None:
        self.request = request
        self.hello: Mapping[str, Any] | None = None
        self.plan: Mapping[str, Any] | None = None
        self.progress: tuple[float, float] | None = None
        self.steps: deque[tuple[float, str]] = deque(maxlen=_MAX_SAMPLES)
        self.metrics: dict[WorkloadMetric, deque[MetricSample]] = {}
        self.timings: dict[str, tuple[float, float]] = {}
        self.memory: deque[MemorySample] = deque(maxlen=_MAX_SAMPLES)
        self.memory_summary: str | None = None
        self.errors: list[RunError] = []
        self.began_seconds: float | None = None
        self.ended_seconds: float | None = None
        self.result: RunResult | None = None
        self.end: RunEnded | None = None

    def apply(self, arrival: RunArrival) -> None:
        """Apply an event, or the end."""
        if isinstance(arrival, RunEnded):
            self._end(arrival)
            return
        handler = {
            RunEventKind.HELLO: self._hello,
            RunEventKind.PLAN: self._plan,
            RunEventKind.PROGRESS: self._progress,
            RunEventKind.METRIC: self._metric,
            RunEventKind.MEMORY: self._memory,
            RunEventKind.TIMING: self._timing,
            RunEventKind.STEP: self._step,
            RunEventKind.ERROR: self._error,
            RunEventKind.RESULT: self._result,
        }.get(arrival.kind)
        if handler is not None:
            handler(arrival)

    @property
    def uuid(self) -> str | None:
        """UUID of the GPU, or None on the CPU and while the UUID is unknown."""
        chip = None if self.plan is None else self.plan.get("chip")
        uuid = chip.get("uuid") if isinstance(chip, dict) else None
        return uuid if isinstance(uuid, str) else None

    @property
    def unsupported_reason(self) -> str | None:
        """Why the workload cannot run on this device or with this PyTorch, if that ended the run."""
        if self.result is not None:  # only a part was unsupported, and the workload continued without that part
            return None
        return next((error.text for error in self.errors if error.kind == UNSUPPORTED_ERROR), None)

    @property
    def awaits_confirmation(self) -> bool:
        """Whether the workload has sent its plan and waits for the confirmation to start."""
        return self.plan is not None and self.began_seconds is None and self.end is None

    @property
    def confirmation_reason(self) -> str:
        """Why the workload needs a confirmation even on an idle GPU, in sentences; empty if it needs none."""
        uses = {} if self.plan is None else self.plan["uses"]
        reason = uses.get("asks")
        return reason if isinstance(reason, str) else ""

    @property
    def share_done(self) -> float | None:
        """Progress from 0 to 1, or None while unknown."""
        if self.progress is None or self.progress[1] <= 0:
            return None
        return max(0.0, min(1.0, self.progress[0] / self.progress[1]))

    def remaining_seconds(self, now: float) -> float | None:
        """Estimated time left from ``now`` (Unix time) at the pace so far, or None while unknown."""
        share = self.share_done
        if not share or self.began_seconds is None or self.end is not None:
            return None
        return max(0.0, (now - self.began_seconds) * (1 - share) / share)

    def record_start(self, now: float) -> None:
        """Record that the start was confirmed at ``now`` (Unix time)."""
        self.began_seconds = now

    def _hello(self, event: RunEvent) -> None:
        self.hello = event.fields

    def _plan(self, event: RunEvent) -> None:
        self.plan = event.fields

    def _progress(self, event: RunEvent) -> None:
        self.progress = (float(event.fields["done"]), float(event.fields["total"]))

    def _metric(self, event: RunEvent) -> None:
        metric = declared_metric(WorkloadMetric.of(event.fields), self.request.workload.metrics)
        if metric not in self.metrics and len(self.metrics) >= _MAX_METRICS:
            return
        sample = MetricSample(event.time_seconds, float(event.fields["value"]))
        self.metrics.setdefault(metric, deque(maxlen=_MAX_SAMPLES)).append(sample)

    def _memory(self, event: RunEvent) -> None:
        known = {name: _count(event.fields.get(name)) for name in _MEMORY_FIELDS}
        self.memory.append(MemorySample(event.time_seconds, **known))
        summary = event.fields.get("summary")
        if isinstance(summary, str):
            self.memory_summary = summary

    def _timing(self, event: RunEvent) -> None:
        if len(self.timings) < _MAX_METRICS:
            fields = event.fields
            self.timings[str(fields["name"])] = (float(fields["host_seconds"]), float(fields["device_seconds"]))

    def _step(self, event: RunEvent) -> None:
        self.steps.append((event.time_seconds, str(event.fields["text"])))

    def _error(self, event: RunEvent) -> None:
        if len(self.errors) < _MAX_METRICS:
            expected = event.fields.get("expected") is True
            self.errors.append(RunError(str(event.fields["class"]), str(event.fields["text"]), expected))

    def _result(self, event: RunEvent) -> None:
        fields = event.fields
        parsed = (Measurement.of(figure, self.request.workload.metrics) for figure in fields["figures"])
        measurements = tuple(measurement for measurement in parsed if measurement is not None)
        self.result = RunResult(VerdictKind(fields["verdict"]), str(fields["why"]), measurements)
        self.ended_seconds = event.time_seconds

    def _end(self, end: RunEnded) -> None:
        """Apply the end of the process; a run without a result gets one derived from the end."""
        self.end = end
        if self.result is None and self.unsupported_reason is None:
            self.result = _result_of_end(end)
        elif self.result is not None and not end.cancelled:
            reason = end.reason
            if not reason and end.exit_code and self.result.verdict in (VerdictKind.OK, VerdictKind.WARN):
                reason = f"The process exited with code {end.exit_code} anyway."
            if reason:
                self.result = RunResult(VerdictKind.FAIL, f"{reason} {self.result.why}", self.result.measurements)


def _result_of_end(end: RunEnded) -> RunResult:
    if end.cancelled:
        return RunResult(VerdictKind.CANCELLED, f"The workload was stopped before its end. {end.reason}".strip())
    why = end.reason or f"The workload exited with code {end.exit_code} without a result."
    return RunResult(VerdictKind.FAIL, why)


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else None


_MAX_METRICS: Final = 64
_MEMORY_FIELDS: Final = (
    "allocated_bytes",
    "active_bytes",
    "reserved_bytes",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "resident_bytes",
)
