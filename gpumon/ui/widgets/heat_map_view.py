"""Many GPUs as a map with one cell each, or one row over time; the keys move the mark of the selected one."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.message import Message

from gpumon.present.device_table import DeviceRow
from gpumon.present.heat_map import HeatMap, HeatMode, HistoryMode, heat_heading, heat_map, history_heading, history_map
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.widgets.text_lines import TextLines


class HeatMapView(TextLines, can_focus=True):
    """The map and its heading."""

    BINDINGS: ClassVar[Bindings] = [
        key("heat-map.up", "Up", "GPU above", "move_row(-1)", show=False),
        key("heat-map.down", "Down", "GPU below", "move_row(1)", show=False),
        key("heat-map.top", "First", "First GPU", "move_to(0)", show=False),
        key("heat-map.bottom", "Last", "Last GPU", "move_to(-1)", show=False),
        key("heat-map.open", "Details", "All values of the GPU, and their meaning", "choose"),
        key("heat-map.sort", "Sort", "Map another value, or the idle GPUs first"),
    ]

    class SelectionMoved(Message):
        """Another GPU is selected, or the map shows another value."""

    class DeviceChosen(Message):
        """The user has chosen a GPU with a key or with a double click."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.mode = HeatMode.UTILIZATION
        self.history_mode = HistoryMode.UTILIZATION
        self.is_over_time = False
        """Whether the map shows the history, with one row per GPU."""
        self.selected: str | None = None
        self._map: HeatMap | None = None

    def show_map(self, rows: Sequence[DeviceRow], width: int, height: int) -> None:
        """Draw the devices in ``height`` lines, the heading included."""
        keys = [row.device.key for row in rows]
        if self.selected not in keys:
            self.selected = keys[0] if keys else None
        if self.is_over_time:
            self._map = history_map(rows, self.history_mode, self.selected, width, max(1, height - 1))
            self.show([history_heading(rows, self.history_mode, width), *self._map.lines])
            return
        self._map = heat_map(rows, self.mode, self.selected, width, max(1, height - 1))
        self.show([heat_heading(rows, self.mode, self.selected, width), *self._map.lines])

    def select(self, step: int) -> None:
        """Move the mark by ``step`` GPUs; the first one follows the last one."""
        keys = () if self._map is None else self._map.keys
        if keys:
            index = keys.index(self.selected) if self.selected in keys else 0
            self._mark(keys[(index + step) % len(keys)])

    def action_move_to(self, index: int) -> None:
        if self._map is not None and self._map.keys:
            self._mark(self._map.keys[index])

    def action_move_row(self, rows: int) -> None:
        if self._map is None or self.selected is None:
            return
        index = self._map.keys.index(self.selected) + rows * self._map.columns
        if 0 <= index < len(self._map.keys):
            self._mark(self._map.keys[index])

    def action_sort(self) -> None:
        if self.is_over_time:
            self.history_mode = self.history_mode.next
        else:
            self.mode = self.mode.next
        self.post_message(self.SelectionMoved())

    def action_choose(self) -> None:
        if self.selected is not None:
            self.post_message(self.DeviceChosen(self.selected))

    def on_click(self, event: events.Click) -> None:
        key = None if self._map is None else self._map.key_at(event.x, event.y - 1)
        if key is not None:
            self._mark(key)
            if event.chain > 1:
                self.action_choose()

    def _mark(self, key: str) -> None:
        if key != self.selected:
            self.selected = key
            self.post_message(self.SelectionMoved())
