"""Examines a process, with a trace as the second stage, or all ranks of a job on this host, which are compared.

The trace of a few steps makes the times of the GPU exact; the samples keep their lines.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from gpumon.core.inbox import Inbox
from gpumon.core.problems import CommandError, Problem
from gpumon.insight.bottlenecks.causes.other_ranks import find_straggler
from gpumon.insight.bottlenecks.slowness_evidence import Straggler
from gpumon.insight.bottlenecks.slowness_verdict import judge_run
from gpumon.insight.bottlenecks.traced_account import traced_evidence
from gpumon.operations.recorded_file import record_traces
from gpumon.operations.why.examination import NO_LISTENER, TRACE, ExaminationProgress, Listener, WhyReport, examine
from gpumon.operations.why.outside import examine_outside
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Answer, Probe, ProbeMessage, RequestKind
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


_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class JobWhyReport:
    """The result for a job.

    Attributes:
        ranks: The report of each rank that could be examined, by rank.
        straggler: The rank that the others wait for, or None.
        problems: Why ranks could not be examined, by PID, or by host.
    """

    ranks: tuple[WhyReport, ...]
    straggler: Straggler | None
    problems: Mapping[int | str, Problem]


class _Branch:
    """One process's part of a watcher: its answers, and requests to it."""

    def __init__(self, watcher: ProbeWatcher) -> None:
        self.inbox: Inbox[ProbeMessage] = Inbox()
        self._watcher = watcher

    @property
    def probes(self) -> dict[int, Probe]:
        """All probes."""
        return self._watcher.probes

    def settle(self, timeout_seconds: float) -> bool:
        """Wait for the probes of the first scan."""
        return self._watcher.settle(timeout_seconds)

    def ask(self, pid: int, ask: RequestKind | str, **arguments: int) -> int:
        """Send a request."""
        return self._watcher.ask(pid, ask, **arguments)


def examine_job(
    pids: tuple[int, ...], watcher: ProbeWatcher | None, seconds: float | None, on_progress: Callable[[Any], None]
) -> JobWhyReport:
    """Examine several processes at the same time, and compare them. Their programs do not change.

    The inbox of the watcher is drained; without one, they are observed from outside.

    Raises:
        CommandError: None of them can be examined.
    """
    branches = {} if watcher is None else {pid: _Branch(watcher) for pid in pids}

    def examine_one(pid: int) -> WhyReport | CommandError:
        listener = Listener(on_progress) if pid == pids[0] else Listener()
        try:
            if pid in branches:
                return examine(pid, branches[pid], seconds, listener)
            return examine_outside(pid, seconds, listener)
        except CommandError as error:
            return error

    with ThreadPoolExecutor(len(pids)) as pool:
        futures = {pid: pool.submit(examine_one, pid) for pid in pids}
        while watcher is not None and not all(future.done() for future in futures.values()):
            watcher.inbox.arrived.wait(_POLL_SECONDS)
            for message in watcher.inbox.drain():
                if isinstance(message, Answer) and message.pid in branches:
                    branches[message.pid].inbox.put(message)
    results = {pid: future.result() for pid, future in futures.items()}
    reports = tuple(result for result in results.values() if isinstance(result, WhyReport))
    failures = {pid: result for pid, result in results.items() if isinstance(result, CommandError)}
    if not reports:
        raise failures[pids[0]]
    return compared(reports, {pid: error.problem for pid, error in failures.items()})


def compared(reports: tuple[WhyReport, ...], problems: Mapping[int | str, Problem]) -> JobWhyReport:
    """The ranks with the straggler among them, judged again."""
    straggler = find_straggler([report.evidence for report in reports])
    if straggler is not None:
        reports = tuple(_with_straggler(report, straggler) for report in reports)
    return JobWhyReport(reports, straggler, problems)


def _with_straggler(report: WhyReport, straggler: Straggler) -> WhyReport:
    evidence = replace(report.evidence, straggler=straggler)
    verdict = report.verdict if report.host else judge_run(evidence)  # of another host, evidence is known in part
    return replace(report, evidence=evidence, verdict=verdict)
