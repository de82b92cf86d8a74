"""The chart of a metric reads only the columns that it shows."""

import pytest

from gpumon.core.timeline import Summary, Timeline
from gpumon.present.metric_chart import MetricChart
from gpumon.present.time_axis import TimeWindow
from tests import builders

POWER = "power_watts"
WIDTH = 80


@pytest.mark.parametrize("interval_seconds", [3600.0, 1e7, 1e300])
def test_the_work_of_a_draw_is_bounded_by_the_columns(monkeypatch: pytest.MonkeyPatch, interval_seconds: float) -> None:
    counts = []
    columns = Timeline.columns

    def counted(timeline: Timeline, metric: str, first: int, count: int, column_seconds: float) -> list[Summary | None]:
        counts.append(count)
        return columns(timeline, metric, first, count, column_seconds)

    monkeypatch.setattr(Timeline, "columns", counted)
    timeline = Timeline()
    chart = MetricChart(POWER)
    for second in range(100, 104):
        timeline.add(second, {POWER: 300.0}, interval_seconds)
        chart.draw(timeline, builders.device(0), TimeWindow(second, WIDTH, 1.0), 3, interval_seconds)
    assert [column is not None for column in chart.columns[-5:]] == [False, True, True, True, True]
    assert max(counts) <= 2 * WIDTH + 1
