"""Charts as lines: headings with values now or at the cursor, legends of several GPUs, and the axis."""

import pytest

from gpumon.core.metrics import METRICS
from gpumon.core.store import Store
from gpumon.present.chart_lines import axis_line, chart_lines, labels_width
from gpumon.present.metric_chart import MetricChart, Track
from gpumon.present.metric_style import METRIC_ROLES
from gpumon.present.paint.area import GUTTER, cursor_label
from gpumon.present.paint.line import SERIES_ROLES, Line, Role, plain
from gpumon.present.time_axis import TimeWindow
from tests import builders
from tests.present.helpers import texts

POWER = "power_watts"
WINDOW = TimeWindow(104, 60, 1.0)


def tracks(*watts: tuple[float, ...]) -> list[Track]:
    """One GPU per tuple, with the power of each second from 100 s on."""
    store = Store()
    for second, moment in enumerate(zip(*watts, strict=True)):
        devices = tuple(builders.device(index, readings={POWER: value}) for index, value in enumerate(moment))
        store.apply(builders.frame(monotonic_seconds=100.0 + second, devices=devices))
    histories = [store.of_device(builders.device(index).key) for index in range(len(watts))]
    return [
        Track(builders.device(index), None if history is None else history.timeline, SERIES_ROLES[index])
        for index, history in enumerate(histories)
    ]


def drawn(shown: list[Track], width: int, cursor: int | None = None) -> list[Line]:
    chart = MetricChart(POWER)
    chart.draw(shown, WINDOW, 5, 1.0, cursor)
    return chart_lines(chart, shown, width, cursor)


def test_a_chart_has_its_value_its_range_and_its_scale() -> None:
    lines = texts(drawn(tracks((200.0, 400.0, 600.04)), 100))
    assert lines[0].startswith(" ⣿ Power  612.5 of 700.0 W")
    assert lines[0].endswith("  min 200.0 W  mean 400.0 W  max 600.0 W ")
    labels = ["    700.0 W ┤", "            │", "    350.0 W ┤", "            │", "          0 ┤"]
    assert [line[:GUTTER] for line in lines[1:]] == labels
    assert len(lines[0]) == 100
    assert "min" not in texts(drawn(tracks((200.0,)), 60))[0], "left out where it has no room"


def test_a_chart_without_values_says_so() -> None:
    heading = texts(drawn([Track(builders.device(0), None, Role.SERIES_1)], 100))[0]
    assert heading.endswith("nothing measured in the time shown ")


def test_the_heading_has_the_values_at_the_cursor() -> None:
    shown = tracks((200.0, 400.0, 600.04))
    heading = drawn(shown, 100, 56)[0]
    assert Role.CURSOR in {span.role for span in heading}
    assert plain(heading).startswith(" ⣿ Power   400.0 W ")
    assert plain(drawn(shown, 100, 10)[0]).startswith(" ⣿ Power   not measured ")


def test_several_gpus_have_a_legend_and_a_label_at_the_right() -> None:
    shown = tracks((100.0, 100.0), (650.0, 690.0))
    heading, *rows = drawn(shown, 80)
    assert plain(heading) == " Power  ━ GPU 0 612.5 W  ━ GPU 1 612.5 W"
    assert plain(drawn(shown, 80, 56)[0]) == " Power  ━ GPU 0 100.0 W  ━ GPU 1 690.0 W"
    assert [plain(row)[GUTTER + WINDOW.width :] for row in rows] == [" 1", "", "", " 0", ""]
    assert (rows[0][-1].role, rows[3][-1].role) == (Role.SERIES_2, Role.SERIES_1)
    assert (labels_width(shown), labels_width(shown[:1])) == (2, 0)


def test_a_metric_has_one_color() -> None:
    assert METRIC_ROLES["utilization_gpu_percent"] is Role.GPU_HISTORY
    assert METRIC_ROLES["memory_used_bytes"] is Role.MEMORY_HISTORY
    assert METRIC_ROLES["fp16_activity_percent"] is METRIC_ROLES["sm_activity_percent"] is Role.ACTIVITY
    assert set(METRIC_ROLES) == set(METRICS)
    assert drawn(tracks((1.0,)), 80)[1][1].role in {Role.POWER, Role.GRID}


@pytest.mark.parametrize(("seconds", "label"), [(1.0, "1 s"), (30.0, "30 s"), (60.0, "1 min"), (3600.0, "1 h")])
def test_the_axis_is_labeled_with_the_width_of_a_column(seconds: float, label: str) -> None:
    assert plain(axis_line(TimeWindow(100, 40, seconds), 0.0)).lstrip().startswith(f"{label}/col └")


def test_the_axis_has_the_time_at_the_cursor_and_no_rest_of_a_label() -> None:
    window = TimeWindow(100, 60, 1.0)
    line = axis_line(window, 100.0, 25, "35s ago")
    assert plain(line)[GUTTER:] == "─" * 14 + "┴-00:45────▲ 35s ago──────────┴-00:15─────now┴"
    assert [span.text for span in line if span.role is Role.CURSOR] == ["▲ 35s ago"]
    assert plain(axis_line(window, 100.0, 16, "35s ago"))[GUTTER:].startswith("─" * 16 + "▲ 35s ago────┴-00:30")
    for cursor in range(60):
        assert len(plain(axis_line(window, 100.0, cursor, "35s ago"))) == GUTTER + 60


def test_a_label_is_at_the_right_of_the_cursor_or_else_at_its_left() -> None:
    assert cursor_label(0, "then", 10) == (0, "▲ then")
    assert cursor_label(9, "then", 10) == (4, "then ▲")
    assert cursor_label(2, "a long text", 10) == (2, "▲ a lon…"[:8])
    assert cursor_label(7, "a long text", 10) == (0, "a lon… ▲"[:8])
