"""The second stage: a trace of a few steps makes the times of the GPU exact; the samples keep their lines."""

from contextlib import suppress
from dataclasses import replace
from typing import Final

from gpumon.core.problems import CommandError
from gpumon.insight.bottlenecks.slowness_verdict import judge_run
from gpumon.insight.bottlenecks.traced_account import traced_evidence
from gpumon.operations.record_trace import record_traces
from gpumon.operations.why.examination import (
    NO_LISTENER,
    TRACE,
    ExaminationProgress,
    Listener,
    WhyReport,
    examine,
)
from gpumon.probe.client import ProbeWatcher
from gpumon.traces import reader
from gpumon.traces.model import Trace

_STEPS: Final = 8
_MIN_MILLISECONDS: Final = 500
_MAX_MILLISECONDS: Final = 5000
_MIN_STEPS: Final = 2
_LONG_STEPS: Final = 4.5
"""A window of this many long steps has two that are complete, although recording makes them longer."""
_LIMIT_MILLISECONDS: Final = 10_000


def examine_process(
    pid: int, seconds: float | None = None, listener: Listener = NO_LISTENER, *, has_trace: bool
) -> WhyReport:
    """Examine why a training run is slow, through its probe.

    A trace is recorded as well, if that is wanted and the process uses a GPU.

    Raises:
        CommandError: There is no such process, no probe, or no step.
    """
    watcher = ProbeWatcher()
    watcher.start()
    try:
        report = examine(pid, watcher, seconds, listener)
        return with_trace(report, watcher, listener) if has_trace and report.device is not None else report
    finally:
        watcher.close()


def with_trace(report: WhyReport, watcher: ProbeWatcher, listener: Listener) -> WhyReport:
    """Have the process record a trace of a few steps, and judge again; without a usable trace, say why there is none.

    The inbox of the watcher is drained.
    """
    account = report.evidence.account
    milliseconds = window_milliseconds(account.step_seconds)
    listener.on_progress(ExaminationProgress("recording a trace", 0.0, None))
    recorded = record_traces(watcher, [report.pid], milliseconds, listener.allow)[0]
    if recorded.path is None:
        reason = "no reason" if recorded.problem is None else str(recorded.problem)
        return replace(report, problems=(*report.problems, f"Without a trace: {reason}"))
    listener.on_progress(ExaminationProgress("reading the trace", 0.0, None))
    try:
        trace = reader.read(recorded.path).trace
    except CommandError as error:
        return replace(report, problems=(*report.problems, f"Without a trace: {error.problem}"))
    finally:
        with suppress(OSError):
            recorded.path.unlink()
    unusable = _unusable(trace)
    if unusable:
        return replace(report, problems=(*report.problems, *unusable))
    evidence = traced_evidence(trace, report.evidence)
    return replace(
        report,
        evidence=evidence,
        verdict=judge_run(evidence),
        stages=(*report.stages, TRACE),
        problems=(*report.problems, *recorded.notes),
    )


def window_milliseconds(step_seconds: float) -> int:
    """How long to record steps of a duration."""
    preferred = min(max(1000 * _STEPS * step_seconds, _MIN_MILLISECONDS), _MAX_MILLISECONDS)
    return round(min(max(preferred, 1000 * _LONG_STEPS * step_seconds), _LIMIT_MILLISECONDS))


def _unusable(trace: Trace) -> tuple[str, ...]:
    """Why a trace gives no account, in sentences; empty if it does."""
    if trace.device is None or not trace.kernels:
        return ("Without a trace: the recorded one has no kernels.",)
    if trace.problems:
        return tuple(f"Without a trace: {problem}" for problem in trace.problems)
    if len(trace.steps) < _MIN_STEPS:
        return ("Without a trace: the recorded one has no complete steps.",)
    return ()
