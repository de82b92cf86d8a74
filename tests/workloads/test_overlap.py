"""The overlap workload: what of it can run on the CPU, its verdict, and batches that are not the right ones."""

from pathlib import Path

import pytest

from tests.workloads.conftest import WORKLOADS, Judge, RunWorkload, load_workload, needs_torch

_PROBE = f"""
import dataclasses, importlib.util, sys
spec = importlib.util.spec_from_file_location("overlap_probe", {str(WORKLOADS / "overlap.py")!r})
overlap = sys.modules["overlap_probe"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(overlap)
overlap._WIDTH, overlap._CALIBRATIONS, overlap._MAX_ROUNDS = 64, 1, 2  # a CPU multiplies float16 slowly
WORKLOAD = dataclasses.replace(overlap.WORKLOAD, why_not_cpu="")
two_streams = overlap.two_streams
class Stream:
    def __init__(self, device=None):
        self.waits_for = []
    def wait_stream(self, stream): pass
    def wait_event(self, event):
        self.waits_for.append(event.recorded)
class Event:
    recorded = None
    def record(self, stream):
        self.recorded = stream
def with_stand_ins(host_batches, device, compute):
    import torch
    from contextlib import nullcontext
    current, created = Stream(), []
    def stream(device):
        created.append(Stream())
        return created[-1]
    torch.cuda.Event, torch.cuda.Stream, torch.cuda.current_stream = Event, stream, lambda device: current
    torch.cuda.stream, torch.cuda.synchronize = lambda stream: nullcontext(), lambda device: None
    two_streams(host_batches, device, compute)
    (copies,) = created
    assert current.waits_for == [copies] * 4, "every computation waits for its copy"
    assert copies.waits_for == [None] * 2 + [current] * 2, "a copy waits until its buffer has been read"
def last(host_batches, device, compute):
    FAULT
overlap.CASES["pinned, two streams"] = (last, True, "Stands for two streams, which the CPU does not have.")
"""
_FAULTS = {
    "none": "with_stand_ins(host_batches, device, compute)",
    "stale": "overlap.one_stream([host_batches[0], *host_batches[:-1]], device, compute)",
    "skipped": "overlap.one_stream(host_batches[:-1], device, compute)",
    "half_copied": """
    for step, batch in enumerate(host_batches):
        copy = batch.clone()
        copy[len(copy) // 2:] = host_batches[step - 1][len(copy) // 2:]
        compute(copy, step)
""",
}


def _probe(folder: Path, fault: str) -> Path:
    probe = folder / "probe.py"
    probe.write_text(_PROBE.replace("FAULT", _FAULTS[fault]))
    return probe


@needs_torch
def test_every_case_is_measured_and_right(run_workload: RunWorkload, tmp_path: Path) -> None:
    ran = run_workload(_probe(tmp_path, "none"), size_mebibytes=1, steps=4, repetitions=1)
    assert ran.exit_code == 0, ran.result
    assert ran.result["verdict"] in {"ok", "warn"}
    cases = [metric["case"] for metric in ran.result["figures"] if metric["name"] == "step"]
    assert cases == ["pageable, serial", "pinned, serial", "pinned, non_blocking", "pinned, two streams", "ideal"]
    assert all(0 <= metric["value"] <= 100 for metric in ran.result["figures"] if metric["name"] == "copy_hidden")
    assert ran.of("progress")[-1]["done"] == ran.of("progress")[-1]["total"] == 4


@pytest.mark.sampled(1)
@needs_torch
@pytest.mark.parametrize(("fault", "wrong", "first"), [("stale", 3, 1), ("skipped", 1, 3), ("half_copied", 3, 1)])
def test_a_step_with_the_wrong_batch_fails(
    run_workload: RunWorkload, tmp_path: Path, fault: str, wrong: int, first: int
) -> None:
    ran = run_workload(_probe(tmp_path, fault), size_mebibytes=1, steps=4, repetitions=1)
    assert ran.exit_code == 1
    assert ran.result["verdict"] == "fail"
    assert f"pinned, two streams: {wrong} of 4 steps computed with wrong data" in ran.result["why"]
    assert f"the first is step {first}." in ran.result["why"]


@needs_torch
def test_the_cpu_has_nothing_to_copy(run_workload: RunWorkload) -> None:
    ran = run_workload("overlap")
    assert ran.exit_code == 3
    (error,) = ran.of("error")
    assert (
        error["text"] == "overlap measures copies that run while a GPU computes; on the CPU there is nothing to copy."
    )


@pytest.mark.parametrize(("step", "hidden"), [(2.0, 0.0), (1.5, 50.0), (1.0, 100.0), (2.5, 0.0), (0.9, 100.0)])
def test_the_hidden_share_of_the_copy(step: float, hidden: float) -> None:
    assert load_workload("overlap").hidden_percent(step, 1.0, 1.0) == pytest.approx(hidden)


def _judged(double: float, hidden: float) -> tuple[str, str]:
    overlap = load_workload("overlap")
    steps = dict(zip(overlap.CASES, (8e-3, 2e-3, 1.99e-3, double), strict=True))
    percent = dict(zip(overlap.CASES, (0.0, 0.0, 1.0, hidden), strict=True))
    verdict: tuple[str, str] = overlap.judge_overlap(Judge(), steps, percent, 1e-3)
    return verdict


def test_verdicts() -> None:
    kind, why = _judged(1.05e-3, 95)
    assert kind == "ok"
    assert "Two streams hide 95% of the copy, non_blocking=True on one stream 1% (1.99 ms)." in why
    assert "7.6x faster than pageable memory and 1.9x faster than pinned memory alone" in why
    kind, why = _judged(1.8e-3, 20)
    assert kind == "warn"
    assert "A second stream hides little of the copy here" in why
    kind, why = _judged(0.9e-3, 100)
    assert kind == "warn"
    assert "Faster than ideal is not possible" in why
