"""Traces as text output: the account of the median step, the verdict, the top kernels, the gaps, the ranks."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.step_classes import LABELS
from gpumon.insight.bottlenecks.rank_comparison import compare
from gpumon.insight.bottlenecks.slowness_verdict import judge_traces
from gpumon.present.account_rows import cause_lines, class_row, verdict_lines
from gpumon.present.paint.line import Line, Role, Span, clipped, line
from gpumon.present.trace_account import class_line, contribution_line, ns_text, rank_lines, summary_lines, work_label
from gpumon.traces.model import Trace

_MAX_PARTS: Final = 3


def report_lines(traces: Sequence[Trace], top: int, width: int) -> Iterator[Line]:
    """All lines of the report.

    Args:
        traces: The traces.
        top: Limit on the kernels and the gaps of each.
        width: Cells of a line.
    """
    if len(traces) > 1:
        yield line(Span(f"{len(traces)} ranks", Role.HEADING))
        yield from rank_lines(traces, compare(traces), width)
        yield line("")
    for trace, verdict in zip(traces, judge_traces(traces), strict=True):
        yield line(Span(clipped(trace.name, width), Role.HEADING))
        yield from summary_lines(trace, width)
        yield line("")
        yield from verdict_lines(verdict, width)
        yield from cause_lines(verdict, width)
        yield line("")
        yield line(Span(f"Account of {trace.step.label}: {ns_text(trace.step_ns)}", Role.HEADING))
        for item in trace.classes:
            yield line(" ", *class_line(item, trace, width - 1))
            yield from (line("  ", *contribution_line(part, width - 2)) for part in item.top[:_MAX_PARTS])
        yield from _totals(trace, top, width)
        yield from _gaps(trace, top, width)
        yield line("")


def critical_lines(traces: Sequence[Trace], top: int, width: int) -> Iterator[Line]:
    """What the critical path of each trace consists of.

    Args:
        traces: The traces.
        top: Limit on the parts of each class.
        width: Cells of a line.
    """
    if len(traces) > 1:
        yield from rank_lines(traces, compare(traces), width)
    for trace in traces:
        length = sum(item.time_ns for item in trace.critical)
        head = f"{trace.name}: critical path of {trace.step.label}, {ns_text(length)}"
        yield line(Span(clipped(head, width), Role.HEADING))
        for item in sorted(trace.critical, key=lambda item: -item.time_ns):
            if item.time_ns:
                yield line(" ", *class_row(item.name, item.time_ns / 1e9, length / 1e9, "", width - 1))
                yield from (line("  ", *contribution_line(part, width - 2)) for part in item.top[:top])


def _totals(trace: Trace, top: int, width: int) -> Iterator[Line]:
    yield line("")
    yield line(Span("Kernels in the trace" if trace.device else "Operators in the trace, own time", Role.HEADING))
    for total in trace.totals[:top]:
        head = f" {ns_text(total.time_ns):>8} {total.count:>8,}×  "
        yield line(clipped(f"{head}{work_label(total.kind)}: {total.name}", width))


def _gaps(trace: Trace, top: int, width: int) -> Iterator[Line]:
    if not trace.gaps:
        return
    yield line("")
    yield line(Span("Longest times without work on the GPU", Role.HEADING))
    for gap in trace.gaps[:top]:
        where = f" {gap.line}" if gap.line else ""
        head = f" {ns_text(gap.time_ns):>8} at {ns_text(gap.begin_ns):>8}  {LABELS[gap.cause]}: {gap.detail}{where}"
        yield line(clipped(f"{head}, then {gap.after}" if gap.after else head, width))
