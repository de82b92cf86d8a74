"""Traces that torch.profiler writes, on the CPU."""

import subprocess
from pathlib import Path

import pytest

from gpumon.traces.reader import read
from tests.workloads.conftest import needs_torch, torch_python

TRAINING = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader

net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = torch.optim.AdamW(net.parameters())
loader = DataLoader(torch.randn(160, 256), batch_size=16)
steps = "steps" in sys.argv
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=6, repeat=1) if steps else None,
    with_stack="stack" in sys.argv,
    on_trace_ready=lambda p: p.export_chrome_trace(sys.argv[1]),
) as profiler:
    for batch in loader:
        optimizer.zero_grad()
        net(batch).pow(2).mean().backward()
        optimizer.step()
        profiler.step()
"""


def recorded(path: Path, *options: str) -> Path:
    script = path.with_name("train.py")
    script.write_text(TRAINING)
    subprocess.run([torch_python(), str(script), str(path), *options], check=True, capture_output=True, timeout=100)
    return path


@pytest.mark.sampled(1)
@needs_torch
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_steps_of_the_profiler(name: str, tmp_path: Path) -> None:
    trace = read(recorded(tmp_path / name, "steps")).trace
    assert "ProfilerStep" in trace.step_source
    assert len(trace.steps) == 6
    assert sum(item.time_ns for item in trace.classes) == trace.step_ns
    assert trace.class_time("cpu_matmul").time_ns > 0
    assert trace.class_time("data").time_ns > 0
    assert any(total.name == "aten::addmm" and total.count == 12 for total in trace.totals)
    assert "no work on a GPU" in trace.problems[0]


@needs_torch
def test_without_a_schedule_the_optimizer_gives_the_steps(tmp_path: Path) -> None:
    trace = read(recorded(tmp_path / "trace.json")).trace
    assert "optimizer" in trace.step_source or "ProfilerStep" in trace.step_source
    assert sum(item.time_ns for item in trace.classes) == trace.step_ns


@needs_torch
def test_lines_of_the_program(tmp_path: Path) -> None:
    trace = read(recorded(tmp_path / "trace.json", "steps", "stack")).trace
    lines = {part.line for item in trace.classes for part in item.top}
    assert any("train.py(" in line for line in lines)
