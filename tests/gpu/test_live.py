"""On a real GPU: gpumon sees the processes that nvidia-smi sees, holds no device memory, and shows a load."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.processes import tree
from tests.terminal import Terminal

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180), pytest.mark.xdist_group("gpu")]

LOAD = Path(__file__).with_name("load.py")
MEBIBYTE = 1 << 20


def smi(query: str, *fields: str) -> list[dict[str, str]]:
    """Rows of ``nvidia-smi --query-...``."""
    done = subprocess.run(
        ["nvidia-smi", f"--query-{query}={','.join(fields)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [dict(zip(fields, line.split(", "), strict=True)) for line in done.stdout.splitlines()]


def status() -> Any:  # noqa: ANN401 - a JSON document
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "status", "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@contextmanager
def load(role: str, device: int = 0, seconds: float = 60) -> Iterator[int]:
    """Run a load in a separate process; yields its PID when it works."""
    process = subprocess.Popen([sys.executable, str(LOAD), role, str(device), str(seconds)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"ready"
        time.sleep(3)
        yield process.pid
    finally:
        process.kill()
        process.wait()
        time.sleep(1)


def gpumon(*arguments: str, rows: int = 30, cols: int = 120) -> Terminal:
    """gpumon in a terminal."""
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    return Terminal([sys.executable, "-m", "gpumon", *arguments], environment, rows, cols)


@pytest.mark.quick
def test_processes_agree_with_nvidia_smi() -> None:
    with load("holding") as pid:
        theirs = {int(row["pid"]): int(row["used_memory"]) for row in smi("compute-apps", "pid", "used_memory")}
        device = status()["devices"][0]
        mine = {process["pid"]: process for process in device["processes"]}
        assert set(mine) == set(theirs)
        if pid not in mine:  # the driver reports host PIDs, and this is a container
            pytest.skip("the driver reports PIDs of another PID namespace")
        process = mine[pid]
        assert abs(process["memory_bytes"] / MEBIBYTE - theirs[pid]) <= 2
        assert process["memory_bytes"] > 1 << 30
        assert process["kinds"] == ["compute"]
        assert "load.py" in process["command"]
        assert process["host_memory_bytes"] > 100 * MEBIBYTE
        assert process["age_seconds"] > 1
        assert device["memory_unattributed_bytes"] < 64 * MEBIBYTE


@pytest.mark.quick
def test_gpumon_holds_no_device_memory() -> None:
    used_before = [row["memory.used"] for row in smi("gpu", "memory.used")]
    with gpumon() as terminal:
        terminal.wait_for(r"\d+%", 20)
        time.sleep(2)
        own = set(tree(terminal.pid))
        compute = {int(row["pid"]) for row in smi("compute-apps", "pid")}
        used_meanwhile = [row["memory.used"] for row in smi("gpu", "memory.used")]
        terminal.send("q")
        assert terminal.wait_exit() == 0
    assert len(own) >= 2, "the screen and its collector"
    assert not own & compute
    assert used_meanwhile == used_before


def test_screen_follows_a_matmul() -> None:
    with gpumon(rows=40, cols=160) as terminal, load("matmul") as pid:
        screen = terminal.wait_for(r" (9\d|100)% ", 20)
        print(screen)
        assert "power cap" in terminal.wait_for(r"power cap", 20)
        assert str(pid) in screen
        terminal.send("q")
        assert terminal.wait_exit() == 0
