"""The screen of a snapshot: its summary, the chart of its history, and the allocations as a searchable tree."""

from collections.abc import Mapping
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Input

from gpumon.core.holes import SegmentLayout
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text
from gpumon.present import segments
from gpumon.present.paint.line import Line, Role, Span, clipped, line
from gpumon.present.snapshot import totals_lines
from gpumon.present.snapshot_chart import chart_columns, chart_lines
from gpumon.present.snapshot_tree import TreeRow, heading_line, tree_rows
from gpumon.present.snapshot_view import SnapshotViewState, View
from gpumon.snapshots.model import DeviceMemory, History, Snapshot
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.screens.base import BaseScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.text_lines import TextLines

_SCROLL_BAR: Final = 1
_MIN_CHART_SCREEN_HEIGHT: Final = 20
_MIN_FULL_SUMMARY_HEIGHT: Final = 36
_CHART_FRACTION: Final = 5
_MAX_CHART_HEIGHT: Final = 12
_MAX_SEARCH_LENGTH: Final = 200


class _TreeTable(LineTable, inherit_bindings=True):
    """A table whose rows can be opened."""

    BINDINGS: ClassVar[Bindings] = [key("tree.open", "Open", "Open or close a frame", "choose")]
    can_open = True
    """Whether the current view has rows that can be opened."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the key where no row can be opened."""
        return self.can_open if action == "choose" else super().check_action(action, parameters)


class _SearchField(Input):
    """The input of the search text."""

    BINDINGS: ClassVar[Bindings] = [
        key("search.open", "Go to results", "Go to the matching stacks", "submit"),
        key("search.back", "Clear", "Clear the search", "screen.leave_search"),
    ]


class SnapshotScreen(BaseScreen[None]):
    """One snapshot, or one compared with another.

    Args:
        snapshot: The snapshot.
        earlier: The snapshot to compare with, or None.
    """

    AUTO_FOCUS: ClassVar[str] = "#rows"
    PAGE: ClassVar[str] = "docs/memory.md"
    LEGEND: ClassVar[str] = """\
A memory snapshot of PyTorch: who allocated what.

TERMS
  allocated      held by tensors, as requested; PyTorch rounds each request
                 up to 512 bytes or more
  reserved       obtained from the driver, in segments
  free           reserved and not in use; torch.cuda.empty_cache() releases
                 empty segments to the driver
  fragmentation  share of the free memory outside the largest hole
  before the history began
                 the history is a ring buffer: memory allocated before its
                 first event has no stack, unless its block has one
  no stack was recorded
                 allocated outside of Python, for example in the backward
                 pass
  ▼ ✗            the peak; an out-of-memory error
"""
    BINDINGS: ClassVar[Bindings] = [
        key("snapshot.filter", "Find", "Search for a text in the stacks", "search"),
        key("snapshot.view", "View", "Next view: end, peak, total, segments, changes", "next_view"),
        key("snapshot.invert", "Invert", "Start at the other end of the stacks"),
        key("snapshot.axis", "Axis", "Switch the chart between time and events"),
        key("snapshot.previous-gpu", "GPU", "Previous GPU of the snapshot", "device(-1)", display="[ ]"),
        key("snapshot.next-gpu", "GPU", "Next GPU of the snapshot", "device(1)", show=False),
        key("snapshot.earlier", "Time", "Cursor back in time", "time(-1)", keys="left", display="←/→"),
        key("snapshot.later", "Later", "Cursor forward in time", "time(1)", keys="right", show=False),
        key("snapshot.back", "Back", "Remove the cursor; else the search", show=False),
    ]

    def __init__(self, snapshot: Snapshot, earlier: Snapshot | None = None) -> None:
        super().__init__()
        self.view_state = SnapshotViewState(snapshot, earlier)
        self._rows: list[TreeRow] = []
        self._segments: dict[int, SegmentLayout] = {}
        self._summaries: dict[tuple[int, int, bool], list[Line]] = {}

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="totals")
        yield TextLines(id="course")
        yield TextLines(id="views")
        yield TextLines(id="headings")
        yield _TreeTable(id="rows")
        yield _SearchField(id="search", placeholder="a function or a file", max_length=_MAX_SEARCH_LENGTH)
        yield TextLines(id="frame")
        yield Footer()

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self, _: events.Resize) -> None:
        """Draw again: lines have a fixed width."""
        self.draw()

    def draw(self) -> None:
        """Draw everything; unchanged lines send no bytes."""
        width, height = self.size
        device = self.view_state.device
        with self.app.batch_update():
            self._lines("title").show([self._title(width)])
            if device is None:
                self._lines("totals").show([line(" The snapshot is empty: it has no segments and no history.")])
                return
            self._lines("totals").show(self._totals(device, width, is_brief=height < _MIN_FULL_SUMMARY_HEIGHT))
            self._lines("course").show(self._chart(device.history, width, height))
            self._lines("views").show([self.view_state.heading(width)])
            self._draw_rows(width)

    def _totals(self, device: DeviceMemory, width: int, *, is_brief: bool) -> list[Line]:
        """The summary, computed once: there may be hundreds of thousands of blocks."""
        key = (device.ordinal, width, is_brief)
        if key not in self._summaries:
            self._summaries = {key: totals_lines(self.view_state.snapshot, device, width, is_brief=is_brief)}
        return self._summaries[key]

    def _chart(self, history: History | None, width: int, height: int) -> list[Line]:
        if history is None or height < _MIN_CHART_SCREEN_HEIGHT:
            return []
        rows = min(_MAX_CHART_HEIGHT, height // _CHART_FRACTION)
        return chart_lines(history, self.view_state.axis, width, rows, self.view_state.cursor)

    def _draw_rows(self, width: int) -> None:
        table, room = self.query_one("#rows", LineTable), max(1, width - MARGIN - _SCROLL_BAR)
        if self.view_state.view is View.SEGMENTS:
            layout = self._layout
            self._rows = []
            self._lines("headings").show([*segments.summary_lines(layout, width), segments.heading_line(width)])
            table.show(list(segments.segment_rows(layout, room)))
        else:
            tree = self.view_state.tree
            self._rows = tree.rows()
            empty = [] if self._rows else [line(Span(f" {self.view_state.empty_text}", Role.DIM))]
            self._lines("headings").show([heading_line(tree, width), *empty])
            table.show(tree_rows(tree, self._rows, room))
        self.show_frame()

    @on(LineTable.CursorMoved)
    def show_frame(self) -> None:
        """Show the complete frame at the cursor."""
        row = self._row
        text = "" if row is None else f" {row.node.frame.name}  {row.node.frame.file}"
        if row is not None and row.node.frame.file:
            text += f":{row.node.frame.line}"
        self._lines("frame").show([line(Span(clipped(text, self.size.width), Role.DIM))])

    @on(LineTable.RowChosen)
    def toggle(self) -> None:
        """Open or close a frame."""
        row = self._row
        if row is not None:
            self.view_state.tree.toggle(row.node)
            self.draw()

    @on(Input.Changed)
    def search_for(self, changed: Input.Changed) -> None:
        """Show only the stacks that contain the text."""
        self.view_state.pattern = safe_text(changed.value, _MAX_SEARCH_LENGTH).strip()
        self.draw()

    @on(Input.Submitted)
    def end_typing(self) -> None:
        """Move the focus to the matching stacks."""
        self.query_one("#rows").focus()
        self.query_one(_SearchField).set_class(bool(self.view_state.pattern), "-shown")

    def action_search(self) -> None:
        search = self.query_one(_SearchField)
        search.add_class("-shown")
        search.focus()

    def on_click(self, event: events.Click) -> None:
        """Set the cursor where the chart was clicked."""
        columns = chart_columns(self.size.width)
        column = event.screen_x - (self.size.width - columns)
        if event.widget is self._lines("course") and column >= 0:
            self.view_state.point(column, columns)
            self.draw()

    def action_time(self, steps: int) -> None:
        self.view_state.move_cursor(steps, max(1, chart_columns(self.size.width)))
        self.draw()

    def action_back(self) -> None:
        if self.view_state.cursor is None:
            self.action_leave_search()
        else:
            self.view_state.cursor = None
            self.draw()

    def action_leave_search(self) -> None:
        search = self.query_one(_SearchField)
        search.remove_class("-shown")
        search.value = ""
        self.query_one("#rows").focus()

    def action_next_view(self) -> None:
        self.view_state.next_view()
        self._show_from_top()

    def action_invert(self) -> None:
        self.view_state.innermost_first = not self.view_state.innermost_first
        self._show_from_top()

    def action_device(self, step: int) -> None:
        self.view_state.select_device(step)
        self._show_from_top()

    def action_axis(self) -> None:
        self.view_state.next_axis()
        self.draw()

    def conditions(self) -> Mapping[str, bool]:
        state = self.view_state
        has_stacks = state.view is not View.SEGMENTS and not isinstance(self.focused, Input)
        has_several = {"next_view": len(state.views) > 1, "device": len(state.snapshot.devices) > 1}
        return {**has_several, "search": has_stacks, "invert": has_stacks}

    @property
    def _row(self) -> TreeRow | None:
        cursor = self.query_one("#rows", LineTable).cursor
        return self._rows[cursor] if cursor < len(self._rows) else None

    @property
    def _layout(self) -> SegmentLayout:
        """The segments of the device, laid out once."""
        device = self.view_state.device
        assert device is not None
        if device.ordinal not in self._segments:
            self._segments[device.ordinal] = SegmentLayout(device.segments, device.ordinal)
        return self._segments[device.ordinal]

    def _title(self, width: int) -> Line:
        snapshot, earlier = self.view_state.snapshot, self.view_state.earlier
        text = f" {snapshot.name}  {bytes_text(snapshot.size_bytes)}"
        if earlier is not None:
            text += f", compared with {earlier.name}"
        return line(Span(clipped(text, width).ljust(width), Role.HEADING))

    def _show_from_top(self) -> None:
        """Show another view, from its first row and with its keys."""
        table = self.query_one(_TreeTable)
        table.can_open = self.view_state.view is not View.SEGMENTS
        self.refresh_bindings()
        self.draw()
        table.action_move(-len(table.rows))
