"""One process: charts of its recent values, every value with its meaning, what started it, and what it waits for."""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult

from gpumon.core.model import Device, Process
from gpumon.core.units import bytes_text
from gpumon.operations.process_details import ProcessDetails, ProcessOrigin, read_details
from gpumon.present.entries import LABEL_WIDTH, VALUE_WIDTH, Entry, process_entries
from gpumon.present.paint.line import Line
from gpumon.present.process_details import (
    ChartGrid,
    chart_grid,
    chart_lines,
    details_entries,
    origin_entries,
    started_entry,
    training_entries,
)
from gpumon.present.process_table import process_rows
from gpumon.present.time_axis import ZOOMS
from gpumon.present.time_view import TimeView, moment_text
from gpumon.session.app_session import Demand
from gpumon.session.process_registry import MAX_POINTS, POINT_SECONDS, identity_of
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import SignalRequested, ViewStateRequested
from gpumon.ui.screens.base import next_key
from gpumon.ui.screens.entries import EntriesScreen
from gpumon.ui.screens.time_screen import TimeScreen
from gpumon.ui.screens.why import WhyScreen
from gpumon.ui.widgets.text_lines import TextLines

_READ_SECONDS: Final = 2.0
"""Time between two reads of /proc."""
_ZOOM: Final = ZOOMS.index(5.0)
"""About one point of the history per column."""


class ProcessScreen(TimeScreen[None], EntriesScreen[None]):
    """One process on a device."""

    PAGE: ClassVar[str] = "docs/processes.md"
    TAB: ClassVar[str] = "Processes"
    SELECTS_DEVICE: ClassVar[bool] = True
    BINDINGS: ClassVar[Bindings] = [
        key("process.signal", "Signal", "Send a signal to the process; asks first"),
        key("process.why", "Why slow", "Why the training run of the process is slow"),
    ]
    CHARTS_ID: ClassVar[str] = "charts"

    def __init__(self, key: str, pid: int) -> None:
        super().__init__(key)
        self._pid = pid
        self._title = f"PID {pid}"
        self._keys: list[str] = []
        """The devices that the process uses."""
        self._process: Process | None = None
        self._is_live = self._can_signal = False
        self._details: ProcessDetails | None = None
        self._is_reading = False
        self._read_at = 0.0
        self.time_view = TimeView(_ZOOM)

    def compose_above(self) -> ComposeResult:
        yield TextLines(id="charts")

    @property
    def demand(self) -> Demand:
        """Values that are expensive to read, and what started the process."""
        return Demand(process_keys=frozenset({self.key}), processes=True)

    @property
    def selected_process(self) -> Process | None:
        return self._process

    def select_device(self, step: int) -> None:
        """Show the process on another GPU that it uses."""
        self.key = next_key(self._keys, self.key, step) or self.key
        self.post_message(ViewStateRequested())

    def show(self, state: ViewState) -> None:
        """Draw the process; once it has exited, its last values."""
        device = state.frame.device(self.key)
        self._keys = [
            device.key
            for device in state.frame.devices
            if any(process.pid == self._pid for process in device.processes or ())
        ]
        self._is_live, self._can_signal = state.is_this_host, state.is_changeable
        process = None
        if device is not None:
            process = next((process for process in device.processes or () if process.pid == self._pid), None)
            self._title = f"PID {self._pid} on GPU {device.label}"
        self._process = process
        self.show_title(f"{self._title}{'  has exited; last values' if process is None else ''}")
        if process is not None and device is not None:
            self._read_details(state, process)
            self._lines("charts").show(self._charts(state, device, process))
            self.show_entries(self._entries(state, process))

    def conditions(self) -> Mapping[str, bool]:
        on_others = any(key != self.key for key in self._keys)
        return {**super().conditions(), "signal": self._can_signal, "why": self._is_live, "select_device": on_others}

    def action_signal(self) -> None:
        if self._process is not None:
            self.post_message(SignalRequested([self._process]))

    def action_why(self) -> None:
        self.app.push_screen(WhyScreen(self._pid))

    def _entries(self, state: ViewState, process: Process) -> Iterator[Entry]:
        yield from process_entries(process, self._value_width)
        if process.age_seconds is not None:
            yield started_entry(state.frame.time_seconds - process.age_seconds)
        rows = process_rows(state.frame, state.probes.probes)
        torch = next((row.torch for row in rows if row.process is process and row.torch is not None), None)
        if torch is not None:
            allocated, reserved = bytes_text(torch.allocated_bytes), bytes_text(torch.reserved_bytes)
            yield "PyTorch", f"{allocated} allocated, {reserved} reserved", "As its caching allocator counts."
        training = next((row.training for row in rows if row.process is process and row.training is not None), None)
        if training is not None:
            yield from training_entries(training)
        if not state.is_this_host or process.start_ticks is None:
            return
        origin = state.processes.origins.get(identity_of(process), ProcessOrigin())
        yield from origin_entries(origin)
        if self._details is not None:
            yield from details_entries(self._details, origin, state.frame.devices)

    def chart_column(self, x: int) -> int | None:
        """The column of time at a cell; several charts are next to each other."""
        return self._grid.column_at(x)

    @property
    def _grid(self) -> ChartGrid:
        return chart_grid(*self.size)

    def _charts(self, state: ViewState, device: Device, process: Process) -> list[Line]:
        """The charts, if there are values and room for them."""
        history, grid = state.processes.histories.get((*identity_of(process), self.key)), self._grid
        if history is None or not grid.rows:
            return []
        view, frame = self.time_view, state.frame
        window = view.window(frame.monotonic_seconds, history.first_seconds, grid.columns, MAX_POINTS * POINT_SECONDS)
        moment = "" if view.cursor is None else moment_text(view.cursor * window.column_seconds, frame)
        return chart_lines(history, device, grid, window, cursor=view.cursor_index, moment=moment)

    def _read_details(self, state: ViewState, process: Process) -> None:
        """Read what /proc shows of a process of this host, from time to time, in a thread."""
        now = time.monotonic()
        is_due = self._details is None or now - self._read_at >= _READ_SECONDS
        if state.is_this_host and process.start_ticks is not None and is_due and not self._is_reading:
            self._is_reading, self._read_at = True, now
            self.in_background(partial(read_details, process.pid, process.start_ticks), self._take_details)

    def _take_details(self, details: ProcessDetails) -> None:
        has_opened = self._details is None
        self._details, self._is_reading = details, False
        if has_opened:
            self.post_message(ViewStateRequested())

    @property
    def _value_width(self) -> int:
        """Cells for a value on its own line."""
        return max(VALUE_WIDTH, self.size.width - LABEL_WIDTH - 4)
