"""Which rank slows the others of a job that makes progress: by its GPU, its link, its cores, its data or its code.

Ranks that train together have the same step time, so that a step time alone does not show which one is slow. What
differs is the hardware under load, the time that a rank waits for data, and how late it calls the collectives in which
others wait.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from gpumon.core.ranks import HangKind, HangVerdict, RankEvidence
from gpumon.core.throttle_reasons import THROTTLE_REASONS
from gpumon.core.units import counted, short_time_text
from gpumon.insight.hangs.standing import line_of

_LOAD_PERCENT: Final = 50.0
"""Clocks and links are compared under load only: an idle GPU lowers both."""
_CLOCK_RATIO: Final = 0.9
"""GPUs of one model under the same load differ by less."""
_CPU_RATIO: Final = 0.7
_MIN_CPU_SHARE: Final = 0.5
_LINK_RATIO: Final = 0.5
_LINK_WEIGHT: Final = 0.05
"""A narrow link is named only where nothing else is: many jobs do not use it."""
_FOREIGN_PERCENT: Final = 10.0
_CORE_WAIT_SHARE: Final = 0.3
_STEP_SHARE: Final = 0.1
_MIN_SECONDS: Final = 2e-3
_MIN_COLLECTIVES: Final = 8
_RECORDING_SECONDS: Final = 5.0
_IDLE_PERCENT: Final = 5.0


class _Cause(NamedTuple):
    """What makes a rank slower than the others.

    Attributes:
        rank: The rank.
        text: A clause.
        weight: The part of the step that it costs at most, by which causes are compared.
        is_hardware: Whether it is not the program.
        is_certain: Whether it slows every job.
        is_lateness: Whether only the effect is known: late calls.
    """

    rank: int
    text: str
    weight: float
    is_hardware: bool = True
    is_certain: bool = True
    is_lateness: bool = False


def judge_stragglers(running: Sequence[RankEvidence]) -> HangVerdict | None:
    """The verdict on a job that makes progress if one rank slows the others; None if none does, as far as known."""
    if len(running) < 2:
        return None
    late = lateness(running)
    causes = [cause for find in _FINDERS for cause in find(running, late)]
    if not causes:
        return None
    worst = max(causes, key=lambda cause: cause.weight)
    rank = next(rank for rank in running if rank.rank == worst.rank)
    number, step = len({cause.rank for cause in causes}), _step_seconds(running)
    excess = _excess(late, rank.rank)
    waits = ""
    if step and not worst.is_lateness and excess >= max(_MIN_SECONDS, _STEP_SHARE * step):
        waits = f" It calls its collectives {short_time_text(excess)} after them; a step takes {short_time_text(step)}."
    more = f" {counted(number - 1, 'other rank')} too." if number > 1 else ""
    verb = "slows" if worst.is_certain else "may slow"
    evidence = (*(_cause_sentence(cause) for cause in causes), *(_rank_sentence(rank, late) for rank in running))
    return HangVerdict(
        HangKind.STRAGGLER,
        is_hang=False,
        summary=f"Rank {worst.rank} {verb} the others: {worst.text}.{waits}{more}",
        rank=worst.rank,
        line=line_of(rank),
        evidence=evidence,
    )


def lateness(ranks: Sequence[RankEvidence]) -> Mapping[int, float]:
    """For each rank, how long after the first one it calls the same collective: the median of the latest, in seconds.

    Their recorders have the same clock.
    """
    calls: dict[tuple[str, int], dict[int, float]] = {}
    for rank in ranks:
        if rank.recording is None or (rank.recording_age_seconds or 0.0) > _RECORDING_SECONDS:
            continue
        for item in rank.recording.collectives:
            if item.created_seconds and not item.is_point_to_point:
                calls.setdefault((item.group, item.sequence), {})[rank.rank] = item.created_seconds
    delays: dict[int, list[float]] = {}
    for times in calls.values():
        if len(times) > 1:
            first = min(times.values())
            for number, time in times.items():
                delays.setdefault(number, []).append(time - first)
    return {number: median(values) for number, values in delays.items() if len(values) >= _MIN_COLLECTIVES}


def _excess(late: Mapping[int, float], rank: int) -> float:
    """How much later than the others a rank is."""
    others = [value for number, value in late.items() if number != rank]
    return late[rank] - median(others) if rank in late and others else 0.0


def _step_seconds(ranks: Sequence[RankEvidence]) -> float | None:
    times = [rank.typical_step_seconds for rank in ranks if rank.typical_step_seconds]
    return median(times) if times else None


def _reference(
    ranks: Sequence[RankEvidence], rank: RankEvidence, value_of: Callable[[RankEvidence], float | None]
) -> tuple[float, float] | None:
    """The value of a rank and the median of the others; None if one of them is unknown."""
    own = value_of(rank)
    others = [value for other in ranks if other is not rank and (value := value_of(other)) is not None]
    return None if own is None or not others else (own, median(others))


def _under_load(ranks: Sequence[RankEvidence]) -> list[RankEvidence]:
    return [rank for rank in ranks if (rank.gpu.utilization_percent or 0.0) >= _LOAD_PERCENT]


def _clocks(ranks: Sequence[RankEvidence], _: Mapping[int, float]) -> Iterator[_Cause]:
    loaded = _under_load(ranks)
    for rank in loaded:
        pair = _reference(loaded, rank, lambda item: item.gpu.clock_sm_hertz)
        if pair is not None and pair[0] < _CLOCK_RATIO * pair[1]:
            names = [
                reason.label
                for reason in THROTTLE_REASONS.values()
                if reason.id in rank.gpu.throttle_reasons and reason.explains_low_clock
            ]
            why = f" ({', '.join(names)})" if names else ""
            own, others = (_megahertz(value) for value in pair)
            text = f"the SM clock of GPU {rank.gpu.label} is {own}, that of the others {others}{why}"
            yield _Cause(rank.rank, text, 1.0 - pair[0] / pair[1])


def _links(ranks: Sequence[RankEvidence], _: Mapping[int, float]) -> Iterator[_Cause]:
    loaded = _under_load(ranks)
    for rank in loaded:
        pair = _reference(loaded, rank, _link_speed)
        if pair is not None and pair[0] <= _LINK_RATIO * pair[1]:
            best = max((other for other in loaded if other is not rank), key=lambda item: _link_speed(item) or 0.0)
            text = f"the PCIe link of GPU {rank.gpu.label} is {_link(rank)}, that of the others {_link(best)}"
            yield _Cause(rank.rank, text, _LINK_WEIGHT, is_certain=False)


def _link_speed(rank: RankEvidence) -> float | None:
    """The speed of a link, relative to one lane of the first generation."""
    generation, width = rank.gpu.pcie_generation, rank.gpu.pcie_width
    return None if not generation or not width else 2.0 ** (generation - 1) * width


def _link(rank: RankEvidence) -> str:
    return f"Gen {rank.gpu.pcie_generation:.0f} x{rank.gpu.pcie_width:.0f}"


def _sharing(ranks: Sequence[RankEvidence], _: Mapping[int, float]) -> Iterator[_Cause]:
    shares = {rank.rank: rank.gpu.foreign_sm_percent or 0.0 for rank in ranks}
    for rank in ranks:
        others = median(share for number, share in shares.items() if number != rank.rank)
        if shares[rank.rank] >= _FOREIGN_PERCENT + others:
            share = shares[rank.rank]
            text = (
                f"GPU {rank.gpu.label} also runs PID {rank.gpu.foreign_pid} of another job ({share:.0f} % of the time)"
            )
            yield _Cause(rank.rank, text, (share - others) / 100.0)


def _cores(ranks: Sequence[RankEvidence], _: Mapping[int, float]) -> Iterator[_Cause]:
    for rank in ranks:
        pair = _reference(ranks, rank, lambda item: item.core_wait_share)
        if pair is not None and pair[0] - pair[1] >= _CORE_WAIT_SHARE:
            own, others = (f"{100.0 * value:.0f} %" for value in pair)
            text = f"its main thread waits for a CPU core {own} of the time, that of the others {others}"
            yield _Cause(rank.rank, text, pair[0] - pair[1])
        busy = [item for item in ranks if (item.cpu_share or 0.0) >= _MIN_CPU_SHARE]
        pair = _reference(busy, rank, lambda item: item.cpu_hertz) if rank in busy else None
        if pair is not None and pair[0] < _CPU_RATIO * pair[1]:
            own, others = (_megahertz(value) for value in pair)
            yield _Cause(
                rank.rank, f"its CPU core runs at {own}, that of the others at {others}", 1 - pair[0] / pair[1]
            )


def _waits_for_data(ranks: Sequence[RankEvidence], _: Mapping[int, float]) -> Iterator[_Cause]:
    yield from _times(ranks, "data_seconds", "waits {own} per step for its DataLoader, the others {others}")
    yield from _times(ranks, "collection_seconds", "collects Python's garbage for {own} per step, the others {others}")


def _times(ranks: Sequence[RankEvidence], name: str, text: str) -> Iterator[_Cause]:
    step = _step_seconds(ranks)
    for rank in ranks:
        pair = _reference(ranks, rank, lambda item: getattr(item.progress, name, None))
        if step and pair is not None and pair[0] - pair[1] >= max(_MIN_SECONDS, _STEP_SHARE * step):
            own, others = (short_time_text(value) for value in pair)
            weight = min(1.0, (pair[0] - pair[1]) / step)
            yield _Cause(rank.rank, f"it {text.format(own=own, others=others)}", weight, is_hardware=False)


def _late_calls(ranks: Sequence[RankEvidence], late: Mapping[int, float]) -> Iterator[_Cause]:
    """A rank that calls its collectives late, for no other reason that is known."""
    step = _step_seconds(ranks)
    known = {cause.rank for find in _FINDERS if find is not _late_calls for cause in find(ranks, late)}
    for rank in ranks:
        excess = _excess(late, rank.rank)
        if not step or excess < max(_MIN_SECONDS, _STEP_SHARE * step) or rank.rank in known:
            continue
        if _is_asynchronous(rank) and not _has_idler_gpu(ranks, rank):
            continue
        times = f"{short_time_text(excess)} later, in a step of {short_time_text(step)}"
        text = f"it calls its collectives {times}, and neither its GPU nor its data shows why (gpumon why {rank.pid})"
        yield _Cause(rank.rank, text, min(1.0, excess / step), is_hardware=False, is_lateness=True)


def _is_asynchronous(rank: RankEvidence) -> bool:
    """Whether its collectives are only enqueued by the calls: a late call need not delay a GPU that has work."""
    groups = () if rank.recording is None else rank.recording.groups
    return any("nccl" in group.backend for group in groups)


def _has_idler_gpu(ranks: Sequence[RankEvidence], rank: RankEvidence) -> bool:
    """Whether its GPU does less than those of the others, which spin while they wait."""
    pair = _reference(ranks, rank, lambda item: item.gpu.utilization_percent)
    return pair is not None and pair[0] + _IDLE_PERCENT <= pair[1]


_FINDERS: Final[tuple[Callable[[Sequence[RankEvidence], Mapping[int, float]], Iterator[_Cause]], ...]] = (
    _clocks,
    _links,
    _sharing,
    _cores,
    _waits_for_data,
    _late_calls,
)


def _megahertz(hertz: float) -> str:
    return f"{hertz / 1e6:,.0f} MHz"


def _cause_sentence(cause: _Cause) -> str:
    return f"{'Hardware' if cause.is_hardware else 'Program'}: rank {cause.rank}: {cause.text}."


def _rank_sentence(rank: RankEvidence, late: Mapping[int, float]) -> str:
    """The values of a rank by which it can be compared."""
    gpu, progress = rank.gpu, rank.progress
    parts = [
        None if not rank.typical_step_seconds else f"step {short_time_text(rank.typical_step_seconds)}",
        None if rank.rank not in late else f"late by {short_time_text(late[rank.rank])}",
        None if progress is None or progress.data_seconds is None else f"data {short_time_text(progress.data_seconds)}",
        None if rank.core_wait_share is None else f"waits for a core {100.0 * rank.core_wait_share:.0f} %",
        None if gpu.utilization_percent is None else f"GPU {gpu.label} {gpu.utilization_percent:.0f} %",
        None if gpu.clock_sm_hertz is None else _megahertz(gpu.clock_sm_hertz),
        None if gpu.power_watts is None else f"{gpu.power_watts:.0f} W",
        None if not gpu.pcie_generation or not gpu.pcie_width else f"PCIe {_link(rank)}",
        f"{counted(int(gpu.ecc_uncorrected_count), 'uncorrected memory error')}" if gpu.ecc_uncorrected_count else None,
    ]
    return f"Rank {rank.rank}: {', '.join(filter(None, parts)) or 'nothing known'}."
