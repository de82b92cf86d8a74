"""`gpumon why` on training runs of this host: a cause in the loop is named, and what is missing is explained."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli.watch import watched_environment
from gpumon.operations.process_details import stop_problem
from gpumon.operations.why.outside import examine_outside
from gpumon.probe.attach import AttachState, attachability
from gpumon.stacks import outside
from tests.cli.running import run

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


def wait_for_probe(pid: int) -> None:
    """Wait until the probe of a process listens."""
    deadline = time.monotonic() + START_SECONDS
    while attachability(pid).state is not AttachState.PROBE and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(2.0)  # some steps


def why(pid: int, *options: str) -> subprocess.CompletedProcess[str]:
    return run("why", str(pid), *options, env=os.environ)


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
    wait_for_probe(training.pid)
    done = why(training.pid, "--seconds", "2", "--json")

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

    command = [sys.executable, "-m", "gpumon", "why", str(training.pid), "--seconds", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as other:
        text = why(training.pid, "--seconds", "1").stdout
        assert other.communicate()[1] == "", "a probe that rests, or answers another gpumon, is asked again"
        assert other.returncode == 1
    assert "Sleeping" in text
    assert "sleepy.py:13" in text


def test_a_process_that_does_not_exist() -> None:
    process = subprocess.Popen(["true"])
    process.wait()

    done = why(process.pid)

    assert done.returncode == 3
    assert done.stderr.startswith(f"gpumon: There is no process {process.pid}, or it has ended.")


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program without a probe that sleeps in a loop."""
    file = tmp_path / "sleepy.py"
    file.write_text("import time\nprint(flush=True)\nwhile True:\n    time.sleep(0.05)\n")
    with subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.mark.skipif(outside.program() is None, reason="py-spy is not installed")
def test_a_process_without_a_probe_is_observed_from_outside(plain: subprocess.Popen[bytes]) -> None:
    done = why(plain.pid, "--seconds", "3", "--json", "--load-probe", "never")

    assert done.returncode == 1, done.stderr
    assert "Looking from outside" in done.stderr
    document = json.loads(done.stdout)
    assert (document["stages"], document["step_seconds"]) == (["outside"], None)
    assert sum(share["seconds"] for share in document["account"]) == pytest.approx(1.0)
    cause = document["verdict"]["causes"][0]
    assert (cause["kind"], cause["line"], cause["bound_seconds"]) == ("sleep", "sleepy.py:4", None)
    assert document["verdict"]["summary"].startswith("Sleeping: ")


def test_where_stacks_cannot_be_read_the_kernel_reports_what_the_main_thread_does(
    plain: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "program", lambda: None)
    report = examine_outside(plain.pid, 1.0)

    assert report.stages == ("kernel",)
    assert not report.verdict.is_decided
    assert re.match(r"Undecided without stacks: the main thread sleeps in \d+%", report.verdict.summary)
    assert "py-spy" in " ".join(report.problems)


def test_without_a_terminal_the_probe_is_not_loaded_unasked(plain: subprocess.Popen[bytes]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "trace", "--pid", str(plain.pid)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "probe" in done.stderr


def test_a_stopped_process() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        done = why(process.pid)
        process.kill()

    assert done.returncode == 3
    assert f"Process {process.pid} is stopped. Let it continue: kill -CONT {process.pid}" in done.stderr


def test_a_process_in_a_debugger(tmp_path: Path) -> None:
    stat = tmp_path / "7" / "stat"
    stat.parent.mkdir()
    stat.write_text("7 (a (b) t) t 1" + " 7" * 50)
    assert "A debugger has stopped process 7." in str(stop_problem(7, tmp_path))
    stat.write_text("7 (a (b) t) S 1" + " 7" * 50)
    assert stop_problem(7, tmp_path) is None


@pytest.mark.long
@pytest.mark.skipif(not HAS_TORCH, reason="needs torch in this interpreter")
def test_a_process_that_ends_while_it_is_observed(training: subprocess.Popen[bytes]) -> None:
    wait_for_probe(training.pid)
    with subprocess.Popen(
        [sys.executable, "-m", "gpumon", "why", str(training.pid), "--seconds", "30"], stderr=subprocess.PIPE, text=True
    ) as running:
        time.sleep(3.0)
        training.kill()
        training.wait()
        _, error = running.communicate(timeout=30)

    assert running.returncode == 3
    assert "has ended" in error
