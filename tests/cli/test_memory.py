"""`gpumon memory`, and what `gpumon status --json` contains about processes with a probe, as a shell runs them."""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import run
from tests.nvml_mock import NvmlMock
from tests.probe.scripted import DEVICE, hello, listening, statistics, until_gone

PID = os.getpid()
UUID = "GPU-6d6f636b-4d6f-5b6b-8c01-000000000000"
GIB = 1 << 30
STATISTICS = {**DEVICE, "uuid": UUID, "allocated_bytes": 8 * GIB, "active_bytes": 9 * GIB, "reserved_bytes": 20 * GIB}


def report(connection: socket.socket) -> None:
    connection.sendall(hello(argv=["python", "tr\x1bain.py"]) + statistics(devices=[STATISTICS]))
    until_gone(connection)


def stay_silent(connection: socket.socket) -> None:
    until_gone(connection)


@pytest.fixture
def folder(short_path: Path) -> Path:
    path = short_path / "probes"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def host(nvml_mock: NvmlMock, folder: Path, sleepers: Callable[[int], list[int]]) -> dict[str, str]:
    """Two GPUs that this process and another process use."""
    return nvml_mock.environment(gpus=2, pids=[PID, *sleepers(1)], GPUMON_PROBE_DIR=str(folder))


def document(*argv: str, env: dict[str, str]) -> dict[str, Any]:
    done = run(*argv, "--json", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_parts_of_every_gpu_are_printed_with_a_legend(host: dict[str, str], folder: Path) -> None:
    with listening(folder, report):
        done = run("memory", env=host)
    assert (done.returncode, done.stderr) == (0, "")
    assert "GPU 0 · NVIDIA H200 · 140 GiB" in done.stdout
    assert f"  PID {PID} rank 3 · python tr\ufffdain.py" in done.stdout
    for size, label in (("8.00 GiB", "tensors"), ("1.00 GiB", "waiting for stream"), ("3.00 GiB", "fragmented")):
        assert any(size in line and line.endswith(f" {label}") for line in done.stdout.splitlines()), label
    assert "tensors: Held by live tensors" in done.stdout
    assert "→ torch.cuda.empty_cache() returns it" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "\x1b" not in done.stdout


def test_the_document_has_parts_that_fill_each_gpu(host: dict[str, str], folder: Path) -> None:
    with listening(folder, report):
        memory = document("memory", env=host)
    assert (memory["schema"], memory["problems"], memory["unheard"]) == (1, {}, [])
    for device in memory["devices"]:
        assert sum(part["bytes"] for part in device["parts"]) == device["memory_total_bytes"]
        assert device["problem"] is None
    first = {part["kind"]: part["bytes"] for part in memory["devices"][0]["parts"] if part["pid"] == PID}
    assert first["allocated"] == 8 * GIB
    assert first["releasable"] == 8 * GIB
    (probe,) = memory["probes"]
    assert (probe["pid"], probe["own_pid"], probe["state"], probe["rank"]) == (PID, 7, "live", 3)


def test_status_has_torch_statistics_of_processes_with_a_probe_only(host: dict[str, str], folder: Path) -> None:
    with listening(folder, report):
        first, second = document("status", env=host)["devices"]
    entries = {entry["pid"]: entry for entry in first["processes"]}
    torch = entries.pop(PID)["torch"]
    assert (torch["state"], torch["ordinal"], torch["reserved_bytes"]) == ("live", 0, 20 * GIB)
    assert torch["requested_bytes"] is None
    assert torch["problems"]["requested_bytes"]["code"] == "not_supported"
    assert torch["age_seconds"] >= 0
    assert not {"uuid", "name"} & torch.keys()
    assert all("torch" not in entry for entry in entries.values())
    elsewhere = next(entry for entry in second["processes"] if entry["pid"] == PID)["torch"]
    assert elsewhere["reserved_bytes"] is None
    assert elsewhere["problems"]["reserved_bytes"]["code"] == "not_read"


def test_a_silent_probe_does_not_delay_status(host: dict[str, str], folder: Path) -> None:
    with listening(folder, stay_silent):
        began = time.monotonic()
        memory = document("status", env=host)
        took = time.monotonic() - began
    assert all("torch" not in entry for entry in memory["devices"][0]["processes"])
    assert took < 10  # half a second, and more on a busy host
