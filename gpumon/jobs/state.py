"""What is known of a run: its events, taken in one after the other. Written by `JobState.apply` alone."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpumon.jobs.job import JobArrival, JobEnded
from gpumon.jobs.protocol import EventKind, JobEvent, VerdictKind
from gpumon.jobs.request import JobRequest

NOT_HERE: Final = "NotHereError"
"""Class of the error by which a workload says that it cannot run on this device or with this torch."""
_KEPT: Final = 600


@dataclass(frozen=True, slots=True)
class Sample:
    """A live figure at a moment (Unix time)."""

    time_seconds: float
    value: float


@dataclass(frozen=True, slots=True)
class MemorySample:
    """The workload's allocator at a moment (Unix time), in bytes; on the CPU only its resident memory is known."""

    time_seconds: float
    allocated_bytes: int | None = None
    active_bytes: int | None = None
    reserved_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    resident_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class JobError:
    """An error that it told.

    Attributes:
        kind: Class of the exception.
        text: Its text.
        expected: Whether it belongs to what is being shown.
    """

    kind: str
    text: str
    expected: bool


@dataclass(frozen=True, slots=True)
class JobResult:
    """How it ended.

    Attributes:
        verdict: The verdict.
        why: In sentences.
        figures: As in the public format of a result.
    """

    verdict: VerdictKind
    why: str
    figures: tuple[Mapping[str, Any], ...] = ()


class JobState:
    """A run as far as it has come.

    Args:
        request: What was asked for.
    """

    def __init__(self, request: JobRequest) -> None:
        self.request = request
        self.hello: Mapping[str, Any] | None = None
        self.plan: Mapping[str, Any] | None = None
        self.progress: tuple[float, float] | None = None
        self.steps: deque[tuple[float, str]] = deque(maxlen=_KEPT)
        self.metrics: dict[str, deque[Sample]] = {}
        self.units: dict[str, str] = {}
        self.timings: dict[str, tuple[float, float]] = {}
        self.memory: deque[MemorySample] = deque(maxlen=_KEPT)
        self.memory_summary: str | None = None
        self.errors: list[JobError] = []
        self.began_seconds: float | None = None
        self.ended_seconds: float | None = None
        self.result: JobResult | None = None
        self.end: JobEnded | None = None

    def apply(self, arrival: JobArrival) -> None:
        """Takes in what has arrived."""
        if isinstance(arrival, JobEnded):
            self._end(arrival)
            return
        take = {
            EventKind.HELLO: self._hello,
            EventKind.PLAN: self._plan,
            EventKind.PROGRESS: self._progress,
            EventKind.METRIC: self._metric,
            EventKind.MEMORY: self._memory,
            EventKind.TIMING: self._timing,
            EventKind.STEP: self._step,
            EventKind.ERROR: self._error,
            EventKind.RESULT: self._result,
        }.get(arrival.kind)
        if take is not None:
            take(arrival)

    @property
    def uuid(self) -> str | None:
        """UUID of its GPU, or None on the CPU and before it is known."""
        chip = None if self.plan is None else self.plan.get("chip")
        uuid = chip.get("uuid") if isinstance(chip, dict) else None
        return uuid if isinstance(uuid, str) else None

    @property
    def not_here(self) -> str | None:
        """Why it cannot run on this device or with this torch, if that is how it ended."""
        if self.result is not None:  # a part of it could not, and it went on without
            return None
        return next((error.text for error in self.errors if error.kind == NOT_HERE), None)

    @property
    def waits_for_leave(self) -> bool:
        """Whether it has told its plan and waits for leave to begin."""
        return self.plan is not None and self.began_seconds is None and self.end is None

    @property
    def asks(self) -> str:
        """Why it wants to be asked for leave even where nobody else works, in sentences; empty if it does not."""
        uses = {} if self.plan is None else self.plan["uses"]
        asks = uses.get("asks")
        return asks if isinstance(asks, str) else ""

    @property
    def share_done(self) -> float | None:
        """How much is done, 0 to 1, or None while that is not known."""
        if self.progress is None or self.progress[1] <= 0:
            return None
        return max(0.0, min(1.0, self.progress[0] / self.progress[1]))

    def remaining_seconds(self, now: float) -> float | None:
        """How long it will take from ``now`` (Unix time) at the pace so far, or None while that is not known."""
        share = self.share_done
        if not share or self.began_seconds is None or self.end is not None:
            return None
        return max(0.0, (now - self.began_seconds) * (1 - share) / share)

    def begin(self, now: float) -> None:
        """It was given leave to begin."""
        self.began_seconds = now

    def _hello(self, event: JobEvent) -> None:
        self.hello = event.fields

    def _plan(self, event: JobEvent) -> None:
        self.plan = event.fields

    def _progress(self, event: JobEvent) -> None:
        self.progress = (float(event.fields["done"]), float(event.fields["total"]))

    def _metric(self, event: JobEvent) -> None:
        name = str(event.fields["name"])
        if name not in self.metrics and len(self.metrics) >= _MOST_METRICS:
            return
        sample = Sample(event.time_seconds, float(event.fields["value"]))
        self.metrics.setdefault(name, deque(maxlen=_KEPT)).append(sample)
        self.units[name] = str(event.fields["unit"])

    def _memory(self, event: JobEvent) -> None:
        known = {name: _count(event.fields.get(name)) for name in _MEMORY_FIELDS}
        self.memory.append(MemorySample(event.time_seconds, **known))
        summary = event.fields.get("summary")
        if isinstance(summary, str):
            self.memory_summary = summary

    def _timing(self, event: JobEvent) -> None:
        if len(self.timings) < _MOST_METRICS:
            fields = event.fields
            self.timings[str(fields["name"])] = (float(fields["host_seconds"]), float(fields["device_seconds"]))

    def _step(self, event: JobEvent) -> None:
        self.steps.append((event.time_seconds, str(event.fields["text"])))

    def _error(self, event: JobEvent) -> None:
        if len(self.errors) < _MOST_METRICS:
            expected = event.fields.get("expected") is True
            self.errors.append(JobError(str(event.fields["class"]), str(event.fields["text"]), expected))

    def _result(self, event: JobEvent) -> None:
        fields = event.fields
        self.result = JobResult(VerdictKind(fields["verdict"]), str(fields["why"]), tuple(fields["figures"]))
        self.ended_seconds = event.time_seconds

    def _end(self, end: JobEnded) -> None:
        """The end of the process; one without a result of its own gets the one that can be given."""
        self.end = end
        if self.result is None and self.not_here is None:
            self.result = _result_without_word(end)
        elif self.result is not None and not end.cancelled:
            reason = end.reason
            if not reason and end.exit_code and self.result.verdict in (VerdictKind.OK, VerdictKind.WARN):
                reason = f"Its process ended with exit code {end.exit_code} all the same."
            if reason:
                self.result = JobResult(VerdictKind.FAIL, f"{reason} {self.result.why}", self.result.figures)


def _result_without_word(end: JobEnded) -> JobResult:
    if end.cancelled:
        return JobResult(VerdictKind.CANCELLED, f"It was stopped before its end. {end.reason}".strip())
    why = end.reason or f"It ended with exit code {end.exit_code} and said nothing of a result."
    return JobResult(VerdictKind.FAIL, why)


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else None


_MOST_METRICS: Final = 64
_MEMORY_FIELDS: Final = (
    "allocated_bytes",
    "active_bytes",
    "reserved_bytes",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "resident_bytes",
)
