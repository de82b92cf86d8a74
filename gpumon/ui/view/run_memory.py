"""The memory of a workload's allocator as a stacked bar, with numbers in words and its peaks marked."""

from typing import Final

from gpumon.core.units import bytes_text
from gpumon.jobs.state import JobState, MemorySample
from gpumon.ui.paint.bar import pointers, stacked_bar
from gpumon.ui.paint.line import Line, Role, Span, clipped, line, width_of

_ALLOCATED: Final = "█"
_ACTIVE: Final = "▓"
_RESERVED: Final = "░"


def memory_lines(state: JobState, width: int) -> list[Line]:
    """The section; on the CPU, where torch keeps no such books, what the process holds."""
    if not state.memory:
        return []
    latest = state.memory[-1]
    heading = line(Span(" Memory of the workload".ljust(width), Role.HEADING))
    if latest.reserved_bytes is None:
        if latest.resident_bytes is None:
            return []
        return [heading, line(f" {bytes_text(latest.resident_bytes)} of host memory, torch itself included")]
    return [heading, *_allocator_lines(latest, _planned(state), width)]


def _planned(state: JobState) -> float:
    uses = {} if state.plan is None else state.plan["uses"]
    planned = uses.get("memory_bytes")
    return float(planned) if isinstance(planned, (int, float)) else 0.0


def _allocator_lines(sample: MemorySample, planned: float, width: int) -> list[Line]:
    allocated = sample.allocated_bytes or 0
    active = max(sample.active_bytes or 0, allocated)
    reserved = max(sample.reserved_bytes or 0, active)
    peak_allocated = max(sample.peak_allocated_bytes or 0, allocated)
    peak_reserved = max(sample.peak_reserved_bytes or 0, reserved)
    scale, of = (planned, "what it planned") if planned >= peak_reserved else (peak_reserved, "the peak reserved")
    cells = max(1, width - 4)
    parts = [(allocated, _ALLOCATED), (active - allocated, _ACTIVE), (reserved - active, _RESERVED)]
    words = [
        f"{_ALLOCATED} {bytes_text(allocated)} allocated",
        f"{_ACTIVE} {bytes_text(active - allocated)} active, no longer allocated",
        f"{_RESERVED} {bytes_text(reserved - active)} reserved, not active",
        f"full width {bytes_text(scale)}, {of}",
    ]
    marks = [
        (peak_allocated, f"peak allocated {bytes_text(peak_allocated)}"),
        (peak_reserved, f"peak reserved {bytes_text(peak_reserved)}"),
    ]
    bar = stacked_bar(parts, scale, cells)
    peaks = [line(Span(f"  {pointers([mark], scale, cells)}", Role.DIM)) for mark in marks]
    if width_of(pointers(marks, scale, cells)) and all(text in pointers(marks, scale, cells) for _, text in marks):
        peaks = [line(Span(f"  {pointers(marks, scale, cells)}", Role.DIM))]
    return [line(" [", Span(bar, Role.MEMORY_HISTORY), "]"), *peaks, *_flowed(words, width)]


def _flowed(parts: list[str], width: int) -> list[Line]:
    """Parts side by side, as many to a line as it has room for."""
    lines: list[str] = []
    for part in parts:
        if lines and width_of(lines[-1]) + 3 + width_of(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines.append(clipped(f" {part}", width))
    return [line(each) for each in lines]
