"""The chart of a snapshot: a cursor shows the values at its position."""

import re

import pytest

from gpumon.core.units import bytes_text
from gpumon.present.paint.line import Role, plain
from gpumon.present.snapshot_chart import HistoryAxis, chart_columns, chart_lines, highest
from gpumon.present.snapshot_view import SnapshotViewState
from gpumon.ui.screens.snapshot import SnapshotScreen
from gpumon.ui.viewer_app import ViewerApp
from gpumon.ui.widgets.text_lines import TextLines
from tests.snapshots.files import loaded, real_bytes

WIDTH = 100


@pytest.mark.parametrize("axis", list(HistoryAxis))
def test_the_cursor_shows_where_it_is_and_the_values_there(axis: HistoryAxis) -> None:
    view = SnapshotViewState(loaded(real_bytes()))
    assert view.device is not None
    history = view.device.history
    assert history is not None
    columns = chart_columns(WIDTH)
    view.move_cursor(-1, columns)
    view.move_cursor(-30, columns)
    assert view.cursor == pytest.approx((columns - 31 + 0.5) / columns)
    *rows, below = chart_lines(history, axis, WIDTH, 8, view.cursor)
    allocated, reserved = (highest(series, columns)[columns - 31] for series in axis.series(history))
    (text,) = [span.text for span in below if span.role is Role.CURSOR]
    assert f"allocated {bytes_text(allocated)}, reserved {bytes_text(reserved)}" in text
    assert re.search(r"event [\d,]+:" if axis is HistoryAxis.EVENTS else r"after [\d.]+ s:", text)
    assert plain(below).index("▲") == WIDTH - 31
    assert sum(any(span.role is Role.CURSOR for span in row) for row in rows) == 8


def test_the_cursor_stays_on_the_chart_and_leaves_with_the_axis() -> None:
    view = SnapshotViewState(loaded(real_bytes()))
    for steps in (0, 50, -1000):
        view.move_cursor(steps, 20)
        assert 0 < (view.cursor or 0) < 1
    assert view.cursor == 0.5 / 20
    view.next_axis()
    assert view.cursor is None


async def test_keys_and_clicks_move_it_and_escape_removes_it() -> None:
    app = ViewerApp("Snapshot", SnapshotScreen(loaded(real_bytes())), legend="")
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.pause()

        def below() -> str:
            return plain(app.screen.query_one("#course", TextLines)._lines[-1])

        await pilot.press("left", "left")
        assert "allocated" in below()
        assert below().rstrip().endswith("▲")
        before = below()
        await pilot.click("#course", offset=(30, 3))
        assert below() != before
        assert below().index("▲") == 30
        await pilot.press("escape")
        assert "▲" not in below()
