"""On a real GPU: the training workloads measure what a bare script measures, survive real errors, and compare."""

import subprocess
import sys

import pytest

from tests.gpu.test_workloads import WorkloadProcess, assert_memory_freed, metrics, show, used_bytes
from tests.workloads.conftest import WORKLOADS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240), pytest.mark.xdist_group("gpu")]

MAX_DIFFERENCE = 0.02
BARE_STEP = f"""
import runpy, time, torch
runpy.run_path({str(WORKLOADS / "_run.py")!r})["_provide_kit"]()
from _kit import models
model = models.build(torch, "transformer", "base")
module = model.module.cuda()
optimizer = torch.optim.Adam(module.parameters(), lr=1e-4)
inputs, targets = (tensor.pin_memory() for tensor in model.make_batch(32, 0))
def steps(count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        x, y = inputs.cuda(non_blocking=True), targets.cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model.loss(module(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    return time.perf_counter() - start
steps(5)
once = steps(5) / 5
count = max(1, int(5 / once))
print(model.step_flops * 32 * count / steps(count) / 1e12)
"""


def settings(**parameters: object) -> list[str]:
    """The parameters as options of the command."""
    return [word for name, value in parameters.items() for word in ("--set", f"{name}={value}")]


def run(name: str, **parameters: object) -> tuple[dict[str, object], dict[str, dict[str, float]], WorkloadProcess]:
    """The result of a workload, its values by case, and its process."""
    workload = WorkloadProcess(name, *settings(**parameters))
    result = workload.finish()
    show(result)
    print(f"  {workload.times()}")
    table: dict[str, dict[str, float]] = {}
    for value in result["figures"]:
        table.setdefault(value.get("case", ""), {})[value["name"]] = value["value"]
    return result, table, workload


def bare_rate() -> float:
    done = subprocess.run([sys.executable, "-c", BARE_STEP], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_train_is_as_fast_as_a_bare_script() -> None:
    before = used_bytes()
    bare = [bare_rate()]
    workload = WorkloadProcess("train", *settings(model="transformer", precision="bf16", batch_size=32))
    result = workload.finish()
    bare.append(bare_rate())
    show(result)
    ratio = metrics(result)["throughput"] / (sum(bare) / len(bare))
    print(f"  bare script {bare[0]:.1f} and {bare[1]:.1f} TFLOP/s; ratio {ratio:.4f}; {workload.times()}")
    assert result["verdict"] in {"ok", "warn"}
    assert abs(ratio - 1) < MAX_DIFFERENCE
    assert_memory_freed(before)


@pytest.mark.parametrize("model", ["cnn", "rnn", "lstm", "gru", "transformer", "mlp"])
def test_every_model_trains_in_every_precision(model: str) -> None:
    result, table, _ = run("train", model=model, compare="precision", batch_size=8, duration=0.5)
    assert result["verdict"] in {"ok", "warn"}
    assert set(table) >= {"fp32", "tf32", "fp16", "bf16"}
    for precision in ("fp32", "tf32", "fp16", "bf16"):
        assert min(table[precision][part] for part in ("data", "forward", "backward", "optimizer")) > 0
        assert table[precision]["peak_memory"] > 0


def test_a_gpu_is_compared_with_the_cpu() -> None:
    result, table, _ = run("train", model="cnn", model_size="small", compare="device", duration=1)
    assert result["verdict"] in {"ok", "warn"}
    assert {"cpu, fp32", "cpu, bf16", "gpu"} <= set(table)
    assert table["gpu"]["speed_up"] > 1
    assert str(result["why"]).startswith("Train on the GPU, ")


def test_compiled_is_compared_with_eager() -> None:
    """Without a C compiler, the compiled variant is a sentence."""
    result, table, _ = run("train", model="mlp", compare="compile", duration=2)
    assert result["verdict"] in {"ok", "warn"}
    assert "eager" in table
    assert "compiled" in table or "torch.compile failed" in str(result["why"])


def test_batch_goes_on_after_running_out_of_memory() -> None:
    before = used_bytes()
    result, table, workload = run("batch", model="cnn", memory_percent=3, duration=0.5)
    assert result["verdict"] in {"ok", "warn"}
    (plan,) = [event for event in workload.events if event["event"] == "plan"]
    errors = [event for event in workload.events if event["event"] == "error"]
    largest = table[""]["largest"]
    assert 1 <= len(errors) == table[""]["out_of_memory"]
    assert all(event["expected"] and "out of memory" in event["text"] for event in errors)
    assert largest >= 8
    assert table[f"batch {largest:.0f}"]["peak_memory"] * 2**20 <= plan["uses"]["memory_bytes"] * 1.01
    sizes = [int(case.split()[1]) for case in table if case]
    assert sizes == sorted(sizes)
    assert "recovered from" in str(result["why"])
    assert_memory_freed(before)


def test_amp_is_plausible() -> None:
    result, table, _ = run("amp")
    assert result["verdict"] in {"ok", "warn"}
    assert set(table) >= {"fp32", "tf32", "fp16", "bf16"}
    assert table["bf16"]["samples"] > 1.5 * table["fp32"]["samples"]
    assert table["tf32"]["samples"] > 1.2 * table["fp32"]["samples"]
    assert table["bf16"]["peak_memory"] < table["fp32"]["peak_memory"]
    assert 0 < table["tf32"]["gradient_difference"] < table["bf16"]["gradient_difference"] < 20
    assert table["bf16"]["loss_difference"] < 5
    assert table["fp16"]["provoked_overflows"] >= 1
