"""The app under Textual's pilot: a test puts every frame in by hand, so that nothing waits for a clock."""

import re
import time

import pytest
from textual import events

from gpumon.present.palette import BUILT_IN
from gpumon.session.pace import INTERVALS, SPEEDS
from gpumon.streams.base import Discontinuity
from gpumon.ui.screens.alerts import AlertsScreen
from gpumon.ui.screens.choice import ThemePicker
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.overview import OverviewScreen
from tests import builders
from tests.frames import machine
from tests.ui.fakes import FakeLive, FakeRecording, app_on, busy, screen_lines, screen_text

# Frames


async def test_a_frame_is_drawn() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        assert "Waiting for the first values." in screen_text(app)
        stream.put(machine())
        await pilot.pause()
        lines = screen_lines(app)
        assert re.match(r" gpumon  1 GPUs  2 Processes  3 Memory .* ● live 1s ", lines[0])
        assert lines[1].startswith(" 8×H200 ")
        assert sum("ada train" in line for line in lines) == 8
        assert sum("train.py" in line for line in lines) == 1, "the processes of the selected GPU"
        assert "node7" in screen_text(app)


async def test_a_rewind_forgets_what_was_drawn() -> None:
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(busy(10), busy(20, 2))
        await pilot.pause()
        stream.inbox.put(Discontinuity.REWOUND)
        await pilot.pause()
        assert "20%" in screen_text(app), "until there is something new"
        stream.put(busy(30, 4))
        await pilot.pause()
        assert app.session.store.history(builders.device(0).key, "utilization_gpu_percent", 2) == [None, 30]


async def test_of_the_frames_that_a_busy_app_has_not_drawn_one_bell_waits_and_the_newest_is_drawn() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test() as pilot:
        before = app.message_queue_size
        stream.put(*[busy(percent, percent) for percent in range(10, 78)])
        assert app.message_queue_size == before + 1
        await pilot.pause()
        assert "77%" in screen_text(app)
        stream.put(busy(88, 90))
        await pilot.pause()
        assert "88%" in screen_text(app), "the next bell rings"


# Keys


async def test_keys_that_waited_long_are_left_out_but_the_last_ones_are_not() -> None:
    app = app_on(stream := FakeLive())
    async with app.run_test() as pilot:
        stream.put(busy(10))
        await pilot.pause()
        for number in range(50):
            key = events.Key("question_mark" if number < 10 else "6", None)
            key.time -= 60.0
            app.post_message(key)
        await pilot.pause()
        assert not any(isinstance(screen, HelpScreen) for screen in app.screen_stack)
        assert isinstance(app.screen, AlertsScreen)


async def test_pause_holds_the_screen_but_not_the_history() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(busy(10))
        await pilot.press("space")
        assert "PAUSED" in screen_text(app)
        stream.put(busy(77, app.session.store.bucket_seconds))
        await pilot.pause()
        assert "10%" in screen_text(app)
        await pilot.press("plus")
        assert "10%" in screen_text(app), "another interval is no reason to go on"
        assert app.session.store.history(builders.device(0).key, "utilization_gpu_percent", 2) == [10, 77]
        await pilot.press("space")
        assert "77%" in screen_text(app)
        assert "PAUSED" not in screen_text(app)


async def test_a_recording_is_paused_itself() -> None:
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(busy(10))
        await pilot.pause()
        assert "REPLAY demo.jsonl 01:05/05:00 x1" in screen_text(app)
        await pilot.press("space")
        assert stream.paused
        assert "PAUSED demo.jsonl" in screen_text(app)
        stream.put(busy(20, 2))
        await pilot.pause()
        assert "20%" in screen_text(app), "what a seek brings is drawn though it is paused"
        await pilot.press("space")
        assert not stream.paused


async def test_interval_keys_set_the_interval_within_bounds() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(machine())
        await pilot.press("plus", "minus", "minus")
        assert stream.intervals == [0.5, 1.0, 2.0]
        assert "live 2s" in screen_text(app)
        await pilot.press(*["minus"] * 6)
        assert stream.interval == INTERVALS[-1]
        await pilot.press(*["equals_sign"] * 10)
        assert stream.interval == INTERVALS[0]


async def test_replay_keys_work_on_a_recording() -> None:
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(machine())
        await pilot.press("full_stop")
        assert stream.seconds == 75
        await pilot.press("comma", "comma")
        assert stream.seconds == 55
        await pilot.press("plus")
        assert stream.speed == 2
        await pilot.press(*["minus"] * 5)
        assert stream.speed == SPEEDS[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quit_keys_leave_and_close_the_stream(key: str) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(machine())
        await pilot.press("enter", key)
        await pilot.pause()
        assert app._exit
    deadline = time.monotonic() + 10
    while not stream.closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stream.closed


async def test_themes_take_turns() -> None:
    stream = FakeLive()
    themes = [*BUILT_IN]
    app = app_on(stream, themes[-2])
    async with app.run_test() as pilot:
        stream.put(machine())
        seen = []
        for _ in range(3):
            seen.append(app.theme)
            await pilot.press("T")
        assert seen == [*themes[-2:], "dark"]
        assert isinstance(app.screen, ThemePicker)
        await pilot.press("enter")
        await pilot.pause()
        assert "Theme light" in screen_lines(app)[-1], "T names the theme that it chose"
        await pilot.press("T")
        picker = app.screen
        await pilot.press("escape")
        assert app.theme == "light", "esc keeps the theme of before"
        picker.dismiss()
        await pilot.press("4", "escape")
        assert isinstance(app.screen, OverviewScreen), "a dialog that is closed twice closes no other screen"


# Hidden screens


@pytest.mark.sampled(1)
@pytest.mark.parametrize("opening", ["enter", "question_mark"])
async def test_a_screen_that_comes_back_shows_the_latest_frame(opening: str) -> None:
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(busy(10))
        await pilot.press(opening)
        stream.put(busy(77, 2))
        await pilot.pause()
        await pilot.press("escape")
        await pilot.pause()
        assert "77%" in screen_text(app)
