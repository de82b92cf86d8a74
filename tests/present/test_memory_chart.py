"""The chart of a process's memory: its scale and its marks."""

from hypothesis import given
from hypothesis import strategies as st

from gpumon.present.memory_chart import MemoryChart, marks_text, round_above
from gpumon.present.time_axis import TimeWindow
from gpumon.session.memory_history import MemoryHistory
from tests.ui.probing import GIB, statistics


def failing_history() -> MemoryHistory:
    """A minute with retries at 20 and 40 s, and an OOM at 50 s."""
    history = MemoryHistory()
    for second in range(60):
        history.record(second, statistics(alloc_retries_count=second // 20, ooms_count=second // 50))
    return history


def test_labels_of_marks_do_not_overlap() -> None:
    text = marks_text(failing_history(), TimeWindow(59, 60, 1.0))
    assert len(text) == 60
    assert (text[0], text[20], text[40], text[50]) == ("▲", "R", "R", "X")
    assert "peak 57.0 GiB" in text
    assert marks_text(failing_history(), TimeWindow(500, 60, 1.0)).strip() == ""


def test_a_label_stands_at_the_right_of_its_mark_or_else_at_the_left() -> None:
    text = marks_text(failing_history(), TimeWindow(79, 80, 1.0))
    assert text[51:].startswith(" out of memory ")
    history = MemoryHistory()
    for second in range(60):
        history.record(second, statistics(ooms_count=second // 50, allocated_peak_bytes=None))
    assert marks_text(history, TimeWindow(55, 56, 1.0)) == " " * 36 + "out of memory X     "


def test_a_chart_is_drawn_again_only_when_something_changes() -> None:
    chart, history = MemoryChart(), failing_history()
    chart.draw(history, TimeWindow(59, 60, 1.0), 5, 2.5)
    rows = chart.rows
    chart.draw(history, TimeWindow(59, 60, 1.0), 5, 2.5)
    assert chart.rows is rows
    for changed in ((history, TimeWindow(60, 60, 1.0), 5, 2.5), (failing_history(), TimeWindow(60, 60, 1.0), 5, 2.5)):
        before = chart.rows
        chart.draw(*changed)
        assert chart.rows is not before
    assert chart.top == 64 * GIB


@given(st.floats(1, 1e13))
def test_the_top_of_a_chart_is_near_and_above(value: float) -> None:
    top = round_above(value)
    assert value <= top
    assert top <= max(2 * value, 1 << 20)


def test_the_top_of_a_chart_has_a_short_name() -> None:
    assert [round_above(value * GIB) / GIB for value in (4, 4.01, 5.01, 6.01, 7.01)] == [4, 5, 6, 7, 8]
