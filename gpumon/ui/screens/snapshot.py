"""A snapshot: its totals, the course of its history, and who allocated what, as a tree that can be searched."""

from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input

from gpumon.core.holes import SegmentLayout
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text
from gpumon.snapshots.model import DeviceMemory, History, Snapshot
from gpumon.ui.paint.line import Line, Role, Span, clipped, line
from gpumon.ui.screens.drawn import SteadyScreen
from gpumon.ui.view import segments
from gpumon.ui.view.snapshot import totals_lines
from gpumon.ui.view.snapshot_chart import course_lines
from gpumon.ui.view.snapshot_look import Look, View
from gpumon.ui.view.snapshot_tree import TreeRow, heading_line, tree_rows
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.text_line import TextLines

_SCROLL_BAR: Final = 1
_ROOMY_WIDTH: Final = 100
_LEAST_CHART_HEIGHT: Final = 20
"""Lower terminals have no room for a chart."""
_ROOMY_HEIGHT: Final = 36
_CHART_SHARE: Final = 5
_MOST_CHART: Final = 12
_MOST_SEARCH: Final = 200


class _Frames(LineTable, inherit_bindings=True):
    """A table whose rows open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "choose", "Open", id="table.turn", tooltip="Open a frame, or close it"),
    ]
    opens = True
    """Whether they do now."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hides the key that opens nothing."""
        return self.opens if action == "choose" else super().check_action(action, parameters)


class _SearchField(Input):
    """Where the text is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Look at it", id="search.done", tooltip="Go to what was found"),
        Binding("escape", "screen.leave_search", "All again", id="search.leave", tooltip="Show everything again"),
    ]


class SnapshotScreen(SteadyScreen[None]):
    """One file, or one compared with another.

    Args:
        snapshot: The file.
        earlier: Another one that it is compared with.
    """

    AUTO_FOCUS: ClassVar[str] = "#rows"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Find", id="snapshot.search", tooltip="Only stacks with a text in a frame"),
        Binding("e", "look('NOW')", "End", id="snapshot.now", tooltip="What is allocated in the end"),
        Binding("p", "look('PEAK')", "Peak", id="snapshot.peak", tooltip="What was allocated at the peak"),
        Binding("a", "look('EVER')", "All", id="snapshot.ever", tooltip="All that was allocated in the history"),
        Binding("s", "look('SEGMENTS')", "Segments", id="snapshot.segments", tooltip="The segments and their holes"),
        Binding("d", "look('DIFFERENCE')", "Diff", id="snapshot.difference", tooltip="What has changed"),
        Binding("i", "invert", "Turn", id="snapshot.invert", tooltip="Begin at the other end of the stacks"),
        Binding("x", "axis", "Axis", show=False, id="snapshot.axis", tooltip="The chart over time, or over events"),
        Binding("v", "device", "GPU", id="snapshot.device", tooltip="The next device"),
        Binding("right,l", "open", "Open", show=False, id="snapshot.open", tooltip="Open a frame"),
        Binding(
            "left,h", "close", "Close", show=False, id="snapshot.close", tooltip="Close it, or go to the one above"
        ),
        Binding("escape", "leave_search", "Back", show=False, id="snapshot.back", tooltip="Leave the search"),
        Binding("ctrl+c", "app.quit", "Quit", show=False, id="snapshot.quit", tooltip="Leave gpumon", priority=True),
    ]

    def __init__(self, snapshot: Snapshot, earlier: Snapshot | None = None) -> None:
        super().__init__()
        self.look = Look(snapshot, earlier)
        self._rows: list[TreeRow] = []
        self._segments: dict[int, SegmentLayout] = {}
        self._told: dict[tuple[int, int, bool], list[Line]] = {}

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="totals")
        yield TextLines(id="course")
        yield TextLines(id="views")
        yield TextLines(id="headings")
        yield _Frames(id="rows")
        yield _SearchField(id="search", placeholder="a function or a file", max_length=_MOST_SEARCH)
        yield TextLines(id="frame")
        yield Footer()

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self, _: events.Resize) -> None:
        """Lines are made for a width."""
        for footer in self.query(Footer):
            footer.compact = self.app.size.width < _ROOMY_WIDTH
        self.draw()

    def draw(self) -> None:
        """Draws everything; what is the same as before sends nothing."""
        width, height = self.size
        device = self.look.device
        with self.app.batch_update():
            self._lines("title").show([self._title(width)])
            if device is None:
                self._lines("totals").show([line(" It holds nothing: no device had memory, and nothing was recorded.")])
                return
            self._lines("totals").show(self._totals(device, width, is_brief=height < _ROOMY_HEIGHT))
            self._lines("course").show(self._course(device.history, width, height))
            self._lines("views").show([self.look.heading(width)])
            self._draw_rows(width)

    def _totals(self, device: DeviceMemory, width: int, *, is_brief: bool) -> list[Line]:
        """They are counted once: there may be blocks by the hundred thousand."""
        key = (device.ordinal, width, is_brief)
        if key not in self._told:
            self._told = {key: totals_lines(self.look.snapshot, device, width, is_brief=is_brief)}
        return self._told[key]

    def _course(self, history: History | None, width: int, height: int) -> list[Line]:
        if history is None or height < _LEAST_CHART_HEIGHT:
            return []
        return course_lines(history, self.look.axis, width, min(_MOST_CHART, height // _CHART_SHARE))

    def _draw_rows(self, width: int) -> None:
        table, room = self.query_one("#rows", LineTable), max(1, width - MARGIN - _SCROLL_BAR)
        if self.look.view is View.SEGMENTS:
            found = self._layout
            self._rows = []
            self._lines("headings").show([*segments.summary_lines(found, width), segments.heading_line(width)])
            table.show(list(segments.segment_rows(found, room)))
        else:
            tree = self.look.tree
            self._rows = tree.rows()
            told = [] if self._rows else [line(Span(f" {self.look.nothing}", Role.DIM))]
            self._lines("headings").show([heading_line(tree, width), *told])
            table.show(tree_rows(tree, self._rows, room))
        self.show_frame()

    @on(LineTable.CursorMoved)
    def show_frame(self) -> None:
        """Names the frame under the cursor in full."""
        row = self._row
        words = "" if row is None else f" {row.node.frame.name}  {row.node.frame.file}"
        if row is not None and row.node.frame.file:
            words += f":{row.node.frame.line}"
        self._lines("frame").show([line(Span(clipped(words, self.size.width), Role.DIM))])

    @on(LineTable.RowChosen)
    def turn(self) -> None:
        """Opens or closes a frame."""
        row = self._row
        if row is not None:
            self.look.tree.turn(row.node)
            self.draw()

    @on(Input.Changed)
    def search_for(self, changed: Input.Changed) -> None:
        """Keeps only what has the text."""
        self.look.wanted = safe_text(changed.value, _MOST_SEARCH).strip()
        self.draw()

    @on(Input.Submitted)
    def end_typing(self) -> None:
        """What was found is looked at."""
        self.query_one("#rows").focus()
        self.query_one(_SearchField).set_class(bool(self.look.wanted), "-shown")

    def action_search(self) -> None:
        search = self.query_one(_SearchField)
        search.add_class("-shown")
        search.focus()

    def action_leave_search(self) -> None:
        search = self.query_one(_SearchField)
        search.remove_class("-shown")
        search.value = ""
        self.query_one("#rows").focus()

    def action_look(self, name: str) -> None:
        self.look.view = View[name]
        self._turn_over()

    def action_invert(self) -> None:
        self.look.innermost_first = not self.look.innermost_first
        self._turn_over()

    def action_device(self) -> None:
        self.look.next_device()
        self._turn_over()

    def action_axis(self) -> None:
        self.look.next_axis()
        self.draw()

    def action_open(self) -> None:
        row = self._row
        if row is not None and not row.is_open:
            self.look.tree.open(row.node)
            self.draw()

    def action_close(self) -> None:
        row = self._row
        if row is None or self.look.tree.close(row.node):
            self.draw()
            return
        table = self.query_one("#rows", LineTable)
        above = next((place for place, each in enumerate(self._rows) if each.node.key == row.parent), table.cursor)
        table.action_move(above - table.cursor)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hides the keys for what the file has not."""
        if action == "look":
            return View[str(parameters[0])] in self.look.views
        if action == "device":
            return len(self.look.snapshot.devices) > 1
        if action in {"search", "invert"}:
            return self.look.view is not View.SEGMENTS and not isinstance(self.focused, Input)
        return super().check_action(action, parameters)

    @property
    def _row(self) -> TreeRow | None:
        cursor = self.query_one("#rows", LineTable).cursor
        return self._rows[cursor] if cursor < len(self._rows) else None

    @property
    def _layout(self) -> SegmentLayout:
        """The segments of the device, which are counted once."""
        device = self.look.device
        assert device is not None
        if device.ordinal not in self._segments:
            self._segments[device.ordinal] = SegmentLayout(device.segments, device.ordinal)
        return self._segments[device.ordinal]

    def _title(self, width: int) -> Line:
        snapshot, earlier = self.look.snapshot, self.look.earlier
        words = f" {snapshot.name}  {bytes_text(snapshot.size_bytes)}"
        if earlier is not None:
            words += f", compared with {earlier.name}"
        return line(Span(clipped(words, width).ljust(width), Role.HEADING))

    def _turn_over(self) -> None:
        """Something else is shown, from its top, with keys of its own."""
        table = self.query_one(_Frames)
        table.opens = self.look.view is not View.SEGMENTS
        self.refresh_bindings()
        self.draw()
        table.action_move(-len(table.rows))

    def _lines(self, name: str) -> TextLines:
        return self.query_one(f"#{name}", TextLines)
