"""The history of results as text: tables, hosts compared, and plots over time."""

import json
from typing import Any

import pytest

from gpumon.core.workload_metrics import WorkloadMetric
from gpumon.operations.results import ComparedResult, ResultGroup, saved_result
from gpumon.operations.workload import MetricChange
from gpumon.present.paint.line import width_of
from gpumon.present.text.results import history_lines, overview_lines

DAY = 86_400.0
NOON = 1_800_014_400.0
"""2027-01-15, 12:00 in UTC."""


def result(days: float, value: float, host: str | None = "box01", **changes: Any) -> ComparedResult:  # noqa: ANN401
    figure = {"name": "throughput", "value": value, "unit": "TFLOP/s", "repetitions": 3}
    record = {
        "time_seconds": NOON - days * DAY, "host": host, "driver": "580.65", "torch": "2.11.0", "workload": "matmul",
        "device": "cuda:0", "device_name": "NVIDIA H200",
        "parameters": {"dtype": "bf16", "size": 8192, "check": True, "odd": None}, "verdict": "ok",
        "figures": [figure, {**figure, "name": "power", "unit": "W"}],
    }  # fmt: skip
    saved = saved_result(json.loads(json.dumps(record | changes)))
    assert saved is not None
    return ComparedResult(saved, (MetricChange(WorkloadMetric("throughput"), 600.0, value),))


def group(*results: ComparedResult) -> ResultGroup:
    newest = results[0].result
    return ResultGroup(newest.workload, newest.device_name, newest.record["parameters"], results)


HISTORY = group(*(result(day, 700.0 - day, "box01" if day % 2 else "box02") for day in range(1, 9)))


def test_the_newest_of_each_group_is_a_row() -> None:
    (heading, row) = overview_lines([HISTORY], 0)
    assert " ".join(heading.split()) == "Workload Device Newest Change Verdict Runs When Metric Hosts Parameters"
    assert " ".join(row.split()) == (
        "matmul H200 699 TFLOP/s +16.5 % ok 8 2027-01-14 12:00 throughput box01 +1 "
        "dtype=bf16, size=8192, check=yes, odd=–"
    )


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_tables_fit(width: int) -> None:
    lines = [*overview_lines([HISTORY], width), *history_lines([HISTORY], width, 0)]
    rows = [row for row in lines if "Parameters:" not in row and "newest of each" not in row]
    assert all(width_of(row) <= width for row in rows)
    assert sum("When" in row for row in rows) >= 1, "the time of a history stays"


def test_the_history_has_the_host_the_versions_and_the_change() -> None:
    lines = history_lines([HISTORY], 0, 0)
    assert lines[0] == "matmul on H200, 8 runs. Parameters: dtype=bf16, size=8192, check=yes, odd=–."
    assert " ".join(lines[3].split()) == "2027-01-14 12:00 box01 cuda:0 ok 699 TFLOP/s +16.5 % 699 W 2.11.0 580.65"
    assert not any("┤" in row for row in lines)


def test_hosts_are_compared_by_their_newest_results() -> None:
    lines = history_lines([HISTORY], 0, 100)
    assert "throughput, newest of each host: box01 699 TFLOP/s (highest), box02 698 TFLOP/s (-0.1 %)." in lines
    bars = [row for row in lines if "█" in row]
    assert [row.split()[0] for row in bars] == ["box01", "box02"]
    assert "newest of each host" not in "".join(history_lines([group(result(1, 5.0))], 0, 100))


def test_the_plot_has_a_curve_for_each_host_and_shows_small_changes() -> None:
    lines = history_lines([HISTORY], 0, 100)
    title = next(index for index, row in enumerate(lines) if "● box02" in row)
    assert "○ box01" in lines[title]
    plot = lines[title + 1 :]
    assert plot[0].startswith("700 TFLOP/s┤"), "the axis does not begin at 0"
    assert plot[-1].split() == ["Jan", "07", "Jan", "11", "Jan", "14"]
    rows = [index for index, row in enumerate(plot) if "●" in row or "○" in row]
    assert rows[-1] - rows[0] >= 5, "a change of one percent is seen"


def test_several_gpus_of_a_host_have_a_curve_each() -> None:
    uuids = ["GPU-12345678-0000", "GPU-abcdef00-0000"]
    lines = history_lines([group(*(result(day, 700.0, uuid=uuids[day % 2]) for day in range(4)))], 0, 100)
    assert any("● box01 GPU-abcdef00…  ○ box01 GPU-12345678…" in row for row in lines)
    assert [row.split()[3] for row in lines[3:7]] == ["GPU-12345678…", "GPU-abcdef00…"] * 2


def test_one_run_and_results_without_metrics_have_no_plot() -> None:
    assert not any("┤" in row for row in history_lines([group(result(1, 5.0))], 0, 100))
    assert history_lines([group(result(1, 5.0, figures=[]))], 0, 100)[3].split()[-2:] == ["2.11.0", "580.65"]
    assert overview_lines([group(result(1, 5.0, figures=[]))], 0)[1].split()[2] == "–"


def test_old_results_and_odd_times_have_dashes() -> None:
    lines = history_lines([group(result(1, 5.0, host=None, driver=None), result(1, 4.0, time_seconds=1e30))], 0, 100)
    assert lines[3].split()[2:4] == ["–", "cuda:0"]
    assert lines[4].split()[0] == "–"


def test_a_long_history_lists_the_newest_results() -> None:
    many = group(*(result(day / 10, 600.0 + day) for day in range(130)))
    lines = history_lines([many], 0, 0)
    assert "30 older results are not listed; --csv and --json have all." in lines
    assert len(lines) == 104
