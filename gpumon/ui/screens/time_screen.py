"""The base of screens with charts over time: keys that move a cursor in time and that zoom."""

from typing import ClassVar, Final, TypeVar

from textual import events
from textual.binding import Binding, BindingType

from gpumon.present.paint.area import GUTTER
from gpumon.present.time_view import TimeView
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import ViewScreen

ResultT = TypeVar("ResultT")

_PAGE: Final = 10
"""Columns that the cursor moves with the shift key."""


class TimeScreen(ViewScreen[ResultT]):
    """A screen with charts on one time axis, whose left end is `GUTTER` cells from the edge.

    Attributes:
        time_view: The part of the history that the charts show.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="time.back", tooltip="Remove the cursor in time; else go back"),
        Binding("left", "time(-1)", "Time", id="time.earlier", key_display="←/→", tooltip="Cursor back in time"),
        Binding("right", "time(1)", "Later", id="time.later", show=False, tooltip="Cursor forward in time"),
        Binding(
            "shift+left",
            f"time(-{_PAGE})",
            "Earlier",
            id="time-page.earlier",
            show=False,
            tooltip=f"Cursor {_PAGE} columns back in time",
        ),
        Binding(
            "shift+right",
            f"time({_PAGE})",
            "Later",
            id="time-page.later",
            show=False,
            tooltip=f"Cursor {_PAGE} columns forward in time",
        ),
        Binding("z", "zoom(-1)", "Zoom", id="time.zoom-in", key_display="z/x", tooltip="Zoom in: less time"),
        Binding("x", "zoom(1)", "Out", id="time.zoom-out", show=False, tooltip="Zoom out: more time"),
        Binding("n", "now", "Now", id="time.now", tooltip="Follow the newest values"),
    ]
    CHARTS_ID: ClassVar[str]
    """Id of the widget that contains the charts."""

    def __init__(self) -> None:
        super().__init__()
        self.time_view = TimeView()

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

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the key that follows the newest values while they are visible."""
        return self.time_view.cursor is not None if action == "now" else super().check_action(action, parameters)

    def _draw_again(self) -> None:
        self.refresh_bindings()
        self.post_message(ViewStateRequested())
