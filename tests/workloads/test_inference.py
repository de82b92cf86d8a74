"""The inference workload, on the CPU."""

from pathlib import Path

from tests.workloads.conftest import RunWorkload, needs_torch, probe_of

pytestmark = needs_torch

_TINY = {"model": "mlp", "model_size": "tiny", "batch_size": 4, "duration": 0.05}


def test_latency_percentiles_and_throughput(run_workload: RunWorkload) -> None:
    ran = run_workload("inference", **_TINY)
    assert ran.result["verdict"] == "ok"
    table = {(result["case"], result["name"]): result["value"] for result in ran.result["figures"]}
    cases = ("with gradients", "inference_mode", "bf16", "bf16, batch 4")
    assert {case for case, _ in table} == set(cases)
    assert all(table[case, "latency_p50"] <= table[case, "latency_p99"] for case in cases)
    assert "For throughput, collect requests: bf16, batch 4" in ran.result["why"]


def test_outputs_that_differ_fail(run_workload: RunWorkload, tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    fault = """
original = inference.forward
def forward(torch, module, batch, variant):
    call = original(torch, module, batch, variant)
    return lambda: call() + (10 if variant.precision == "bf16" else 0)
inference.forward = forward
"""
    probe.write_text(probe_of("inference") + fault)
    ran = run_workload(probe, **_TINY)
    assert ran.result["verdict"] == "fail"
    assert ran.result["why"].startswith("bf16: the outputs differ from those of fp32")
