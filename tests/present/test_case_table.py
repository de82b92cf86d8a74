"""Tables of cases: what is a row and a column, and what is left out where there is little room."""

from typing import Any

import pytest

from gpumon.core.workload_metrics import WorkloadMetric
from gpumon.operations.workload import MetricChange, WorkloadRun
from gpumon.present.case_table import case_lines
from gpumon.present.paint.line import width_of
from gpumon.present.run_results import result_lines
from gpumon.present.text import run as text_of_run
from gpumon.workload_runs.protocol import RunEventKind
from gpumon.workload_runs.supervised_run import RunEnded
from tests import runs
from tests.present.helpers import text, texts
from tests.runs import measured


def metric(name: str, value: float, unit: str, case: str, limit: float | None = None) -> dict[str, Any]:
    fields = {"name": name, "value": value, "unit": unit, "repetitions": 3, "limit_source": "a source"}
    return {**fields, "limit": limit, "case": case, "position": None}


METRICS = [
    metric("throughput", 125.0, "TFLOP/s", "fp32", 494.7),
    metric("peak_memory", 20.0 * (1 << 30), "bytes", "fp32"),
    metric("throughput", 598.25, "TFLOP/s", "bf16", 989.4),
    metric("peak_memory", 11.5 * (1 << 30), "bytes", "bf16"),
    metric("time_of_the_optimizer", 1.5, "ms", "bf16"),
]
THROUGHPUT = WorkloadMetric("throughput", "TFLOP/s")
CHANGES = [MetricChange(THROUGHPUT, 600.0, 598.25, "bf16"), MetricChange(THROUGHPUT, 1.0, 2.0)]


def test_a_case_is_a_row_and_a_metric_a_column() -> None:
    assert [row.rstrip() for row in texts(case_lines(measured(*METRICS), CHANGES, 0))] == [
        "                                                         time of",
        "                                                 peak        the",
        "      throughput  of limit    limit  change    memory  optimizer",
        "Case     TFLOP/s         %  TFLOP/s       %                   ms",
        "fp32         125      25.3    494.7          20.0 GiB",
        "bf16       598.2      60.5    989.4    -0.3  11.5 GiB        1.5",
    ]


def test_a_metric_of_several_units_has_them_in_its_cells() -> None:
    lines = texts(case_lines(measured(metric("time", 3.0, "ms", "a"), metric("time", 4.0, "us", "b")), [], 0))
    assert [row.split() for row in lines[-2:]] == [["a", "3", "ms"], ["b", "4", "us"]]


@pytest.mark.parametrize("width", [1, 20, 30, 40, 60, 100])
def test_columns_that_do_not_fit_are_named(width: int) -> None:
    lines = case_lines(measured(*METRICS), CHANGES, width)
    assert all(width_of(row.rstrip()) <= max(width, 4) for row in texts(lines))
    shown = text(lines)
    assert (
        all(name in shown for name in ("throughput", "memory", "optimizer"))
        or "Not enough width" in shown
        or width < 20
    )


def test_values_are_kept_longer_than_shares_changes_and_limits() -> None:
    shown = text(case_lines(measured(*METRICS), CHANGES, 38))
    assert "optimizer" in shown
    assert "change" not in shown
    assert "of limit" not in shown


def finished() -> WorkloadRun:
    run = runs.live_run()
    single = {"name": "power", "value": 600.5, "unit": "W", "repetitions": 9, "limit": 700.0, "limit_source": "limit"}
    runs.send(run, RunEventKind.RESULT, 12.0, verdict="ok", why="Use bf16.", figures=[*METRICS, single])
    run.state.apply(RunEnded(0, False, ""))
    run.changes = tuple(CHANGES)
    return run


def test_the_screen_and_the_command_show_cases_as_a_table_and_the_rest_as_before() -> None:
    screen = text(result_lines(finished(), 100))
    command = "\n".join(text_of_run.result_lines(finished()))
    for shown in (screen, command):
        rows = [row.split() for row in shown.splitlines()]
        assert sum(row[:1] == ["bf16"] for row in rows) == 1
        assert sum(row[:1] == ["power"] for row in rows) == 1
        assert sum("throughput" in row for row in rows if "now" not in row) == 1, "the heading of a column"
    assert command.splitlines()[-1] == "matmul: ok. Use bf16."


def test_without_cases_there_is_no_table() -> None:
    assert case_lines(measured({"name": "a", "value": 1, "unit": "s", "repetitions": 1}), [], 80) == []
