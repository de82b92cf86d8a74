"""The training jobs of this host, looked at for a moment: long enough to see whether they make progress."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, Problem
from gpumon.core.ranks import RankEvidence
from gpumon.core.stacks import ThreadStack
from gpumon.insight.hangs import MIN_COUNTED_SECONDS
from gpumon.operations.one_shot import PROBE_TIMEOUT_SECONDS, sample_frame
from gpumon.operations.rank_watch import QUIET_SECONDS
from gpumon.operations.training_jobs.report import TrainingJobReport, TrainingJobState
from gpumon.operations.training_jobs.watcher import JobsReading, JobWatcher
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Answer, RequestKind

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
