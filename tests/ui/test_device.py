"""The screen of one GPU: charts that follow or hold a time, what is aligned with them, and every value."""

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.core.metrics import METRICS
from gpumon.core.model import DeviceState, Frame
from gpumon.present.paint.area import GUTTER
from gpumon.present.paint.line import Role
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.chart_choices import ChartChoiceScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.text_lines import TextLines
from tests import builders
from tests.ui.fakes import FakeLive, FakeRecording, app_on, screen_lines, screen_text
from tests.ui.test_snapshots import Compare

BEGAN = 1000.0
KEY = builders.device(0).key


class FakeLook(FakeLive):
    """A stream that records which devices are shown."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[set[str]] = []

    def request_on_demand(self, keys: Collection[str], process_keys: Collection[str] = ()) -> None:
        if not self.looks or self.looks[-1] != set(keys):
            self.looks.append(set(keys))


def training(second: int, **changes: Any) -> Frame:  # noqa: ANN401
    """A GPU whose load goes up and down; it is capped at the top."""
    level = abs(second % 60 - 30) / 30
    readings = {
        "utilization_gpu_percent": round(100 * level),
        "power_watts": 120.0 + round(570 * level),
        "memory_used_bytes": (20 + round(60 * level)) << 30,
    }
    reasons = ("sw_power_cap",) if level > 0.8 else ("hw_thermal_slowdown",) if level < 0.1 else ()
    device = builders.device(0, **{"readings": readings, "throttle_reasons": reasons, "cuda_index": 3, **changes})
    return builders.frame(devices=(device,), monotonic_seconds=BEGAN + second, time_seconds=1_800_000_000.0 + second)


def filled(stream: FakeLive | FakeRecording, seconds: int = 400) -> None:
    """A history with a hole, in which the GPU was lost."""
    for second in range(seconds):
        if seconds - 100 <= second < seconds - 80:
            stream.put(training(second, state=DeviceState.LOST, age_seconds=9.0))
        else:
            stream.put(training(second))


async def opened(app: GpumonApp, pilot: Pilot[Any]) -> DeviceScreen:
    await pilot.pause()
    await pilot.press("enter")
    await pilot.pause()
    assert isinstance(app.screen, DeviceScreen)
    return app.screen


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(160, 50), (80, 24)])
async def test_charts_axis_throttling_events_and_figures(size: tuple[int, int]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=size) as pilot:
        filled(stream)
        await opened(app, pilot)
        text = screen_text(app)
        assert " GPU 0  H200  CUDA 3  driver 580.95.05" in text
        assert re.search(r"GPU utilization  \d+ %", text)
        assert re.search(r"Temperature  \d+ of 92 °C", text)
        assert "now┴" in text
        assert re.search(r"(too hot|power cap).* │ .*▄", text)
        assert re.search(r"events │.*!.*!", text)
        assert re.search(r"State +ok", text)
        assert sum(line.count("⣿") for line in screen_lines(app)) > 100


async def test_every_figure_has_its_limit_its_source_or_its_reason() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(200, 50)) as pilot:
        filled(stream, 120)
        screen = await opened(app, pilot)
        rows = ["".join(span.text for span in row.line) for row in screen.query_one("#details", LineTable).rows]
        assert any(re.search(r"^Memory used +\S+ of 140 GiB +Device memory held .*\(nvml\w+", row) for row in rows)
        for metric in METRICS.values():
            assert any(row.startswith(metric.label) for row in rows)
        assert any(re.search(r"^Throttled: power cap +\d+s +Time in which sw_power_cap", row) for row in rows)
        assert any(re.search(r"^Event +.* ago +responds again", row) for row in rows)


async def test_zoom_a_cursor_in_time_and_back_to_now() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(113, 40)) as pilot:
        filled(stream, 500)
        await opened(app, pilot)
        assert "2 s/col" in screen_text(app)
        for key, width in (("z", "1 s"), ("z", "1 s"), ("x", "2 s"), ("x", "5 s")):
            await pilot.press(key)
            await pilot.pause()
            assert f" {width}/col" in screen_text(app)
        await pilot.press("z", "z", "left", "left", "left")
        await pilot.pause()
        assert re.search(r"2s ago, \d\d:\d\d:\d\d ▲", screen_text(app))
        assert re.search(r"GPU utilization   \d+ % ", screen_text(app))
        assert " n Now" in screen_text(app)
        charts = [line for line in screen_lines(app) if "┤" in line or " │" in line]
        for second in range(500, 505):
            stream.put(training(second))
            await pilot.pause()
        assert [line for line in screen_lines(app) if "┤" in line or " │" in line] == charts, "it stands still"
        assert re.search(r"7s ago, \d\d:\d\d:\d\d ▲", screen_text(app))
        await pilot.press("n")
        await pilot.pause()
        assert "now┴" in screen_text(app)
        assert " n Now" not in screen_text(app)
        for _ in range(60):
            app.simulate_key("shift+left")
        await pilot.pause()
        assert "▲ 8m 24s ago, " in screen_text(app), "the oldest values, no further"
        for _ in range(60):
            app.simulate_key("shift+right")
        await pilot.pause()
        assert re.search(r"─0s ago, \d\d:\d\d:\d\d ▲\n", screen_text(app).replace(" \n", "\n"))
        await pilot.press("escape")
        await pilot.pause()
        assert "now┴" in screen_text(app), "escape removes the cursor first"
        await pilot.press("escape")
        assert isinstance(app.screen, OverviewScreen)


async def test_a_click_on_a_chart_sets_the_cursor() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(113, 40)) as pilot:
        filled(stream, 500)
        screen = await opened(app, pilot)
        await pilot.click("#charts", offset=(5, 3))
        assert screen.time_view.cursor is None, "the scale is no time"
        await pilot.click("#charts", offset=(GUTTER + 89, 3))
        await pilot.pause()
        assert "21s ago, " in screen_text(app)
        await pilot.click("#details", offset=(30, 2))
        assert screen.time_view.cursor_index == 89


def pair(second: int) -> Frame:
    """Two GPUs, of which one idles."""
    one = training(second).devices[0]
    return builders.frame(
        devices=(one, builders.device(1, readings={"utilization_gpu_percent": 5, "power_watts": 100.0})),
        monotonic_seconds=BEGAN + second,
    )


async def test_the_next_gpu_in_place_and_several_in_one_chart() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(*map(pair, range(60)))
        screen = await opened(app, pilot)
        for key, number in (("right", 1), ("right", 0), ("left", 1)):
            await pilot.press(f"{key}_square_bracket")
            await pilot.pause()
            assert f" GPU {number}  H200" in screen_lines(app)[1]
        await pilot.press("o")
        await pilot.pause()
        assert screen_text(app).count("[x]") == 1, "this GPU is chosen"
        await pilot.press("enter", "escape")
        await pilot.pause()
        assert re.search(r"GPU utilization  ━ GPU 0 \d+ %  ━ GPU 1 5 %", screen_text(app))
        assert re.search(r"Power  ━ GPU 0 [\d.]+ W  ━ GPU 1 100.0 W", screen_text(app))
        roles = {span.role for line in screen.query_one("#charts", TextLines)._lines for span in line}
        assert {Role.SERIES_1, Role.SERIES_2} <= roles
        await pilot.press("o", "enter", "escape")
        await pilot.pause()
        assert "GPU utilization  5 %" in screen_text(app), "one GPU alone has its area back"


async def test_metrics_are_chosen_from_a_list() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 60)) as pilot:
        filled(stream, 60)
        screen = await opened(app, pilot)
        before = screen.charts[0]
        await pilot.press("c")
        await pilot.pause()
        assert isinstance(app.screen, ChartChoiceScreen)
        names = list(METRICS)
        table = app.screen.query_one("#choices", LineTable)
        for name in ("power_watts", "clock_sm_hertz", "clock_memory_hertz"):
            table.cursor = names.index(name)
            await pilot.press("enter")
            await pilot.pause()
        assert "At most 4" in screen_lines(app)[-1], "the fifth is not taken"
        await pilot.press("escape")
        await pilot.pause()
        chosen = [chart.metric for chart in screen.charts]
        assert chosen == ["utilization_gpu_percent", "temperature_celsius", "memory_used_bytes", "clock_sm_hertz"]
        assert screen.charts[0] is before
        assert re.search(r"Temperature  56 of 92 °C", screen_text(app))


async def test_somebody_looks_only_while_the_screen_is_there() -> None:
    stream = FakeLook()
    app = app_on(stream)
    other = builders.device(1).key

    def two_gpus(second: int) -> Frame:
        frame = training(second)
        return replace(frame, devices=(*frame.devices, builders.device(1)))

    async with app.run_test(size=(120, 40)) as pilot:
        for second in (0, 1):
            stream.put(two_gpus(second))
            await pilot.pause()
        assert stream.looks[-1] == {KEY}, "the overview shows its selected GPU"
        app.push_screen(DeviceScreen(other))
        await pilot.pause()
        assert stream.looks[-1] == {KEY, other}
        await pilot.press("question_mark")
        stream.put(two_gpus(2))
        await pilot.pause()
        assert stream.looks[-1] == {KEY, other}, "the help does not hide it for good"
        await pilot.press("escape", "escape")
        stream.put(two_gpus(3))
        await pilot.pause()
        assert isinstance(app.screen, OverviewScreen)
        assert stream.looks[-1] == {KEY}
        await pilot.press("down")
        await pilot.pause()
        assert stream.looks[-1] == {other}, "only the selected GPU"


@pytest.mark.long
@pytest.mark.parametrize("size", [(60, 10), (20, 5), (8, 3), (300, 100), (40, 12)])
async def test_every_size(size: tuple[int, int]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        filled(stream, 60)
        await opened(app, pilot)
        await pilot.resize_terminal(*size)
        await pilot.press("x", "left", "c", "escape", "n", "o", "escape", "left", "escape")
        stream.put(training(61))
        await pilot.pause()
        assert isinstance(app.screen, DeviceScreen)


async def test_a_gpu_without_a_past_and_one_that_left() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(training(0, state=DeviceState.UNRESPONSIVE, age_seconds=12.0))
        await opened(app, pilot)
        assert "UNRESPONSIVE 12s" in screen_text(app)
        assert "nothing measured in the time shown" in screen_text(app)
        stream.put(builders.frame(devices=(), monotonic_seconds=BEGAN + 5))
        await pilot.pause()
        assert "is gone; last values" in screen_text(app)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("theme", ["dark", "ansi"])
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_picture_of_a_gpu(snap_compare: Compare, size: tuple[int, int], theme: str) -> None:
    stream = FakeLive()
    filled(stream)

    async def press(pilot: Pilot[Any]) -> None:
        await pilot.press("enter")
        await pilot.pause()

    assert snap_compare(app_on(stream, theme), terminal_size=size, run_before=press)
