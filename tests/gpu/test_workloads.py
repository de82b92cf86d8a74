"""On a real GPU: every workload reaches a verdict and the performance of the chip, and leaves nothing behind.

Results are printed (``pytest -m gpu -n 0 -s``); the assertions leave room for other chips.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.test_live import status
from tests.processes import tree, wait_gone
from tests.terminal import Terminal
from tests.workloads.test_programs import PROGRAMS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240), pytest.mark.xdist_group("gpu")]

CONTEXT_BYTES = 1 << 30
"""More than the memory of a CUDA context."""
MIN_SHARE = 0.97
F5 = "\x1b[15~"
BARE_LOOP = """
import sys, torch
size, seconds = int(sys.argv[1]), float(sys.argv[2])
torch.manual_seed(1)
a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
out = torch.empty_like(a)
rates, done = [], 0.0
for _ in range(20): torch.mm(a, b, out=out)
torch.cuda.synchronize()
while done < seconds:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(100): torch.mm(a, b, out=out)
    end.record(); end.synchronize()
    took = start.elapsed_time(end) / 1e3
    done += took
    rates.append(100 * 2 * size**3 / took / 1e12)
print(sorted(rates)[len(rates) // 2])
"""


class WorkloadProcess:
    """A `gpumon run --json` process and its events."""

    def __init__(self, *argv: str) -> None:
        self.started = time.time()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpumon", "run", *argv, "--json"], stdout=subprocess.PIPE, text=True
        )
        self.events: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            yield self.events[-1]

    def finish(self) -> dict[str, Any]:
        """Read all events; returns the result."""
        for _ in self:
            pass
        self.process.wait(30)
        results = [event for event in self.events if event["event"] == "result"]
        assert results, self.events[-5:]
        return results[0]

    def first(self, *kinds: str) -> float:
        """Seconds from the start to the first event of some kinds."""
        return min(float(event["time_seconds"]) for event in self.events if event["event"] in kinds) - self.started

    def times(self) -> str:
        """Seconds to the events that a user waits for."""
        waits = {
            "hello": ("hello",),
            "plan": ("plan",),
            "first metric": ("metric", "timing", "result"),
            "end": ("bye",),
        }
        return ", ".join(f"{name} after {self.first(*kinds):.2f} s" for name, kinds in waits.items())


def metrics(result: dict[str, Any]) -> dict[str, float]:
    return {metric["name"]: metric["value"] for metric in result["figures"]}


def show(result: dict[str, Any]) -> None:
    print(f"\n{result['workload']} on {result['device']}: {result['verdict']}. {result['why']}")
    for metric in result["figures"]:
        limit = f" of {metric['limit']:.4g} ({metric['limit_source']})" if metric.get("limit") else ""
        print(f"  {metric['name']:32} {metric['value']:.5g} {metric['unit']}{limit}  n={metric['repetitions']}")


def used_bytes() -> list[int]:
    return [int(device["memory_used_bytes"]) for device in status()["devices"]]


def assert_memory_freed(before: list[int], seconds: float = 5) -> None:
    """The used memory of every GPU returns to its former value within ``seconds``."""
    deadline = time.monotonic() + seconds
    while (after := used_bytes()) != before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert all(abs(now - then) <= 4 << 20 for now, then in zip(after, before, strict=True)), (before, after)


@pytest.fixture(autouse=True)
def separate_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bandwidth", []),
        ("sync", []),
        ("oom", []),
        ("fragmentation", []),
        ("launch", []),
        ("transfer", []),
        ("inference", []),
        ("kernel", []),
        ("gradients", []),
        ("interop", []),
        ("compare", []),
    ],
)
def test_a_workload_reaches_a_verdict_and_frees_its_memory(name: str, settings: list[str]) -> None:
    before = used_bytes()
    workload = WorkloadProcess(name, *settings)
    result = workload.finish()
    show(result)
    print(f"  {workload.times()}")
    assert result["verdict"] in {"ok", "warn"}
    assert workload.process.returncode == 0
    assert_memory_freed(before)


def test_inference_gains_on_the_gpu() -> None:
    result = WorkloadProcess("inference").finish()
    assert result["verdict"] == "ok", result
    table = {(metric["case"], metric["name"]): metric["value"] for metric in result["figures"]}
    assert table["bf16, CUDA graph", "latency_p50"] < table["with gradients", "latency_p50"]
    assert table["bf16, batch 32", "throughput"] > 2 * table["bf16", "throughput"]


def test_a_kernel_race_is_caught_and_sums_are_right() -> None:
    result = WorkloadProcess("kernel").finish()
    table = {(metric["case"], metric["name"]): metric["value"] for metric in result["figures"]}
    assert table["reverse_with_sync", "wrong_elements"] == 0
    assert table["reverse_without_sync", "wrong_elements"] > 0
    assert table["sum_shuffle", "sum"] > table["sum_atomic", "sum"]
    assert sum(name == "step" for _, name in table) == 5


def test_interop_shares_memory_with_cupy() -> None:
    pytest.importorskip("cupy")
    result = WorkloadProcess("interop").finish()
    views = {metric["case"]: metric["value"] for metric in result["figures"] if metric["name"] == "view"}
    copy = next(metric["value"] for metric in result["figures"] if metric["case"] == "copy to the host")
    assert views["cupy, DLPack"] < copy / 10


def test_compare_finds_where_the_gpu_wins() -> None:
    result = WorkloadProcess("compare").finish()
    from_elements = {metric["case"] for metric in result["figures"] if metric["name"] == "from_elements"}
    assert {"matrix product", "sort", "softmax"} <= from_elements


def test_matmul_is_as_fast_as_a_bare_loop() -> None:
    before = used_bytes()
    seconds = "6"
    bare = [bare_rate(seconds)]
    workload = WorkloadProcess("matmul", "--set", f"duration={seconds}")
    result = workload.finish()
    bare.append(bare_rate(seconds))
    show(result)
    share = metrics(result)["throughput"] / (sum(bare) / len(bare))
    print(f"  bare loop {bare[0]:.1f} and {bare[1]:.1f} TFLOP/s; share {share:.4f}; {workload.times()}")
    assert result["verdict"] in {"ok", "warn"}
    assert share > MIN_SHARE
    assert {"sm_clock", "power", "temperature"} <= set(metrics(result))
    assert_memory_freed(before)


def bare_rate(seconds: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", BARE_LOOP, "8192", seconds], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "tf32", "fp16", "fp8", "int8"])
def test_matmul_in_every_type(dtype: str) -> None:
    result = WorkloadProcess("matmul", "--set", f"dtype={dtype}", "--set", "duration=2").finish()
    show(result)
    assert result["verdict"] in {"ok", "warn"}


def test_a_wrong_result_is_detected() -> None:
    workload = WorkloadProcess("matmul", "--set", "inject_error=yes", "--set", "duration=2")
    result = workload.finish()
    show(result)
    assert result["verdict"] == "fail"
    assert metrics(result)["wrong_elements"] >= 1
    assert workload.process.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(number: signal.Signals) -> None:
    before = used_bytes()
    workload = WorkloadProcess("matmul", "--set", "duration=60", "--set", "size=16384")
    for event in workload:
        if event["event"] == "metric":
            break
    pids = tree(workload.process.pid)
    assert max(now - then for now, then in zip(used_bytes(), before, strict=True)) > CONTEXT_BYTES
    stopped = time.monotonic()
    workload.process.send_signal(number)
    assert all(wait_gone(pid, 5) for pid in pids[1:])
    workload.process.wait(10)
    print(f"\ngone {time.monotonic() - stopped:.2f} s after {number.name}")
    assert_memory_freed(before)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_to_copy_runs_on_a_gpu(program: Path, tmp_path: Path) -> None:
    command = [os.environ.get("GPUMON_TEST_PYTHON", sys.executable), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path)
    print(f"\n{program.stem}:\n{done.stdout}")
    assert (done.returncode == 0 and done.stdout) or done.stderr.endswith("Needs cupy.\n"), done.stderr


def test_a_run_in_the_screen(tmp_path: Path) -> None:
    """The screens in a real terminal: workloads, the form, a run with metrics of its GPU, its result and its marks."""
    before = used_bytes()
    with Terminal([sys.executable, "-m", "gpumon"], dict(os.environ), rows=50, cols=160) as terminal:
        terminal.wait_for(r"\d+%", 30)
        terminal.send("5")
        terminal.wait_for("Purpose", 30)
        while not re.search(r"▸matmul", terminal.screen()):
            terminal.send("j")
            time.sleep(0.2)
        pages = [terminal.screen()]
        terminal.send("\r")
        terminal.wait_for("memory_percent", 10)
        pages.append(terminal.screen())
        terminal.send(F5)
        terminal.wait_for("TFLOP/s", 60)
        time.sleep(8)
        pages.append(terminal.screen())
        terminal.wait_for(r"(OK|!WARN\w*) +bf16", 60)
        pages.append(terminal.screen())
        for _ in range(3):
            terminal.send("\x1b")
            time.sleep(1)
            pages.append(terminal.screen())
        terminal.send("\r")
        terminal.wait_for(r"All values", 10)
        time.sleep(4)
        pages.append(terminal.screen())
        terminal.send("q")
        assert terminal.wait_exit() == 0
    out = Path(os.environ.get("OUT", tmp_path))
    (out / "screens.txt").write_text("\n\n".join(pages))
    assert_memory_freed(before)
