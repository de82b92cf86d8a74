"""An examination as a whole, on stand-in machines: what hangs or crashes costs its own checks, and it ends in time."""

import os
import threading
import time
from pathlib import Path

import pytest

from gpumon.diagnosis.checks import Check, Status
from gpumon.diagnosis.doctor.rules import CHECK_IDS
from gpumon.operations.doctor import examination
from gpumon.operations.doctor.examination import Examination, Wish
from tests.diagnosis.doctor_facts import program
from tests.nvml_mock import NvmlMock
from tests.processes import tree, wait_gone

PATIENCE_SECONDS = 60.0


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A program that answers as a Python without torch."""
    body = 'tell(step="python", answer={"has_torch": False}); tell(end=True)'
    return str(program(tmp_path / "python", body))


def examine(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], python: str) -> dict[str, Check]:
    """The checks of a machine with this environment."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run = Examination(Wish(python=python))
    run.start()
    try:
        return {check.id: check for check in run.wait()}
    finally:
        run.close()


def test_a_machine_that_answers(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str) -> None:
    found = examine(monkeypatch, nvml_mock.environment(gpus=3), bare)
    assert list(found) == list(CHECK_IDS)
    assert found["driver.nvml"].detail.startswith("3 GPUs")
    for name in ("answers", "persistence", "ecc", "row_remap", "slowdown", "mig", "compute_mode", "unowned_memory"):
        assert found[f"gpu.{name}"].status is Status.OK, found[f"gpu.{name}"]
    assert found["python.found"].status is Status.FAIL
    assert "has no torch" in found["python.found"].detail


def test_a_machine_without_a_driver(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str) -> None:
    found = examine(monkeypatch, nvml_mock.environment_without_library(), bare)
    assert found["driver.nvml"].status is Status.FAIL
    assert "libnvidia-ml.so.1" in found["driver.nvml"].detail
    assert {found[check_id].status for check_id in CHECK_IDS if check_id.startswith("gpu.")} <= {Status.SKIP, Status.OK}


def test_a_driver_that_hangs(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str) -> None:
    monkeypatch.setattr(examination, "_FRAME_SECONDS", 3.0)
    began = time.monotonic()
    found = examine(monkeypatch, nvml_mock.environment(gpus=2, fault="hangall"), bare)
    assert time.monotonic() - began < PATIENCE_SECONDS
    assert found["driver.nvml"].status is Status.FAIL
    assert "does not answer" in found["driver.nvml"].detail
    assert "python.found" in found, "the others were not held up"


def test_one_gpu_that_hangs_and_one_that_is_lost(
    nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str
) -> None:
    monkeypatch.setattr(examination, "_FRAME_SECONDS", 5.0)
    found = examine(monkeypatch, nvml_mock.environment(gpus=3, fault="lost:1"), bare)
    assert found["gpu.answers"].status is Status.FAIL
    assert "GPU 1 is lost" in found["gpu.answers"].detail
    assert found["gpu.ecc"].status is Status.OK, "the others are judged"


def test_visible_devices_that_name_no_gpu(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str) -> None:
    environment = nvml_mock.environment(gpus=2) | {"CUDA_VISIBLE_DEVICES": "0,5"}
    check = examine(monkeypatch, environment, bare)["environment.visible_devices"]
    assert check.status is Status.FAIL
    assert "1 GPU" in check.detail


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
    found = examine(monkeypatch, nvml_mock.environment(gpus=1), bare)
    assert found["gpu.xid"].status is Status.SKIP
    assert "did not answer within" in found["gpu.xid"].detail


def test_closing_ends_its_children(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, mark = tmp_path / "slow", tmp_path / "pid"
    path.write_text(f"#!/bin/sh\necho $$ > {mark}.new && mv {mark}.new {mark}\nsleep 1000\n")
    path.chmod(0o755)
    for name, value in nvml_mock.environment(gpus=1).items():
        monkeypatch.setenv(name, value)
    run = Examination(Wish(python=str(path)))
    run.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    run.close()
    assert run.is_over
    assert wait_gone(int(mark.read_text()), PATIENCE_SECONDS)
    assert not [pid for pid in tree(os.getpid())[1:] if "_doctor.py" in _command(pid)]


def test_a_check_that_fails_itself_costs_itself(
    nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str
) -> None:
    huge = {"OMP_NUM_THREADS": "9" * 5000}
    found = examine(monkeypatch, nvml_mock.environment(gpus=1) | huge, bare)
    assert list(found) == list(CHECK_IDS)
    assert found["environment.threads"].status is Status.WARN
    assert "failed: ValueError" in found["environment.threads"].detail


def test_whatever_breaks_in_it_it_ends(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, bare: str) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(examination, "ready", broken)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    assert examine(monkeypatch, nvml_mock.environment(gpus=1), bare) == {}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
