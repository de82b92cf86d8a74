"""Processes that the driver reports wrongly, or that are not visible: each has a reason, and nothing crashes."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import run
from tests.nvml_mock import NvmlMock

FACTS = ("user", "command", "cpu_percent", "host_memory_bytes", "age_seconds")
LISTS = "RunningProcesses"
Status = Callable[..., dict[str, Any]]


@pytest.fixture
def first_gpu(nvml_mock: NvmlMock) -> Status:
    """The status of one GPU with a fault."""

    def status(fault: str, log: Path | None = None) -> dict[str, Any]:
        environment = nvml_mock.environment(gpus=1, pids=[os.getpid()], fault=fault, log=log, NVML_MOCK_PROCS="1")
        done = run("status", "--json", env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        device: dict[str, Any] = json.loads(done.stdout)["devices"][0]
        return device

    return status


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("fault", "pid", "code"),
    [
        ("deadpids", None, "process_not_visible"),
        ("garbage:pid0", 0, "invalid_value"),
        ("garbage:pidmax", (1 << 32) - 1, "invalid_value"),
    ],
)
def test_a_process_that_is_not_visible_has_a_reason(first_gpu: Status, fault: str, pid: int | None, code: str) -> None:
    (process,) = first_gpu(fault)["processes"]
    assert pid is None or process["pid"] == pid
    assert process["memory_bytes"] > 0
    for fact in FACTS:
        assert process[fact] is None
        assert process["problems"][fact]["code"] == code


@pytest.mark.parametrize(("fault", "code"), [("garbage:memna", "not_supported"), ("garbage:procmem", "invalid_value")])
def test_unreported_process_memory_is_missing_and_so_are_values_derived_from_it(
    first_gpu: Status, fault: str, code: str
) -> None:
    device = first_gpu(fault)
    (process,) = device["processes"]
    assert process["memory_bytes"] is None
    assert process["problems"]["memory_bytes"]["code"] == code
    assert process["command"] is not None
    assert device["memory_unattributed_bytes"] is None
    assert device["problems"]["memory_unattributed_bytes"]["reason"]


def test_a_process_list_that_keeps_growing_is_not_read_forever(first_gpu: Status, tmp_path: Path) -> None:
    log = tmp_path / "calls.json"
    device = first_gpu("grow", log)
    assert device["processes"] is None
    assert device["problems"]["processes"]["reason"]
    assert device["utilization_gpu_percent"] is not None, "other values are not affected"
    calls = json.loads(log.read_text())["calls"]
    assert sum(count for name, count in calls.items() if LISTS in name) <= 24, "retries are bounded"


def test_a_refused_process_list_has_a_reason(nvml_mock: NvmlMock) -> None:
    environment = nvml_mock.environment(gpus=1, pids=[os.getpid()], fault="noperm:procs")
    device = json.loads(run("status", "--json", env=environment).stdout)["devices"][0]
    assert device["processes"] is None
    problem = device["problems"]["processes"]
    assert problem["code"] == "no_permission"
    done = run("status", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert problem["reason"] in done.stdout
