"""The amp workload, on the CPU: distances from fp32, overflows that happened, and precisions that are not in effect."""

from pathlib import Path
from types import SimpleNamespace

from tests.workloads.conftest import Ran, RunWorkload, load_workload, needs_torch, probe_of

pytestmark = needs_torch

_TINY = {"model": "mlp", "model_size": "tiny", "batch_size": 4, "duration": 0.05, "steps": 3}
_PROBE = "from _kit import training\nFAULT" + probe_of("amp")


def run_probe(run_workload: RunWorkload, tmp_path: Path, fault: str) -> Ran:
    """Runs amp after a change to the training kit."""
    probe = tmp_path / "probe.py"
    probe.write_text(_PROBE.replace("FAULT", fault))
    return run_workload(probe, **_TINY)


def test_each_precision_with_its_distance_from_fp32(run_workload: RunWorkload) -> None:
    ran = run_workload("amp", **_TINY)
    assert ran.result["verdict"] == "ok", ran.result
    table = {(result["case"], result["name"]): result["value"] for result in ran.result["figures"]}
    assert table["fp32", "loss_difference"] == table["fp32", "gradient_difference"] == 0
    assert 0.01 < table["bf16", "gradient_difference"] < 5
    assert 0 < table["bf16", "loss_difference"] < 5
    assert ("tf32", "samples") not in table
    assert "TF32 is a format of GPUs" in ran.result["why"]
    assert ran.result["why"].startswith(("Use ", "Stay with fp32"))
    if ("fp16", "samples") in table:
        assert table["fp16", "gradient_difference"] < table["bf16", "gradient_difference"]
        overflows = table["fp16", "provoked_overflows"]
        assert overflows >= 1
        assert table["fp16", "working_scale_exponent"] == 40 - overflows
        assert f"from 2^40 the GradScaler skipped {overflows:.0f} steps" in ran.result["why"]


def test_a_difference_within_the_spread_of_the_runs_is_noise() -> None:
    amp = load_workload("amp")

    def why(fp32: list[float], bf16: list[float]) -> str:
        measured = SimpleNamespace(peak_bytes=None)
        rows = [amp._Row(name, measured, 0.0, 0.1, speeds) for name, speeds in (("fp32", fp32), ("bf16", bf16))]
        return str(amp._judge(SimpleNamespace(ok=str), rows, []))

    assert why([3.9, 6.1, 7.6], [7.7, 8.4, 9.2]).startswith("Stay with fp32: bf16 computed 7.7 to 9.2 samples/s")
    assert why([6.0, 6.1, 6.2], [8.3, 8.4, 8.5]).startswith("Use bf16: 1.38x faster than fp32 (8.3 to 8.5 samples/s, ")


def test_autocast_that_is_not_in_effect_fails(run_workload: RunWorkload, tmp_path: Path) -> None:
    ran = run_probe(run_workload, tmp_path, "training.half_type = lambda torch, precision: None")
    assert ran.result["verdict"] == "fail"
    assert "computed the same gradients as fp32, so it was not in effect." in ran.result["why"]


def test_a_scaler_that_does_not_skip_fails(run_workload: RunWorkload, tmp_path: Path) -> None:
    fault = """
original = training._scaler
def scaler(torch, device, options):
    return original(torch, device, training.StepOptions("fp32"))
training._scaler = scaler
"""
    ran = run_probe(run_workload, tmp_path, fault)
    if any(result["case"] == "fp16" for result in ran.result["figures"]):
        assert ran.result["verdict"] == "fail"
        assert "fp16: a loss scale of 2^40 did not overflow." in ran.result["why"]
