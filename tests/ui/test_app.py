"""The app under Textual's pilot: frames are put in by hand, so nothing here waits for a clock."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from textual.events import Resize
from textual.geometry import Size
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Footer

from gpumon.core.frames import encode
from gpumon.core.model import DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.streams import replay
from gpumon.streams.base import Rewound
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens import drawn
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.help import HELP, HelpScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.source import INTERVALS, SPEEDS
from gpumon.ui.terminal_app import THEMES
from gpumon.ui.widgets.line_table import LineTable
from tests import builders
from tests.ui.fakes import (
    HOSTILE,
    NO_DRIVER,
    FakeLive,
    FakeRecording,
    FakeStream,
    Refreshes,
    app_on,
    hostile,
    machine,
    screen_lines,
    screen_text,
    troubled,
)

SIZES = [(80, 24), (160, 50), (300, 100), (8, 3), (20, 5)]


def later(frame: Frame, seconds: float, **changes: Any) -> Frame:  # noqa: ANN401
    """The same machine a while after."""
    return builders.frame(
        devices=frame.devices, monotonic_seconds=frame.monotonic_seconds + seconds, host=frame.host, **changes
    )


def busy(percent: float, seconds: float = 0.0) -> Frame:
    return builders.frame(
        devices=(builders.device(0, readings={"utilization_gpu_percent": percent}),),
        monotonic_seconds=100.0 + seconds,
    )


class Scenes:
    """Counts how often the screens of an app draw."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn: list[str] = []
        for screen in (OverviewScreen, DeviceScreen):
            self._spy(monkeypatch, screen)

    def _spy(self, monkeypatch: pytest.MonkeyPatch, screen: type[OverviewScreen] | type[DeviceScreen]) -> None:
        original = screen.show

        def show(drawn: Any, scene: Any) -> None:  # noqa: ANN401
            self.drawn.append(screen.__name__)
            original(drawn, scene)

        monkeypatch.setattr(screen, "show", show)


# Frames


async def test_a_frame_is_drawn() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        assert "Waiting for the first values." in screen_text(app)
        stream.put(machine())
        await pilot.pause()
        lines = screen_lines(app)
        assert re.match(r" gpumon  driver 580.95.05 · CUDA 13.0 · 8 x H200 .* live every 1 s ", lines[0])
        assert sum("H200" in each for each in lines[1:]) == 8
        assert sum("train.py" in each for each in lines) == 8
        assert "node7" in screen_text(app)


async def test_what_waited_before_the_app_came_up_is_drawn() -> None:
    stream = FakeStream()
    stream.put(machine())
    app = app_on(stream)
    async with app.run_test() as pilot:
        await pilot.pause()
        assert " ada " in screen_text(app)


async def test_many_frames_that_wait_are_all_kept_and_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeStream()
    app = app_on(stream)
    async with app.run_test() as pilot:
        await pilot.pause()
        scenes = Scenes(monkeypatch)
        stream.put(*(busy(number, app.store.bucket_seconds * number) for number in range(101)))
        await pilot.pause()
        assert scenes.drawn == ["OverviewScreen"]
        assert app.store.history(builders.device(0).key, "utilization_gpu_percent", 101) == list(range(101))


async def test_a_rewind_forgets_what_was_drawn() -> None:
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(busy(10), busy(20, 2))
        await pilot.pause()
        stream.inbox.put(Rewound.REWOUND)
        await pilot.pause()
        assert "20%" in screen_text(app), "until there is something new"
        stream.put(busy(30, 4))
        await pilot.pause()
        assert app.store.history(builders.device(0).key, "utilization_gpu_percent", 2) == [None, 30]


async def test_the_same_again_refreshes_nothing() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(troubled())
        await pilot.pause()
        spies = [Refreshes(widget) for widget in app.screen.query("*").results(Widget)]
        stream.put(later(troubled(), 0.5))
        await pilot.pause()
        assert [spy.regions for spy in spies if spy.regions] == []


# Keys


async def test_pause_holds_the_screen_but_not_the_history() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(busy(10))
        await pilot.press("space")
        assert "PAUSED" in screen_text(app)
        stream.put(busy(77, app.store.bucket_seconds))
        await pilot.pause()
        assert "10%" in screen_text(app)
        await pilot.press("plus")
        assert "10%" in screen_text(app), "another interval is no reason to go on"
        assert app.store.history(builders.device(0).key, "utilization_gpu_percent", 2) == [10, 77]
        await pilot.press("p")
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
        assert "every 2 s" in screen_text(app)
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


async def test_keys_without_a_use_are_not_offered() -> None:
    for stream, actions in [
        (FakeStream(), set()),
        (FakeLive(), {"faster", "slower"}),
        (FakeRecording(), {"faster", "slower", "rewind", "forward"}),
    ]:
        app = app_on(stream)
        async with app.run_test() as pilot:
            await pilot.press("comma", "full_stop", "plus", "minus")
            offered = {each.binding.action for each in app.active_bindings.values()}
            assert offered & {"faster", "slower", "rewind", "forward"} == actions


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
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(machine())
        seen = []
        for _ in range(4):
            seen.append(app.theme)
            await pilot.press("t")
            assert " ada " in screen_text(app)
        assert seen == [*THEMES.values(), THEMES["dark"]]


async def test_help_comes_and_goes() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 50)) as pilot:
        stream.put(machine())
        for opening, closing in [("question_mark", "escape"), ("f1", "q"), ("question_mark", "question_mark")]:
            await pilot.press(opening)
            assert isinstance(app.screen, HelpScreen)
            assert "quit" in screen_text(app)
            await pilot.press(closing)
            assert isinstance(app.screen, OverviewScreen)
        assert not app._exit


async def test_help_scrolls_on_a_small_terminal() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        assert "CPU% " not in screen_text(app)
        await pilot.press("end")
        assert "CPU% " in screen_text(app)


@pytest.mark.parametrize("width", [80, 100, 160])
async def test_the_footer_names_the_way_out_and_the_help(width: int) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(width, 24)) as pilot:
        stream.put(machine())
        await pilot.pause()
        footer = screen_lines(app)[-1]
        assert "q Quit" in footer
        assert "? Help" in footer


async def test_the_palette_knows_every_action() -> None:
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(machine())
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert {"Quit", "Help", "Pause", "Theme", "Demo"} <= set(titles)
        assert len(titles) == len(set(titles)), titles
        await pilot.press("ctrl+p")
        await pilot.press(*"Pause")
        await pilot.pause(0.2)
        await pilot.press("enter")
        await pilot.pause()
        assert stream.paused


# Details


async def test_details_of_a_gpu_and_back() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 60)) as pilot:
        stream.put(troubled())
        await pilot.press("down", "enter")
        assert isinstance(app.screen, DeviceScreen)
        shown = screen_text(app)
        assert " GPU 1  H200  driver 580.95.05  LOST" in shown
        assert re.search(r"State +lost +The GPU has fallen off the bus\.", shown)
        assert re.search(r"GPU utilization +– ", shown)
        await pilot.press("escape")
        assert isinstance(app.screen, OverviewScreen)


async def test_details_follow_their_gpu_by_uuid() -> None:
    stream = FakeLive()
    app = app_on(stream)
    first, second = builders.device(0), builders.device(1)
    async with app.run_test(size=(120, 60)) as pilot:
        stream.put(builders.frame(devices=(first, second)))
        await pilot.press("down", "enter")
        moved = builders.device(0, uuid=second.uuid, readings={"temperature_celsius": 33.0})
        stream.put(builders.frame(devices=(moved,), monotonic_seconds=101.0))
        await pilot.pause()
        assert " GPU 0 " in screen_text(app)
        assert re.search(r"Temperature +33 °C", screen_text(app))


async def test_details_of_a_gpu_that_went_away_keep_its_last_values() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 60)) as pilot:
        stream.put(machine(2))
        await pilot.press("down", "enter")
        stream.put(later(machine(1), 1.0))
        await pilot.pause()
        assert " GPU 1 " in screen_text(app)


async def test_details_of_a_process() -> None:
    command = "python " + "x" * 100
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 60)) as pilot:
        stream.put(builders.frame(devices=(builders.device(0, processes=(builders.process(command=command),)),)))
        await pilot.press("tab", "enter")
        shown = screen_text(app)
        assert " PID 4000 on GPU 0" in shown
        assert sum(line.count("x") for line in shown.splitlines() if "xx" in line) == 100


async def test_details_of_memory_that_nobody_owns_are_its_gpu() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 60)) as pilot:
        device = builders.device(0, processes=(), readings={"memory_unattributed_bytes": 9 << 30})
        stream.put(builders.frame(devices=(device,)))
        await pilot.press("tab", "enter")
        assert " GPU 0  H200" in screen_text(app)


async def test_the_note_says_all_that_a_narrow_row_cannot() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(60, 24)) as pilot:
        stream.put(troubled())
        await pilot.press("down", "enter")
        await pilot.pause()
        assert "fallen off the bus" in "\n".join(screen_lines(app)[-4:])


async def test_details_are_laid_out_anew_in_another_size() -> None:
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test(size=(60, 24)) as pilot:
        stream.put(machine())
        await pilot.press("space", "enter")
        assert "Share of the last" not in screen_text(app)
        await pilot.resize_terminal(200, 60)
        await pilot.pause()
        assert "Share of the last" in screen_text(app)


# Hidden screens


async def test_a_hidden_screen_does_not_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(machine())
        await pilot.press("enter")
        await pilot.pause()
        scenes = Scenes(monkeypatch)
        spies = [Refreshes(widget) for widget in app.screen_stack[1].query("*").results(Widget)]
        for number in range(5):
            stream.put(busy(number, number + 1))
            await pilot.pause()
        assert set(scenes.drawn) == {"DeviceScreen"}
        assert [spy.regions for spy in spies if spy.regions] == []


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


# The demo


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small recording in place of the bundled one."""
    path = tmp_path / "demo.jsonl"
    frames = [later(machine(3), float(second), driver_version="111.22") for second in range(3)]
    path.write_text("".join(encode(each) + "\n" for each in frames))
    monkeypatch.setattr(replay, "DEMO", path)
    return path


async def wait_for(app: GpumonApp, pilot: Pilot[None], text: str) -> None:
    """The one place here in which a real thread, the replay's, has to get to it."""
    deadline = time.monotonic() + 15
    while text not in screen_text(app):
        assert time.monotonic() < deadline, screen_text(app)
        await pilot.pause(0.02)


@pytest.mark.usefixtures("demo")
async def test_d_plays_the_demo_and_goes_back_to_live() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(machine(8))
        await pilot.press("d")
        await wait_for(app, pilot, "driver 111.22 · CUDA 13.0 · 3 x H200")
        assert "REPLAY demo" in screen_text(app)
        stream.put(later(machine(8), 5.0, driver_version="333"))
        await pilot.press("d")
        await wait_for(app, pilot, "driver 333 · CUDA 13.0 · 8 x H200")
        assert app.stream is stream
        assert not stream.closed


@pytest.mark.usefixtures("demo")
async def test_the_demo_costs_no_history() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        for bucket in range(5):
            stream.put(later(busy(90.0), 4.0 * bucket))
        await pilot.press("d")
        await wait_for(app, pilot, "driver 111.22")
        stream.put(later(busy(90.0), 20.0))
        await pilot.press("d")
        await pilot.pause()
        kept = app.store.history(busy(90.0).devices[0].key, "utilization_gpu_percent", 6)
        assert kept == [90.0] * 6


@pytest.mark.usefixtures("demo")
async def test_a_recording_waits_while_the_demo_is_shown() -> None:
    recording = FakeRecording()
    app = app_on(recording)
    async with app.run_test(size=(120, 30)) as pilot:
        recording.put(machine())
        await pilot.press("d")
        await wait_for(app, pilot, "driver 111.22")
        assert recording.paused
        await pilot.press("d")
        assert not recording.paused


async def test_there_is_no_demo_of_the_demo() -> None:
    app = app_on(FakeRecording("demo"))
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("d")
        assert app.stream.title == "demo"
        assert "Demo" not in screen_lines(app)[-1]


async def test_details_say_what_has_gone_and_where_the_frames_come_from() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(machine(1))
        await pilot.press("tab", "enter", "space")
        title = screen_lines(app)[0]
        assert "PID 4000 on GPU 0" in title
        assert "PAUSED" in title
        await pilot.press("space")
        stream.put(later(builders.frame(devices=(builders.device(0, processes=()),)), 1.0))
        await pilot.pause()
        assert "PID 4000 on GPU 0  has gone; its last values" in screen_lines(app)[0]
        assert "train.py" in screen_text(app)


@pytest.mark.usefixtures("demo")
async def test_going_back_to_a_live_stream_that_has_nothing_clears_the_demo() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("d")
        await wait_for(app, pilot, "driver 111.22")
        await pilot.press("d")
        await pilot.pause()
        assert "111.22" not in screen_text(app)


async def test_a_missing_demo_is_a_notice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(replay, "DEMO", tmp_path / "[/]" / "none.gz")
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        stream.put(machine())
        await pilot.press("d")
        await pilot.pause()
        assert app.stream is stream
        assert "is missing" in screen_text(app)


# What is wrong


async def test_no_driver_is_explained_and_it_starts_by_itself() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test() as pilot:
        stream.put(builders.frame(devices=(), driver_version=None, problems={"driver": NO_DRIVER}))
        await pilot.pause()
        shown = screen_text(app)
        for words in (NO_DRIVER.reason, NO_DRIVER.remedy, "starts by itself", "Press d"):
            assert words in shown
        explanation = Refreshes(app.screen.query_one("#explanation"))
        stream.put(builders.frame(devices=(), driver_version=None, problems={"driver": NO_DRIVER}))
        await pilot.pause()
        assert explanation.regions == [], "nothing changed, so nothing is drawn"
        stream.put(later(machine(), 1.0))
        await pilot.pause()
        assert " ada " in screen_text(app)
        assert NO_DRIVER.reason not in screen_text(app)


@pytest.mark.parametrize("width", [drawn._ROOMY_WIDTH - 1, drawn._ROOMY_WIDTH])
async def test_every_key_of_the_overview_has_room_where_it_is_said_to_have(width: int) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(width, 40)) as pilot:
        await pilot.pause()
        assert app.screen.query_one(Footer).max_scroll_x == 0


async def test_where_keys_are_typed_in_the_title_offers_none() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(builders.frame(devices=(builders.device(throttle_reasons=("hw_thermal_slowdown",)),)))
        await pilot.pause()
        assert "! 1 alert (a)" in screen_text(app)
        await pilot.press("e")
        await pilot.pause()
        assert "! 1 alert " in screen_text(app)
        assert "(a)" not in screen_text(app).splitlines()[0]


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
        assert screen_lines(app)[1].startswith(" ! The collector ended: SIGSEGV. The next one starts.")
        assert "more)" in screen_lines(app)[3]


async def test_silence_makes_every_row_old() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(machine(4))
        await pilot.pause()
        app.notice_silence()
        assert "STALE" not in screen_text(app), "one late frame is no silence"
        app.feed.arrived_at -= 30
        app.notice_silence()
        await pilot.pause()
        shown = screen_text(app)
        assert shown.count("STALE 30s") == 4
        assert "No values for 30s" in shown
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
        app.feed.arrived_at -= 30
        app.notice_silence()
        await pilot.pause()
        assert "STALE" not in screen_text(app)


# Text from outside


def assert_inert(app: GpumonApp) -> None:
    """Nothing of what is drawn can act on a terminal, and what looks like markup was not taken for it."""
    strips = app.screen._compositor.render_strips()
    text = "".join(segment.text for strip in strips for segment in strip)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", text)


async def test_hostile_text_is_inert_on_every_screen() -> None:
    stream = FakeLive(title="live")
    app = app_on(stream)
    async with app.run_test(size=(160, 40)) as pilot:
        stream.put(hostile())
        await pilot.pause()
        assert "[/] [bold red]" in screen_text(app)
        for keys in (["enter"], ["escape", "tab", "enter"], ["escape", "question_mark"], ["escape", "ctrl+p"]):
            await pilot.press(*keys)
            assert_inert(app)
            await pilot.press("down")
            assert_inert(app)
        await pilot.press("escape")
        assert isinstance(app.screen, OverviewScreen)
        assert_inert(app)


async def test_hostile_problems_are_inert_in_place_of_the_tables() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test() as pilot:
        problem = Problem(ProblemCode.UNKNOWN, HOSTILE, HOSTILE)
        stream.put(builders.frame(devices=(), problems={"driver": problem}))
        await pilot.pause()
        assert "[/] [bold red]x[/bold]" in screen_text(app)
        assert_inert(app)


# Sizes


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
            assert re.search(r"▸ +0 ", shown)
            await pilot.press("G", "tab", "G")
            shown = screen_text(app)
            assert re.search(rf"^ +{gpus - 1} .*\d%", shown, re.MULTILINE)
            assert f" {4000 + gpus - 1} ada" in shown
        await pilot.press("enter", "down", "escape", "question_mark", "escape", "g", "G")


async def test_a_storm_of_sizes_ends_in_the_last_one() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        for number in range(20):
            stream.put(later(troubled(), number))
            await pilot.resize_terminal(*SIZES[number % len(SIZES)])
            if number % 7 == 0:
                await pilot.press("enter")
        await pilot.press("escape")
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
        assert len(screen_lines(app)) == 30
        assert "LOST" in screen_text(app)


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


async def test_a_hidden_overview_takes_the_new_size() -> None:
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test(size=(200, 50)) as pilot:
        stream.put(machine())
        await pilot.press("enter")
        await pilot.resize_terminal(80, 24)
        await pilot.press("escape")
        await pilot.pause()
        lines = screen_lines(app)
        assert len(lines) == 24
        assert lines[0].rstrip().endswith("x1")
        assert sum(" ada " in each for each in lines) == 8


async def test_every_gpu_has_a_line_as_long_as_there_is_room() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        stream.put(machine(8))
        await pilot.pause()
        assert app.screen.query_one("#devices", LineTable).size.height == 8
        assert app.screen.query_one("#processes", LineTable).size.height >= 8
        stream.put(later(machine(64), 1.0))
        await pilot.pause()
        assert app.screen.query_one("#processes", LineTable).size.height >= 3
        idle = tuple(builders.device(index, processes=()) for index in range(64))
        stream.put(builders.frame(devices=idle, monotonic_seconds=102.0))
        await pilot.pause()
        assert app.screen.query_one("#devices", LineTable).size.height == 18
        assert "node7" in screen_lines(app)[-2]


# Reading it without colours


async def test_what_is_wrong_can_be_read_without_colours() -> None:
    stream = FakeLive()
    app = app_on(stream, theme="ansi")
    async with app.run_test(size=(160, 40)) as pilot:
        stream.put(troubled())
        await pilot.pause()
        shown = screen_text(app)
        assert len(screen_lines(app)) == 40
        rows = ("▸", "LOST", "UNRESPONSIVE 12s", "!too hot", "!91°", "!5x8", "! memory that no visible process owns")
        for words in (*rows, " ! GPU 1 is lost"):
            assert words in shown


async def test_the_mouse_scrolls() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        stream.put(machine(256))
        await pilot.pause()
        table = app.screen.query_one("#devices", LineTable)
        table.post_message(_wheel(table))
        await pilot.pause()
        assert table.scroll_offset.y > 0


def _wheel(table: LineTable) -> Any:  # noqa: ANN401
    from textual import events

    return events.MouseScrollDown(table, 5, 2, 0, 1, 0, False, False, False, 5, 2)


def test_the_texts_of_a_screen_are_never_markup() -> None:
    from gpumon.ui.screens import details, overview
    from gpumon.ui.screens import help as help_screen

    for module in (details, help_screen, overview):
        source = Path(str(module.__file__)).read_text()
        assert source.count("Static(") == source.count("markup=False"), module.__name__


def test_help_fits_80_columns() -> None:
    assert max(len(each) for each in HELP.splitlines()) <= 80 - 4 - 1, "padding and scroll bar"
