"""What gpumon costs, as entries: a label, the figure, and what it means."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.model import Frame
from gpumon.core.units import MISSING, bytes_text, duration_text
from gpumon.ui.costs import Costs, ProcessCost
from gpumon.ui.view.entries import Entry

_NO_PROC: Final = "It cannot be read from /proc."
_NO_TERMINAL: Final = "Nothing is sent to a terminal here."
_NO_COLLECTOR: Final = "No collector runs here: the frames come from a recording or a pipe."


def cost_entries(costs: Costs, before: Costs, frame: Frame) -> Iterator[Entry]:
    """Every cost, of all the time and, where that changes, since a moment shortly before.

    Args:
        costs: The costs up to now.
        before: Those up to a moment before; the same ones if there is none.
        frame: The latest frame.
    """
    yield from _sweep_entries(frame)
    yield "Frames taken in", str(costs.frames_taken), "Frames that have come in from the source."
    yield "Frames merged", str(costs.frames_merged), "Taken into the history, not drawn: a newer one was there already."
    yield (
        "Frames late",
        str(costs.frames_late),
        "Reading all GPUs took longer than the interval; the next one waited.",
    )
    yield "Frames lost", str(costs.frames_lost), "Dropped, because the screen stood still for too long to take them in."
    yield _terminal_entry(costs, before)
    yield from _process_entries("gpumon", costs.own, before.own, costs, before)
    if not costs.collectors:
        yield "Collector", MISSING, _NO_COLLECTOR
    earlier = {each.pid: each for each in before.collectors}
    for each in costs.collectors:
        yield from _process_entries("Collector", each, earlier.get(each.pid), costs, before)
    yield "Running", duration_text(costs.running_seconds), "How long gpumon has run."


def _sweep_entries(frame: Frame) -> Iterator[Entry]:
    sweep = frame.sweep
    taken = MISSING if sweep.seconds is None else _milliseconds(sweep.seconds)
    share = ""
    if sweep.seconds is not None and frame.interval_seconds > 0:
        percent = sweep.seconds / frame.interval_seconds * 100
        share = f", {percent:.0f} % of the interval" if percent >= 10 else f", {percent:.2g} % of the interval"
    yield "Last sweep", f"{taken}{share}", "Time that reading all GPUs once took, driver calls and /proc together."
    yield "NVML calls", str(sweep.calls), "Driver calls since the collector started."
    yield "NVML errors", str(sweep.errors), "Those that failed; a figure that a chip does not have counts once."
    note = "Answers of the driver that cannot be true, one a frame and value; they are shown as ? and count nowhere."
    yield "Values refused", str(sweep.refused), note
    note = "Threads that wait in a driver call that does not return; their GPU is left out until it does."
    yield "Threads stuck", str(sweep.threads_stuck), note


def _terminal_entry(costs: Costs, before: Costs) -> Entry:
    label = "Sent to the terminal"
    if costs.terminal_bytes is None:
        return label, MISSING, _NO_TERMINAL
    seconds = costs.at_seconds - before.at_seconds
    rate = "" if seconds <= 0 else f", {bytes_text((costs.terminal_bytes - (before.terminal_bytes or 0)) / seconds)}/s"
    note = f"All that was drawn, and its rate over the last {_span(costs, before)}; nothing is sent for what stays."
    return label, f"{bytes_text(costs.terminal_bytes)}{rate}", note


def _process_entries(
    name: str, now: ProcessCost | None, earlier: ProcessCost | None, costs: Costs, before: Costs
) -> Iterator[Entry]:
    if now is None:
        yield f"{name} CPU", MISSING, _NO_PROC
        yield f"{name} memory", MISSING, _NO_PROC
        return
    seconds = costs.at_seconds - before.at_seconds
    share = ""
    if earlier is not None and seconds > 0:
        share = f", {(now.cpu_seconds - earlier.cpu_seconds) / seconds * 100:.1f} %"
    note = f"Processor time of PID {now.pid}, and its share of one processor over the last {_span(costs, before)}."
    yield f"{name} CPU", f"{now.cpu_seconds:.2f} s{share}", note
    yield f"{name} memory", bytes_text(now.memory_bytes), f"Resident memory of PID {now.pid}."


def _span(costs: Costs, before: Costs) -> str:
    return f"{costs.at_seconds - before.at_seconds:.0f} s"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
