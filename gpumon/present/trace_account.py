"""The account of a step as lines: a bar and a time for each class, what it consists of, the ranks."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.step_classes import LABELS
from gpumon.core.units import bytes_text, counted, of_text, short_time_text
from gpumon.insight.bottlenecks.rank_comparison import RankComparison
from gpumon.present.account_rows import TIME_WIDTH, class_role, class_row, indented
from gpumon.present.paint.bar import fine_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line
from gpumon.traces.columns import TIMELINE_CLASSES
from gpumon.traces.model import ClassTime, Contribution, Trace

_RANGE_WIDTH: Final = 22
_MIN_RANGE_WIDTH: Final = 90


def timeline_role(number: int) -> Role:
    """The role of a class of the timeline."""
    return class_role(TIMELINE_CLASSES[number])


def work_label(name: str) -> str:
    """The name of a class for a kernel or an event, which may overlap others: communication may not be exposed."""
    return LABELS.get(name, name).removeprefix("exposed ")


def ns_text(nanoseconds: float) -> str:
    """A time with three significant digits."""
    return short_time_text(nanoseconds / 1e9)


def summary_lines(trace: Trace, width: int) -> list[Line]:
    """What the trace is: the file, the GPU, the events and the steps."""
    parts = [trace.device or "no GPU", ns_text(trace.duration_ns), bytes_text(trace.size_bytes)]
    if trace.rank is not None:
        parts.insert(0, f"rank {trace.rank}" + (f" of {trace.world_size}" if trace.world_size else ""))
    names = {"kernel": "kernel", "operator": "operator", "runtime": "call"}
    parts += [counted(trace.events[key], noun) for key, noun in names.items() if key in trace.events]
    count = len(trace.steps)
    steps = f"{trace.step.label}, {ns_text(trace.step_ns)}"
    if count > 1:
        steps = f"{counted(count, 'step')}, median {steps}"
    return [
        line(Span(clipped(f" {'  '.join(parts)}", width), Role.PLAIN)),
        line(Span(clipped(f" {steps}: {trace.step_source}", width), Role.DIM)),
        *(line(Span(piece, Role.WARNING)) for text in trace.problems for piece in indented(f"! {text}", width)),
        *(line(Span(piece, Role.DIM)) for text in trace.notes for piece in indented(text, width)),
    ]


def class_line(item: ClassTime, trace: Trace, width: int) -> Line:
    """A class: its name, its time and share, a bar, and the range over all steps."""
    spread = ""
    if width >= _MIN_RANGE_WIDTH and len(trace.steps) > 1:
        low, high = ns_text(item.min_ns), ns_text(item.max_ns)
        spread = (f" {of_text(low, high, 'to')}" if low != high else "").ljust(_RANGE_WIDTH)
    return class_row(item.name, item.time_ns / 1e9, trace.step_ns / 1e9, spread, width)


def contribution_line(part: Contribution, width: int) -> Line:
    """A part of a class: its time, count, size, name and line of the program."""
    size = "" if part.size_bytes is None else f"  {bytes_text(part.size_bytes)}"
    head = f"  {ns_text(part.time_ns):>{TIME_WIDTH}} {part.count:>6,}×{size}  "
    spans = [Span(head, Role.DIM), Span(part.name, Role.PLAIN)]
    if part.line:
        spans = [Span(head, Role.DIM), Span(f"{part.line}  ", Role.ACCENT), Span(part.name, Role.PLAIN)]
    return cut(spans, width)


def rank_lines(traces: Sequence[Trace], comparison: RankComparison, width: int) -> Iterator[Line]:
    """The step of each rank, the slowest rank, and who waits for whom in collectives."""
    longest = max(trace.step_ns for trace in traces)
    for name, trace in zip(comparison.ranks, traces, strict=True):
        largest = sorted(trace.classes, key=lambda item: -item.time_ns)[:3]
        text = ", ".join(f"{LABELS[item.name]} {ns_text(item.time_ns)}" for item in largest)
        head = f" {name:<8} {ns_text(trace.step_ns):>{TIME_WIDTH}} "
        share = trace.step_ns / longest if longest else 0.0
        role = Role.WARNING if name == comparison.slowest else Role.GPU_HISTORY
        yield cut([Span(head), *fine_bar(share, 16, role), Span(f"  {text}", Role.DIM)], width)
    if comparison.slowest is not None:
        yield line(Span(clipped(f" Slowest: {comparison.slowest}; {comparison.reason}.", width), Role.WARNING))
    else:
        yield line(" No rank is slower than the others.")
    for wait in comparison.waits:
        text = (
            f" The others wait {ns_text(wait.wait_ns)} per step for {wait.rank}, which comes last in "
            f"{wait.last_count:,} of {counted(comparison.matched, 'collective')}, mostly {wait.collective}."
        )
        yield from (line(piece) for piece in indented(text.strip(), width))
    if comparison.problem:
        yield line(Span(clipped(f" {comparison.problem}", width), Role.WARNING))
