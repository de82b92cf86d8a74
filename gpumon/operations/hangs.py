"""Watches the jobs of this host for hangs: one `HangWatch` for the screen and for the command.

Its owner calls `update` about once a second, and passes every `gpumon.probe.messages.Answer` that arrives to `receive`,
because the inbox of the probes has one reader.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpumon.core.ranks import NO_GPU, GpuSignature, HangKind, HangVerdict, RankEvidence
from gpumon.distributed.environment import JobRank, TrainingJob
from gpumon.insight.hangs import MAKES_PROGRESS, judge_hang
from gpumon.operations.rank_watch import Ask, RankWatch
from gpumon.probe.messages import Answer, Probe


class HangWatch:
    """The watch over all jobs of this host."""

    def __init__(self, ask: Ask, proc: Path = Path("/proc")) -> None:
        self._ask = ask
        self._proc = proc
        self._watches: dict[tuple[int, int], RankWatch] = {}
        self._evidence: dict[str, tuple[RankEvidence, ...]] = {}
        self._verdicts: dict[str, HangVerdict] = {}

    def update(
        self,
        jobs: Iterable[TrainingJob],
        probes: Mapping[int, Probe],
        now: float,
        *,
        gpus: Mapping[int, GpuSignature] | None = None,
        ras_counts: Mapping[int, Mapping[str, int]] | None = None,
        is_open: Callable[[TrainingJob], bool] = lambda _: False,
        wants_stacks: bool = False,
    ) -> dict[str, HangVerdict]:
        """Look at the jobs, send requests to the probes of those without progress, and judge.

        What the GPUs do, and how many collectives a rank has entered as NCCL's RAS reports them, are by PID.
        ``is_open`` says whether the ranks of a job are shown, and ``wants_stacks`` whether to gather everything of jobs
        that make progress, too.

        Returns:
            The verdicts by `TrainingJob.key`.
        """
        self._evidence = {}
        seen: set[tuple[int, int]] = set()
        for job in jobs:
            running = [self._watch(rank, now) for rank in job.ranks]
            exited = [self._watch(rank, now) for rank in job.exited]
            seen.update((rank.pid, rank.start_ticks) for rank in (*job.ranks, *job.exited))
            for watch in running:
                pid = watch.job_rank.pid
                watch.observe(probes.get(pid), None if ras_counts is None else ras_counts.get(pid), now)
            has_others = bool(running) and max(len(running), job.world_size or 0) > 1
            if has_others and not any(watch.has_source for watch in running):
                _note_from_outside(running, now)
            is_quiet = all(watch.is_quiet(now) for watch in running)
            for watch in running:
                watch.gather(
                    self._ask,
                    now,
                    is_job_quiet=is_quiet or wants_stacks,
                    is_open=is_open(job),
                    ranks_count=len(running),
                )
            for watch in exited:
                watch.look(now)
            gpu = gpus or {}
            self._evidence[job.key] = (
                *(watch.evidence(now, gpu.get(watch.job_rank.pid, NO_GPU), has_exited=False) for watch in running),
                *(watch.evidence(now, NO_GPU, has_exited=True) for watch in exited),
            )
        self._watches = {key: watch for key, watch in self._watches.items() if key in seen}
        verdicts = {key: judge_hang(evidence, now) for key, evidence in self._evidence.items()}
        before, self._verdicts = self._verdicts, verdicts
        return {key: _confirmed(verdict, before.get(key)) for key, verdict in verdicts.items()}

    def receive(self, answer: Answer, now: float) -> None:
        """Take an answer of a probe; answers to requests of others are ignored."""
        for watch in self._watches.values():
            if watch.job_rank.pid == answer.pid:
                watch.receive(answer, now)

    def evidence(self, key: str) -> tuple[RankEvidence, ...]:
        """The evidence of the ranks of a job at the last update."""
        return self._evidence.get(key, ())

    def _watch(self, rank: JobRank, now: float) -> RankWatch:
        key = rank.pid, rank.start_ticks
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = RankWatch(rank, now, self._proc)
        watch.job_rank = rank
        return watch


def _note_from_outside(ranks: Sequence[RankWatch], now: float) -> None:
    """Notice the progress of a job without any source: no step can end while the main thread of a rank stands still.

    Only ranks that wait in a collective count where a stack shows that one does; where stacks show that none does, the
    job may have ranks whose main thread has nothing to do.
    """
    for rank in ranks:
        rank.note_run(now)
    waiting = [rank for rank in ranks if rank.is_in_collective]
    if not waiting and any(rank.is_in_collective is False for rank in ranks):
        progressed = max(rank.moved for rank in ranks)
    else:
        progressed = min(rank.moved for rank in waiting or ranks)
    for rank in ranks:
        rank.progressed = progressed


def _confirmed(verdict: HangVerdict, before: HangVerdict | None) -> HangVerdict:
    """A hang or a straggler only if the update before saw it too: the evidence is not all from the same moment."""
    if before is not None and (before.kind, before.rank) == (verdict.kind, verdict.rank):
        return verdict
    if verdict.kind is HangKind.STRAGGLER:
        return HangVerdict(HangKind.RUNNING, is_hang=False, summary=MAKES_PROGRESS)
    return replace(verdict, is_hang=False) if verdict.is_hang else verdict
