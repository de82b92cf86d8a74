"""Lines as data: clipping, cutting, wrapping, and how much of a changed line must be sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpumon.present.paint.line import (
    Line,
    Role,
    Span,
    changed_ranges,
    clipped,
    cut,
    line,
    merged,
    plain,
    width_of,
    wrapped,
)

LINES = st.lists(st.builds(Span, st.text("ab训é ", max_size=4), st.sampled_from(list(Role)[:2])), max_size=4).map(tuple)


@given(st.text(max_size=20), st.integers(-1, 12))
def test_clipped_text_fits(text: str, width: int) -> None:
    shown = clipped(text, width)
    assert cell_len(shown) <= max(0, width)
    assert shown == text or width < 1 or shown.endswith("…")


@pytest.mark.parametrize(("width", "shown"), [(5, "abcde"), (4, "abc…"), (1, "…"), (0, ""), (-3, "")])
def test_clipped_text_uses_all_of_its_width(width: int, shown: str) -> None:
    assert clipped("abcde", width) == shown


@given(st.lists(st.text("a漢█…", max_size=9), max_size=6), st.integers(0, 30))
def test_a_cut_line_fits(texts: list[str], width: int) -> None:
    spans = line(*(Span(text, role) for text, role in zip(texts, Role, strict=False)))
    assert width_of(plain(cut(spans, width))) <= width
    assert cut(spans, 1000) == spans


def test_a_cut_line_keeps_what_fits_and_ends_at_the_cut() -> None:
    spans = (Span("abc"), Span("def", Role.DIM), Span("ghi", Role.ERROR))
    assert cut(spans, 8) == (Span("abc"), Span("def", Role.DIM), Span("g…", Role.ERROR))
    assert cut(spans, 5) == (Span("abc"), Span("d…", Role.DIM))
    assert cut(spans, 3) == (Span("abc"),)


def test_wrapped_text_keeps_its_indentation() -> None:
    assert wrapped("a b\n\n    if x:\n", 40) == ["a b", "", "    if x:"]
    assert wrapped("    " + "word " * 6, 20) == ["    word word word", "    word word word"]
    assert wrapped(" " * 14 + "words words", 20) == [" " * 14 + "words", " " * 10 + "words"], (
        "but at most half the width"
    )
    assert [len(text) for text in wrapped("x" * 50, 5)] == [20, 20, 10], "never narrower than 20 cells"


def drawn(spans: Line) -> list[tuple[str, Role]]:
    """Character and role of each cell; both cells of a wide character have it."""
    cells = [(char, role) for text, role in spans for char in text for _ in range(cell_len(char))]
    return cells + [(" ", Role.PLAIN)] * (50 - len(cells))


@given(LINES, LINES)
def test_everything_that_changed_lies_within_the_changed_ranges(before: Line, after: Line) -> None:
    ranges = changed_ranges(before, after)
    sent = {cell for begin, end in ranges for cell in range(begin, end)}
    cells = zip(drawn(before), drawn(after), strict=True)
    assert all(old == new or number in sent for number, (old, new) in enumerate(cells))
    assert changed_ranges(before, before) == []


def test_the_changed_ranges_are_no_wider_than_needed() -> None:
    before = line("GPU 0", Span(" 87%", Role.ACCENT), "  612 W")
    after = line("GPU 0", Span(" 88%", Role.ACCENT), "  612 W")
    assert changed_ranges(before, after) == [(7, 8)]
    assert changed_ranges(line("abc", Span("训练", Role.DIM)), line("abc", Span("训习", Role.DIM))) == [(3, 7)]
    assert changed_ranges(line("short"), line("much longer")) == [(0, 11)]
    assert changed_ranges(line("much longer"), line("short")) == [(0, 5), (5, 11)]
    longer = line(Span("███", Role.ACCENT), Span("░", Role.GRID), " 70%  same")
    assert changed_ranges(line(Span("██", Role.ACCENT), Span("░░", Role.GRID), " 60%  same"), longer) == [
        (0, 4),
        (5, 6),
    ]


def test_adjacent_spans_of_one_role_become_one() -> None:
    assert line("a", Span("b"), Span("", Role.ERROR), Span("c", Role.DIM), Span("d", Role.DIM)) == (
        Span("ab"),
        Span("cd", Role.DIM),
    )
    assert merged([]) == ()
