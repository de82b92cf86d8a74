"""The way from screen to screen: digits, the top line, the next GPU, back, quit, copy, and the user's keys."""

import re
from typing import Any

import pytest
from textual.binding import Binding
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import TextArea

from gpumon.present.top_line import TABS
from gpumon.ui.app import GpumonApp
from gpumon.ui.keymap import KEY_MEANINGS, check_keymap
from gpumon.ui.screens.alerts import AlertsScreen
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.confirm import QuitDialog
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.process import ProcessScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from tests import builders, runs
from tests.frames import machine
from tests.ui.fakes import FakeLive, FakeRecording, app_on, screen_lines, screen_text

NEXT, PREVIOUS = "right_square_bracket", "left_square_bracket"


async def shown(pilot: Pilot[Any], stream: FakeLive, gpus: int = 4) -> None:
    stream.put(machine(gpus))
    await pilot.pause()


def kinds(app: GpumonApp) -> list[type[Screen[Any]]]:
    """The screens from the overview up."""
    return [type(screen) for screen in app.screen_stack[1:]]


# Digits


@pytest.mark.sampled(1)
@pytest.mark.parametrize("opening", [[], ["5", "enter"], ["enter", "question_mark"]])
async def test_a_digit_opens_its_screen_from_everywhere(opening: list[str]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot, stream)
        for tab in TABS[:-1]:  # the fleet needs a Prometheus
            await pilot.press(*opening, tab.key)
            await pilot.pause()
            assert isinstance(app.screen, ViewScreen)
            assert tab.name == app.screen.TAB
            assert len(app.screen_stack) == (2 if tab.key == "1" else 3), "the stack does not grow"
            if isinstance(app.screen.focused, TextArea):
                await pilot.press("escape")
            await pilot.press(*[] if tab.key == "1" else ["escape"])
            assert kinds(app) == [OverviewScreen]


@pytest.mark.long
@pytest.mark.parametrize("width", [60, 80, 120])
async def test_a_click_on_a_tab_opens_its_screen(width: int) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(width, 24)) as pilot:
        await shown(pilot, stream)
        for tab in TABS[:-1]:  # the fleet needs a Prometheus
            await pilot.click("#top", offset=(screen_lines(app)[0].index(f" {tab.key}") + 1, 0))
            await pilot.pause()
            assert isinstance(app.screen, ViewScreen)
            assert tab.name == app.screen.TAB


# The next GPU


async def test_brackets_on_a_process_show_it_on_its_other_gpus() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        first, _, third = (builders.device(index, processes=(builders.process(pid=7),)) for index in range(3))
        stream.put(builders.frame(devices=(first, builders.device(1, processes=()), third)))
        await pilot.pause()
        await pilot.press("tab", "enter")
        assert isinstance(app.screen, ProcessScreen)
        for number in (2, 0):
            await pilot.press(NEXT)
            await pilot.pause()
            assert f"PID 7 on GPU {number}" in screen_lines(app)[1]
        assert "[ ] GPU" in screen_lines(app)[-1]
        stream.put(builders.frame(devices=(first, *(builders.device(index, processes=()) for index in (1, 2)))))
        await pilot.pause()
        assert "[ ] GPU" not in screen_lines(app)[-1], "the process uses one GPU now"


# Quit


@pytest.mark.sampled(1)
@pytest.mark.parametrize("opening", [[], ["5"]])
async def test_q_asks_while_a_workload_runs_and_ctrl_c_does_not(opening: list[str]) -> None:
    app = app_on(FakeLive())
    app.session.workloads.registry.runs = [runs.live_run()]
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*opening, "q")
        assert isinstance(app.screen, QuitDialog)
        assert "1 workload started here is running. Quitting stops it." in screen_text(app)
        await pilot.press("escape")
        assert not app._exit
        await pilot.press("q", "enter", "q", "down", "up", "enter")
        assert not app._exit, "Cancel has the focus"
        await pilot.press("q", "ctrl+c")
        assert app._exit


@pytest.mark.sampled(1)
@pytest.mark.parametrize("keys", [["q", "tab", "enter"], ["q", "down", "enter"], ["q", "q"]])
async def test_a_confirmed_question_quits(keys: list[str]) -> None:
    app = app_on(FakeLive())
    app.session.workloads.registry.runs = [runs.live_run()]
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        assert app._exit


# Copy


async def test_y_copies_the_row_or_the_text() -> None:
    stream = FakeLive()
    app = app_on(stream)
    app.session.workloads.registry.runs = [runs.live_run()]
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await shown(pilot, stream)
        await pilot.press("g", "tab", "down", "y")
        row = app.screen.query_one("#processes", LineTable).rows[1]
        assert not {*app.clipboard} & {*"█▏░"}, "text, not what is drawn"
        assert app.clipboard.split()[:3] == "".join(span.text for span in row.line).split()[:3]
        assert app.screen.query_one(Footer).notice == f"Copied: {app.clipboard}"
        await pilot.press("tab", "y")
        assert re.fullmatch(r"GPU \d H200 \d+ % \d+/140 GiB 56 °C ada train ×4 69G", app.clipboard)
        await pilot.press("5", "tab", "enter", "v", "y")
        assert app.clipboard.count("\n") >= 1
        assert "! a warning [/] of torch" in app.clipboard, "the log in full"
        await pilot.press("escape", "y")
        assert "Live" in app.clipboard, "the text of a run"


async def test_a_key_without_an_effect_says_so_in_the_line_of_the_keys() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await shown(pilot, stream)
        for key, text in (("K", "select a live process"), ("b", "no such key"), ("escape", "q quits")):
            await pilot.press(key)
            assert text in app.screen.query_one(Footer).notice
        assert not app._notifications, "no notice covers a row"
        await pilot.press("6", "down")
        assert not app.screen.query_one(Footer).notice


async def test_keys_without_an_effect_are_not_shown() -> None:
    app = app_on(recording := FakeRecording())
    async with app.run_test(size=(120, 40)) as pilot:
        recording.put(machine())
        for keys, hidden in ((("tab",), {"overview.signal", "notify-when"}), (("8",), {"pause", "faster", "forward"})):
            await pilot.press(*keys)
            active = app.screen.active_bindings.values()
            assert not hidden & {binding.id for _, binding, enabled, _ in active if enabled}


# The user's keys


def app_with(keymap: dict[str, str]) -> GpumonApp:
    return GpumonApp(FakeRecording(), keymap=keymap)


async def test_a_keymap_replaces_keys() -> None:
    app = app_with({"alerts": "0,f6", "pause": "p", "back": "escape,h"})
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        assert " 0 " in screen_lines(app)[0]
        assert " 6 " not in screen_lines(app)[0]
        await pilot.press("6")
        assert kinds(app) == [OverviewScreen]
        for key in ("0", "f6"):
            await pilot.press(key)
            assert kinds(app) == [OverviewScreen, AlertsScreen]
            await pilot.press("h")
            assert kinds(app) == [OverviewScreen]
        assert isinstance(app.session.stream, FakeRecording)
        await pilot.press("p")
        assert app.session.stream.paused
        await pilot.press("space")
        assert app.session.stream.paused
        assert not app._notifications
        await pilot.resize_terminal(80, 80)
        await pilot.press("question_mark")
        assert "p                 Pause" in screen_text(app)


async def test_a_keymap_that_is_wrong_is_reported_and_not_applied() -> None:
    app = app_with({"nowhere": "n", "pause": "q", "cost": ""})
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        assert [notice.message for notice in app._notifications] == [
            "There is no key binding 'nowhere'.",
            "The key binding 'cost' has no key.",
            "'q' would mean both pause and quit; the keys of pause stay as they were.",
        ]
        await pilot.press("C")
        assert len(kinds(app)) == 2
        await pilot.press("q")
        await pilot.pause()
        assert app._exit


def test_a_keymap_may_swap_keys_and_name_a_meaning() -> None:
    keys, problems = check_keymap({"pause": "?", "help": "space", "zoom-in": "Z"})
    assert problems == []
    assert keys["pause"] == "question_mark"
    assert {name for name in keys if name.endswith("zoom-in")} >= {"time.zoom-in"}
    assert set(keys.values()) == {"question_mark", "space", "Z"}


def test_keys_of_the_table_are_names_that_textual_knows() -> None:
    for key in KEY_MEANINGS:
        assert next(iter(Binding.make_bindings([Binding(key, "x")]))).key == key
