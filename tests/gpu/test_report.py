"""On a real GPU: the report of a small training that is healthy, becomes slow, or is killed, and its energy."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240), pytest.mark.xdist_group("gpu")]

REPOSITORY = Path(__file__).parents[2]
SECONDS = 60.0
MAX_ENERGY_ERROR = 0.01
TRAINING = """
import sys, time, torch
layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, device="cuda")
model = torch.nn.TransformerEncoder(layer, 6)
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(32, 256, 1024, device="cuda")
start = time.monotonic()
while (passed := time.monotonic() - start) < float(sys.argv[1]):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    if passed > float(sys.argv[2]):
        time.sleep(0.1)
print("done", flush=True)
"""


def counter_joules() -> float:
    """NVML's energy counter of GPU 0, read without gpumon."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    assert library.nvmlInit_v2() == 0
    device, value = ctypes.c_void_p(), ctypes.c_ulonglong()
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
    assert library.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(value)) == 0
    return value.value / 1000


def start(folder: Path, slow_after: float, seconds: float = SECONDS) -> "subprocess.Popen[bytes]":
    (folder / "train.py").write_text(TRAINING)
    python = os.environ.get("GPUMON_TEST_PYTHON", sys.executable)
    command = [python, str(folder / "train.py"), str(seconds), str(slow_after)]
    return subprocess.Popen(
        [sys.executable, "-m", "gpumon", "watch", "--report", str(folder / "run"), "--", *command],
        cwd=REPOSITORY,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"},
    )


def report(folder: Path) -> dict[str, Any]:
    page = (folder / "run" / "report.html").read_text()
    assert len(page) < 1 << 20
    document: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    print("\n".join(document["verdict"]))
    return document


def test_a_healthy_training_and_its_energy(tmp_path: Path) -> None:
    before = counter_joules()
    assert start(tmp_path, slow_after=1e9).wait() == 0
    joules = counter_joules() - before
    document = report(tmp_path)
    (gpu,) = document["gpus"]
    assert gpu["energy_source"] == "counter"
    assert gpu["energy_joules"] == pytest.approx(joules, rel=MAX_ENERGY_ERROR)
    assert document["exit_status"] == 0
    assert document["ranks"][0]["steps_count"] > 100
    assert document["ranks"][0]["peak_allocated_bytes"] > 1 << 28
    drift = document["drift"]
    assert drift is None or not drift["is_shown"] or abs(drift["change"]) < 0.05


def test_a_phase_that_is_slow_is_shown(tmp_path: Path) -> None:
    """A drift needs 80 s: each third of the run, without its warm-up, has blocks of three seconds."""
    assert start(tmp_path, slow_after=45.0, seconds=90.0).wait() == 0
    document = report(tmp_path)
    assert document["drift"]["is_shown"]
    assert document["drift"]["change"] > 0.2
    assert "slower" in " ".join(document["verdict"])


def test_a_training_that_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path, slow_after=1e9, seconds=600.0)
    time.sleep(45)
    children = subprocess.run(["pgrep", "-P", str(process.pid), "-f", "train.py"], capture_output=True, check=True)
    os.kill(int(children.stdout.split()[0]), signal.SIGKILL)
    assert process.wait() == 128 + signal.SIGKILL
    document = report(tmp_path)
    assert document["exit_status"] == -signal.SIGKILL
    assert "Ended by SIGKILL after step" in document["verdict"][-1]
    assert document["totals"]["energy_kwh"] > 0
