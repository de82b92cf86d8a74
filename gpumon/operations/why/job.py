"""Why a job of several ranks on this host is slow: every rank is observed at the same time, and they are compared."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

from gpumon.core.inbox import Inbox
from gpumon.core.problems import CommandError, Problem
from gpumon.insight.bottlenecks.causes.other_ranks import find_straggler
from gpumon.insight.bottlenecks.slowness_evidence import Straggler
from gpumon.insight.bottlenecks.slowness_verdict import judge_run
from gpumon.operations.why.examination import Listener, WhyReport, examine
from gpumon.operations.why.outside import examine_outside
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Answer, Probe, ProbeMessage, RequestKind

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
    """One process's part of a watcher: its answers, and requests to it.

    Args:
        watcher: The connection to all probes.
    """

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

    Args:
        pids: The processes.
        watcher: The connection to the probes; started. Its inbox is drained. None to observe from outside.
        seconds: How long to observe them; None for a time that fits their steps.
        on_progress: Called several times a second with the progress of one of them.

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
    """The ranks with the straggler among them, judged again.

    Args:
        reports: The ranks.
        problems: Why others could not be examined.
    """
    straggler = find_straggler([report.evidence for report in reports])
    if straggler is not None:
        reports = tuple(_with_straggler(report, straggler) for report in reports)
    return JobWhyReport(reports, straggler, problems)


def _with_straggler(report: WhyReport, straggler: Straggler) -> WhyReport:
    evidence = replace(report.evidence, straggler=straggler)
    verdict = report.verdict if report.host else judge_run(evidence)  # of another host, evidence is known in part
    return replace(report, evidence=evidence, verdict=verdict)
