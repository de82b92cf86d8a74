"""Complete examinations on stand-in hosts: a hang or crash costs only its own checks, and the end comes in time."""

import os
import time
from pathlib import Path

import pytest

from gpumon.health.checks import Check, Status
from gpumon.health.doctor.rules import CHECK_IDS
from gpumon.operations.doctor import examination
from gpumon.operations.doctor.examination import DoctorOptions, Examination
from tests.health.doctor_facts import program
from tests.nvml_mock import NvmlMock
from tests.processes import tree, wait_gone

PATIENCE_SECONDS = 60.0


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A program that answers as a Python without torch."""
    body = 'emit(step="python", answer={"has_torch": False}); emit(end=True)'
    return str(program(tmp_path / "python", body))


def examine(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], python: str) -> dict[str, Check]:
    """The checks of a host with this environment."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run = Examination(DoctorOptions(python=python))
    run.start()
    try:
        return {check.id: check for check in run.wait()}
    finally:
        run.close()


def test_a_machine_that_answers(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str) -> None:
    result = examine(monkeypatch, nvml_mock.environment(gpus=3), bare)
    assert list(result) == list(CHECK_IDS)
    assert result["driver.nvml"].detail.startswith("3 GPUs")
    for name in ("answers", "persistence", "ecc", "row_remap", "slowdown", "mig", "compute_mode", "unowned_memory"):
        assert result[f"gpu.{name}"].status is Status.OK, result[f"gpu.{name}"]
    assert result["python.found"].status is Status.FAIL
    assert "torch is not installed" in result["python.found"].detail


def test_a_driver_that_hangs(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str) -> None:
    monkeypatch.setattr(examination, "_FRAME_SECONDS", 3.0)
    began = time.monotonic()
    result = examine(monkeypatch, nvml_mock.environment(gpus=2, fault="hangall"), bare)
    assert time.monotonic() - began < PATIENCE_SECONDS
    assert result["driver.nvml"].status is Status.FAIL
    assert "does not respond" in result["driver.nvml"].detail
    assert "python.found" in result, "the others were not held up"


def test_one_gpu_that_hangs_and_one_that_is_lost(
    nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str
) -> None:
    monkeypatch.setattr(examination, "_FRAME_SECONDS", 5.0)
    result = examine(monkeypatch, nvml_mock.environment(gpus=3, fault="lost:1"), bare)
    assert result["gpu.answers"].status is Status.FAIL
    assert "GPU 1 is lost" in result["gpu.answers"].detail
    assert result["gpu.ecc"].status is Status.OK, "the others are judged"


def test_a_python_that_hangs_is_a_failed_check(
    nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(examination, "_PYTHON_SECONDS", 2.0)
    path = tmp_path / "slow"
    path.write_text("#!/bin/sh\nsleep 1000\n")
    path.chmod(0o755)
    check = examine(monkeypatch, nvml_mock.environment(gpus=1), str(path))["python.found"]
    assert check.status is Status.FAIL
    assert "no answer within 2 s" in check.detail


def test_a_gatherer_that_never_returns_is_left_behind(
    nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str
) -> None:
    monkeypatch.setattr(examination, "_FILE_SECONDS", 0.5)
    monkeypatch.setattr(examination, "kernel_errors", lambda _: time.sleep(PATIENCE_SECONDS))
    result = examine(monkeypatch, nvml_mock.environment(gpus=1), bare)
    assert result["gpu.xid"].status is Status.SKIP
    assert "did not answer within" in result["gpu.xid"].detail


def test_closing_ends_its_children(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, mark = tmp_path / "slow", tmp_path / "pid"
    path.write_text(f"#!/bin/sh\necho $$ > {mark}.new && mv {mark}.new {mark}\nsleep 1000\n")
    path.chmod(0o755)
    for name, value in nvml_mock.environment(gpus=1).items():
        monkeypatch.setenv(name, value)
    run = Examination(DoctorOptions(python=str(path)))
    run.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    run.close()
    assert run.is_over
    assert wait_gone(int(mark.read_text()), PATIENCE_SECONDS)
    assert all(wait_gone(pid, PATIENCE_SECONDS) for pid in tree(os.getpid())[1:] if "_doctor.py" in _command(pid))


def test_a_check_that_fails_itself_costs_itself(
    nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str
) -> None:
    huge = {"OMP_NUM_THREADS": "9" * 5000}
    result = examine(monkeypatch, nvml_mock.environment(gpus=1) | huge, bare)
    assert list(result) == list(CHECK_IDS)
    assert result["environment.threads"].status is Status.WARN
    assert "failed: ValueError" in result["environment.threads"].detail


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
