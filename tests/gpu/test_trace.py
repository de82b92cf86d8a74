"""On a real GPU: `gpumon trace` finds the planted cause in a trace of torch.profiler, and accuses no healthy step.

Accounts are printed (``pytest -m gpu -n 0 -s``).
"""

import subprocess
from pathlib import Path

import pytest

from gpumon.core.step_classes import DATA, HOST, LABELS, SIMT, SYNC, TENSOR
from gpumon.insight.bottlenecks.slowness_verdict import judge_traces
from gpumon.traces.model import Trace
from gpumon.traces.reader import read
from tests.workloads.conftest import TORCH_PYTHON

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120), pytest.mark.xdist_group("gpu")]

_TRAINING = """
import sys, time, torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader

sick = sys.argv[2]
torch.cuda.set_per_process_memory_fraction(min(1.0, 4e9 / torch.cuda.get_device_properties(0).total_memory))
width, batch, layers = (64, 32, 60) if sick == "small" else (4096, 4096, 8)
kind = torch.float32 if sick == "fp32" else torch.bfloat16
torch.set_float32_matmul_precision("highest")
net = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)]).to("cuda", kind)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
batches = [torch.randn(batch, width, device="cuda", dtype=kind) for _ in range(2)]

def step(number):
    if sick == "item":
        for layer in net:  # waits for the GPU, and then has nothing queued
            for _ in range(4):
                layer(batches[0]).float().mean().item()
    optimizer.zero_grad()
    net(batches[number % 2]).pow(2).mean().backward()
    optimizer.step()

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        if sick == "loader":
            time.sleep(0.05)
        return index

for number in range(3):
    step(number)
torch.cuda.synchronize()
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=1, warmup=2, active=6, repeat=1),
    on_trace_ready=lambda p: p.export_chrome_trace(sys.argv[1]),
) as profiler:
    for number, _ in zip(range(10), DataLoader(Slow(), batch_size=1)):
        step(number)
        if sick == "loader":
            torch.cuda.synchronize()
        profiler.step()
"""


def traced(sick: str, path: Path) -> Trace:
    """The trace of a small training run with a planted fault."""
    assert TORCH_PYTHON is not None
    script = path.with_name("train.py")
    script.write_text(_TRAINING)
    subprocess.run([TORCH_PYTHON, str(script), str(path), sick], check=True, capture_output=True, timeout=100)
    trace = read(path).trace
    print(f"\n{sick}: {judge_traces([trace])[0].summary}")
    for item in trace.classes:
        print(f"  {LABELS[item.name]:<30} {item.time_ns / 1e6:8.3f} ms  {[part.name[:60] for part in item.top[:3]]}")
    assert sum(item.time_ns for item in trace.classes) == trace.step_ns
    assert len(trace.steps) == 6
    assert trace.device is not None
    return trace


@pytest.mark.parametrize(("sick", "cause"), [("loader", DATA), ("item", SYNC), ("small", HOST), ("fp32", SIMT)])
def test_the_planted_cause(sick: str, cause: str, tmp_path: Path) -> None:
    (verdict,) = judge_traces([traced(sick, tmp_path / "trace.json.gz")])
    assert verdict.is_decided
    assert verdict.causes[0].name == cause


def test_a_healthy_step(tmp_path: Path) -> None:
    trace = traced("healthy", tmp_path / "trace.json")
    (verdict,) = judge_traces([trace])
    assert verdict.is_decided
    assert verdict.causes == ()
    assert trace.class_time(TENSOR).time_ns > 0.5 * trace.step_ns
