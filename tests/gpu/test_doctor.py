"""The doctor on a real machine: what it finds well there is well, and it leaves nothing on the GPUs."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from gpumon.operations.status import look
from tests.workloads.conftest import TORCH_PYTHON, needs_torch

pytestmark = pytest.mark.gpu

SETTLING_SECONDS = 10.0


def checks(*options: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "gpumon", "doctor", "--json", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    return {each["id"]: each for each in json.loads(done.stdout)["checks"]}


def used_bytes() -> list[float | None]:
    return [device.get("memory_used_bytes") for device in look().gpus]


def test_a_driver_that_works_is_found_well() -> None:
    found = checks()
    for name in ("loaded", "nvml", "cuda", "nodes", "cgroup"):
        assert found[f"driver.{name}"]["status"] == "ok", found[f"driver.{name}"]
    assert found["driver.versions"]["status"] in {"ok", "skip"}
    assert found["gpu.answers"]["status"] == "ok"


@needs_torch
def test_torch_computes_and_gives_everything_back() -> None:
    assert TORCH_PYTHON is not None
    before = used_bytes()
    found = checks("--python", TORCH_PYTHON)
    for name in ("torch", "cuda", "driver", "architectures", "available", "devices", "kernel", "cublas", "cudnn"):
        assert found[f"python1.{name}"]["status"] == "ok", found[f"python1.{name}"]
    deadline = time.monotonic() + SETTLING_SECONDS
    while used_bytes() != before and time.monotonic() < deadline:
        time.sleep(0.5)
    assert used_bytes() == before


@needs_torch
def test_hidden_gpus_are_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert TORCH_PYTHON is not None
    found = checks("--python", TORCH_PYTHON)
    assert found["environment.visible_devices"]["status"] == "fail"
    assert found["python1.available"]["status"] == "fail"
    assert found["driver.cuda"]["status"] == "ok", "the driver itself is well"
