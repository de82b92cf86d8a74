"""One run as lines, and the rows of runs and results in the tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.operations.workload import WorkloadRun
from gpumon.present.paint.line import plain
from gpumon.present.paint.table import fit_columns, row_line
from gpumon.present.run import body_lines, error_lines, explainable_text, head_lines, title_text
from gpumon.present.run_live import live_lines, memory_lines
from gpumon.present.run_results import result_lines, timing_lines
from gpumon.present.workloads import (
    EARLIER_COLUMNS,
    RUN_COLUMNS,
    RunRow,
    earlier_rows,
    main_change,
    main_result,
    state_span,
    workload_note,
)
from gpumon.workload_runs.catalogue import BrokenWorkload
from gpumon.workload_runs.protocol import RunEventKind
from gpumon.workload_runs.supervised_run import RunEnded
from tests import builders, runs
from tests.frames import HOSTILE
from tests.present.helpers import only_span, text, texts

NOW = runs.BEGAN + 12


def test_the_states_of_a_run_in_their_order() -> None:
    run = runs.new_run()
    assert state_span(run).text == "STARTING"
    assert "Starting the interpreter and importing torch." in text(head_lines(run, NOW, 80))
    runs.send_plan(run)
    assert state_span(run).text == "WAITING"
    assert "Waiting for confirmation to use 12.0 GiB of GPU memory" in text(head_lines(run, NOW, 80))
    run.state.record_start(runs.BEGAN)
    assert state_span(run).text == "RUNNING"
    run.is_stopping = True
    assert state_span(run).text == "STOPPING"
    run.state.apply(RunEnded(0, True, ""))
    assert state_span(run).text == "CANCELLED"


def test_a_workload_that_cannot_run_shows_the_reason() -> None:
    run = runs.new_run()
    runs.report_error(run, "UnsupportedError", "torch finds no GPU.")
    run.state.apply(RunEnded(3, False, ""))
    assert state_span(run).text == "!UNSUPPORTED"
    assert text([*head_lines(run, NOW, 80), *body_lines(run, NOW, 80)]).count("torch finds no GPU.") == 1
    assert main_result(run) == "–"
    assert explainable_text(run) == ""


def test_progress_has_a_bar_and_the_times() -> None:
    (_, progress) = texts(head_lines(runs.live_run(), NOW, 60))
    assert progress == " ███████████████░░░░░░░░░░ 60 % done, 12s elapsed, 8s left"
    unknown = runs.live_run()
    unknown.state.progress = None
    assert texts(head_lines(unknown, NOW, 40))[1] == " " + "░" * 25 + " 12s elapsed"


def test_a_cancelled_run_shows_the_share_that_it_had_done_and_never_all_of_it() -> None:
    run = runs.live_run()
    run.state.apply(RunEnded(0, True, ""))
    run.ended_seconds = NOW
    assert "60 % done, 12s elapsed" in text(head_lines(run, NOW, 80))
    runs.send(run, RunEventKind.PROGRESS, 12.0, done=1, total=1)
    assert texts(head_lines(run, NOW, 80))[1] == " 12s elapsed"
    assert "100 % done" in text(head_lines(runs.ended_run(), NOW, 80))


def test_metrics_of_the_gpu_share_an_axis_with_those_of_the_workload() -> None:
    lines = texts(live_lines(runs.live_run(), NOW, 100))
    assert lines[0].split() == ["Live", "now", "max", "0.5", "s", "per", "column"]
    strips = {line.split("  ")[0].strip(): line[52:] for line in lines[1:-1]}
    assert list(strips)[:4] == ["throughput", "free share", "GPU utilization", "GPU power"]
    assert all(len(strip.rstrip()) == 25 for strip in strips.values()), "all of them span 12 s"
    assert lines[3].split()[2:6] == ["100", "%", "100", "%"]
    assert "power cap" in lines[-1]
    assert "scaled to power limit 700 W, max clock 1980 MHz" in lines[-1]


def test_on_the_cpu_there_are_only_the_metrics_of_the_workload() -> None:
    run = runs.live_run(gpu=None)
    assert "GPU" not in text(live_lines(run, NOW, 100))
    assert texts(memory_lines(run.state, 80))[1] == " 256 MiB of host memory, including torch itself"
    assert title_text(run) == "matmul on CPU"
    assert title_text(runs.live_run()) == "matmul on GPU 0, H200"


def test_memory_is_stacked_with_its_peaks() -> None:
    lines = texts(memory_lines(runs.live_run().state, 124))
    assert lines[1] == " [" + "█" * 30 + "▓" * 10 + "░" * 20 + " " * 60 + "]"
    assert lines[2].index("▲ peak allocated 5.00 GiB") == 2 + 50
    assert lines[2].index("▲ peak reserved 9.00 GiB") == 2 + 90
    assert lines[3].startswith(
        " █ 3.00 GiB allocated   ▓ 1.00 GiB freed, waiting for stream   ░ 2.00 GiB reserved, not active"
    )
    assert lines[4] == " full width 12.0 GiB, planned"


def test_peaks_without_room_on_one_line_get_one_each() -> None:
    lines = texts(memory_lines(runs.live_run().state, 50))
    assert "▲ peak allocated 5.00 GiB" in lines[2]
    assert "peak reserved 9.00 GiB ▲" in lines[3]


def test_memory_beyond_the_plan_widens_the_scale() -> None:
    run = runs.new_run()
    runs.send_plan(run, memory_bytes=1)
    runs.send(run, RunEventKind.MEMORY, reserved_bytes=2 << 30, allocated_bytes=1 << 30)
    assert "full width 2.00 GiB, the peak reserved" in text(memory_lines(run.state, 80))


def test_timings_show_how_much_faster_a_call_looks() -> None:
    lines = texts(timing_lines(runs.live_run().state.timings, 80))
    assert lines[1].split() == ["empty", "kernel", "4.10", "µs", "9.30", "µs", "2.27", "x"]
    assert timing_lines({}, 80) == []
    assert "–" in text(timing_lines({"a": (0.0, 1.0)}, 80))


def test_a_result_has_its_limits_and_changes() -> None:
    run = runs.ended_run()
    lines = text(result_lines(run, 160))
    assert "617.2 TFLOP/s   989.4 TFLOP/s   62.4 %      99   +1.2 %" in lines
    assert "132 SMs x 4096 operations a clock x 1830 MHz" in lines
    assert "Change: since the last run with these parameters on this device." in lines
    assert (main_result(run), main_change(run)) == ("617.2 TFLOP/s", "+1.2 %")
    assert result_lines(runs.live_run(), 80) == []
    assert main_result(runs.live_run()).endswith("TFLOP/s")


def test_errors_show_their_class_and_a_bounded_text() -> None:
    run = runs.new_run()
    runs.report_error(run, "OutOfMemoryError", "line\n" * 500, expected=True)
    lines = texts(error_lines(run.state.errors, 80))
    assert lines[1].strip() == "OutOfMemoryError (expected: the workload demonstrates it)"
    assert len(lines) < 20
    assert explainable_text(run).startswith("OutOfMemoryError: line\nline")


def test_the_output_of_a_run_that_failed_without_an_error_can_be_explained() -> None:
    assert explainable_text(runs.ended_run("fail")) == "hello\na warning [/] of torch"
    assert explainable_text(runs.ended_run()) == ""


@pytest.mark.parametrize("width", [1, 8, 20, 59, 80, 160, 300])
@pytest.mark.parametrize(
    "make",
    [runs.new_run, runs.live_run, runs.ended_run, lambda: runs.live_run(gpu=None)],
    ids=["new", "gpu", "end", "cpu"],
)
def test_lines_are_drawn_for_any_width(make: Callable[[], WorkloadRun], width: int) -> None:
    run = make()
    head_lines(run, NOW, width)
    body_lines(run, NOW, width)
    row_line(fit_columns(RUN_COLUMNS, width), RunRow(run, NOW))


def run_texts(run: WorkloadRun) -> dict[str, str]:
    return {
        str(column.heading): only_span(column.cell(RunRow(run, NOW), column.width + 10)).text for column in RUN_COLUMNS
    }


def test_a_row_of_a_run_shows_its_progress_and_then_its_outcome() -> None:
    assert run_texts(runs.new_run())["Progress or outcome"] == "importing torch"
    live = run_texts(runs.live_run())
    assert (live["Time"], live["Progress or outcome"]) == ("8s left", "██████████░░░░░░░░  60 %")
    ended = run_texts(runs.ended_run())
    assert (ended["State"], ended["Time"], ended["Change"]) == ("OK", "20s", "+1.2 %")
    assert ended["Progress or outcome"].startswith("bf16 8192 x 8192")


def test_broken_files_and_saved_results_are_only_text() -> None:
    assert "\x1b" not in workload_note(BrokenWorkload(Path(f"/{HOSTILE}.py".replace("\0", "")), "why"))
    odd: list[dict[str, Any]] = [
        {"figures": []},
        {"figures": [3], "time_seconds": "soon", "parameters": []},
        {"figures": [{"value": None}], "time_seconds": 1e30, "workload": HOSTILE, "verdict": 5},
        {"figures": [{"value": 2, "unit": HOSTILE}], "parameters": {HOSTILE: HOSTILE}, "device_name": HOSTILE},
    ]
    columns = fit_columns(EARLIER_COLUMNS, 160)
    for row in earlier_rows(odd, 10):
        assert "\x1b" not in plain(row_line(columns, row))
    assert len(earlier_rows(odd, 2)) == 2


@pytest.mark.parametrize("peers", [True, False])
def test_a_run_on_several_gpus_shows_each_of_them(*, peers: bool) -> None:
    run = runs.new_run()
    runs.send_plan(run, peers=peers)
    run.state.record_start(runs.BEGAN)
    for second in range(5):
        lagging = builders.device(1, readings={"utilization_gpu_percent": 7, "power_watts": 120})
        devices = (builders.device(0), lagging)
        run.observe(builders.frame(devices=devices, time_seconds=runs.BEGAN + second, monotonic_seconds=100.0 + second))
    shown = texts(live_lines(run, NOW, 100))
    rows = {line[1:18].strip(): line[18:34].strip() for line in shown}
    several = {"GPU 0 util": "87 %", "GPU 0 power": "612 W", "GPU 1 util": "7 %", "GPU 1 power": "120 W"}
    assert several.items() <= rows.items() if peers else "GPU 1 util" not in rows
    assert ("GPU utilization" in rows) is not peers
    assert len(run.samples) == 5
