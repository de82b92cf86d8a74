"""Themes: every role is readable on every background, also with red-green blindness, and NO_COLOR sends no color."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from rich.color_triplet import ColorTriplet
from textual.containers import VerticalScroll

from gpumon.present.paint.line import SERIES_ROLES, Role
from gpumon.present.palette import (
    ANSI,
    BACKGROUNDS,
    BUILT_IN,
    COLOR_NAMES,
    DARK,
    HIGH_CONTRAST,
    LIGHT,
    MIN_ROW_CONTRAST,
    MIN_TEXT_CONTRAST,
    MONO,
    Palette,
    user_palette,
)
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.text_lines import TextLines
from tests.cli.running import GPUMON
from tests.frames import machine
from tests.nvml_mock import NvmlMock
from tests.terminal import Terminal
from tests.ui.colors import Rgb, contrast, distance, rgb
from tests.ui.fakes import FakeLive, app_on

COLORED = (DARK, LIGHT, HIGH_CONTRAST)
TEXT_ROLES = [role for role in Role if role is not Role.GRID]
MIN_DISTANCE = 0.06
"""Three times the smallest difference that people see."""
LEAST: Mapping[str, float] = {DARK: MIN_TEXT_CONTRAST, LIGHT: MIN_TEXT_CONTRAST, HIGH_CONTRAST: 7.0}
COLOR_CODES = re.compile(rb"\x1b\[[\d;:]*m")


def triplet(color: ColorTriplet | None) -> Rgb:
    assert color is not None
    return color.red, color.green, color.blue


def backgrounds(app: GpumonApp) -> Iterator[tuple[str, Rgb]]:
    """Every background that text can have, as the stylesheet resolves it; the help is open."""
    overview = next(screen for screen in app.screen_stack if isinstance(screen, OverviewScreen))
    table = overview.query(LineTable).first()
    styles = table._role_styles
    for name, style in (
        ("table", styles.style(Role.PLAIN)),
        ("heading", styles.style(Role.HEADING)),
        ("cursor", styles.overlay("line-table--cursor")),
    ):
        assert style.bgcolor is not None
        yield name, triplet(style.bgcolor.triplet)
    yield "dialog", app.screen.query(VerticalScroll).first().background_colors[1].rgb
    yield "footer", overview.query_one("Footer").background_colors[1].rgb


def role_color(app: GpumonApp, role: Role) -> Rgb:
    """The color of a role, as the stylesheet resolves it."""
    overview = next(screen for screen in app.screen_stack if isinstance(screen, OverviewScreen))
    color = overview.query(TextLines).first()._role_styles.style(role).color
    assert color is not None
    return triplet(color.triplet)


# Contrast


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name not in {ANSI, MONO}])
def test_every_palette_is_readable_and_marks_the_row_under_the_cursor(name: str) -> None:
    colors = {key: rgb(color) for key, color in BUILT_IN[name].colors.items()}
    low = {
        (role.value, ground): ratio
        for role in TEXT_ROLES
        for ground in BACKGROUNDS
        if (ratio := contrast(colors[role.value], colors[ground])) < MIN_TEXT_CONTRAST
    }
    assert low == {}
    assert min(contrast(colors["cursor-row"], colors[ground]) for ground in ("background", "panel")) >= MIN_ROW_CONTRAST
    assert contrast(colors["grid"], colors["background"]) >= MIN_ROW_CONTRAST


def test_the_themes_that_people_know_are_there() -> None:
    known = {"nord", "gruvbox", "catppuccin", "dracula", "tokyo-night", "solarized-dark", "solarized-light"}
    assert known <= BUILT_IN.keys()
    assert len(BUILT_IN) >= 12


@pytest.mark.sampled(1)
@pytest.mark.parametrize("theme", COLORED)
async def test_text_is_readable_in_every_role_on_every_background(theme: str) -> None:
    stream = FakeLive()
    app = app_on(stream, theme)
    async with app.run_test() as pilot:
        stream.put(machine())
        await pilot.press("question_mark")
        await pilot.pause()
        contrasts = {
            (role.value, name): contrast(role_color(app, role), background)
            for role in TEXT_ROLES
            for name, background in backgrounds(app)
        }
    assert {pair: ratio for pair, ratio in contrasts.items() if ratio < LEAST[theme]} == {}
    assert len(contrasts) == len(TEXT_ROLES) * 5


# Red-green blindness


@pytest.mark.parametrize("theme", COLORED)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Role.LOAD_LOW, Role.LOAD_MEDIUM),
        (Role.LOAD_MEDIUM, Role.LOAD_HIGH),
        (Role.LOAD_LOW, Role.LOAD_HIGH),
        (Role.WARNING, Role.ERROR),
        (Role.GPU_HISTORY, Role.MEMORY_HISTORY),
        *pairwise((*SERIES_ROLES, SERIES_ROLES[0])),
    ],
)
def test_roles_side_by_side_differ_for_everybody(theme: str, one: Role, other: Role) -> None:
    colors = BUILT_IN[theme].colors
    assert distance(rgb(colors[one.value]), rgb(colors[other.value])) >= MIN_DISTANCE


@pytest.mark.parametrize("theme", COLORED)
def test_what_is_right_differs_from_warnings_and_errors(theme: str) -> None:
    colors = BUILT_IN[theme].colors
    for name in ("success", "power", "temperature"):
        for other in ("warning", "error"):
            assert distance(rgb(colors[name]), rgb(colors[other])) >= MIN_DISTANCE


def test_the_simulation_sees_what_it_should() -> None:
    red, green, blue = (178, 70, 60), (106, 110, 40), (40, 80, 200)
    assert distance(red, green) < MIN_DISTANCE < distance(red, blue)
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)


# The stylesheet


@pytest.mark.parametrize("palette", BUILT_IN.values(), ids=BUILT_IN)
def test_a_palette_has_every_color(palette: Palette) -> None:
    assert set(palette.colors) == set(COLOR_NAMES)


def test_every_role_takes_its_color_from_its_variable() -> None:
    stylesheet = (Path(__file__).resolve().parents[2] / "gpumon/ui/gpumon.tcss").read_text()
    for role in Role:
        assert f".role--{role.value} {{ color: $role-{role.value};" in stylesheet
    used = set(re.findall(r"\$([\w-]+)", stylesheet))
    ours = {*BACKGROUNDS, *(f"role-{role.value}" for role in Role), "scrollbar", "scrollbar-background"}
    assert used <= ours, "a variable that no palette sets"


@pytest.mark.parametrize("theme", [ANSI, MONO])
async def test_the_colors_of_the_terminal_are_its_own(theme: str) -> None:
    stream = FakeLive()
    app = app_on(stream, theme)
    async with app.run_test() as pilot:
        stream.put(machine())
        await pilot.pause()
        table = app.screen.query(LineTable).first()
        styles = [table._role_styles.style(role) for role in Role]
        assert all(style.color is not None and style.color.triplet is None for style in styles)
        assert table.get_component_rich_style("line-table--cursor").reverse
        assert table._role_styles.overlay("line-table--cursor").reverse


# Themes of the user


async def test_a_theme_of_the_user_sets_some_colors_and_keeps_those_of_its_base() -> None:
    sea = user_palette("sea", {"base": "light", "primary": "#048", "background": "#eef6ff", "load-high": "#7a1f00"})
    assert sea.colors["accent"] == sea.colors["brand"] == "#004488"
    assert sea.colors["load-high"] == "#7a1f00"
    assert sea.colors["error"] == BUILT_IN[LIGHT].colors["error"]
    app = GpumonApp(FakeLive(), theme="sea", user_palettes=[sea])
    async with app.run_test() as pilot:
        await pilot.pause()
        assert role_color(app, Role.ACCENT) == (0, 0x44, 0x88)
        assert app.screen.background_colors[1].rgb == (0xEE, 0xF6, 0xFF)
        app.action_theme()
        await pilot.pause()
        assert app.theme == DARK, "after the themes of the user come the first ones again"


@pytest.mark.parametrize("background", ["#002b36", "#2e3440", "#000000", "#282828"])
def test_a_background_of_the_user_brings_a_row_that_stands_out(background: str) -> None:
    colors = user_palette("mine", {"background": background}).colors
    assert contrast(rgb(colors["cursor-row"]), rgb(background)) >= MIN_ROW_CONTRAST


# NO_COLOR


def colors_sent(raw: bytes) -> set[bytes]:
    """The parameters that select a color, of all those that were sent."""
    codes = {code for sequence in COLOR_CODES.findall(raw) for code in sequence[2:-1].replace(b":", b";").split(b";")}
    return {
        code for code in codes if code and (30 <= int(code) <= 38 or 40 <= int(code) <= 48 or 90 <= int(code) <= 107)
    }


def sent(nvml_mock: NvmlMock, **environment: str) -> bytes:
    """What gpumon writes to a terminal until it has been used a little."""
    clean = {name: value for name, value in nvml_mock.environment(gpus=3).items() if name not in {"NO_COLOR", "TERM"}}
    with Terminal((GPUMON,), env={**clean, **environment}, rows=30, cols=110) as terminal:
        terminal.wait_for(r"▸ *0 .*\d%")
        terminal.send("\x1b[B\x1b[B?")
        terminal.wait_for("Cursor up")
        terminal.send("qq")  # the first one closes the help
        assert terminal.wait_exit() == 0
        return terminal.raw


def test_no_color_sends_no_color_but_bold_and_reversed_text(nvml_mock: NvmlMock) -> None:
    raw = sent(nvml_mock, NO_COLOR="1")
    assert colors_sent(raw) == set()
    codes = {code for sequence in COLOR_CODES.findall(raw) for code in sequence[2:-1].split(b";")}
    assert {b"1", b"2", b"7"} <= codes, "bold, dim, and a cursor that is visible"


@pytest.mark.long
async def test_the_selected_command_is_reversed_without_colors() -> None:
    stream = FakeLive()
    app = app_on(stream, MONO)
    async with app.run_test() as pilot:
        stream.put(machine())
        await app.run_action("command_palette")
        await pilot.pause(0.3)
        await pilot.press("down")
        await pilot.pause(0.1)
        region = app.screen.query("CommandList").first().region
        rows = [strip.crop(region.x, region.right) for strip in app.screen._compositor.render_strips()]
        reverse = [any(style is not None and style.reverse for _, style, _ in rows[y]) for y in region.line_range]
        assert 0 < sum(reverse) < len(reverse)


@pytest.mark.long
@pytest.mark.parametrize("environment", [{"NO_COLOR": ""}, {}, {"NO_COLOR": "1", "GPUMON_THEME": "dark"}])
def test_colors_are_sent_without_no_color_or_with_a_theme_that_was_asked_for(
    environment: dict[str, str], nvml_mock: NvmlMock
) -> None:
    assert b"38" in colors_sent(sent(nvml_mock, **environment))
