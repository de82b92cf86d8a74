"""What gpumon itself costs: entries for processes, frames and bytes, and a table of the driver calls."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpumon.core.model import CallCost, Frame
from gpumon.core.units import MISSING, bytes_text, counted, duration_text, short_time_text
from gpumon.present.entries import Entry
from gpumon.present.paint.columns import Cells, columns, numbers
from gpumon.present.paint.line import Role, Span
from gpumon.present.paint.table import Column
from gpumon.session.costs import CallCosts, CostSample, ProcessCost

_NO_PROC: Final = "/proc does not report it."
_MIN_SHARE: Final = 0.00001


def cost_entries(costs: CostSample, before: CostSample, frame: Frame) -> Iterator[Entry]:
    """Every cost since the start and, for rates, since a moment shortly before now.

    Args:
        costs: The costs up to now.
        before: The costs up to an earlier moment; the same ones if there is none.
        frame: The latest frame.
    """
    yield from _sweep_entries(frame)
    yield "Frames received", str(costs.frames_taken), "Frames that arrived from the source."
    yield (
        "Frames merged",
        str(costs.frames_merged),
        "Recorded in the history but not drawn, because a newer frame had already arrived.",
    )
    yield ("Frames late", str(costs.frames_late), "Reading all GPUs took longer than the interval.")
    yield "Frames lost", str(costs.frames_lost), "Dropped, because the screen was blocked for too long to receive them."
    yield _terminal_entry(costs, before)
    yield from _process_entries("gpumon", costs.own, before.own, costs, before)
    if not costs.collectors:
        yield "Collector", MISSING, "No collector runs here: the frames come from a recording or a pipe."
    earlier = {collector.pid: collector for collector in before.collectors}
    for collector in costs.collectors:
        yield from _process_entries("Collector", collector, earlier.get(collector.pid), costs, before)
    yield "Running", duration_text(costs.running_seconds), "Time since the start of gpumon."


def _sweep_entries(frame: Frame) -> Iterator[Entry]:
    sweep = frame.sweep
    share = ""
    if sweep.seconds is not None and frame.interval_seconds > 0:
        percent = sweep.seconds / frame.interval_seconds * 100
        share = f", {percent:.0f} % of the interval" if percent >= 10 else f", {percent:.2g} % of the interval"
    note = "Time to read all GPUs once, including driver calls and /proc."
    yield "Last sweep", f"{short_time_text(sweep.seconds)}{share}", note
    yield "NVML calls", f"{sweep.calls:,}", "Driver calls since the collector started."
    yield "NVML errors", f"{sweep.errors:,}", "Failed calls; a metric that a GPU does not support counts once."
    note = "Values of the driver outside their bounds, counted per frame and metric. They are shown as ? and not used."
    yield "Values refused", f"{sweep.refused:,}", note
    note = "Threads in a driver call that does not return. Their GPU is left out until it does."
    yield "Threads stuck", str(sweep.threads_stuck), note


def _terminal_entry(costs: CostSample, before: CostSample) -> Entry:
    label = "Sent to the terminal"
    if costs.terminal_bytes is None:
        return label, MISSING, "Nothing is sent to a terminal here."
    seconds = costs.at_seconds - before.at_seconds
    rate = "" if seconds <= 0 else f", {bytes_text((costs.terminal_bytes - (before.terminal_bytes or 0)) / seconds)}/s"
    note = f"Everything drawn, and the rate over the last {_span(costs, before)}. Rows that do not change cost nothing."
    return label, f"{bytes_text(costs.terminal_bytes)}{rate}", note


def _process_entries(
    name: str, now: ProcessCost | None, earlier: ProcessCost | None, costs: CostSample, before: CostSample
) -> Iterator[Entry]:
    if now is None:
        yield f"{name} CPU", MISSING, _NO_PROC
        yield f"{name} memory", MISSING, _NO_PROC
        return
    seconds = costs.at_seconds - before.at_seconds
    share = ""
    if earlier is not None and seconds > 0:
        share = f", {(now.cpu_seconds - earlier.cpu_seconds) / seconds * 100:.1f} %"
    note = f"CPU time of PID {now.pid}, and its share of one core over the last {_span(costs, before)}."
    yield f"{name} CPU", f"{now.cpu_seconds:.2f} s{share}", note
    yield f"{name} memory", bytes_text(now.memory_bytes), f"Resident memory of PID {now.pid}."


def _span(costs: CostSample, before: CostSample) -> str:
    return f"{costs.at_seconds - before.at_seconds:.0f} s"


# Driver calls


class CallRow(NamedTuple):
    """The cost of one driver call, recently and in total.

    Attributes:
        total: Since the collector started.
        per_second: Recent calls per second; None while unknown.
        mean_seconds: Recent mean duration, or the mean of all calls if there was no recent one.
        share: Recent share of the time; None while unknown.
    """

    total: CallCost
    per_second: float | None
    mean_seconds: float
    share: float | None


def call_rows(now: CallCosts, before: CallCosts) -> list[CallRow]:
    """A row per call, from its counters now and at an earlier moment; the calls that took most of the time first."""
    earlier = {cost.call: cost for cost in before.calls}
    elapsed = now.seconds - before.seconds
    rows = [_call_row(cost, earlier.get(cost.call), elapsed) for cost in now.calls]
    return sorted(rows, key=lambda row: (row.share or 0.0, row.total.seconds), reverse=True)


def _call_row(cost: CallCost, before: CallCost | None, elapsed: float) -> CallRow:
    mean = cost.seconds / cost.count if cost.count else 0.0
    if elapsed <= 0 or (before is not None and before.count > cost.count):  # the collector has just been replaced
        return CallRow(cost, None, mean, None)
    count = cost.count - (before.count if before else 0)
    seconds = max(0.0, cost.seconds - (before.seconds if before else 0.0))
    return CallRow(cost, count / elapsed, seconds / count if count else mean, seconds / elapsed)


def call_note(row: CallRow) -> str:
    """The totals of a call."""
    cost = row.total
    failed = f" ({cost.errors:,} failed)" if cost.errors else ""
    total = f"{counted(cost.count, 'call')} since the collector started{failed}"
    return f"{cost.call}: {total}, {short_time_text(cost.seconds)} in total."


def missing_calls_entry(*, has_collector: bool) -> Entry:
    """The entry in place of the table while there is none."""
    reason = "Counting starts now." if has_collector else "No collector reports them here."
    return "Driver calls", MISSING, reason


def _rate_text(rate: float | None) -> str:
    if rate is None:
        return MISSING
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"


def _share_text(share: float | None) -> str:
    if share is None:
        return MISSING
    if 0 < share < _MIN_SHARE:
        return f"<{_MIN_SHARE:.3%}"
    return f"{share:.1%}" if share >= 0.01 else f"{share:.3%}"


CALL_COLUMNS: Final[tuple[Column[CallRow], ...]] = columns(
    "calls",
    {
        "call": Cells(
            lambda row, _: Span(row.total.call.removeprefix("nvml"), Role.ACCENT),
            lambda row: row.total.call,
            lambda row: row.total.call,
        ),
        "rate": numbers(lambda row: row.per_second, _rate_text, Span),
        "mean": numbers(lambda row: row.mean_seconds, short_time_text),
        "max": numbers(lambda row: row.total.longest_seconds, short_time_text),
        "share": Cells(
            lambda row, _: Span(_share_text(row.share)), lambda row: None if row.share is None else row.share * 100
        ),
        "errors": numbers(lambda row: row.total.errors),
    },
)
