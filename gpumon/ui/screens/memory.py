"""The memory of a GPU from zero to its total, part by part, and one process's share of it over time."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult

from gpumon.core.model import Device, short_product_name
from gpumon.core.problems import Problem
from gpumon.health.alerts import OUT_OF_MEMORY, Alert
from gpumon.operations.device_holders import Holders
from gpumon.operations.gpu_processes import Owner
from gpumon.operations.waterfall import Waterfall, waterfall
from gpumon.present.chart_lines import axis_line, chart_lines
from gpumon.present.device import tracks_of
from gpumon.present.memory_bar import MemoryGroup, bar_line, memory_groups, pointer_line
from gpumon.present.memory_chart import OTHER_LINES, MemoryChart, history_heading, history_lines
from gpumon.present.metric_chart import MetricChart
from gpumon.present.paint.area import GUTTER
from gpumon.present.paint.line import Line
from gpumon.present.paint.table import TableRow
from gpumon.present.probe_text import hint_lines, who_text
from gpumon.present.process_table import holders_text
from gpumon.present.time_view import moment_text
from gpumon.present.waterfall_rows import (
    MemoryRow,
    headline,
    memory_rows,
    note_lines,
    oom_lines,
    pane_lines,
    table_heading,
)
from gpumon.session.app_session import Demand
from gpumon.session.view_state import OomNotice, ProbesState, ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import AcknowledgeRequested, EmptyCacheRequested
from gpumon.ui.screens.time_screen import TimeScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.text_lines import TextLines

_OTHER_LINES: Final = 5
"""Tabs, title, headline, headings and footer."""
_PANE_LINES: Final = 3
_MIN_HEIGHT_FOR_PANE: Final = 14
"""Lower terminals have one line for the note."""
_MIN_CHART: Final = 4
_MAX_CHART: Final = 24
_MIN_ROWS: Final = 5
_MAX_HOLD_INTERVALS: Final = 2.5
_MIN_HEIGHT_FOR_POINTER: Final = 16
"""Lower terminals have no line for the process under the cursor below the bar."""


class MemoryScreen(TimeScreen[None]):
    """The memory of a GPU, and keys to the next one."""

    PAGE: ClassVar[str] = "docs/memory.md"
    TAB: ClassVar[str] = "Memory"
    SELECTS_DEVICE: ClassVar[bool] = True
    AUTO_FOCUS: ClassVar[str] = "#parts"
    CHARTS_ID: ClassVar[str] = "below"
    LEGEND: ClassVar[str] = """\
A GPU'S MEMORY
  ▞ ▒ ? ·        driver; process without a probe; unattributed; free
  ▄ █ ▓          context and libraries; tensors; freed, waiting for stream
  ░ ▚            cached: can be released; fragmented: cannot
                 To see inside a process: gpumon watch -- python train.py
                 or import gpumon.probe; gpumon.probe.start()
  chart          ⣿ allocated, inside ⠒ reserved, inside ⠐ all that NVML
                 reports; ▲ peak, R allocation retry, X out of memory
"""
    BINDINGS: ClassVar[Bindings] = [
        key("memory.open", "Segments", "Memory segments; loads a missing probe", "segments"),
        key("memory.empty-cache", "Empty", "Have the process release its cache"),
        key("memory.explain-selected", "Explain", "Why a process ran out of memory", "explain_oom"),
        key("memory.acknowledge", "Acknowledge", "Dismiss the message above"),
    ]

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.chosen: Owner | None = None
        """The process whose history is shown: that under the cursor, else the one that reserves most."""
        self.is_chosen = False
        """Whether the keys act on it: the cursor is not on a process without statistics."""
        self.parts_bytes = 0
        """The sum of all parts."""
        self._ooms: list[OomNotice] = []
        """The out-of-memory errors of this GPU, the newest last."""
        self._oom_alerts: list[Alert] = []
        """Those of them that the user has not acknowledged."""
        self._rows: list[MemoryRow] = []
        self._process_chart = MemoryChart()
        self._gpu_chart = MetricChart("memory_used_bytes")

    @property
    def demand(self) -> Demand:
        """Probes, which are read more often while a screen shows them, and who could hold unattributed memory."""
        return Demand(probes=True, processes=True)

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title", "headline", "notes", "bar", "parts-heading")
        yield LineTable(id="parts", choosable=False)
        yield TextLines(id="pane")
        yield TextLines(id="below")
        yield Footer()

    def show(self, state: ViewState) -> None:
        """Draw the GPU; once it is gone, its last values."""
        device = state.frame.device(self.key)
        self._state = state
        gone = "  is gone; last values" if device is None else ""
        self._device = device = device or self._device
        if device is None:
            self.show_title("This GPU is gone")
            return
        self.show_title(f"Memory of GPU {device.label}  {short_product_name(device.name)}{gone}")
        self._show_memory(state, device)

    def _show_memory(self, state: ViewState, device: Device) -> None:
        probes = state.probes
        fall = waterfall(device, probes.probes)
        owners = {owner.pid: owner for owner in fall.owners}
        width = self.size.width
        row_width = width - MARGIN - 1
        self._ooms = [notice for notice in probes.ooms if notice.device_key == self.key]
        self._oom_alerts = [alert for alert in state.alerts if self._is_new_oom(alert)]
        notes = _notes(fall, self._oom_alerts, probes, state.processes.holders.get(device.key), width)
        self._lines("notes").show(notes)
        can_draw = fall.problem is None
        self.parts_bytes = sum(part.bytes for part in fall.parts)
        self._lines("headline").show([headline(fall, width)] if can_draw else [])
        self._lines("parts-heading").show([table_heading(width, fall.total_bytes, row_width)] if can_draw else [])
        groups = memory_groups(fall, width)
        self._rows = list(memory_rows(fall, groups, probes.probes, probes.now_monotonic, row_width))
        table = self.query_one("#parts", LineTable)
        table.show([TableRow(row.key, row.line) for row in self._rows])
        self.chosen = self._choose(owners)
        bar = self._bar(fall, groups) if can_draw else []
        self._lines("bar").show(bar)
        self._show_pane()
        height = self.size.height - _OTHER_LINES - self._pane_lines - len(notes) - len(bar)
        below = self._below(state, device, height)
        self._lines("below").show(below)
        table.styles.height = max(1, min(len(self._rows), height - len(below)))

    @on(LineTable.CursorMoved)
    def follow_cursor(self) -> None:
        """Draw what depends on the part under the cursor."""
        if self._state is not None:
            self.show(self._state)
            self.follow_conditions()

    def _is_new_oom(self, alert: Alert) -> bool:
        """Whether an alert reports that this GPU's memory ran out, and the user has not acknowledged it."""
        return alert.id == OUT_OF_MEMORY and alert.device_key == self.key and not alert.is_acknowledged

    @property
    def _cursor_pid(self) -> int | None:
        """The process under the cursor."""
        cursor = self.query_one("#parts", LineTable).cursor
        return self._rows[cursor].pid if cursor < len(self._rows) else None

    def _bar(self, fall: Waterfall, groups: Sequence[MemoryGroup]) -> list[Line]:
        """The bar, and below it the process under the cursor."""
        width, pid = self.size.width, self._cursor_pid
        bar = bar_line(groups, fall.total_bytes, width, pid)
        if self.size.height < _MIN_HEIGHT_FOR_POINTER or not fall.owners:
            return [bar]
        who = next((who_text(owner) for owner in fall.owners if owner.pid == pid), "")
        return [bar, pointer_line(groups, fall.total_bytes, width, pid, who)]

    def _choose(self, owners: Mapping[int, Owner]) -> Owner | None:
        pid = self._cursor_pid
        probed = {owner.pid: owner for owner in owners.values() if owner.statistics is not None}
        self.is_chosen = bool(probed) and (pid is None or pid in probed)
        before = None if self.chosen is None else probed.get(self.chosen.pid)
        largest = max(probed.values(), key=_reserved_bytes, default=None)
        return probed.get(pid or 0) or before or largest

    @property
    def _pane_lines(self) -> int:
        return _PANE_LINES if self.size.height >= _MIN_HEIGHT_FOR_PANE else 1

    def _show_pane(self) -> None:
        cursor = self.query_one("#parts", LineTable).cursor
        note = self._rows[cursor].note if cursor < len(self._rows) else ""
        self._lines("pane").show(pane_lines(note, self.size.width, self._pane_lines) if self._rows else [])

    def _below(self, state: ViewState, device: Device, height: int) -> list[Line]:
        """The history of the chosen process; else how to add a probe, and the history of the GPU; as far as it fits."""
        width, owner, probes = self.size.width, self.chosen, state.probes
        hints = [] if owner is not None else hint_lines(width, probes.probes, is_this_host=state.is_this_host)
        rows = max(min(len(self._rows), height - len(hints) - OTHER_LINES - _MIN_CHART), _MIN_ROWS)
        chart_height = min(_MAX_CHART, height - len(hints) - OTHER_LINES - rows)
        if chart_height < _MIN_CHART or width <= 2 * GUTTER:
            return hints if height - len(hints) >= min(len(self._rows), _MIN_ROWS) else []
        now, interval = state.frame.monotonic_seconds, state.frame.interval_seconds
        device_history = state.store.of_device(self.key)
        first = None if device_history is None else device_history.timeline.first_seconds
        window = self.time_view.window(now, first, width - GUTTER, state.store.history_seconds)
        cursor, moment = self.time_view.cursor_index, ""
        if self.time_view.cursor is not None:
            moment = moment_text(self.time_view.cursor * window.column_seconds, state.frame)
        history = None if owner is None else probes.histories.get((owner.pid, self.key))
        if owner is not None and history is not None:
            chart, held_seconds = self._process_chart, _MAX_HOLD_INTERVALS * max(1.0, interval)
            chart.draw(history, window, chart_height, held_seconds, cursor)
            heading = history_heading(owner, chart, width, cursor)
            return [heading, *history_lines(chart, window, now, cursor, moment)]
        tracks = tracks_of(device, (), state.store)
        self._gpu_chart.draw(tracks, window, chart_height, interval, cursor)
        lines = chart_lines(self._gpu_chart, tracks, width, cursor)
        return [*hints, *lines, axis_line(window, now, cursor, moment)]

    def conditions(self) -> Mapping[str, bool]:
        is_live = self._state is not None and self._state.is_this_host
        is_changeable = self._state is not None and self._state.is_changeable
        return {
            **super().conditions(),
            "segments": (self.is_chosen and is_live) or self._unprobed_pid is not None,
            "empty_cache": self.is_chosen and is_changeable,
            "explain_oom": bool(self._ooms),
            "acknowledge": bool(self._oom_alerts),
        }

    def action_segments(self) -> None:
        from gpumon.ui.screens.segments import SegmentsScreen  # few sessions need it

        unprobed, state = self._unprobed_pid, self._state
        if unprobed is not None and state is not None:
            from gpumon.ui.screens.probe_question import ask_for_probe

            ask_for_probe(self, unprobed, state.load_probe, self._report_probe)
        elif self.chosen is not None and self._device is not None:
            self.app.push_screen(SegmentsScreen(self.chosen, self._device))

    @property
    def _unprobed_pid(self) -> int | None:
        """The process under the cursor, if it has no probe and belongs to this host."""
        is_here = self._state is not None and self._state.is_this_host
        return self._cursor_pid if is_here and not self.is_chosen else None

    def _report_probe(self, problem: Problem | None) -> None:
        """Show why a process has no probe; if it has one, its parts appear with its first statistics."""
        if problem is not None:
            self.notify(str(problem), severity="warning", markup=False)

    def action_empty_cache(self) -> None:
        if self.chosen is not None and self.chosen.probe is not None and self._device is not None:
            self.post_message(EmptyCacheRequested(self.chosen, self._device))

    def action_explain_oom(self) -> None:
        from gpumon.ui.screens.oom import OomScreen  # it imports the error catalogue, which few sessions need

        if self._ooms:
            of_cursor = [notice for notice in self._ooms if notice.pid == self._cursor_pid]
            self.app.push_screen(OomScreen((of_cursor or self._ooms)[-1]))

    def action_acknowledge(self) -> None:
        for alert in self._oom_alerts:
            self.post_message(AcknowledgeRequested(alert))


def _notes(
    fall: Waterfall, ooms: Sequence[Alert], probes: ProbesState, holders: Holders | None, width: int
) -> list[Line]:
    """Notes above the bar: why there is none, what could not be matched, and that a process ran out of memory."""
    notes = [str(fall.problem)] if fall.problem is not None else list(fall.notes)
    notes += [f"Unattributed memory: {holders_text(holders)}."] if holders is not None and holders.holders else []
    notes += map(str, probes.problems)
    return [*oom_lines(ooms, width), *note_lines(notes, width)]


def _reserved_bytes(owner: Owner) -> int:
    return 0 if owner.statistics is None else owner.statistics.reserved_bytes
