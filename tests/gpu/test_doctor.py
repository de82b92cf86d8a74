"""The doctor on a real host: a working driver passes its checks, and no GPU memory is left in use."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from gpumon.operations.one_shot import sample_frame
from tests.workloads.conftest import TORCH_PYTHON, needs_torch

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("gpu")]

SETTLING_SECONDS = 10.0


def checks(*options: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "gpumon", "doctor", "--json", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    return {check["id"]: check for check in json.loads(done.stdout)["checks"]}


def used_bytes() -> list[float | None]:
    return [device.get("memory_used_bytes") for device in sample_frame().gpus]


def test_a_working_driver_passes() -> None:
    results = checks()
    for name in ("loaded", "nvml", "cuda", "nodes", "cgroup"):
        assert results[f"driver.{name}"]["status"] == "ok", results[f"driver.{name}"]
    assert results["driver.versions"]["status"] in {"ok", "skip"}
    assert results["gpu.answers"]["status"] == "ok"


@needs_torch
def test_torch_computes_and_frees_its_memory() -> None:
    assert TORCH_PYTHON is not None
    before = used_bytes()
    results = checks("--python", TORCH_PYTHON)
    for name in ("torch", "cuda", "driver", "architectures", "available", "devices", "kernel", "cublas", "cudnn"):
        assert results[f"python1.{name}"]["status"] == "ok", results[f"python1.{name}"]
    deadline = time.monotonic() + SETTLING_SECONDS
    while used_bytes() != before and time.monotonic() < deadline:
        time.sleep(0.5)
    assert used_bytes() == before


@needs_torch
def test_hidden_gpus_are_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert TORCH_PYTHON is not None
    results = checks("--python", TORCH_PYTHON)
    assert results["environment.visible_devices"]["status"] == "fail"
    assert results["python1.available"]["status"] == "fail"
    assert results["driver.cuda"]["status"] == "ok", "the driver itself works"


@needs_torch
@pytest.mark.parametrize(("level", "seconds"), [("1", 2.0), ("2", 90.0)])
def test_a_healthy_node_may_take_a_job(level: str, seconds: float) -> None:
    command = [sys.executable, "-m", "gpumon", "check", "-r", level, "--json", "--python", str(TORCH_PYTHON)]
    began = time.monotonic()
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    took = time.monotonic() - began
    document = json.loads(done.stdout)
    wrong = [check for check in document["checks"] if check["status"] in {"warn", "fail"}]
    assert [check for check in wrong if not check["id"].startswith("host.")] == []
    assert took <= seconds
    if level == "2":
        assert {"gpu.matmul", "gpu.transfer"} <= {
            check["id"] for check in document["checks"] if check["status"] == "ok"
        }


@needs_torch
@pytest.mark.timeout(300)
def test_a_free_node_passes_all_levels_of_the_check() -> None:
    assert TORCH_PYTHON is not None
    command = [
        sys.executable,
        "-m",
        "gpumon",
        "check",
        "--json",
        "-r",
        "3",
        "--max-time",
        "2m",
        "--python",
        TORCH_PYTHON,
    ]
    started = time.monotonic()
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    document = json.loads(done.stdout)
    results = {check["id"]: check for check in document["checks"]}
    for name in ("matmul", "transfer", "burn"):
        assert results[f"gpu.{name}"]["status"] == "ok", document["summary"]
    assert results["gpu.collectives"]["status"] in {"ok", "skip"}, document["summary"]
    assert time.monotonic() - started < 150
