"""What charts show of a history: following, a cursor that scrolls at the edges, and zoom around the cursor."""

import pytest

from gpumon.present.time_view import TimeView, moment_text
from tests import builders

COLUMNS = 50


def window(view: TimeView, now: float = 1000.0, first: float | None = 0.0) -> tuple[int, int, float]:
    shown = view.window(now, first, COLUMNS, 3600.0)
    return shown.first, shown.last, shown.column_seconds


def test_without_a_cursor_the_newest_values_are_shown() -> None:
    view = TimeView()
    assert window(view) == (451, 500, 2.0)
    assert window(view, 1010.0) == (456, 505, 2.0)
    assert view.cursor_index is None


def test_a_cursor_begins_at_the_newest_column_and_holds_the_window() -> None:
    view = TimeView()
    window(view)
    view.move(-1)
    assert (view.cursor, view.cursor_index) == (500, COLUMNS - 1)
    view.move(-10)
    assert window(view, 1100.0) == (451, 500, 2.0), "it stands still"
    assert view.cursor_index == COLUMNS - 11
    view.follow()
    assert window(view, 1100.0) == (501, 550, 2.0)


def test_a_cursor_that_passes_an_edge_scrolls() -> None:
    view = TimeView()
    window(view)
    view.move(0)
    view.move(-COLUMNS)
    assert window(view) == (438, 487, 2.0)
    assert view.cursor_index == 12
    view.move(COLUMNS)
    assert window(view) == (451, 500, 2.0), "not beyond the newest column"
    view.move(1000)
    assert view.cursor == 500


@pytest.mark.parametrize("first", [None, 0.0, 990.0])
def test_a_cursor_stays_within_the_history(first: float | None) -> None:
    view = TimeView()
    window(view, first=first)
    view.move(0)
    view.move(-10_000)
    window(view, first=first)
    assert view.cursor == (500 if first is None else int(first / 2))
    assert 0 <= (view.cursor_index or 0) < COLUMNS


def test_what_the_history_drops_moves_the_cursor() -> None:
    view = TimeView()
    window(view)
    view.point(0)
    assert view.cursor == 451
    assert window(view, 2000.0, 1500.0) == (750, 799, 2.0)
    assert view.cursor == 750


def test_zoom_keeps_the_time_at_the_cursor_and_its_place() -> None:
    view = TimeView()
    window(view, 3000.0)
    view.point(20)
    before, index = view.cursor, view.cursor_index
    view.zoom(1)
    shown = view.window(3000.0, 0.0, COLUMNS, 3600.0)
    assert before is not None
    assert view.cursor == before * 2 // 5
    assert shown.column_seconds == 5.0
    assert view.cursor_index == index or shown.last == 600
    view.zoom(-1)
    view.zoom(-100)
    assert window(view, 3000.0)[2] == 1.0
    view.zoom(100)
    assert window(view, 3000.0)[2] == 120.0, "the complete history, no more"


@pytest.mark.parametrize(
    ("age", "text"), [(0.0, "0s ago, "), (59.0, "59s ago, "), (134.0, "2m 14s ago, "), (7260.0, "2h 01m ago, ")]
)
def test_a_moment_has_its_age_and_its_time(age: float, text: str) -> None:
    moment = moment_text(10_000.0 - age, builders.frame(monotonic_seconds=10_000.0))
    assert moment.startswith(text)
    assert moment[len(text) :].count(":") == 2
