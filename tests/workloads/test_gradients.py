"""The gradients workload, on the CPU."""

from tests.workloads.conftest import RunWorkload, needs_torch


@needs_torch
def test_gradients_vanish_and_explode_and_are_cured(run_workload: RunWorkload) -> None:
    ran = run_workload("gradients", depth=10, width=32, steps=10)
    assert ran.result["verdict"] == "ok", ran.result
    norms = {
        name: [value["value"] for value in ran.result["figures"] if value["name"] == f"gradient_{name}"]
        for name in ("vanishing", "exploding", "initialization", "normalization", "residual", "clipping")
    }
    assert all(len(layers) == 10 for layers in norms.values())
    assert norms["vanishing"][0] < 1e-4 * norms["vanishing"][-1]
    assert norms["exploding"][0] > 100 * norms["exploding"][-1]
    assert 0.1 < norms["initialization"][0] / norms["initialization"][-1] < 10
    assert ran.metric("loss_residual")["value"] < ran.metric("loss_exploding")["value"]
