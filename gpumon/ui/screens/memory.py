"""The memory of a GPU from zero to its total, part by part, and one process's share of it over time."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpumon.core.model import Device, short_product_name
from gpumon.operations.memory import Waterfall, waterfall
from gpumon.operations.torch_processes import Owner, owners_of
from gpumon.present.device import GUTTER, axis_line, chart_lines
from gpumon.present.header import title_line
from gpumon.present.memory import (
    MemoryRow,
    bar_line,
    headline,
    memory_rows,
    note_lines,
    oom_line,
    pane_lines,
    table_heading,
)
from gpumon.present.memory_chart import OTHER_LINES, MemoryChart, history_heading, history_lines
from gpumon.present.metric_chart import MetricChart
from gpumon.present.paint.line import Line
from gpumon.present.paint.table import TableRow
from gpumon.present.probe_text import hint_lines
from gpumon.present.time_axis import ZOOMS, TimeWindow, column_of
from gpumon.session.app_session import Demand
from gpumon.session.view_state import OomNotice, ProbesState, ViewState
from gpumon.ui.messages import EmptyCacheRequested, ViewStateRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.text_lines import TextLines

_OTHER_LINES: Final = 5
"""Title, headline, bar, headings and footer."""
_PANE_LINES: Final = 3
_MIN_CHART: Final = 4
_MAX_CHART: Final = 24
_MIN_ROWS: Final = 5
_MAX_HOLD_INTERVALS: Final = 2.5
_DEFAULT_ZOOM: Final = ZOOMS.index(2.0)
_MAX_ZOOM: Final = ZOOMS.index(30.0)
_CONDITIONAL_ACTIONS: Final = ("segments", "explain_oom")


class MemoryScreen(ViewScreen[None]):
    """The memory of a GPU, and keys to the next one.

    Args:
        key: The device's key.
    """

    AUTO_FOCUS: ClassVar[str] = "#parts"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,h,m", "app.pop_screen", "Back", id="memory.back", tooltip="Back to the screen before"),
        Binding("s", "segments", "Segments", id="memory.segments", tooltip="Map of the process's memory segments"),
        Binding("e", "empty_cache", "Empty", id="memory.empty", tooltip="Have the process release its PyTorch cache"),
        Binding("o", "explain_oom", "Explain", id="memory.oom", tooltip="Why a process ran out of memory"),
        Binding("right", "next(1)", "GPU", id="memory.next", key_display="←/→", tooltip="Next GPU"),
        Binding("left", "next(-1)", "Previous", id="memory.previous", show=False, tooltip="Previous GPU"),
        Binding("tab", "next(1)", "Next", id="memory.tab", show=False, tooltip="Next GPU"),
        Binding("shift+tab", "next(-1)", "Previous", id="memory.back-tab", show=False, tooltip="Previous GPU"),
        Binding("z", "zoom(-1)", "Zoom", id="memory.zoom-in", key_display="z/x", tooltip="Zoom in: less time"),
        Binding("x", "zoom(1)", "Out", id="memory.zoom-out", show=False, tooltip="Zoom out: more time"),
    ]

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self.chosen: Owner | None = None
        """The process whose history is shown: that under the cursor, else the one that reserves most."""
        self.is_chosen = False
        """Whether the keys act on it: the cursor is not on a process without statistics."""
        self.parts_bytes = 0
        """The sum of all parts."""
        self._state: ViewState | None = None
        self._device: Device | None = None
        self._rows: list[MemoryRow] = []
        self._process_chart = MemoryChart()
        self._gpu_chart = MetricChart("memory_used_bytes")
        self._zoom = _DEFAULT_ZOOM
        self._available: tuple[bool, ...] = ()

    @property
    def demand(self) -> Demand:
        """Probes are read more often while a screen shows them."""
        return Demand(probes=True)

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="headline")
        yield TextLines(id="notes")
        yield TextLines(id="bar")
        yield TextLines(id="parts-heading")
        yield LineTable(id="parts", choosable=False)
        yield TextLines(id="pane")
        yield TextLines(id="below")
        yield Footer()

    def show(self, state: ViewState) -> None:
        """Draw the GPU; once it is gone, its last values."""
        device = next((device for device in state.frame.devices if device.key == self.key), None)
        self._state = state
        gone = "  is gone; last values" if device is None and self._device is not None else ""
        self._device = device = device or self._device
        with self.app.batch_update():
            if device is None:
                self._lines("title").show([title_line("This GPU is gone", "", state, self.size.width)])
                return
            name = f"Memory of GPU {device.label}  {short_product_name(device.name)}{gone}"
            self._lines("title").show([title_line(name, "", state, self.size.width)])
            self._show_memory(state, device)
        available = tuple(bool(self.check_action(action, ())) for action in _CONDITIONAL_ACTIONS)
        if available != self._available:
            self._available = available
            self.refresh_bindings()

    def _show_memory(self, state: ViewState, device: Device) -> None:
        probes = state.probes
        fall = waterfall(device, probes.probes)
        owners = {owner.pid: owner for owner in owners_of(device, probes.probes).owners}
        width = self.size.width
        notes = _notes(fall, probes, width)
        self._lines("notes").show(notes)
        can_draw = fall.problem is None
        self.parts_bytes = sum(part.bytes for part in fall.parts)
        self._lines("headline").show([headline(fall, width)] if can_draw else [])
        self._lines("bar").show([bar_line(fall, width)] if can_draw else [])
        self._lines("parts-heading").show([table_heading(width, fall.total_bytes)] if can_draw else [])
        self._rows = list(memory_rows(fall, owners, probes.probes, probes.now_monotonic, width - MARGIN - 1))
        table = self.query_one("#parts", LineTable)
        table.show([TableRow(row.key, row.line) for row in self._rows])
        self.chosen = self._choose(owners)
        self._show_pane()
        height = self.size.height - _OTHER_LINES - _PANE_LINES - len(notes)
        below = self._below(state, device, height)
        self._lines("below").show(below)
        table.styles.height = max(1, min(len(self._rows), height - len(below)))

    @on(LineTable.CursorMoved)
    def follow_cursor(self) -> None:
        """Draw what depends on the part under the cursor."""
        if self._state is not None:
            self.show(self._state)

    @property
    def _ooms(self) -> Sequence[OomNotice]:
        return () if self._state is None else self._state.probes.ooms

    def _choose(self, owners: Mapping[int, Owner]) -> Owner | None:
        cursor = self.query_one("#parts", LineTable).cursor
        pid = self._rows[cursor].pid if cursor < len(self._rows) else None
        probed = {owner.pid: owner for owner in owners.values() if owner.statistics is not None}
        self.is_chosen = bool(probed) and (pid is None or pid in probed)
        before = None if self.chosen is None else probed.get(self.chosen.pid)
        largest = max(probed.values(), key=_reserved_bytes, default=None)
        return probed.get(pid or 0) or before or largest

    def _show_pane(self) -> None:
        cursor = self.query_one("#parts", LineTable).cursor
        note = self._rows[cursor].note if cursor < len(self._rows) else ""
        self._lines("pane").show(pane_lines(note, self.size.width, _PANE_LINES) if self._rows else [])

    def _below(self, state: ViewState, device: Device, height: int) -> list[Line]:
        """The history of the chosen process; else how to add a probe, and the history of the GPU; as far as it fits."""
        width, owner, probes = self.size.width, self.chosen, state.probes
        hints = [] if owner is not None else hint_lines(width, probes.probes, is_this_host=state.is_this_host)
        rows = max(min(len(self._rows), height - len(hints) - OTHER_LINES - _MIN_CHART), _MIN_ROWS)
        chart_height = min(_MAX_CHART, height - len(hints) - OTHER_LINES - rows)
        if chart_height < _MIN_CHART or width <= 2 * GUTTER:
            return hints if height - len(hints) >= min(len(self._rows), _MIN_ROWS) else []
        seconds = ZOOMS[self._zoom]
        now, interval = state.frame.monotonic_seconds, state.frame.interval_seconds
        window = TimeWindow(column_of(now, seconds), width - GUTTER, seconds)
        history = None if owner is None else probes.histories.get((owner.pid, self.key))
        if owner is not None and history is not None:
            self._process_chart.draw(history, window, chart_height, _MAX_HOLD_INTERVALS * max(1.0, interval))
            return [history_heading(owner, width), *history_lines(self._process_chart, window, now)]
        device_history = state.store.of_device(self.key)
        timeline = None if device_history is None else device_history.timeline
        self._gpu_chart.draw(timeline, device, window, chart_height, interval)
        return [*hints, *chart_lines(self._gpu_chart, 1, device, width), axis_line(window, now)]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys that do not apply to the process under the cursor."""
        if action in {"segments", "empty_cache"}:
            return self.is_chosen
        if action == "explain_oom":
            return bool(self._ooms)
        return super().check_action(action, parameters)

    def action_next(self, steps: int) -> None:
        """Go to another GPU, in the order of the overview."""
        keys = [] if self._state is None else [device.key for device in self._state.frame.devices]
        if keys:
            index = keys.index(self.key) + steps if self.key in keys else 0
            self.key, self._device = keys[index % len(keys)], None
            self.post_message(ViewStateRequested())

    def action_zoom(self, steps: int) -> None:
        self._zoom = max(0, min(_MAX_ZOOM, self._zoom + steps))
        self.post_message(ViewStateRequested())

    def action_segments(self) -> None:
        from gpumon.ui.screens.segments import SegmentsScreen  # few sessions need it

        if self.chosen is not None and self._device is not None:
            self.app.push_screen(SegmentsScreen(self.chosen, self._device))

    def action_empty_cache(self) -> None:
        if self.chosen is not None and self.chosen.probe is not None and self._device is not None:
            self.post_message(EmptyCacheRequested(self.chosen, self._device))

    def action_explain_oom(self) -> None:
        from gpumon.ui.screens.oom import OomScreen  # it imports the error catalogue, which few sessions need

        if self._ooms:
            self.app.push_screen(OomScreen(self._ooms[-1]))

    def _lines(self, name: str) -> TextLines:
        return self.query_one(f"#{name}", TextLines)


def _notes(fall: Waterfall, probes: ProbesState, width: int) -> list[Line]:
    """Notes above the bar: why there is none, what could not be matched, and that a process ran out of memory."""
    notes = [str(fall.problem)] if fall.problem is not None else list(fall.notes)
    notes += map(str, probes.problems)
    return [*(oom_line(notice, width) for notice in probes.ooms[-1:]), *note_lines(notes, width)]


def _reserved_bytes(owner: Owner) -> int:
    return 0 if owner.statistics is None else owner.statistics.reserved_bytes
