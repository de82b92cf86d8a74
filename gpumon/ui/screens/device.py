"""One GPU: charts of chosen metrics on one time axis, throttling and events under them, and every figure."""

import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from gpumon.core.exits import CommandError
from gpumon.core.model import Device
from gpumon.core.store import DeviceHistory
from gpumon.operations.save import Stretch, Table, course, save
from gpumon.streams.base import Lookable, Stream
from gpumon.ui.messages import SceneWanted
from gpumon.ui.paint.line import Line
from gpumon.ui.scene import Scene
from gpumon.ui.screens.entries import EntriesScreen
from gpumon.ui.screens.metric_choice import MetricChoiceScreen
from gpumon.ui.view.around import banner, title_line
from gpumon.ui.view.device import (
    DEFAULT_METRICS,
    GUTTER,
    Plan,
    axis_line,
    chart_lines,
    event_lines,
    heading_line,
    history_entries,
    plan,
    throttle_lines,
    title_text,
)
from gpumon.ui.view.entries import device_entries
from gpumon.ui.view.moving_chart import MovingChart
from gpumon.ui.view.window import ZOOMS, Window, column_of, zooms_for
from gpumon.ui.widgets.text_line import TextLines

DEFAULT_ZOOM: Final = ZOOMS.index(2.0)
_SCROLL_SHARE: Final = 4
"""One step goes by this part of the width."""
_MOST_BANNER_LINES: Final = 2
_LEAST_HEIGHT_FOR_BANNER: Final = 16


class DeviceScreen(EntriesScreen[None]):
    """A device.

    Args:
        key: Its key.
    """

    AUTO_FOCUS: ClassVar[str] = "#details"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,h", "app.pop_screen", "Back", id="device.back", tooltip="Back to all GPUs"),
        Binding("m", "choose", "Metrics", id="device.metrics", tooltip="Choose what is drawn over time"),
        Binding("z", "zoom(-1)", "Zoom", id="device.zoom-in", key_display="z/x", tooltip="Zoom in: less time, finer"),
        Binding("x", "zoom(1)", "Out", id="device.zoom-out", show=False, tooltip="Zoom out: more time, coarser"),
        Binding("left", "scroll(-1)", "Past", id="device.past", key_display="←/→", tooltip="Back through history"),
        Binding("right", "scroll(1)", "Forth", id="device.forth", show=False, tooltip="Forth through history"),
        Binding("n", "now", "Now", id="device.now", tooltip="Return to the present"),
        Binding("s", "save", "Save", id="device.save", tooltip="Save what the charts show as a CSV file"),
    ]

    class Saved(Message):
        """A file was written, or could not be.

        Args:
            said: What became of it.
            failed: Whether it could not be written.
        """

        def __init__(self, said: str, *, failed: bool) -> None:
            super().__init__()
            self.said = said
            self.failed = failed

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self.charts: list[MovingChart] = [MovingChart(metric) for metric in DEFAULT_METRICS]
        """Those that were chosen, whether or not they have room."""
        self._zoom = DEFAULT_ZOOM
        self._zooms: tuple[float, ...] = ZOOMS
        self._last: int | None = None
        """The newest column in sight; None follows the present."""
        self._latest = 0
        self._earliest = 0
        self._device: Device | None = None
        self._scene: Scene | None = None

    def compose_above(self) -> ComposeResult:
        yield TextLines(id="banner")
        yield TextLines(id="charts")
        yield TextLines(id="figures-heading")

    def show(self, scene: Scene) -> None:
        """Draws the device of a scene; of one that has gone, the last values, and that it has gone."""
        device = next((each for each in scene.frame.devices if each.key == self.key), None)
        is_gone = device is None
        self._device = device = device or self._device
        self._scene = scene
        width = self.size.width
        with self.app.batch_update():
            if device is None:
                self.query_one("#title", TextLines).show([title_line("This GPU has gone", "", scene, width)])
                return
            gone = "  has gone; its last values" if is_gone else ""
            title = title_line(f"{title_text(device, scene.frame)}{gone}", "", scene, width)
            self.query_one("#title", TextLines).show([title])
            self.query_one("#banner", TextLines).show(self._banner(scene))
            self._show_history(scene, device)

    def _show_history(self, scene: Scene, device: Device) -> None:
        """Charts, what is aligned with them, and the table."""
        history = scene.store.of_device(self.key)
        now = scene.frame.monotonic_seconds
        room = plan(self.size.width, self.size.height, len(self.charts))
        window = self._window(scene, history)
        lines = self._chart_lines(scene, device, history, window, room) if room.charts else []
        self.query_one("#charts", TextLines).show(lines)
        heading = heading_line(room.charts, len(self.charts), self.size.width)
        self.query_one("#figures-heading", TextLines).show([heading] if lines else [])
        more = () if history is None else history_entries(history, window, now)
        self.show_entries(chain(device_entries(device), more))

    def _chart_lines(
        self, scene: Scene, device: Device, history: DeviceHistory | None, window: Window, room: Plan
    ) -> list[Line]:
        lines: list[Line] = []
        for place, drawn in enumerate(self.charts[: room.charts]):
            timeline = None if history is None else history.timeline
            drawn.draw(timeline, device, window, room.height, scene.frame.interval_seconds)
            lines += chart_lines(drawn, place, device, self.size.width)
        lines.append(axis_line(window, scene.frame.monotonic_seconds))
        if history is not None and room.reasons:
            lines += throttle_lines(history, window, room.reasons)
            lines += event_lines(history, window)
        return lines

    def _window(self, scene: Scene, history: DeviceHistory | None) -> Window:
        """What part of history is in sight; what was forgotten meanwhile goes out of it."""
        columns = max(1, self.size.width - GUTTER)
        self._zooms = zooms_for(scene.store.history_seconds, columns)
        self._zoom = min(self._zoom, len(self._zooms) - 1)
        seconds = self._zooms[self._zoom]
        self._latest = column_of(scene.frame.monotonic_seconds, seconds)
        first = None if history is None else history.timeline.first_seconds
        earliest = self._latest if first is None else column_of(first, seconds) + columns - 1
        self._earliest = min(earliest, self._latest)
        if self._last is not None:
            self._last = max(self._earliest, min(self._last, self._latest))
        return Window(self._latest if self._last is None else self._last, columns, seconds)

    def _banner(self, scene: Scene) -> list[Line]:
        """What is wrong with this GPU or with all of them."""
        if self.size.height < _LEAST_HEIGHT_FOR_BANNER:
            return []
        alerts = [each for each in scene.alerts if each.device_key in {None, self.key}]
        return banner(alerts, self.size.width, _MOST_BANNER_LINES, scene.frame.time_seconds)

    def action_zoom(self, steps: int) -> None:
        before = self._zooms[self._zoom]
        self._zoom = max(0, min(len(self._zooms) - 1, self._zoom + steps))
        if self._last is not None:  # the right edge stays where it is
            self._last = column_of(self._last * before, self._zooms[self._zoom])
        self.post_message(SceneWanted())

    def action_scroll(self, steps: int) -> None:
        step = max(1, (self.size.width - GUTTER) // _SCROLL_SHARE)
        last = (self._latest if self._last is None else self._last) + steps * step
        self._last = None if last >= self._latest else max(self._earliest, last)
        self.refresh_bindings()
        self.post_message(SceneWanted())

    def action_now(self) -> None:
        self._last = None
        self.refresh_bindings()
        self.post_message(SceneWanted())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hides the way back to the present while it is shown."""
        return self._last is not None if action == "now" else super().check_action(action, parameters)

    def action_save(self) -> None:
        """Saves in the background: the folder may be one of a server that does not answer."""
        history = None if self._scene is None else self._scene.store.of_device(self.key)
        if self._scene is None or self._device is None or history is None:
            return
        window = self._window(self._scene, history)
        metrics = [each.metric for each in self.charts]
        stretch = Stretch(window.first, window.last, window.column_seconds)
        table = course(history.timeline, metrics, self._device, self._scene.frame, stretch)
        name = f"gpumon-gpu{self._device.index}"
        threading.Thread(target=self._save, args=(table, name), name="gpumon-save", daemon=True).start()

    def _save(self, table: Table, name: str) -> None:
        try:
            self.post_message(self.Saved(f"Saved {save(table, name)}", failed=False))
        except CommandError as error:
            self.post_message(self.Saved(str(error), failed=True))

    @on(Saved)
    def tell_saved(self, saved: Saved) -> None:
        """Says where the file is, or why there is none."""
        self.notify(saved.said, severity="error" if saved.failed else "information", markup=False)

    def action_choose(self) -> None:
        chosen = [each.metric for each in self.charts]
        self.app.push_screen(MetricChoiceScreen(self.key, chosen), self._take_choice)

    def _take_choice(self, chosen: tuple[str, ...] | None) -> None:
        """Draws what was chosen; a chart that stays keeps what it has drawn."""
        if chosen:
            drawn = {each.metric: each for each in self.charts}
            self.charts = [drawn.get(metric) or MovingChart(metric) for metric in chosen]
            self.post_message(SceneWanted())


def look_at(stream: Stream, screens: Sequence[Screen[Any]]) -> None:
    """Lets a stream read what is costly to read of the devices that the screens show, and of no others."""
    if isinstance(stream, Lookable):
        stream.look({screen.key for screen in screens if isinstance(screen, DeviceScreen)})
