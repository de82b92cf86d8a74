"""`gpumon attach` as a shell runs it: what it says, its exit codes, and that it leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.running import GPUMON, is_one_line, run, shell
from tests.probe.pythons import PYTHON314, needs_python314
from tests.processes import started_programs

FOR_EVER = "import time; print('on', flush=True)\nwhile True: time.sleep(0.02)"
SLEEPY = "import time; print('on', flush=True); time.sleep(3); print('awake', flush=True); time.sleep(0.2)"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment with separate folders for sockets and scripts."""
    folder = tempfile.mkdtemp(prefix="gpumon-", dir="/tmp")
    unset = {"GPUMON_PROBE", "PYTHON_DISABLE_REMOTE_DEBUG"}
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    yield {**inherited, "GPUMON_PROBE_DIR": folder, "TMPDIR": str(tmp_path)}
    shutil.rmtree(folder)


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    with started_programs() as start:
        yield lambda python, code: start(python, "-c", code, env=environment)


def wait_for(folder: Path, *, is_there: bool) -> None:
    """Waits until a script is there, or is gone."""
    deadline = time.monotonic() + 20
    while any(folder.glob("gpumon-attach-*/script.py")) != is_there:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("line", ["-5", "1 2", "1 --timeout nan", "1 --timeout -1"])
def test_wrong_usage(environment: dict[str, str], line: str) -> None:
    done = run("attach", *line.split(), env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: gpumon attach" in done.stderr


def test_itself(environment: dict[str, str]) -> None:
    done = shell('exec "$@" $$', "attach", env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is gpumon itself" in done.stderr


def test_no_such_job(environment: dict[str, str]) -> None:
    done = run("attach", "no-such-job", env=environment)
    assert (done.returncode, "no training run called no-such-job" in done.stderr) == (3, True)


@pytest.mark.parametrize("pid", ["0", str((1 << 22) + 1), "99999999999999999999"])
def test_no_such_process(environment: dict[str, str], pid: str) -> None:
    done = run("attach", pid, env=environment)
    assert (done.returncode, done.stdout) == (3, "")
    assert is_one_line(done.stderr)
    assert f"no process {pid}" in done.stderr


def test_it_says_what_to_do_next(environment: dict[str, str], start: Start) -> None:
    process = start(sys.executable, FOR_EVER)
    done = run("attach", str(process.pid), "--verbose", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"The probe runs in process {process.pid} (")
    assert "\nNext: gpumon memory, gpumon why, or the Memory screen of gpumon (3).\n" in done.stdout
    assert ("\nThe main thread stood still for " in done.stdout) == (sys.version_info < (3, 14))
    again = run("attach", str(process.pid), env=environment)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith(f"The probe already runs in process {process.pid} (")
    elsewhere = run("attach", str(process.pid), env={**environment, "GPUMON_PROBE_DIR": "/none"})
    assert f"Run GPUMON_PROBE_DIR={environment['GPUMON_PROBE_DIR']} gpumon memory" in elsewhere.stdout
    gone = run("attach", str(process.pid), "--detach", env=environment)
    assert (gone.returncode, gone.stdout.startswith("The probe has left process")) == (0, True)


@needs_python314
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_ended_while_it_waits(
    environment: dict[str, str], start: Start, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = start(PYTHON314, SLEEPY)
    with subprocess.Popen([GPUMON, "attach", str(process.pid)], env=environment, stderr=subprocess.PIPE) as waiting:
        wait_for(tmp_path, is_there=True)
        time.sleep(0.5)
        waiting.send_signal(number)
        _, error = waiting.communicate(timeout=20)
    assert (waiting.returncode, error.strip()) == (code, b"")
    if number is signal.SIGINT:
        wait_for(tmp_path, is_there=False)
        assert process.poll() is None
    assert process.communicate(timeout=30) == ("awake\n", "")
    assert list(tmp_path.glob("gpumon-attach-*")) == []
