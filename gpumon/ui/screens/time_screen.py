"""The base of screens with charts over time: keys that move a cursor in time and that zoom."""

from collections.abc import Mapping
from typing import ClassVar, TypeVar

from textual import events

from gpumon.core.model import Device
from gpumon.present.paint.area import GUTTER
from gpumon.present.time_view import TimeView
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import ViewScreen, next_key

ResultT = TypeVar("ResultT")


class TimeScreen(ViewScreen[ResultT]):
    """A screen of a GPU with charts on one time axis, whose left end is `GUTTER` cells from the edge.

    Attributes:
        key: The key of the GPU.
        time_view: The part of the history that the charts show.
    """

    BINDINGS: ClassVar[Bindings] = [
        key("time.back", "Back", "Remove the cursor in time; else go back"),
        key("time.earlier", "Time", "Cursor back in time", "time(-1)", keys="left", display="←/→"),
        key("time.later", "Later", "Cursor forward in time", "time(1)", keys="right", show=False),
        key("time-page.earlier", "Earlier", "Cursor ten columns back", "time(-10)", keys="shift+left", show=False),
        key("time-page.later", "Later", "Cursor ten columns forward", "time(10)", keys="shift+right", show=False),
        key("time.zoom-in", "Zoom", "Zoom in: less time", "zoom(-1)", display="z/x"),
        key("time.zoom-out", "Out", "Zoom out: more time", "zoom(1)", show=False),
        key("time.now", "Now", "Follow the newest values"),
    ]
    CHARTS_ID: ClassVar[str]
    """Id of the widget that contains the charts."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self.time_view = TimeView()
        self._device: Device | None = None
        self._state: ViewState | None = None

    @property
    def device_key(self) -> str:
        return self.key

    def select_device(self, step: int) -> None:
        """Show another GPU in place; the charts keep their metrics and their time."""
        if self._state is not None:
            keys = [device.key for device in self._state.frame.devices]
            self.key, self._device = next_key(keys, self.key, step) or self.key, None
            self.post_message(ViewStateRequested())

    def on_click(self, event: events.Click) -> None:
        """Set the cursor where a chart was clicked."""
        charts = self.query_one(f"#{self.CHARTS_ID}")
        column = self.chart_column(event.screen_x - charts.region.x)
        if event.widget is charts and column is not None:
            self.time_view.point(column)
            self._draw_again()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Zoom in where the wheel is turned on a chart."""
        self._zoom_with_wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Zoom out where the wheel is turned on a chart."""
        self._zoom_with_wheel(event, 1)

    def _zoom_with_wheel(self, event: events.MouseEvent, steps: int) -> None:
        if event.widget is self.query_one(f"#{self.CHARTS_ID}"):
            event.stop()
            self.action_zoom(steps)

    def chart_column(self, x: int) -> int | None:
        """The column of time at a cell, counted from the left end of the charts; None outside of them."""
        column = x - GUTTER
        return column if 0 <= column < self.query_one(f"#{self.CHARTS_ID}").size.width - GUTTER else None

    def action_time(self, columns: int) -> None:
        self.time_view.move(columns)
        self._draw_again()

    def action_zoom(self, steps: int) -> None:
        self.time_view.zoom(steps)
        self._draw_again()

    def action_now(self) -> None:
        self.time_view.follow()
        self._draw_again()

    def action_back(self) -> None:
        if self.time_view.cursor is None:
            self.app.pop_screen()
        else:
            self.action_now()

    def conditions(self) -> Mapping[str, bool]:
        return {"now": self.time_view.cursor is not None}

    def _draw_again(self) -> None:
        self.post_message(ViewStateRequested())
