"""`gpumon why` on training runs of this host: a cause in the loop is named, and what is missing is explained."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli.watch import watched_environment

HAS_TORCH = importlib.util.find_spec("torch") is not None
PROGRAM = """
import time
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(64, 64)
while True:
    optimizer.zero_grad()
    model(data).sum().backward()
    optimizer.step()
    time.sleep(0.05)
"""
START_SECONDS = 60.0


def why(pid: int, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpumon", "why", str(pid), *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def training(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A training run with a probe that sleeps in every step."""
    file = tmp_path / "sleepy.py"
    file.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, str(file)], env=watched_environment(os.environ), stderr=subprocess.DEVNULL
    ) as process:
        yield process
        process.kill()


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch in this interpreter")
def test_the_cause_its_line_and_the_sum(training: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while (done := why(training.pid, "--seconds", "2", "--json")).returncode == 3 and time.monotonic() < deadline:
        time.sleep(1.0)

    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    account = {share["name"]: share["seconds"] for share in document["account"]}
    assert sum(account.values()) == pytest.approx(document["step_seconds"])
    assert account["sleep"] >= 0.5 * document["step_seconds"]
    cause = document["verdict"]["causes"][0]
    assert cause["kind"] == "sleep"
    assert cause["line"] == "sleepy.py:13"
    assert cause["bound_seconds"] < 0.6 * document["step_seconds"]
    assert document["device"] is None
    assert document["stages"] == ["passive"]

    text = why(training.pid, "--seconds", "1").stdout
    assert "Sleeping" in text
    assert "sleepy.py:13" in text


def test_a_process_without_a_probe() -> None:
    done = why(os.getpid())

    assert done.returncode == 3
    assert "has no probe" in done.stderr
    assert "gpumon watch" in done.stderr


def test_a_stopped_process() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        done = why(process.pid)
        process.kill()

    assert done.returncode == 3
    assert f"Process {process.pid} is stopped. Let it continue: kill -CONT {process.pid}" in done.stderr


@pytest.mark.long
@pytest.mark.skipif(not HAS_TORCH, reason="needs torch in this interpreter")
def test_a_process_that_ends_while_it_is_observed(training: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while why(training.pid, "--seconds", "1").returncode == 3 and time.monotonic() < deadline:
        time.sleep(1.0)
    with subprocess.Popen(
        [sys.executable, "-m", "gpumon", "why", str(training.pid), "--seconds", "30"],
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        time.sleep(3.0)
        training.kill()
        training.wait()
        _, error = running.communicate(timeout=30)

    assert running.returncode == 3
    assert "has ended" in error
