"""What speaks for a verdict, in sentences."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.ranks import RankEvidence
from gpumon.insight.hangs.standing import Standing, description, line_of, standing_of, user_frame
from gpumon.insight.hangs.waits import first_pending, group_clause

_MIN_BYTES_PER_SECOND: Final = 0.1e6
_MAX_SENTENCES: Final = 64


def sentences(ranks: Sequence[RankEvidence], first: int | None = None) -> tuple[str, ...]:
    """One sentence for each rank, with what each source says of it.

    Args:
        ranks: The ranks.
        first: The rank that is the reason, which comes first; None for none.
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
    frame = user_frame(rank.stack)
    if frame is not None:
        source = "faulthandler" if rank.gil_is_held else "stack"
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
