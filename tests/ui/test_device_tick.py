"""What a tick costs the screen of one GPU, in counts: what has not changed is neither drawn nor laid out again."""

from dataclasses import replace

import pytest

from gpumon.core.timeline import Timeline
from gpumon.ui.widgets.text_lines import TextLines
from tests.ui.fakes import FakeLive, Refreshes, app_on, screen_lines
from tests.ui.test_device import BEGAN, filled, opened, training


async def test_a_column_that_passes_draws_charts_on_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(160, 50)) as pilot:
        filled(stream, 401)
        screen = await opened(app, pilot)
        before = screen_lines(app)
        read: list[int] = []
        columns = Timeline.columns
        monkeypatch.setattr(Timeline, "columns", lambda *call: read.append(call[3]) or columns(*call))  # type: ignore[func-returns-value]
        charts = Refreshes(screen.query_one("#charts", TextLines))
        others = [Refreshes(widget) for widget in screen.query("*") if widget.id != "charts"]
        stream.put(replace(training(400), monotonic_seconds=BEGAN + 402))
        await pilot.pause(0.2)
        assert screen_lines(app) != before
        assert charts.regions
        assert not any(spy.regions for spy in others)
        assert all(region.height == 1 for region in charts.regions), "rows, and no new layout"
        assert read
        assert max(read) < 10, "only new columns were read"
