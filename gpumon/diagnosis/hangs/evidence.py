"""What speaks for a verdict, in sentences."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.ranks import RankEvidence
from gpumon.diagnosis.hangs.standing import Standing, description, line_of, standing_of, user_frame
from gpumon.diagnosis.hangs.waits import first_pending, group_clause

_MAX_SENTENCES: Final = 64


def sentences(ranks: Sequence[RankEvidence]) -> tuple[str, ...]:
    """One sentence for each rank and source."""
    return tuple(_sentences(ranks))[:_MAX_SENTENCES]


def _sentences(ranks: Sequence[RankEvidence]) -> Iterator[str]:
    for rank in ranks:
        if standing_of(rank) is Standing.ENDED:
            yield f"Rank {rank.rank}: {description(rank)}."
            continue
        for group, collective in first_pending(rank).items():
            label = f"{collective.name} #{collective.sequence}{group_clause(group)}"
            yield f"Rank {rank.rank}: {label} is {collective.state.value} (flight recorder)."
        frame = user_frame(rank.stack)
        if frame is not None:
            source = "faulthandler" if rank.gil_is_held else "stack"
            yield f"Rank {rank.rank}: {frame.function}, {line_of(rank)} ({source})."
        state = _state(rank)
        if state:
            yield f"Rank {rank.rank}: {state}."
        if rank.is_reachable is False:
            yield f"Rank {rank.rank}: the probe does not answer."
        if rank.gpu_utilization_percent is not None and rank.power_watts is not None:
            yield f"Rank {rank.rank}: GPU {rank.gpu_utilization_percent:.0f} %, {rank.power_watts:.0f} W."


def _state(rank: RankEvidence) -> str:
    parts = [f"state {rank.state_code}" if rank.state_code else ""]
    if rank.system_call:
        target = f" on {rank.system_call_target}" if rank.system_call_target else ""
        parts.append(f"system call {rank.system_call}{target}")
    elif rank.kernel_function:
        parts.append(f"in {rank.kernel_function} of the kernel")
    if rank.cpu_share is not None:
        parts.append(f"{100.0 * rank.cpu_share:.0f} % of a core")
    if rank.io_bytes_per_second:
        parts.append(f"{rank.io_bytes_per_second / 1e6:.1f} MB/s read and written")
    return ", ".join(filter(None, parts))
