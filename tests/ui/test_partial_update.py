"""What is sent for a changed part of the screen: only its cells, and of a style only what differs."""

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import _compositor
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import Static

from gpumon.ui.partial_update import PartialUpdate, Piece, cropped, render_partial_update

WIDTH = 24
STYLES = [
    *map(Style.parse, ("none", "red", "bold red", "#102030 on #405060", "on blue", "reverse", "dim green on #101010")),
    None,
]
SEGMENTS = st.lists(
    st.tuples(st.text("ab █░▏训é", min_size=1, max_size=6), st.sampled_from(STYLES)).map(lambda pair: Segment(*pair)),
    max_size=6,
)


def console() -> Console:
    return Console(color_system="truecolor", force_terminal=True)


def strip(segments: list[Segment]) -> Strip:
    return Strip(segments).adjust_cell_length(WIDTH)


def drawn(*texts: str) -> list[object]:
    """The cells of the first line of a terminal that has received the texts."""
    screen = pyte.Screen(WIDTH, 2)
    stream = pyte.Stream(screen)
    for text in texts:
        stream.feed(text)
    return [screen.buffer[0][x] for x in range(WIDTH)]


def update(line: Strip, *ranges: tuple[int, int]) -> str:
    return PartialUpdate([Piece(begin, 0, cropped(line, begin, end)) for begin, end in ranges]).render_segments(
        console()
    )


def full(line: Strip) -> str:
    return "\x1b[1;1H" + line.render(console())


def test_textual_uses_it() -> None:
    assert _compositor.Compositor.render_partial_update is render_partial_update


@given(SEGMENTS)
def test_a_line_looks_as_textual_draws_it(segments: list[Segment]) -> None:
    line = strip(segments)
    ours, textual = drawn(update(line, (0, WIDTH))), drawn(full(line))
    visible = [_without_color_of_blank(one) for one in ours]
    assert visible == [_without_color_of_blank(other) for other in textual]


def _without_color_of_blank(cell: object) -> object:
    """The color of the text of a blank cell cannot be seen."""
    is_blank = cell.data == " " and not cell.reverse  # type: ignore[attr-defined]
    return cell._replace(fg="default") if is_blank else cell  # type: ignore[attr-defined]


@given(SEGMENTS, SEGMENTS, st.integers(0, WIDTH), st.integers(0, WIDTH))
def test_only_the_cells_of_a_range_change(before: list[Segment], after: list[Segment], one: int, other: int) -> None:
    begin, end = sorted((one, other))
    if begin == end:
        return
    old, new = strip(before), strip(after)
    cells = drawn(full(old), update(new, (begin, end)))
    expected = drawn(full(old), f"\x1b[1;{begin + 1}H", new.crop(begin, end).render(console()))
    shown = [_without_color_of_blank(cell) for cell in cells]
    assert shown == [_without_color_of_blank(cell) for cell in expected]


def test_a_style_is_not_sent_twice() -> None:
    on_black = [Segment("ab", Style.parse("red on black")), Segment("cd", Style.parse("green on black"))]
    sent = update(strip(on_black), (0, 4))
    assert sent.count("40") == 1, "the background is the same"
    assert update(strip([Segment("abcdef", STYLES[1])]), (2, 4)).count("\x1b") == 3, "position, color, reset"


@pytest.mark.parametrize("system", list(ColorSystem))
def test_colors_are_those_of_the_terminal(system: ColorSystem) -> None:
    terminal = console()
    terminal._color_system = system
    line = strip([Segment("ab", Style.parse("#123456 on #654321"))])
    sent = PartialUpdate([Piece(0, 0, list(line.crop(0, 2)))]).render_segments(terminal)
    assert ("38;2;" in sent) is (system is ColorSystem.TRUECOLOR)
    assert "ab" in sent


class LayeredApp(App[None]):
    """Widgets next to each other, inside each other, and in front of each other."""

    CSS = """
    Screen { layers: below above; }
    #left { width: 7; } #boxed { border: solid red; height: 4; } #right { height: 6; overflow-y: scroll; }
    #front { layer: above; offset: 4 1; width: 9; height: 3; background: blue; }
    """

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static("left " * 8, id="left")
            with Vertical(id="right"):
                yield Static("boxed", id="boxed")
                yield Static("\n".join(map(str, range(9))))
        yield Static("front", id="front")


REGIONS = st.builds(Region, st.integers(-2, 25), st.integers(-2, 9), st.integers(0, 26), st.integers(0, 10))


async def test_changed_cells_are_those_of_the_widget_in_front() -> None:
    app = LayeredApp()
    async with app.run_test(size=(WIDTH, 8)):
        compositor = app.screen._compositor

        @given(st.sets(REGIONS, max_size=4))
        def check(regions: set[Region]) -> None:
            compositor._dirty_regions |= regions
            update = render_partial_update(compositor)
            assert not compositor._dirty_regions
            complete = compositor.render_strips()
            screen = Region(0, 0, WIDTH, len(complete))
            shown = [region.intersection(screen) for region in regions]
            changed = {(x, y) for region in shown for y in region.line_range for x in region.column_range}
            sent = set()
            for x, y, segments in () if update is None else update.pieces:
                piece = Strip(segments)
                assert list(piece.simplify()) == list(complete[y].crop(x, x + piece.cell_length).simplify())
                sent |= {(cell, y) for cell in range(x, x + piece.cell_length)}
            assert sent == changed

        check()
