"""What a tick costs the screen of one GPU, in counts: what has not changed is neither drawn nor laid out again."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.timeline import Summary
from gpumon.present.paint import chart as painting
from gpumon.present.paint.chart import chart, draw_segments
from gpumon.ui.widgets.text_lines import TextLines
from tests.ui.fakes import FakeLive, Refreshes, app_on, screen_lines
from tests.ui.test_device import BEGAN, filled, opened, training

SUMMARIES = st.none() | st.tuples(*[st.floats(-20, 150)] * 3).map(lambda three: Summary(*sorted(three)))


@settings(deadline=None, max_examples=100)
@given(st.lists(SUMMARIES, min_size=1, max_size=20), st.integers(1, 10), st.sampled_from([1.0, 100.0, 143.7]))
def test_dots_are_those_that_plotext_draws(columns: list[Summary | None], height: int, top: float) -> None:
    assert draw_segments(painting._segments(columns, top), top, len(columns), height) == chart(columns, top, height)


async def test_a_column_that_passes_draws_charts_on_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(160, 50)) as pilot:
        filled(stream, 401)
        screen = await opened(app, pilot)
        before = screen_lines(app)
        drawn: list[int] = []
        monkeypatch.setattr(painting, "chart", lambda *_: drawn.append(1))
        charts = Refreshes(screen.query_one("#charts", TextLines))
        others = [Refreshes(widget) for widget in screen.query("*") if widget.id != "charts"]
        stream.put(replace(training(400), monotonic_seconds=BEGAN + 402))
        await pilot.pause(0.2)
        assert screen_lines(app) != before
        assert charts.regions
        assert not any(spy.regions for spy in others)
        assert all(region.height == 1 for region in charts.regions), "rows, and no new layout"
        assert not drawn, "no chart was drawn again"
