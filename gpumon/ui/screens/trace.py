"""The screen of a trace: the account of the median step, the timeline, the kernels, the gaps, and the ranks."""

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text
from gpumon.insight.bottlenecks.rank_comparison import compare, rank_names
from gpumon.insight.bottlenecks.slowness_verdict import judge_traces
from gpumon.present.account_rows import cause_lines, verdict_lines
from gpumon.present.paint.line import Line, Role, Span, clipped, line
from gpumon.present.paint.table import LazyRow, TableRow
from gpumon.present.trace_account import class_line, contribution_line, rank_lines, summary_lines
from gpumon.present.trace_tables import GAP_COLUMNS, KERNEL_COLUMNS
from gpumon.present.trace_timeline import LABEL_WIDTH, TraceTimeline, axis_line, cursor_lines, lane_line, legend_line
from gpumon.traces.model import Gap, Total
from gpumon.traces.reader import OpenTrace
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import BaseScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.table_view import TableView
from gpumon.ui.widgets.text_lines import TextLines

_SCROLL_BAR: Final = 1
_MAX_SUMMARY: Final = 6
_MIN_SUMMARY_HEIGHT: Final = 16
_DETAIL_FRACTION: Final = 3
_MAX_SEARCH_LENGTH: Final = 200


class TraceView(Enum):
    """What is shown below the summary; the values are shown to the user."""

    ACCOUNT = "account"
    TIMELINE = "timeline"
    KERNELS = "kernels"
    GAPS = "gaps"
    RANKS = "ranks"


class _AccountTable(LineTable, inherit_bindings=True):
    """The account, whose classes can be opened."""

    BINDINGS: ClassVar[Bindings] = [key("account.open", "Open", "Open or close what a class consists of", "choose")]


class _GapTable(LineTable, inherit_bindings=True):
    """The times without work, which the timeline can show."""

    BINDINGS: ClassVar[Bindings] = [key("gaps.open", "Timeline", "Show this time on the timeline", "choose")]


class _FindField(Input):
    """The name of the event to go to."""

    BINDINGS: ClassVar[Bindings] = [
        key("find.open", "Next match", "Go to the next event with this name", "submit"),
        key("find.back", "Close", "Close the search", "screen.leave_search"),
    ]


class TraceScreen(BaseScreen[None]):
    """One trace, or those of the ranks of a job."""

    PAGE: ClassVar[str] = "docs/traces.md"
    LEGEND: ClassVar[str] = """\
A trace of torch.profiler or Kineto: where the time of a step goes.

CLASSES, at each moment the first one that applies
  compute on tensor cores, without tensor cores, memory-bound, other
                 a kernel runs, classified by its name
  exposed communication
                 only communication kernels (NCCL) run
  copies         only copies run
  waiting for data
                 the GPU is idle while the program waits for a batch
  synchronization
                 the GPU is idle because a call waited for it, such as
                 .item(): at most for the duration of the call
  host-bound     the GPU waits for the next launch
  idle otherwise the next kernel was queued, or nothing is known
TERMS
  at best        the step without a cause; others may then take longer
  critical path  the chain of work and calls that the median step waits for
  ▁▂▃▄▅▆▇█       how busy a stream or a thread was in a cell
"""
    BINDINGS: ClassVar[Bindings] = [
        key("trace.view", "View", "Next view: account, timeline, kernels, gaps", "next_view"),
        key("trace.filter", "Find", "Go to the next event with a name", "search"),
        key("trace.earlier", "Time", "Cursor back in time", "move(-1)", keys="left", display="←/→"),
        key("trace.later", "Later", "Cursor forward in time", "move(1)", keys="right", show=False),
        key("trace.zoom-in", "Zoom", "Less time on the timeline", "zoom(1)", display="z/x"),
        key("trace.zoom-out", "Out", "More time on the timeline", "zoom(-1)", show=False),
        key("trace.previous-gpu", "Rank", "Trace of the previous rank", "rank(-1)", display="[ ]"),
        key("trace.next-gpu", "Rank", "Trace of the next rank", "rank(1)", show=False),
    ]

    def __init__(self, traces: Sequence[OpenTrace]) -> None:
        super().__init__()
        self._traces = traces
        self._timelines = [TraceTimeline(opened) for opened in traces]
        self._names = rank_names([opened.trace for opened in traces])
        self._comparison = compare([opened.trace for opened in traces]) if len(traces) > 1 else None
        self._index = 0
        self._view = TraceView.ACCOUNT
        self._verdicts = judge_traces([opened.trace for opened in traces])
        causes = (verdict.causes[0].name for verdict in self._verdicts[:1] if verdict.causes)
        self._open_classes = set(causes)
        self._missed = ""
        table = LineTable(id="kernels", choosable=False)
        self._kernels = TableView[Total](table, lambda row: f"{row.kind} {row.name}")
        self._gaps = TableView[Gap](_GapTable(id="gaps"), lambda row: str(row.begin_ns))

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="summary")
        yield TextLines(id="views")
        yield _AccountTable(id="account")
        with Vertical(id="timeline"):
            yield TextLines(id="axis")
            yield LineTable(id="lanes", choosable=False)
            yield TextLines(id="events")
        yield self._kernels
        yield self._gaps
        yield _FindField(id="search", placeholder="a kernel, an operator or a function", max_length=_MAX_SEARCH_LENGTH)
        yield Footer()

    def on_mount(self) -> None:
        self._show_view()

    def on_resize(self, _: events.Resize) -> None:
        """Draw again: lines have a fixed width."""
        self.draw()

    @on(ViewStateRequested)
    def draw_again(self) -> None:
        """Draw again: a table needs another height."""
        self.draw()

    @property
    def _opened(self) -> OpenTrace:
        return self._traces[self._index]

    @property
    def _timeline(self) -> TraceTimeline:
        return self._timelines[self._index]

    @property
    def _views(self) -> list[TraceView]:
        """The views with something to show."""
        trace = self._opened.trace
        missing = set() if trace.gaps else {TraceView.GAPS}
        if self._comparison is None:
            missing.add(TraceView.RANKS)
        return [view for view in TraceView if view not in missing]

    def draw(self) -> None:
        """Draw everything that is shown; unchanged lines send no bytes."""
        width, height = self.size
        trace = self._opened.trace
        with self.app.batch_update():
            title = f" {trace.name}  {bytes_text(trace.size_bytes)}"
            if len(self._traces) > 1:
                title += f"  {self._names[self._index]}, {self._index + 1} of {len(self._traces)}"
            self._lines("title").show([line(Span(clipped(title, width).ljust(width), Role.HEADING))])
            summary = summary_lines(trace, width)[:_MAX_SUMMARY]
            self._lines("summary").show(summary if height >= _MIN_SUMMARY_HEIGHT else summary[:1])
            self._lines("views").show([self._views_line(width)])
            if self._view in {TraceView.ACCOUNT, TraceView.RANKS}:
                self.query_one(_AccountTable).show(self._rows(width - MARGIN - _SCROLL_BAR))
            elif self._view is TraceView.TIMELINE:
                self._draw_timeline(width, height)
            elif self._view is TraceView.KERNELS:
                self._kernels.show(KERNEL_COLUMNS, trace.totals, "No kernels and no operators.")
            else:
                self._gaps.show(GAP_COLUMNS, trace.gaps)

    def _rows(self, width: int) -> list[TableRow]:
        """The rows of the account or of the ranks."""
        trace = self._opened.trace
        if self._view is TraceView.RANKS and self._comparison is not None:
            traces = [opened.trace for opened in self._traces]
            lines = enumerate(rank_lines(traces, self._comparison, width))
            return [TableRow(str(number), text) for number, text in lines]
        rows = [TableRow("", text) for text in verdict_lines(self._verdicts[self._index], width)]
        rows.append(TableRow("", line("")))
        for item in trace.classes:
            is_open = item.name in self._open_classes
            mark = " " if not item.top else "▾ " if is_open else "▸ "
            rows.append(TableRow(item.name, line(mark.ljust(2), *class_line(item, trace, width - 2))))
            if is_open:
                rows += [
                    TableRow(f"{item.name} {part.name}", line("  ", *contribution_line(part, width - 2)))
                    for part in item.top
                ]
        rows.append(TableRow("", line("")))
        return rows + [TableRow("", text) for text in cause_lines(self._verdicts[self._index], width)]

    def _draw_timeline(self, width: int, height: int) -> None:
        room = width - MARGIN - _SCROLL_BAR
        lanes = self._opened.trace.lanes
        axis = line(" ", *axis_line(self._timeline, room))
        legend = line(" ", *legend_line(self._opened.trace, room))
        self._lines("axis").show([legend, axis] if height >= _MIN_SUMMARY_HEIGHT else [axis])
        draw = partial(lane_line, self._timeline, self._opened)
        self.query_one("#lanes", LineTable).show(
            [LazyRow(f"{number} {lane.label}", partial(draw, number, room)) for number, lane in enumerate(lanes)]
        )
        self._draw_events(width, height)

    def _draw_events(self, width: int, height: int) -> None:
        rows = max(2, height // _DETAIL_FRACTION)
        cursor = self.query_one("#lanes", LineTable).cursor
        lines = list(cursor_lines(self._timeline, self._opened, cursor, width, rows))
        if self._missed:
            lines[0] = line(Span(clipped(f" No event contains {self._missed!r}.", width).ljust(width), Role.WARNING))
        self._lines("events").show([*lines, *([()] * (rows - len(lines)))])

    @on(LineTable.CursorMoved)
    def show_events(self) -> None:
        """Show the events of the lane under the cursor."""
        if self._view is TraceView.TIMELINE:
            self._draw_events(*self.size)

    @on(LineTable.RowChosen)
    def choose(self, chosen: LineTable.RowChosen) -> None:
        """Open or close a class; show a gap on the timeline."""
        if chosen.table.id == "gaps":
            gap = self._gaps.row(chosen.key)
            if gap is not None:
                self._timeline.go_to(gap.begin_ns, gap.time_ns)
                self._view = TraceView.TIMELINE
                self._show_view()
        elif self._view is TraceView.ACCOUNT:
            name = chosen.key.partition(" ")[0]
            self._open_classes ^= {name} if name else set()
            self.draw()

    @on(Input.Submitted, "#search")
    def find_next(self, submitted: Input.Submitted) -> None:
        """Put the cursor on the next event with the name."""
        text = safe_text(submitted.value, _MAX_SEARCH_LENGTH).strip()
        self._missed = "" if not text or self._timeline.find(text) else text
        self.draw()

    def action_search(self) -> None:
        field = self.query_one(_FindField)
        field.add_class("-shown")
        field.focus()

    def action_leave_search(self) -> None:
        self._missed = ""
        self.query_one(_FindField).remove_class("-shown")
        self._show_view()

    def action_next_view(self) -> None:
        views = self._views
        self._view = views[(views.index(self._view) + 1) % len(views)]
        self._show_view()

    def action_move(self, cells: int) -> None:
        self._timeline.move(cells, self.size.width - LABEL_WIDTH - MARGIN - _SCROLL_BAR)
        self.draw()

    def action_zoom(self, direction: int) -> None:
        self._timeline.zoom(direction)
        self.draw()

    def action_rank(self, step: int) -> None:
        self._index = (self._index + step) % len(self._traces)
        if self._view not in self._views:
            self._view = TraceView.ACCOUNT
        self._show_view()

    def conditions(self) -> Mapping[str, bool]:
        moves = self._view is TraceView.TIMELINE and not isinstance(self.focused, Input)
        return {"search": moves, "move": moves, "zoom": moves, "rank": len(self._traces) > 1}

    def _show_view(self) -> None:
        """Show the widgets of the view, and move the focus there."""
        shown = {TraceView.ACCOUNT: "account", TraceView.RANKS: "account", TraceView.TIMELINE: "timeline"}
        current = shown.get(self._view, f"{self._view.value}-view")
        for name in ("account", "timeline", "kernels-view", "gaps-view"):
            self.query_one(f"#{name}").display = name == current
        if self._view is not TraceView.TIMELINE:
            self.query_one(_FindField).remove_class("-shown")
        focus = {TraceView.TIMELINE: "lanes", TraceView.RANKS: "account"}.get(self._view, self._view.value)
        self.query_one(f"#{focus}").focus()
        self.refresh_bindings()
        self.draw()

    def _views_line(self, width: int) -> Line:
        spans = [Span(" ")]
        for view in self._views:
            is_current = view is self._view
            text = "operators" if view is TraceView.KERNELS and self._opened.trace.device is None else view.value
            spans.append(Span(f"[{text}]" if is_current else f" {text} ", Role.ACCENT if is_current else Role.DIM))
        used = sum(len(span.text) for span in spans)
        return line(*spans, Span(" " * max(0, width - used), Role.PLAIN))
