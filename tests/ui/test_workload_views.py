"""What is drawn of workloads, without an app: axes, bars, figures and lines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.store import Store
from gpumon.jobs.catalogue import BrokenWorkload
from gpumon.jobs.job import JobEnded
from gpumon.jobs.parameters import Parameter, ParameterKind
from gpumon.jobs.protocol import EventKind
from gpumon.ui.jobs import BoardRun
from gpumon.ui.paint.bar import pointers, progress_bar, stacked_bar
from gpumon.ui.paint.columns import place, row_line
from gpumon.ui.paint.history import MARK, strip
from gpumon.ui.paint.line import Line, plain, width_of
from gpumon.ui.view.axis import axis_over, on_axis
from gpumon.ui.view.figures import change_text, figure_text, parameter_text, share_of_limit, uses_text
from gpumon.ui.view.run import body_lines, head_lines, live_lines, title_text
from gpumon.ui.view.run_memory import memory_lines
from gpumon.ui.view.run_result import duration, error_lines, result_lines, timing_lines
from gpumon.ui.view.workloads import (
    EARLIER_COLUMNS,
    RUN_COLUMNS,
    RunRow,
    earlier_rows,
    main_change,
    main_figure,
    state_span,
    workload_note,
)
from tests import builders
from tests.ui import runs
from tests.ui.fakes import HOSTILE

NOW = runs.BEGAN + 12


def texts(lines: list[Line]) -> list[str]:
    return [plain(each) for each in lines]


def text(lines: list[Line]) -> str:
    return "\n".join(texts(lines))


# Marks


def test_a_mark_stands_in_its_bucket() -> None:
    assert strip([10, 20, 90, 90], 100, {1, 3}) == f"▁{MARK}█{MARK}"
    assert strip([None, None, 90], 100, {0}) == f"{MARK} █", "before the first value too"
    assert strip([None, None], None, {1}) == f" {MARK}"


def test_marks_move_on_with_their_history_and_go_with_it() -> None:
    store, key = Store(bucket_seconds=4.0), builders.device(0).key
    store.mark(key)
    assert store.marks(key, 10) == frozenset()
    store.apply(builders.frame(monotonic_seconds=100.0))
    store.mark(key)
    store.mark("nobody")
    assert store.marks(key, 10) == {9}
    store.apply(builders.frame(monotonic_seconds=112.0))
    assert store.marks(key, 10) == {6}
    assert store.marks(key, 3) == frozenset()
    assert store.marks(builders.device(1).key, 10) == frozenset()
    store.clear()
    assert store.marks(key, 10) == frozenset()


# The time axis


def test_the_axis_has_room_for_what_is_expected() -> None:
    axis = axis_over(1000.0, 1004.0, 20.0, 50)
    assert (axis.bucket_seconds, axis.drawn) == (0.5, 9)
    assert axis_over(1000.0, 1004.0, None, 50).bucket_seconds == 0.1
    assert axis_over(1000.0, 999.0, None, 50).drawn == 1, "a clock that was set back"


@pytest.mark.parametrize("elapsed", [0, 1, 59, 3600, 86_400, 10_000_000])
@pytest.mark.parametrize("columns", [1, 10, 200])
def test_all_of_a_run_fits_on_its_axis(elapsed: float, columns: int) -> None:
    axis = axis_over(0.0, elapsed, None, columns)
    assert int(elapsed / axis.bucket_seconds) + 1 <= max(columns, 1)
    assert len(on_axis([(0.0, 1.0), (elapsed, 2.0)], axis)) == axis.drawn


def test_columns_hold_means_and_a_value_holds_a_while() -> None:
    axis = axis_over(100.0, 109.0, None, 10)
    assert axis.bucket_seconds == 1.0
    drawn = on_axis([(100.2, 1.0), (100.7, 3.0), (101.5, None), (107.0, 9.0), (500.0, 5.0)], axis)
    assert drawn == [2.0, 2.0, None, None, None, None, None, 9.0, 9.0, None]


# Bars


def test_a_progress_bar_is_full_only_at_the_end() -> None:
    assert progress_bar(None, 4) == "░░░░"
    assert progress_bar(0.999, 4) == "███░"
    assert progress_bar(1.0, 4) == "████"
    assert progress_bar(7.0, 4) == "████"
    assert progress_bar(0.5, 0) == ""


def test_parts_of_a_bar_are_told_apart_by_their_glyphs() -> None:
    assert stacked_bar([(5, "A"), (3, "B"), (0, "C")], 10, 10) == "AAAAABBB  "
    assert stacked_bar([(5, "A"), (0.01, "B")], 10, 10) == "AAAAAB    ", "the smallest part is seen"
    assert stacked_bar([(50, "A"), (1, "B")], 10, 4) == "AAAA"
    assert stacked_bar([(5, "A")], 0, 4) == "A   "


def test_pointers_stand_under_what_they_point_at() -> None:
    assert pointers([(2, "low"), (9, "high")], 10, 20) == "    ▲ low    high ▲"
    assert pointers([(2, "a long text"), (3, "other")], 10, 20) == "    ▲ a long text"


@pytest.mark.parametrize("width", range(1, 40))
def test_pointers_never_leave_the_bar(width: int) -> None:
    assert width_of(pointers([(5, "allocated"), (9, "reserved")], 9, width)) <= width


# Figures


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (617.254, "TFLOP/s", "617.3 TFLOP/s"),
        (0.19071, "TFLOP/s", "0.1907 TFLOP/s"),
        (0, "elements", "0 elements"),
        (123456, "", "123456"),
        (999.97, "W", "1000 W"),
        (4.2e-6, "s", "4.2e-06 s"),
        (3 << 30, "bytes", "3.00 GiB"),
        (None, "W", "–"),
        (True, "W", "–"),
        ("many", "W", "–"),
    ],
)
def test_a_figure_has_four_digits_and_its_unit(value: object, unit: str, said: str) -> None:
    assert figure_text(value, unit) == said


def test_shares_and_changes() -> None:
    assert share_of_limit({"value": 5, "limit": 10}) == 0.5
    assert share_of_limit({"value": 5, "limit": None}) is None
    assert share_of_limit({"value": 5, "limit": "wide"}) is None
    assert share_of_limit({"value": 5, "limit": 0}) is None
    assert change_text(0.0123) == "+1.2 %"
    assert change_text(None) == ""
    assert [duration(each) for each in (2.0, 0.012, 4.1e-6, 0.0)] == ["2.00 s", "12.0 ms", "4.10 µs", "0.00 µs"]


def test_parameters_are_written_as_they_are_typed() -> None:
    assert [parameter_text(each) for each in (True, False, 5.0, 0.123456789, 7, "bf16")] == [
        *("yes", "no", "5", "0.123456789", "7", "bf16")
    ]
    parameter = Parameter("share", ParameterKind.NUMBER, 0.123456789, 1e-9)
    for value in (parameter.default, parameter.default_cpu):
        assert parameter.parse(parameter_text(value)) == value


def test_what_a_run_uses_in_words() -> None:
    assert uses_text(None) == "not told"
    uses = {"memory_bytes": 1 << 30, "host_memory_bytes": 1 << 20, "seconds": 12.5, "peers": True}
    assert uses_text({"uses": uses}) == (
        "1.00 GiB of GPU memory, 1.00 MiB of host memory, about 12.5 s, the other GPUs too"
    )


# A run


def test_states_of_a_run_in_their_order() -> None:
    told = runs.entry()
    assert state_span(told).text == "STARTING"
    assert "loads torch" in text(head_lines(told, NOW, 80))
    runs.plan(told)
    assert state_span(told).text == "WAITING"
    assert "waits for leave to use 12.0 GiB of GPU memory" in text(head_lines(told, NOW, 80))
    told.run.state.begin(runs.BEGAN)
    assert state_span(told).text == "RUNNING"
    told.stopping = True
    assert state_span(told).text == "STOPPING"
    told.run.state.apply(JobEnded(0, True, ""))
    assert state_span(told).text == "CANCELLED"


def test_one_that_cannot_run_here_says_why() -> None:
    told = runs.entry()
    runs.fail(told, "NotHereError", "torch finds no GPU.")
    told.run.state.apply(JobEnded(3, False, ""))
    assert state_span(told).text == "!NOT HERE"
    assert "torch finds no GPU." in text(result_lines(told, 80))
    assert main_figure(told) == "–"


def test_the_gpu_stands_beside_the_figures_on_one_axis() -> None:
    told = runs.live()
    lines = texts(live_lines(told, NOW, 100))
    assert "a column is 0.5 s" in lines[0]
    starts = {each.split("  ")[0].strip(): each[52:] for each in lines[1:-1]}
    assert list(starts)[:4] == ["throughput", "free share", "GPU utilization", "GPU power"]
    assert all(len(each.rstrip()) == 25 for each in starts.values()), "12 s, each as wide"
    assert lines[3].split()[2:6] == ["100", "%", "100", "%"]
    assert "power cap" in lines[-1]
    assert "power to its limit of 700 W" in lines[-1]


def test_on_the_cpu_there_is_only_what_the_workload_tells() -> None:
    told = runs.live(gpu=None)
    assert "GPU" not in text(live_lines(told, NOW, 100))
    assert texts(memory_lines(told.run.state, 80))[1] == " 256 MiB of host memory, torch itself included"
    assert title_text(told) == "matmul on CPU"


def test_memory_is_stacked_with_its_peaks() -> None:
    lines = texts(memory_lines(runs.live().run.state, 124))
    assert lines[1] == " [" + "█" * 30 + "▓" * 10 + "░" * 20 + " " * 60 + "]"
    assert lines[2].index("▲ peak allocated 5.00 GiB") == 2 + 50
    assert lines[2].index("▲ peak reserved 9.00 GiB") == 2 + 90
    assert lines[3].startswith(" █ 3.00 GiB allocated   ▓ 1.00 GiB active, no longer allocated   ░ 2.00 GiB reserved")
    assert "full width 12.0 GiB, what it planned" in text(memory_lines(runs.live().run.state, 124))


def test_memory_beyond_the_plan_widens_the_scale() -> None:
    told = runs.entry()
    runs.plan(told, memory_bytes=1)
    runs.tell(told, EventKind.MEMORY, reserved_bytes=2 << 30, allocated_bytes=1 << 30)
    lines = text(memory_lines(told.run.state, 80))
    assert "full width 2.00 GiB, the peak reserved" in lines


def test_timings_say_how_much_too_fast_a_call_looks() -> None:
    lines = texts(timing_lines(runs.live().run.state.timings, 80))
    assert lines[1].split() == ["empty", "kernel", "4.10", "µs", "9.30", "µs", "2.27", "x"]
    assert timing_lines({}, 80) == []
    assert "–" in text(timing_lines({"a": (0.0, 1.0)}, 80))


def test_a_result_has_its_limits_and_changes() -> None:
    told = runs.ended()
    lines = text(result_lines(told, 160))
    assert "617.2 TFLOP/s   989.4 TFLOP/s   62.4 %     99   +1.2 %" in lines
    assert "132 SMs x 4096 operations a clock x 1830 MHz" in lines
    assert (main_figure(told), main_change(told)) == ("617.2 TFLOP/s", "+1.2 %")
    assert result_lines(runs.live(), 80) == []


def test_errors_show_their_class_and_a_bounded_text() -> None:
    told = runs.entry()
    runs.fail(told, "OutOfMemoryError", "line\n" * 500, expected=True)
    lines = texts(error_lines(told.run.state.errors, 80))
    assert lines[1].strip() == "OutOfMemoryError (belongs to what is shown)"
    assert len(lines) < 20


@pytest.mark.parametrize("width", [1, 8, 20, 59, 80, 160, 300])
@pytest.mark.parametrize("make", [runs.entry, runs.live, runs.ended, lambda: runs.live(gpu=None)])
def test_lines_are_made_for_any_width(make: Callable[[], BoardRun], width: int) -> None:
    told = make()
    head_lines(told, NOW, width)
    body_lines(told, NOW, width)
    row_line(place(RUN_COLUMNS, width), RunRow(told, NOW))


# The list


def test_files_that_are_none_and_kept_results_are_only_text() -> None:
    assert "\x1b" not in workload_note(BrokenWorkload(Path(f"/{HOSTILE}.py".replace("\0", "")), "why"))
    odd: list[dict[str, Any]] = [
        {"figures": []},
        {"figures": [3], "time_seconds": "soon", "parameters": []},
        {"figures": [{"value": None}], "time_seconds": 1e30, "workload": HOSTILE, "verdict": 5},
        {"figures": [{"value": 2, "unit": HOSTILE}], "parameters": {HOSTILE: HOSTILE}, "device_name": HOSTILE},
    ]
    columns = place(EARLIER_COLUMNS, 160)
    for row in earlier_rows(odd, 10):
        assert "\x1b" not in plain(row_line(columns, row))
    assert len(earlier_rows(odd, 2)) == 2
