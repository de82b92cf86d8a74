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


def test_a_refused_process_list_has_a_reason(nvml_mock: NvmlMock) -> None:
    environment = nvml_mock.environment(gpus=1, pids=[os.getpid()], fault="noperm:procs")
    device = json.loads(run("status", "--json", env=environment).stdout)["devices"][0]
    assert device["processes"] is None
    problem = device["problems"]["processes"]
    assert problem["code"] == "no_permission"
    done = run("status", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert problem["reason"] in done.stdout
