"""Hostile text from outside has no effect on any screen."""

import re
from pathlib import Path

from gpumon.core.problems import Problem, ProblemCode
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.overview import OverviewScreen
from tests import builders
from tests.frames import HOSTILE, hostile
from tests.ui.fakes import FakeLive, app_on, screen_text


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


def test_the_texts_of_a_screen_are_never_markup() -> None:
    from gpumon.ui.screens import help as help_screen
    from gpumon.ui.screens import overview, process

    for module in (process, help_screen, overview):
        source = Path(str(module.__file__)).read_text()
        assert source.count("Static(") == source.count("markup=False"), module.__name__
