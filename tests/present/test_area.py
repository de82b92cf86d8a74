"""Charts over time: values are drawn at their height, gaps are empty, a grid and a cursor do not hide values."""

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.timeline import Summary
from gpumon.present.paint.area import Form, PlotSeries, area_chart, with_scale
from gpumon.present.paint.line import Line, Role, plain, width_of
from tests.present.helpers import texts

VALUES = st.none() | st.floats(-1e12, 1e12) | st.tuples(*[st.floats(-20, 150)] * 3).map(lambda it: Summary(*sorted(it)))


def drawn(values: list[float | Summary | None], top: float, height: int, form: Form = Form.AREA) -> list[str]:
    return texts(area_chart([PlotSeries(values, Role.POWER, form)], top, len(values), height, grid=False))


def role_at(line: Line, column: int) -> Role:
    return [span.role for span in line for _ in span.text][column]


def test_an_area_is_filled_to_the_dot() -> None:
    assert drawn([0, 1, 2, 4, 8], 8, 2) == ["    ⣼", "⣀⣀⣠⣾⣿"], "a step is taken in two halves"
    assert drawn([2, 2, 99], 8, 2) == ["  ⣸", "⣤⣤⣿"], "a value above the top is drawn at the top"


def test_a_measured_zero_is_on_the_axis_and_a_gap_is_empty() -> None:
    for form in (Form.AREA, Form.LINE):
        assert drawn([0, None, None, 0], 100, 2, form) == ["    ", "⣀  ⣀"]
    assert drawn([50, 50, None, 50, 50], 100, 2) == ["     ", "⣿⣿ ⣿⣿"]


def test_a_line_is_connected() -> None:
    assert drawn([2, 2, 7, 2], 8, 2, Form.LINE) == ["  ⢰⡆", "⠤⠤⠏⠹"]
    assert drawn([2, 2, 7], 8, 2, Form.DOTTED) == ["  ⡂", "⠄⠄⠂"]


def test_a_spike_within_a_column_is_visible() -> None:
    for form in (Form.AREA, Form.LINE):
        rows = drawn([10, 10, Summary(0, 10, 100), 10], 100, 4, form)
        assert all(row[2] != " " for row in rows)
        assert (rows[0][1], rows[0][3]) == (" ", " ")


def test_the_grid_shows_only_through_empty_cells() -> None:
    rows = area_chart([PlotSeries([None, 100, 0], Role.POWER)], 100, 3, 5)
    assert texts(rows) == ["┈⣿┈", " ⣿ ", "┈⣿⡄", " ⣿⡇", "┈⣿⣇"]
    assert (role_at(rows[0], 0), role_at(rows[0], 1)) == (Role.GRID, Role.POWER)
    assert [plain(row)[0] for row in rows] == ["┈", " ", "┈", " ", "┈"]
    assert [plain(row) for row in area_chart([], 100, 2, 2)] == ["  ", "  "], "no grid without room"


def test_a_cursor_marks_its_column_and_keeps_the_value() -> None:
    rows = area_chart([PlotSeries([50, 50, None], Role.POWER)], 100, 3, 4, cursor=1)
    assert [plain(row)[1] for row in rows] == ["│", "│", "⣿", "⣿"]
    assert all(role_at(row, 1) is Role.CURSOR for row in rows)
    assert not any(role_at(row, column) is Role.CURSOR for row in rows for column in (0, 2))
    outside = area_chart([PlotSeries([50], Role.POWER)], 100, 1, 1, cursor=7)
    assert role_at(outside[0], 0) is Role.POWER


def test_the_newest_values_are_at_the_right() -> None:
    assert texts(area_chart([PlotSeries([8, 8, 8, 8], Role.POWER)], 8, 2, 1)) == ["⣿⣿"]
    assert texts(area_chart([PlotSeries([8], Role.POWER)], 8, 3, 1)) == ["  ⣿"]


def test_the_axis_has_its_labels() -> None:
    rows = with_scale(area_chart([], 100, 2, 5), "100 %", "50 %", 8)
    assert [plain(row)[:8] for row in rows] == [" 100 % ┤", "       │", "  50 % ┤", "       │", "     0 ┤"]
    assert [plain(row)[:8] for row in with_scale(area_chart([], 100, 2, 2), "100 %", "50 %", 8)] == [
        " 100 % ┤",
        "     0 ┤",
    ]
    assert with_scale([], "100 %") == []


@given(
    st.lists(VALUES, max_size=30),
    st.lists(VALUES, max_size=30),
    st.sampled_from([0.0, 1e-9, 100.0, 1e12]),
    st.integers(0, 30),
    st.integers(0, 8),
    st.sampled_from(Form),
)
def test_a_chart_has_the_requested_size(
    back: list[float | Summary | None],
    front: list[float | Summary | None],
    top: float,
    width: int,
    height: int,
    form: Form,
) -> None:
    series = [PlotSeries(back, Role.GPU_HISTORY), PlotSeries(front, Role.POWER, form)]
    rows = area_chart(series, top, width, height, cursor=3)
    assert [width_of(plain(row)) for row in rows] == [width] * height
