"""Plots of results: what is a sweep, what is compared, and what is drawn over time."""

import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest

from gpumon.operations.workload import WorkloadRun
from gpumon.present.paint.line import Role, width_of
from gpumon.present.run_plots import plot_lines
from gpumon.present.run_series import Compared, Comparison, comparisons_of, sweeps_of
from gpumon.present.text.run import result_lines
from gpumon.workload_runs.protocol import RunEventKind
from tests import runs
from tests.present.helpers import text, texts
from tests.runs import measured


def metric(name: str, value: float, unit: str = "GB/s", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"name": name, "value": value, "unit": unit, "repetitions": 3, **more}


TRANSFER = [
    metric(f"{way}_{size}", value * factor)
    for way, factor in (("to_device_pinned", 1.0), ("from_device_pageable", 0.2))
    for size, value in (("16MiB", 50.0), ("4KiB", 1.0), ("256KiB", 20.0), ("1GiB", 55.5))
]
LAUNCH = [metric(f"block_{block}", 1000.0 + block) for block in (32, 128, 1024)]
LAUNCH += [metric(f"grid_stride_{count}_per_sm", 1500.5) for count in (1, 2, 8, 32)]


def finished(*metrics: dict[str, Any], samples: int = 0) -> WorkloadRun:
    run = runs.new_run()
    runs.send_plan(run)
    run.state.record_start(runs.BEGAN)
    for second in range(samples):
        runs.send(run, RunEventKind.METRIC, second, name="throughput", value=600.0 - second, unit="TFLOP/s")
    runs.send(run, RunEventKind.RESULT, 12.0, verdict="ok", why="Fine.", figures=list(metrics))
    return run


def test_metrics_whose_names_differ_by_one_number_are_a_sweep() -> None:
    sweeps, rest = sweeps_of(measured(*TRANSFER, *LAUNCH, metric("copy", 3.5), metric("block_1_of_2", 1.0)))
    sizes = {4096.0: "4KiB", 262144.0: "256KiB", 16777216.0: "16MiB", 1073741824.0: "1GiB"}
    assert [(sweep.title, sweep.metric.unit, sweep.labels, sweep.curves) for sweep in sweeps] == [
        (
            "GB/s",
            "GB/s",
            sizes,
            {
                "to device pinned": dict(zip(sizes, (1.0, 20.0, 50.0, 55.5), strict=True)),
                "from device pageable": {
                    size: value * 0.2 for size, value in zip(sizes, (1.0, 20.0, 50.0, 55.5), strict=True)
                },
            },
        ),
        (
            "GB/s",
            "GB/s",
            {32.0: "32", 128.0: "128", 1024.0: "1024"},
            {"block": {32.0: 1032.0, 128.0: 1128.0, 1024.0: 2024.0}},
        ),
        (
            "GB/s",
            "GB/s",
            {1.0: "1", 2.0: "2", 8.0: "8", 32.0: "32"},
            {"grid stride per sm": dict.fromkeys((1.0, 2.0, 8.0, 32.0), 1500.5)},
        ),
    ]
    assert [item.metric.name for item in rest] == ["copy", "block_1_of_2"]


def test_two_points_are_no_sweep() -> None:
    sweeps, rest = sweeps_of(measured(metric("size_16", 1.5), metric("size_32", 2.5)))
    assert (sweeps, len(rest)) == ([], 2)


def test_metrics_of_one_unit_are_compared_and_counts_are_not() -> None:
    metrics = [metric("copy", 3.5, limit=4.0), metric("strided_read", 0.5), metric("latency", 9.5, "us")]
    metrics += [metric("wrong", 0, "elements"), metric("checked", 7, "elements")]
    metrics += [metric("unknown", -1.0)]
    values = [Compared("copy", 3.5, 4.0), Compared("strided read", 0.5, None)]
    (copy, *_) = measurements = measured(*metrics)
    assert comparisons_of(measurements) == [Comparison("GB/s", copy.metric, values)]


def test_a_sweep_has_an_axis_a_legend_and_a_curve_per_metric() -> None:
    lines = plot_lines(finished(*TRANSFER), 100)
    shown = texts(lines)
    assert shown[1].split("  ")[:3] == [" GB/s", "● to device pinned", "○ from device pageable"]
    assert shown[2].startswith("60 GB/s┤")
    assert all(label in shown[-1] for label in ("4KiB", "256KiB", "16MiB", "1GiB"))
    drawn = "".join(shown[2:-2])
    assert drawn.count("○") == 4
    assert drawn.count("●") == 3, "one is behind a point of the other"
    roles = {span.role for line in lines for span in line if "●" in span.text or "○" in span.text}
    assert roles == {Role.SERIES_1, Role.SERIES_2}
    assert all(width_of(row) <= 100 for row in shown)
    assert "\x1b" not in text(lines)


def case(name: str, value: float, unit: str, label: str, position: float | None = None) -> dict[str, Any]:
    return metric(name, value, unit, case=label, position=position)


BATCHES = [1, 4, 16, 64, 256]
BATCH = [case("samples", 100.0 * size / (size + 9), "samples/s", f"batch {size}", size) for size in BATCHES]
BATCH += [case("compiled", 120.0 * size / (size + 9), "samples/s", f"batch {size}", size) for size in BATCHES[:4]]
BATCH += [case("peak_memory", float(size << 20), "bytes", f"batch {size}", size) for size in BATCHES]


def test_cases_with_positions_are_a_sweep_and_one_unit_is_one_plot() -> None:
    sweeps, rest = sweeps_of(measured(*BATCH, metric("power", 600.5, "W")))
    assert [(sweep.title, sweep.axis, list(sweep.curves)) for sweep in sweeps] == [
        ("samples/s", "batch", ["samples", "compiled"]),
        ("bytes", "batch", ["peak memory"]),
    ]
    assert list(sweeps[0].labels.items()) == [(float(size), str(size)) for size in BATCHES]
    assert list(sweeps[0].curves["compiled"]) == BATCHES[:4], "it did not fit at the largest batch"
    assert [item.metric.name for item in rest] == ["power"]


def test_several_cases_at_one_position_are_several_curves() -> None:
    sizes = {"1 KiB": 1 << 10, "1 MiB": 1 << 20, "1 GiB": 1 << 30}
    metrics = [
        case("bus_bandwidth", 1.5 * size, "GB/s", f"{way} {text}", size)
        for way in ("all_reduce", "broadcast")
        for text, size in sizes.items()
    ]
    ((sweep,), rest) = sweeps_of(measured(*metrics))
    assert (sweep.title, sweep.axis, list(sweep.curves)) == ("bus bandwidth, GB/s", "", ["all_reduce", "broadcast"])
    assert list(sweep.labels.values()) == ["1KiB", "1MiB", "1GiB"]
    assert rest == []


def test_positions_of_powers_of_two_have_a_logarithmic_axis_and_others_a_linear_one() -> None:
    def ticks(positions: list[int]) -> list[int]:
        points = [case("speed", 5.5 + at, "GB/s", f"{at} workers", at) for at in positions]
        axis = texts(plot_lines(finished(*points), 100))[-2]
        return [index for index, sign in enumerate(axis) if sign == "┬"]

    for positions in ([1, 2, 4, 8, 16, 32], [10, 100, 1000, 10_000], [0, 1, 4, 16, 64]):
        gaps = [right - left for left, right in pairwise(ticks(positions))]
        assert max(gaps) - min(gaps) <= 2, positions
    first, second, third, last = ticks([0, 1, 4, 8])
    assert (last - first) / (second - first) == pytest.approx(8, rel=0.2)
    assert (last - third) / (second - first) == pytest.approx(4, rel=0.2)


def test_cases_are_compared_metric_by_metric_and_equal_values_are_not() -> None:
    metrics = [case(name, value, unit, label) for name, unit in (("speed", "steps/s"), ("memory", "bytes"))
               for label, value in (("fp32", 12.0), ("bf16", 48.0))]  # fmt: skip
    metrics += [case("steps", 9.0, "steps", label) for label in ("fp32", "bf16")]
    assert [comparison.title for comparison in comparisons_of(measured(*metrics))] == ["speed, steps/s", "memory"]
    shown = texts(plot_lines(finished(*metrics, metric("power", 600.5, "W"), samples=20), 80))
    bars = [row for row in shown if "█" in row]
    assert [row.split()[0] for row in bars] == ["fp32", "bf16", "fp32", "bf16"]
    assert bars[1].count("█") == pytest.approx(4 * bars[0].count("█"), abs=4)
    assert "over time" not in "".join(shown), "one case after the other is no history"


def test_an_axis_of_bytes_has_round_numbers_of_their_unit() -> None:
    points = [case("peak_memory", float((at + 3) << 28), "bytes", f"batch {at}", at) for at in (1, 2, 3, 4)]
    labels = [row.partition("┤")[0].strip() for row in texts(plot_lines(finished(*points), 80)) if "┤" in row]
    assert labels == ["2.00 GiB", "1.00 GiB", "0 B"]


def test_a_live_metric_with_many_values_is_drawn_over_time() -> None:
    shown = texts(plot_lines(finished(metric("throughput", 590.5, "TFLOP/s"), samples=20), 80))
    assert shown[1].startswith(" TFLOP/s  ● throughput over time")
    assert "19.0 s" in shown[-1]
    assert plot_lines(finished(metric("throughput", 590.5, "TFLOP/s"), samples=5), 80) == []


@pytest.mark.parametrize("metrics", [[], [metric("only", 1.5)], [metric(f"zero_{size}", 0.0) for size in (1, 2, 3)]])
@pytest.mark.parametrize("width", [0, 59, 60, 300])
def test_nothing_to_plot_is_no_plot_and_zeros_can_be_drawn(metrics: list[dict[str, Any]], width: int) -> None:
    lines = plot_lines(finished(*metrics), width)
    assert bool(lines) == (len(metrics) == 3 and width >= 60)


def test_the_output_of_a_run_has_plots_only_where_there_is_a_terminal() -> None:
    run = finished(*TRANSFER)
    assert not any("┤" in row for row in result_lines(run))
    assert any("┤" in row for row in result_lines(run, 100))
    assert result_lines(run, 100)[-1].startswith("matmul: ok.")


def test_plotext_is_not_imported_before_there_is_something_to_draw() -> None:
    program = "import sys, gpumon.ui.app; sys.exit('plotext' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
