"""The dataloader workload on the CPU."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.processes import tree, wait_gone
from tests.workloads.conftest import WORKLOADS, Judge, RunWorkload, load_workload, needs_torch, probe_of, torch_python

_PROBE = (
    probe_of("dataloader")
    + """
class Broken(dataloader.CompressedImages):
    def __getitem__(self, index):
        FAULT
dataloader.CompressedImages = Broken
"""
)
_SMALL = {"decode_ms": 0.2, "step_ms": 1, "batch_size": 4, "seconds": 0.05, "max_workers": 1, "sample_kibibytes": 4}


@needs_torch
def test_a_sweep_over_workers(run_workload: RunWorkload) -> None:
    ran = run_workload("dataloader", **_SMALL)
    assert ran.exit_code == 0, ran.result
    assert "With num_workers=0 the training step waits for its data" in ran.result["why"]
    waiting = [metric for metric in ran.result["figures"] if metric["name"] == "waiting"]
    assert (waiting[0]["case"], waiting[0]["position"]) == ("0 workers", 0)
    assert all(0 <= metric["value"] <= 100 and metric["repetitions"] >= 4 for metric in waiting)
    names = {metric["name"] for metric in ran.result["figures"]}
    assert names == {"waiting", "step", "throughput"}
    assert waiting[0]["value"] > 10, "the main process decodes between the steps"


@needs_torch
def test_cheap_samples_need_no_workers(run_workload: RunWorkload) -> None:
    ran = run_workload("dataloader", **{**_SMALL, "decode_ms": 0.01, "batch_size": 1, "step_ms": 50})
    assert ran.result["verdict"] == "ok"
    assert "the loader needs no workers" in ran.result["why"]


@pytest.mark.sampled(1)
@needs_torch
@pytest.mark.parametrize(
    "fault",
    [
        "return super().__getitem__(index - index % 2)",
        "pixels, index = super().__getitem__(index); return pixels * 0, index",
    ],
    ids=["a sample twice", "not decoded"],
)
def test_a_wrong_sample_fails(run_workload: RunWorkload, tmp_path: Path, fault: str) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(_PROBE.replace("FAULT", fault))
    ran = run_workload(probe, **_SMALL)
    assert ran.exit_code == 1
    assert ran.result["verdict"] == "fail"
    assert "samples arrived in the wrong order or with wrong data." in ran.result["why"]


@needs_torch
def test_a_stop_ends_the_workers() -> None:
    """A stop in the middle of a measurement with workers leaves no process behind."""
    parameters = {"decode_ms": 5, "step_ms": 1, "batch_size": 2, "seconds": 1, "max_workers": 2}
    read_end, write_end = os.pipe()
    command = [torch_python(), str(WORKLOADS / "_run.py"), str(WORKLOADS / "dataloader.py"), "--events", str(write_end)]
    command += ["--device", "cpu", "--parameters", json.dumps(parameters)]
    process = subprocess.Popen(command, pass_fds=(write_end,), stderr=subprocess.DEVNULL, start_new_session=True)
    os.close(write_end)
    try:
        with os.fdopen(read_end) as lines:
            pid = json.loads(lines.readline())["pid"]
            workers: list[int] = []
            deadline = time.monotonic() + 30
            while not workers and time.monotonic() < deadline:
                workers = tree(pid)[1:]
                time.sleep(0.01)
            os.kill(pid, signal.SIGTERM)
            (result,) = [event for event in map(json.loads, lines) if event["event"] == "result"]
        assert workers
        assert result["verdict"] == "cancelled"
        assert all(wait_gone(worker, 5) for worker in workers)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("required", "is_enough"), [(0, True), (1 << 60, False)])
def test_shared_memory_that_is_too_small_is_reported_before_the_start(
    tmp_path: Path, required: int, is_enough: bool
) -> None:
    problem = load_workload("_kit.loading").shared_memory_problem(required, str(tmp_path))
    assert (problem == "") is is_enough
    assert is_enough or "--shm-size=1g" in problem


def _judged(
    monkeypatch: pytest.MonkeyPatch, waiting: dict[int, float], cpus: int, max_workers: int = 0
) -> tuple[str, str]:
    dataloader = load_workload("dataloader")
    monkeypatch.setattr(dataloader.os, "sched_getaffinity", lambda _: set(range(cpus)))
    points = [
        dataloader.LoadingPoint(workers, percent, 1600 * (1 - percent / 100), 0.02 / (1 - percent / 100), 20)
        for workers, percent in waiting.items()
    ]
    parameters = SimpleNamespace(batch_size=32, max_workers=max_workers)
    verdict: tuple[str, str] = dataloader.judge_loading(
        Judge(parameters=parameters, on_gpu=True), 0.005, 0.02, points, " Remark."
    )
    return verdict


def test_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, why = _judged(monkeypatch, {0: 90, 1: 88, 8: 2, 16: 1, 6: 20, 7: 8}, 16)
    assert kind == "ok"
    assert why == (
        "With num_workers=0 the GPU waits for its data 90% of the time. num_workers=8 is enough: it waits 2% of the "
        "time, and throughput is 9.8x as high (1,568 samples/s). Use num_workers=8; more change nothing. Remark."
    )
    kind, why = _judged(monkeypatch, {0: 90, 1: 88, 2: 75, 4: 50}, 4)
    assert kind == "warn"
    assert "with num_workers=4 still 50%. The decode itself is the limit: 4 CPUs give at most 800 samples/s" in why
    assert "the GPU could use 1,600. Decode less" in why
    kind, why = _judged(monkeypatch, {0: 90, 1: 88}, 16, max_workers=1)
    assert kind == "warn"
    assert "About 8 workers are needed, and 16 CPUs are available: measure with a larger max_workers" in why
    kind, why = _judged(monkeypatch, {0: 90, 1: 88}, 16)
    assert kind == "warn"
    assert "The run ended before more workers were measured" in why
    assert _judged(monkeypatch, {0: 1}, 16)[0] == "ok"


def test_the_smallest_number_that_is_enough_is_found() -> None:
    dataloader = load_workload("dataloader")

    def swept(needed: int, limit: int) -> list[int]:
        bench = dataloader.LoadingBench.__new__(dataloader.LoadingBench)
        bench._context = SimpleNamespace(on_gpu=False)
        bench.measure = lambda workers, _: SimpleNamespace(workers=workers, is_enough=workers >= needed)
        return [point.workers for point in bench.sweep(limit)]

    assert swept(0, 16) == [0]
    assert swept(1, 16) == [0, 1]
    assert swept(6, 16) == [0, 1, 2, 4, 8, 6, 5]
    assert swept(12, 12) == [0, 1, 2, 4, 8, 12, 10, 11]
    assert swept(99, 6) == [0, 1, 2, 4, 6]
