"""Watches the training jobs of this host, or looks at them for a moment: which there are, and whether they hang."""

import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.model import Device, Frame
from gpumon.core.problems import CommandError, Problem
from gpumon.core.procfs import age_seconds
from gpumon.core.ranks import GpuSignature, RankEvidence
from gpumon.core.stacks import ThreadStack
from gpumon.distributed.environment import JobRank, TrainingJob
from gpumon.distributed.grouping import JobScanner
from gpumon.distributed.process_facts import MAX_READS
from gpumon.distributed.ras_poller import MIN_LISTENING_SECONDS, POLL_SECONDS, RasAnswer, RasPoller
from gpumon.insight.hangs import MIN_COUNTED_SECONDS
from gpumon.operations.hangs import HangWatch
from gpumon.operations.one_shot import PROBE_TIMEOUT_SECONDS, sample_frame
from gpumon.operations.rank_watch import QUIET_SECONDS, Ask
from gpumon.operations.training_jobs.host_report import JobInputs, job_report, workers_of
from gpumon.operations.training_jobs.ras_ranks import remote_ranks, with_ras
from gpumon.operations.training_jobs.report import TrainingJobReport, TrainingJobState
from gpumon.probe.attach import Attachability, attachability
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Answer, Probe, RequestKind

_MAX_ANSWERS: Final = 4096


class JobsReading(NamedTuple):
    """The jobs at one moment.

    Attributes:
        reports: The jobs, those with the most ranks first.
        is_stalled: Whether a job has made no progress for some seconds.
        evidence: What is known of the ranks of each job, by its key.
        ras: What NCCL reports, by the key of the job.
    """

    reports: tuple[TrainingJobReport, ...] = ()
    is_stalled: bool = False
    evidence: Mapping[str, tuple[RankEvidence, ...]] = {}
    ras: Mapping[str, RasAnswer] = {}


class JobWatcher:
    """Watches jobs. Not safe for several threads, except for `add_answer`."""

    def __init__(self, ask: Ask, proc: Path = Path("/proc"), ras_seconds: float = POLL_SECONDS) -> None:
        self._scanner = JobScanner(proc)
        self._ras = RasPoller(proc, ras_seconds)
        self._hangs = HangWatch(ask, proc)
        self._attachable: dict[tuple[int, int], Attachability] = {}
        self._answers: deque[tuple[Answer, float]] = deque(maxlen=_MAX_ANSWERS)

    def add_answer(self, answer: Answer) -> None:
        """Hand over the answer of a probe; from any thread."""
        self._answers.append((answer, time.monotonic()))

    def read(
        self,
        frame: Frame | None,
        probes: Mapping[int, Probe],
        *,
        open_key: str = "",
        opens_all: bool = False,
        wants_stacks: bool = False,
        max_reads: int = MAX_READS,
        min_listening_seconds: float = MIN_LISTENING_SECONDS,
    ) -> JobsReading:
        """Read the jobs now. May block for seconds while NCCL answers.

        A screen shows the ranks of the job ``open_key``, or of all. The limits are those of `JobScanner.scan` and
        `RasPoller.poll`.
        """
        while self._answers:
            self._hangs.receive(*self._answers.popleft())
        jobs = self._scanner.scan(workers_of(frame, probes), max_reads)
        ras = self._ras.poll(jobs, time.monotonic(), min_listening_seconds)
        now = time.monotonic()
        verdicts = self._hangs.update(
            jobs,
            probes,
            now,
            gpus=_signatures(frame, jobs, self._scanner),
            ras_counts=_ras_counts(jobs, ras),
            is_open=lambda job: opens_all or job.key == open_key,
            wants_stacks=wants_stacks,
        )
        reports, evidence = [], {}
        for job in jobs:
            known = evidence[job.key] = self._hangs.evidence(job.key)
            age = max(0.0, age_seconds(job.start_ticks)) if job.ranks else None
            answer = ras.get(job.key)
            nccl = None if answer is None else answer.report
            verdict = with_ras(job, verdicts[job.key], nccl, _stalled_seconds(known, now), known)
            attachable = {rank.pid: self._attachability(rank) for rank in job.ranks if rank.pid not in probes}
            report = job_report(job, JobInputs(frame, probes, known, verdict, age, attachable=attachable), now)
            remote = () if nccl is None else remote_ranks(job, nccl)
            reports.append(replace(report, ranks=(*report.ranks, *remote)) if remote else report)
        present = {(rank.pid, rank.start_ticks) for job in jobs for rank in job.ranks}
        self._attachable = {key: state for key, state in self._attachable.items() if key in present}
        reports.sort(key=lambda report: (-report.running_ranks, report.key))
        is_stalled = any(_stalled_seconds(ranks, now) >= QUIET_SECONDS for ranks in evidence.values())
        return JobsReading(tuple(reports), is_stalled, evidence, ras)

    def _attachability(self, rank: JobRank) -> Attachability:
        """Whether the probe can be loaded into a process, or why not; read once."""
        key = rank.pid, rank.start_ticks
        if key not in self._attachable:
            self._attachable[key] = attachability(rank.pid)
        return self._attachable[key]


def _stalled_seconds(evidence: Iterable[RankEvidence], now: float) -> float:
    """For how long no rank has made progress; 0 if nothing reports progress."""
    times = [rank.progressed_monotonic for rank in evidence if rank.progressed_monotonic is not None]
    return max(0.0, now - max(times)) if times else 0.0


def _ras_counts(jobs: Iterable[TrainingJob], ras: Mapping[str, RasAnswer]) -> Mapping[int, Mapping[str, int]]:
    """How many collectives each rank has entered, by PID."""
    counts: dict[int, Mapping[str, int]] = {}
    for job in jobs:
        answer = ras.get(job.key)
        if answer is not None and answer.report is not None:
            counts.update(answer.report.counts_of({rank.pid: rank.rank or 0 for rank in job.ranks}))
    return counts


def _signatures(frame: Frame | None, jobs: Iterable[TrainingJob], scanner: JobScanner) -> Mapping[int, GpuSignature]:
    """What the first GPU of each rank does, by PID."""
    result: dict[int, GpuSignature] = {}
    for job in jobs:
        pids = {rank.pid for rank in job.ranks}
        for device in () if frame is None else frame.devices:
            for process in device.processes or ():
                if process.pid in pids and process.pid not in result:
                    result[process.pid] = _signature(device, scanner, pids)
    return result


def _signature(device: Device, scanner: JobScanner, pids: Collection[int]) -> GpuSignature:
    """What a GPU does; processes of other jobs are foreign, and helpers of the ranks are not."""
    foreign = [
        process
        for process in device.processes or ()
        if process.sm_percent and process.pid not in pids and not scanner.descends(process.pid, pids)
    ]
    busiest = max(foreign, key=lambda process: process.sm_percent or 0.0, default=None)
    return GpuSignature(
        label=device.label,
        utilization_percent=device.get("utilization_gpu_percent"),
        power_watts=device.get("power_watts"),
        tensor_active_percent=device.get("tensor_activity_percent"),
        clock_sm_hertz=device.get("clock_sm_hertz"),
        throttle_reasons=device.throttle_reasons or (),
        pcie_generation=device.get("pcie_generation"),
        pcie_width=device.get("pcie_width"),
        foreign_pid=None if busiest is None else busiest.pid,
        foreign_sm_percent=None if busiest is None else busiest.sm_percent,
        ecc_uncorrected_count=device.get("ecc_uncorrected_volatile_count"),
    )


_SECONDS: Final = 1.0
_STALLED_SECONDS: Final = 2.5
"""Long enough for rates of CPU time and input."""
_RECORDING_SECONDS: Final = 4.0
"""For a flight recorder that was not read at once."""
_SILENT_SECONDS: Final = 7.0
"""A probe whose process cannot run Python is known to be silent after six seconds."""
_RAS_SECONDS: Final = 3.0
"""Time between two questions to NCCL: the counts of a job that makes progress have changed in between."""
_COUNTED_SECONDS: Final = MIN_COUNTED_SECONDS + 8.0
"""For a job whose progress NCCL's counts or main threads alone show, until two readings agree on a hang."""
_STILL_SECONDS: Final = 0.9
"""A rank without a probe whose main thread has not run for this long may stand still."""
_READ_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.02
_MAX_READS: Final = 1 << 20


class JobsSample(NamedTuple):
    """The jobs of this host.

    Attributes:
        reading: The jobs.
        frame: The GPUs and the host; None if the collector sent nothing.
        problems: Why something is missing.
        stacks: The latest stacks of all threads that a probe has sent, by PID.
    """

    reading: JobsReading
    frame: Frame | None
    problems: tuple[Problem, ...] = ()
    stacks: Mapping[int, tuple[ThreadStack, ...]] = MappingProxyType({})


def sample_jobs(*, wants_stacks: bool = False) -> JobsSample:
    """Look at the jobs of this host: for about a second, or longer if one of them makes no progress."""
    probes = ProbeWatcher()
    jobs = JobWatcher(probes.ask, ras_seconds=_RAS_SECONDS)
    deadline = time.monotonic() + PROBE_TIMEOUT_SECONDS
    probes.start()
    try:
        frame, problems = _frame()
        probes.settle(deadline - time.monotonic())
        begun = time.monotonic()
        stacks: dict[int, tuple[ThreadStack, ...]] = {}
        while True:
            reading = jobs.read(
                frame,
                probes.probes,
                opens_all=True,
                wants_stacks=wants_stacks,
                max_reads=_MAX_READS,
                min_listening_seconds=0.0,
            )
            if not reading.reports or time.monotonic() - begun >= _needed_seconds(reading):
                return JobsSample(reading, frame, (*problems, *probes.problems), stacks)
            _collect_answers(probes, jobs, stacks)
    finally:
        probes.close()


def _needed_seconds(reading: JobsReading) -> float:
    """For how long the jobs have to be looked at: longer if one makes no progress, and longest if a probe is silent."""
    if any(_may_hang(reading.evidence[report.key], report) for report in reading.reports):
        return _COUNTED_SECONDS
    if not reading.is_stalled:
        return _SECONDS
    quiet = time.monotonic() - QUIET_SECONDS
    ranks = [
        rank
        for ranks in reading.evidence.values()
        for rank in ranks
        if rank.has_probe and not rank.exited and rank.progressed_monotonic and rank.progressed_monotonic <= quiet
    ]
    if not all(rank.stack and rank.is_reachable for rank in ranks):
        return _SILENT_SECONDS
    return _STALLED_SECONDS if all(rank.recording for rank in ranks) else _RECORDING_SECONDS


def _may_hang(ranks: Sequence[RankEvidence], report: TrainingJobReport) -> bool:
    """Whether a job whose progress no probe shows stands still, and has no verdict yet."""
    running = [rank for rank in ranks if not rank.exited]
    if report.state is TrainingJobState.HANGING or any(rank.has_probe or rank.has_progressed for rank in running):
        return False
    if any(rank.ras_counts is not None for rank in running):
        return True
    times = [rank.progressed_monotonic for rank in running if rank.progressed_monotonic is not None]
    return bool(times) and max(times) <= time.monotonic() - _STILL_SECONDS


def _collect_answers(probes: ProbeWatcher, jobs: JobWatcher, stacks: dict[int, tuple[ThreadStack, ...]]) -> None:
    """Hand over the answers that arrive until the next reading is due."""
    deadline = time.monotonic() + _READ_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        for message in probes.inbox.drain():
            if isinstance(message, Answer):
                jobs.add_answer(message)
                if message.ask is RequestKind.STACKS and isinstance(message.result, tuple):
                    stacks[message.pid] = message.result
        time.sleep(min(_POLL_SECONDS, left))


def _frame() -> tuple[Frame | None, tuple[Problem, ...]]:
    try:
        frame = sample_frame()
    except CommandError as error:
        return None, (error.problem,)
    driver = frame.problems.get("driver")
    return frame, () if driver is None else (driver,)
