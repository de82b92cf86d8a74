"""The verdict on a job, from the evidence of its ranks, with a sentence for each rank."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import isfinite
from typing import Final

from gpumon.core.device_use import BUSY_PERCENT
from gpumon.core.ranks import HangKind, HangVerdict, RankEvidence
from gpumon.core.units import duration_text, short_time_text
from gpumon.insight.hangs.standing import (
    Standing,
    description,
    frame_of,
    is_serving,
    is_waiting_for_data,
    is_working,
    kind_of,
    line_of,
    standing_of,
)
from gpumon.insight.hangs.stragglers import judge_stragglers
from gpumon.insight.hangs.waits import Mismatch, Wait, first_mismatch, first_pending, group_clause, waits_of

MIN_SECONDS: Final = 10.0
"""A job that makes progress within this time never hangs."""
STEPS: Final = 10.0
"""A job hangs after this many of its usual steps at the earliest."""
MIN_COUNTED_SECONDS: Final = 20.0
"""Likewise without a probe: NCCL's counts are read every ten seconds, and the usual step time is unknown."""
_MIN_SLOW_SECONDS: Final = 1.0
"""A step that takes less is not called slow; where the usual step time is not sure yet, `MIN_SECONDS`."""
MAKES_PROGRESS: Final = "The job makes progress."
RUNS: Final = "The main threads run; without a probe, nothing shows whether steps end."
BUSY_FACTOR: Final = 3.0
"""A rank that computes may take this many times longer: it may be in one long call."""
_MAX_NAMED: Final = 4
_MIN_BYTES_PER_SECOND: Final = 0.1e6
_MAX_SENTENCES: Final = 64


def judge_hang(ranks: Sequence[RankEvidence], now_monotonic: float) -> HangVerdict:
    """Judge whether a job hangs.

    Args:
        ranks: The evidence of its ranks, those that have ended included.
        now_monotonic: Seconds of the clock of `RankEvidence.progressed_monotonic`; infinite where the evidence is of
            one moment, so that it does not show since when a job makes no progress.
    """
    evidence = _sentences(ranks)
    running = [rank for rank in ranks if standing_of(rank) is not Standing.ENDED]
    if not running:
        return _ended(ranks, evidence)
    since = _since(running, now_monotonic)
    if since is None:
        return HangVerdict(
            HangKind.UNDECIDED, False, "No source shows whether the ranks make progress.", evidence=evidence
        )
    least = MIN_SECONDS if any(rank.has_probe for rank in running) else MIN_COUNTED_SECONDS
    limit = max(least, STEPS * max((rank.typical_step_seconds or 0.0 for rank in running), default=0.0))
    if since < limit:
        return _running(running, evidence)
    verdict = _stalled(ranks, running, since, limit, now_monotonic)
    return replace(verdict, since_seconds=since if isfinite(since) else None, evidence=_sentences(ranks, verdict.rank))


def _since(running: Sequence[RankEvidence], now: float) -> float | None:
    """How long no rank has made progress; None if that is unknown."""
    times = [rank.progressed_monotonic for rank in running if rank.progressed_monotonic is not None]
    return max(0.0, now - max(times)) if times else None


def _ended(ranks: Sequence[RankEvidence], evidence: tuple[str, ...]) -> HangVerdict:
    failed = [rank for rank in ranks if rank.exit_status]
    if failed:
        return HangVerdict(
            HangKind.DEAD, False, f"Rank {failed[0].rank} has failed: {description(failed[0])}.", failed[0].rank
        )
    return HangVerdict(HangKind.FINISHED, False, "All ranks have ended.", evidence=evidence)


def _running(running: Sequence[RankEvidence], evidence: tuple[str, ...]) -> HangVerdict:
    """The verdict on a job that makes progress: slower than it was, slowed by a rank, or neither."""
    known = [rank for rank in running if rank.latest_step_seconds and rank.typical_step_seconds]
    latest = max((rank.latest_step_seconds or 0.0 for rank in known), default=0.0)
    usual = max((rank.shortest_step_seconds or rank.typical_step_seconds or 0.0 for rank in known), default=0.0)
    is_sure = all(rank.shortest_step_seconds for rank in known)
    if usual and latest >= max(_MIN_SLOW_SECONDS if is_sure else MIN_SECONDS, STEPS * usual):
        text = f"Slow, not hung: the latest step took {short_time_text(latest)}, a usual one {short_time_text(usual)}."
        return HangVerdict(HangKind.SLOW, False, text, evidence=evidence)
    has_source = any(rank.has_probe or rank.ras_counts or rank.progress for rank in running)
    return judge_stragglers(running) or HangVerdict(HangKind.RUNNING, False, MAKES_PROGRESS if has_source else RUNS)


def _stalled(
    ranks: Sequence[RankEvidence], running: Sequence[RankEvidence], since: float, limit: float, now: float
) -> HangVerdict:
    waits = waits_of(ranks)
    mismatch = first_mismatch(running)
    if mismatch is not None:
        return _mismatched(mismatch, running, since)
    by_rank = {rank.rank: rank for rank in ranks}
    waiting = {wait.rank for wait in waits if wait.absent}
    blockers = Counter(absent for wait in waits for absent in wait.absent if absent not in waiting)
    entered = [wait for wait in waits if wait.rank in blockers and wait.sequence is not None]
    if blockers and blockers.keys() <= {wait.rank for wait in entered}:
        return _without_reason(entered, [rank for rank in running if rank.rank in blockers], since)
    if blockers:
        rank = by_rank[min(blockers, key=lambda number: (-blockers[number], number))]
        return _blocked_by(rank, [wait for wait in waits if rank.rank in wait.absent], since, limit, now)
    if any(wait.absent for wait in waits):
        return _deadlock(waits, running, since)
    if waits:
        return _without_reason(waits, running, since)
    return _without_stacks(running, since, limit) or _without_wait(running, since)


def _blocked_by(rank: RankEvidence, waits: Sequence[Wait], since: float, limit: float, now: float) -> HangVerdict:
    """A rank has not entered a collective in which others wait."""
    standing = standing_of(rank)
    label = min(waits, key=lambda wait: (len(wait.absent), wait.rank)).label
    waiting = tuple(sorted({wait.rank for wait in waits}))
    idle = since if rank.worked_monotonic is None else min(since, now - rank.worked_monotonic)
    is_hang = idle >= (BUSY_FACTOR * limit if standing is Standing.COMPUTES else limit) and not is_serving(rank)
    clauses = f"{description(rank)}{_during(since)}; {_ranks_wait(waiting)}"
    if standing is Standing.ENDED:
        clauses = f"{description(rank)}; {_ranks_wait(waiting)}{_during(since)}"
    note = " A server without requests waits likewise." if is_serving(rank) else ""
    note = " It works." if idle < since and not is_hang else note
    summary = f"Rank {rank.rank} has not entered {label}: {clauses}.{note}"
    kind = kind_of(standing) if is_hang or standing is Standing.WAITS_FOR_DATA else HangKind.SLOW
    kind = HangKind.UNDECIDED if is_serving(rank) else kind
    return HangVerdict(kind, is_hang, summary, rank.rank, label, line_of(rank), waiting_ranks=waiting)


def _mismatched(mismatch: Mismatch, running: Sequence[RankEvidence], since: float) -> HangVerdict:
    odd = mismatch.odd or tuple(mismatch.calls)[-1:]
    calls = Counter(mismatch.calls.values())
    numbered = "" if mismatch.sequence is None else f" #{mismatch.sequence}{group_clause(mismatch.group)}"
    label = f"collective{numbered}" if numbered else "a collective"
    parts = [
        f"{_rank_list(rank for rank, call in mismatch.calls.items() if call == text)} called {text}" for text in calls
    ]
    rank = next((rank for rank in running if rank.rank in odd), None)
    line = "" if rank is None else line_of(rank)
    place = f", in {line}" if line else ""
    summary = f"The ranks differ in {label}: {'; '.join(parts)}{place}; no progress{_during(since)}."
    collective = f"{mismatch.calls[odd[0]]}{numbered}"
    waiting = tuple(sorted(number for number in mismatch.calls if number not in odd))
    number = odd[0] if len(odd) == 1 else None
    return HangVerdict(HangKind.MISMATCHED, True, summary, number, collective, line, waiting_ranks=waiting)


def _deadlock(waits: Sequence[Wait], running: Sequence[RankEvidence], since: float) -> HangVerdict:
    """Every rank that is waited for waits too."""
    by_rank = {rank.rank: rank for rank in running}
    cycle = [wait for wait in waits if wait.absent]
    parts = [f"rank {wait.rank} waits in {wait.label} for {_rank_list(wait.absent)}" for wait in cycle[:_MAX_NAMED]]
    more = f" and {len(cycle) - _MAX_NAMED} more" if len(cycle) > _MAX_NAMED else ""
    summary = f"Deadlock{_during(since)}: {'; '.join(parts)}{more}."
    first = by_rank.get(cycle[0].rank)
    line = "" if first is None else line_of(first)
    waiting = tuple(sorted({wait.rank for wait in cycle}))
    return HangVerdict(HangKind.DEADLOCK, True, summary, None, cycle[0].label, line, waiting_ranks=waiting)


def _without_reason(waits: Sequence[Wait], running: Sequence[RankEvidence], since: float) -> HangVerdict:
    """Ranks wait in collectives that all have entered, as far as known."""
    waiting = tuple(sorted({wait.rank for wait in waits}))
    known = [wait for wait in waits if wait.sequence is not None]
    others = [rank for rank in running if rank.rank not in waiting]
    label = (known or list(waits))[0].label
    blocked = [rank for rank in others if kind_of(standing_of(rank)) is not HangKind.NOT_ENTERED]
    if others:
        rank = (blocked or others)[0]
        is_hang = bool(blocked) and not is_working(rank)
        summary = (
            f"{_ranks_wait(waiting).capitalize()} in {label}{_during(since)}. Rank {rank.rank} does not: "
            f"{description(rank)}."
        )
        kind = kind_of(standing_of(rank)) if is_hang else HangKind.UNDECIDED
        return HangVerdict(kind, is_hang, summary, rank.rank, label, line_of(rank), waiting_ranks=waiting)
    line = next((line_of(rank) for rank in running if rank.rank in waiting), "")
    if known:
        summary = (
            f"{label} has not completed{_during(since)}, although every rank has entered it: the ranks "
            "passed different arguments, such as another root, or the network or NVLink fails."
        )
        return HangVerdict(HangKind.TRANSPORT, True, summary, None, label, line, waiting_ranks=waiting)
    summary = f"All ranks are in {label}{_during(since)}, and it does not return."
    return HangVerdict(HangKind.UNDECIDED, True, summary, None, label, line, waiting_ranks=waiting)


def _without_stacks(running: Sequence[RankEvidence], since: float, limit: float) -> HangVerdict | None:
    """The verdict by the system calls of the main threads: one rank does not wait as the others do; else None.

    A futex is no evidence of a collective, for an idle server waits likewise: NCCL's counts are, and kernels that spin.
    """
    if any(rank.stack or rank.recording for rank in running):
        return None
    waiting = tuple(rank.rank for rank in running if standing_of(rank) is Standing.WAITS_FOR_LOCK)
    others = [rank for rank in running if rank.rank not in waiting]
    if len(others) != 1 or not waiting or standing_of(others[0]) in {Standing.STOPPED, Standing.UNKNOWN}:
        return None
    rank = others[0]
    standing = standing_of(rank)
    has_collective = any(rank.ras_counts for rank in running) or all(
        (rank.gpu.utilization_percent or 0.0) >= BUSY_PERCENT for rank in running if rank.rank in waiting
    )
    is_late = since >= (BUSY_FACTOR * limit if standing is Standing.COMPUTES else limit) and not is_working(rank)
    is_hang = is_late and has_collective and not is_serving(rank)
    summary = (
        f"Rank {rank.rank} does not wait as the others do: {description(rank)}{_during(since)}; "
        f"{_ranks_wait(waiting)} in a futex, "
        f"{'probably' if has_collective else 'which does not show whether they are'} in a collective."
    )
    kind = kind_of(standing) if is_hang else HangKind.UNDECIDED if is_late else HangKind.SLOW
    return HangVerdict(kind, is_hang, summary, rank.rank, waiting_ranks=waiting)


def _without_wait(running: Sequence[RankEvidence], since: float) -> HangVerdict:
    """No rank waits in a collective."""
    for kind, is_so in (
        (HangKind.STOPPED, lambda rank: standing_of(rank) is Standing.STOPPED),
        (HangKind.WAITING_FOR_DATA, is_waiting_for_data),
    ):
        those = [rank for rank in running if is_so(rank)]
        if those:
            who = "Every rank" if len(those) == len(running) else _rank_list(rank.rank for rank in those).capitalize()
            what = "is stopped" if kind is HangKind.STOPPED else "waits for data"
            if not who.startswith("Every") and len(those) > 1:
                what = what.replace("is ", "are ").replace("waits", "wait")
            line = line_of(those[0])
            summary = f"{who} {what}{f' in {line}' if line else ''},{_during(since)}."
            number = those[0].rank if len(those) == 1 else None
            return HangVerdict(kind, kind is HangKind.STOPPED, summary, number, "", line)
    if any(is_working(rank) for rank in running):
        return HangVerdict(HangKind.SLOW, False, f"No step{_during(since)}, but the main threads work.")
    is_known = any(rank.stack or rank.recording for rank in running)
    where = "no rank waits in a collective" if is_known else "without stacks it is unknown where the ranks wait"
    summary = f"No progress{_during(since)}, and {where}."
    return HangVerdict(HangKind.UNDECIDED, False, summary, line=line_of(running[0]))


def _during(since: float) -> str:
    """For how long, as a clause; empty if unknown."""
    return f" for {duration_text(since)}" if isfinite(since) else ""


def _ranks_wait(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]} waits" if len(ranks) == 1 else f"{len(ranks)} ranks wait"


def _rank_list(ranks: Iterable[int]) -> str:
    numbers = sorted(ranks)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    named = ", ".join(map(str, numbers[:_MAX_NAMED]))
    more = f" and {len(numbers) - _MAX_NAMED} more" if len(numbers) > _MAX_NAMED else ""
    return f"ranks {named}{more}"


def _sentences(ranks: Sequence[RankEvidence], first: int | None = None) -> tuple[str, ...]:
    """One sentence for each rank, with what each source says of it.

    ``first`` is the rank that is the reason, which comes first; None for none.
    """
    ordered = sorted(ranks, key=lambda rank: (rank.rank != first, rank.rank))
    return tuple(_sentence(rank) for rank in ordered[:_MAX_SENTENCES])


def _sentence(rank: RankEvidence) -> str:
    if standing_of(rank) is Standing.ENDED:
        return f"Rank {rank.rank}: {description(rank)}."
    return f"Rank {rank.rank}: {'; '.join(_clauses(rank)) or 'nothing is known'}."


def _clauses(rank: RankEvidence) -> Iterator[str]:
    for group, collective in first_pending(rank).items():
        label = f"{collective.name} #{collective.sequence}{group_clause(group)}"
        yield f"{label} is {collective.state.value} (flight recorder)"
    frame = frame_of(rank)
    if frame is not None:
        source = "py-spy" if not rank.has_probe else "faulthandler" if rank.gil_is_held else "stack"
        yield f"{line_of(rank)} in {frame.function} ({source})"
    state = _state(rank)
    if state:
        yield state
    if rank.is_reachable is False:
        yield "the probe does not answer"
    if rank.gpu.utilization_percent is not None and rank.gpu.power_watts is not None:
        yield f"GPU {rank.gpu.utilization_percent:.0f} %, {rank.gpu.power_watts:.0f} W"


def _state(rank: RankEvidence) -> str:
    parts = [f"state {rank.state_code}" if rank.state_code else ""]
    if rank.system_call:
        target = f" on {rank.system_call_target}" if rank.system_call_target else ""
        parts.append(f"system call {rank.system_call}{target}")
    elif rank.kernel_function:
        parts.append(f"in {rank.kernel_function} of the kernel")
    if rank.cpu_share is not None:
        parts.append(f"{100.0 * rank.cpu_share:.0f} % of a core")
    if rank.io_bytes_per_second is not None and rank.io_bytes_per_second >= _MIN_BYTES_PER_SECOND:
        parts.append(f"{rank.io_bytes_per_second / 1e6:.1f} MB/s read and written")
    return ", ".join(filter(None, parts))
