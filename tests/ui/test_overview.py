"""The overview: errors, alerts, silence, sizes of the terminal, and text without colors."""

import re
from typing import Any

import pytest
from textual.events import Resize
from textual.geometry import Size

from gpumon.core.model import DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.widgets.line_table import LineTable
from tests import builders
from tests.frames import NO_DRIVER, machine, troubled
from tests.ui.fakes import FakeLive, FakeRecording, FakeStream, Refreshes, app_on, later, screen_lines, screen_text

SIZES = [(80, 24), (160, 50), (300, 100), (8, 3), (20, 5)]


# Errors and alerts


async def test_no_driver_is_explained_and_gpumon_starts_once_there_is_one() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(builders.frame(devices=(), driver_version=None, problems={"driver": NO_DRIVER}))
        await pilot.pause()
        shown = screen_text(app)
        for words in (NO_DRIVER.reason, NO_DRIVER.remedy, "as soon as the driver responds", "play the demo"):
            assert words in shown
        explanation = Refreshes(app.screen.query_one("#explanation"))
        stream.put(builders.frame(devices=(), driver_version=None, problems={"driver": NO_DRIVER}))
        await pilot.pause()
        assert explanation.regions == [], "nothing changed, so nothing is drawn"
        stream.put(later(machine(), 1.0))
        await pilot.pause()
        assert " ada " in screen_text(app)
        assert NO_DRIVER.reason not in screen_text(app)


async def test_a_driver_that_goes_away_leaves_the_rows_and_says_so() -> None:
    stream = FakeLive()
    app = app_on(stream)
    gone = Problem(ProblemCode.DRIVER_RESTARTED, "The NVIDIA driver was unloaded.", "gpumon waits for it.")
    async with app.run_test() as pilot:
        devices = tuple(builders.device(index, state=DeviceState.LOST, age_seconds=3.0) for index in range(2))
        stream.put(builders.frame(devices=devices, problems={"driver": gone}))
        await pilot.pause()
        assert screen_text(app).count("LOST 3s") == 2
        assert "! The NVIDIA driver was unloaded. gpumon waits for it." in screen_text(app)


async def test_a_stream_that_never_brought_a_frame_says_why() -> None:
    stream = FakeStream("standard input")
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.problem = Problem(ProblemCode.STREAM_ENDED, "The stream ended before its first frame.", "Look there.")
        stream.inbox.ring()
        await pilot.pause()
        assert "The stream ended before its first frame." in screen_text(app)
        assert "Look there." in screen_text(app)
        stream.problem = None
        stream.put(machine())
        await pilot.pause()
        assert " ada " in screen_text(app)


async def test_trouble_of_the_stream_stands_above_all_else() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(troubled())
        stream.problem = Problem(ProblemCode.COLLECTOR_DIED, "The collector ended: SIGSEGV.", "The next one starts.")
        stream.inbox.ring()
        await pilot.pause()
        assert screen_lines(app)[4].startswith(" ! The collector ended: SIGSEGV. The next one starts.")
        assert "more)" in screen_lines(app)[6]


async def test_silence_makes_every_row_old() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(machine(4))
        await pilot.pause()
        app.drawing.check_silence()
        assert "STALE" not in screen_text(app), "one late frame is no silence"
        app.session.shown.arrived_at -= 30
        app.drawing.check_silence()
        await pilot.pause()
        shown = screen_text(app)
        assert len(re.findall(r"STALE 3\ds", shown)) == 4
        assert "No values for 3" in shown
        stream.put(later(machine(4), 31.0))
        await pilot.pause()
        assert "STALE" not in screen_text(app)
        assert "No values" not in screen_text(app)


@pytest.mark.parametrize("stream", [FakeRecording(), FakeLive()])
async def test_a_pause_is_no_silence(stream: FakeStream) -> None:
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(machine(2))
        await pilot.press("space")
        app.session.shown.arrived_at -= 30
        app.drawing.check_silence()
        await pilot.pause()
        assert "STALE" not in screen_text(app)


# Sizes


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("gpus", "size"),
    [*((gpus, size) for gpus in (1, 8, 256) for size in SIZES[:3]), *((8, size) for size in SIZES[3:])],
)
async def test_every_size_of_terminal_and_machine(gpus: int, size: tuple[int, int]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=size) as pilot:
        stream.put(machine(gpus))
        await pilot.pause()
        shown = screen_text(app)
        assert len(screen_lines(app)) == size[1]
        if size[0] < 60:
            assert "too" in shown
            assert "H200" not in shown
        else:
            await pilot.press(*(["v"] if gpus > 16 else []))
            await pilot.pause()
            assert re.search(r"^▸0 .*\d%", screen_text(app), re.MULTILINE)
            await pilot.press("end")
            await pilot.pause()
            assert re.search(rf"^▸{gpus - 1} .*\d%", screen_text(app), re.MULTILINE)
            await pilot.press("g", "tab", "end")
            await pilot.pause()
            assert f" {4000 + gpus - 1} ada" in screen_text(app)
        await pilot.press("enter", "down", "escape", "question_mark", "escape", "home", "end")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("keys", [[], ["question_mark"], ["enter"]])
async def test_sizes_that_wait_do_not_bring_each_other_back(keys: list[str]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        stream.put(troubled())
        await pilot.press(*keys)
        for size in [(20, 5), (160, 50)] * 2:
            app.screen.post_message(Resize(Size(*size), Size(*size)))
        for _ in range(5):
            await pilot.pause(0.05)
            assert len(screen_lines(app)) == 24


async def test_every_gpu_has_a_line_as_long_as_there_is_room() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        stream.put(machine(8))
        await pilot.pause()
        assert app.screen.query_one("#devices", LineTable).size.height == 8
        stream.put(later(machine(64), 1.0))
        await pilot.press("v", "g")
        await pilot.pause()
        assert app.screen.query_one("#devices", LineTable).size.height >= 8
        assert app.screen.query_one("#processes", LineTable).size.height >= 3


async def test_the_processes_are_those_of_the_selected_gpu_or_of_all() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(machine(4))
        await pilot.press("down", "down")
        await pilot.pause()
        shown = screen_text(app)
        assert "Processes on GPU 2" in shown
        assert "1 of 4" in shown
        assert " 4002 ada" in shown
        assert " 4001 ada" not in shown
        await pilot.press("g")
        await pilot.pause()
        assert "Processes on all GPUs" in screen_text(app)
        assert " 4001 ada" in screen_text(app)


async def test_a_gpu_without_processes_says_so() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(builders.frame(devices=(builders.device(0, processes=()),)))
        await pilot.pause()
        assert "No process uses GPU 0." in screen_text(app)
        stream.put(later(machine(1), 1.0))
        await pilot.pause()
        assert "No process" not in screen_text(app)
        assert " 4000 ada" in screen_text(app)


async def test_the_expensive_values_are_read_for_the_selected_gpu_alone() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(machine(4))
        await pilot.press("down")
        await pilot.pause()
        assert app.screen.demand.device_keys == {builders.device(1).key}  # type: ignore[attr-defined]


async def test_many_gpus_are_a_map_in_which_one_is_selected() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        stream.put(machine(64))
        await pilot.pause()
        assert "64 GPUs by utilization  ▸0 " in screen_text(app)
        await pilot.press("down", "j")
        await pilot.pause()
        assert "▸16 " in screen_text(app)
        assert "Processes on GPU 16" in screen_text(app)
        await pilot.press("s")
        await pilot.pause()
        assert "64 GPUs by memory" in screen_text(app)
        await pilot.press("v")
        await pilot.pause()
        assert re.search(r"^▸16 .*\d%", screen_text(app), re.MULTILINE), "the table has the same GPU selected"
        await pilot.press("v", "enter")
        await pilot.pause()
        assert "GPU 16" in screen_text(app)


async def test_a_map_over_time_compares_the_gpus() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        for second in range(0, 80, 4):
            busy = builders.device(0, readings={"utilization_gpu_percent": 100.0 * (second < 40)})
            idle = builders.device(1, readings={"utilization_gpu_percent": 0.0})
            stream.put(later(builders.frame(devices=(busy, idle), interval_seconds=4.0), float(second)))
        await pilot.press("v")
        await pilot.pause()
        shown = screen_text(app)
        assert "GPU utilization of 2 GPUs over time" in shown
        assert re.search(r"▸0 +█{10}·{10} +0%", shown)
        assert re.search(r" 1 +·{20} +0%", shown)
        await pilot.press("down", "s")
        await pilot.pause()
        assert re.search(r"▸1 .*–", screen_text(app))
        assert isinstance(app.screen, ViewScreen)
        assert app.screen.demand.device_keys == {busy.key, idle.key}, "SM activity is read on demand"
        await pilot.press("v")
        await pilot.pause()
        assert app.screen.query_one("#devices", LineTable).cursor == 1


# Without colors


async def test_what_is_wrong_can_be_read_without_colours() -> None:
    stream = FakeLive()
    app = app_on(stream, theme="ansi")
    async with app.run_test(size=(180, 40)) as pilot:
        stream.put(troubled())
        await pilot.pause()
        await pilot.press("g")
        await pilot.pause()
        shown = screen_text(app)
        assert len(screen_lines(app)) == 40
        lost = "LOST: The GPU has fallen off the bus → 6 shows what to do"
        rows = ("▸", lost, "UNRESPONSIVE 12s → 6", "!too hot", "!91°", "! unattributed: no visible process owns")
        for words in (*rows, " ! GPU 1 is lost"):
            assert words in shown


async def test_the_mouse_scrolls() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        stream.put(machine(256))
        await pilot.press("v")
        await pilot.pause()
        table = app.screen.query_one("#devices", LineTable)
        table.post_message(_wheel(table))
        await pilot.pause()
        assert table.scroll_offset.y > 0


def _wheel(table: LineTable) -> Any:  # noqa: ANN401
    from textual import events

    return events.MouseScrollDown(table, 5, 2, 0, 1, 0, False, False, False, 5, 2)
