"""Why a job of several ranks on this host is slow: every rank is observed at the same time, and they are compared."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gpumon.core.inbox import Inbox
from gpumon.core.problems import CommandError, Problem
from gpumon.core.procfs import find_stat
from gpumon.distributed.environment import read_environment
from gpumon.insight.bottlenecks.causes.other_ranks import find_straggler
from gpumon.insight.bottlenecks.slowness_evidence import Straggler
from gpumon.insight.bottlenecks.slowness_verdict import judge_run
from gpumon.operations.why.examination import Listener, WhyReport, examine, find_probe
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Answer, Probe, ProbeMessage, RequestKind

_POLL_SECONDS: Final = 0.05
_MAX_RANKS: Final = 64
_JOB_VARIABLES: Final = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")


@dataclass(frozen=True, slots=True)
class JobWhyReport:
    """The result for a job.

    Attributes:
        ranks: The report of each rank that could be examined, by rank.
        straggler: The rank that the others wait for, or None.
        problems: Why ranks could not be examined, by PID.
    """

    ranks: tuple[WhyReport, ...]
    straggler: Straggler | None
    problems: Mapping[int, Problem]


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


def ranks_of(pid: int, watcher: ProbeWatcher) -> tuple[int, ...]:
    """The processes with a probe on this host that belong to the job of a process, by rank.

    A process that a rank has started has the environment of the rank, and is none.

    Args:
        pid: One of its ranks.
        watcher: The connection to the probes; started.

    Raises:
        CommandError: There is no such process, or it has no probe.
    """
    own = find_probe(pid, watcher)
    name = _job_name(pid)
    members = [
        probe
        for probe in watcher.probes.values()
        if probe.pid == pid
        or (name and probe.process.world_size == own.process.world_size and _job_name(probe.pid) == name)
    ]
    pids = {probe.pid for probe in members}
    stats = {probe.pid: find_stat(f"/proc/{probe.pid}") for probe in members}
    children = {child for child, stat in stats.items() if stat is not None and stat.parent in pids}
    ranks = [probe for probe in members if probe.pid == pid or probe.pid not in children]
    return tuple(probe.pid for probe in sorted(ranks, key=lambda probe: probe.process.rank or 0))[:_MAX_RANKS]


def examine_job(
    pids: tuple[int, ...], watcher: ProbeWatcher, seconds: float | None, on_progress: Callable[[Any], None]
) -> JobWhyReport:
    """Examine several processes at the same time, and compare them. Their programs do not change.

    Args:
        pids: The processes.
        watcher: The connection to the probes; started. Its inbox is drained.
        seconds: How long to observe them; None for a time that fits their steps.
        on_progress: Called several times a second with the progress of one of them.

    Raises:
        CommandError: None of them can be examined.
    """
    branches = {pid: _Branch(watcher) for pid in pids}
    reports: list[WhyReport] = []
    problems: dict[int, Problem] = {}
    with ThreadPoolExecutor(len(pids)) as pool:
        first = pids[0]
        futures: dict[int, Future[WhyReport]] = {
            pid: pool.submit(
                examine, pid, branches[pid], seconds, Listener(on_progress) if pid == first else Listener()
            )
            for pid in pids
        }
        while not all(future.done() for future in futures.values()):
            watcher.inbox.arrived.wait(_POLL_SECONDS)
            for message in watcher.inbox.drain():
                if isinstance(message, Answer) and message.pid in branches:
                    branches[message.pid].inbox.put(message)
    for pid, future in futures.items():
        try:
            reports.append(future.result())
        except CommandError as error:
            problems[pid] = error.problem
            failure = error
    if not reports:
        raise failure
    return compared(tuple(reports), problems)


def compared(reports: tuple[WhyReport, ...], problems: Mapping[int, Problem]) -> JobWhyReport:
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
    return replace(report, evidence=evidence, verdict=judge_run(evidence))


def _job_name(pid: int) -> tuple[str, ...]:
    """What the processes of a job have in common; empty if nothing is known."""
    environment, _ = read_environment(Path(f"/proc/{pid}"))
    values = tuple(environment.get(name, "") for name in _JOB_VARIABLES)
    return values if any(values) else ()
