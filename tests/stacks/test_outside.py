"""Stacks of real processes, read by py-spy, and a py-spy that misbehaves."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.problems import ProblemCode
from gpumon.core.stacks import StackFrame
from gpumon.stacks import outside
from gpumon.stacks.outside import OutsideError, read_threads, sample_main_thread
from tests.processes import is_running

PROGRAM = """
import time
class Loop:
    def wait(self):
        print(flush=True), time.sleep(60)

Loop().wait()
"""

has_py_spy = pytest.mark.skipif(outside.program() is None, reason="py-spy is not installed")


@pytest.fixture
def program(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that sleeps in a method."""
    script = tmp_path / "loop;1 (a).py"
    script.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@has_py_spy
def test_the_main_thread_at_one_moment_and_over_a_time(program: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    path = str(tmp_path / "loop;1 (a).py")
    frames = (StackFrame(path, 5, "wait"), StackFrame(path, 7, "<module>"))
    (thread,) = read_threads(program.pid)
    assert (thread.is_main, thread.native_id, thread.frames) == (True, program.pid, frames)
    samples = sample_main_thread(program.pid, 1.0, 20)
    assert [(stack.frames, stack.count) for stack in samples.stacks] == [(frames, samples.samples_count)]
    assert samples.samples_count >= 10


@has_py_spy
def test_a_process_that_is_not_python_is_a_problem() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(OutsideError, match="py-spy cannot read process"):
            read_threads(process.pid)
        process.kill()


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("echo 'Error: Permission Denied: Try sudo' >&2; exit 1", ProblemCode.NO_PERMISSION),
        ("echo 'no JSON'", ProblemCode.DAMAGED),
        ("echo '[{\"frames\": 3}]'", ProblemCode.DAMAGED),
        ("echo $$ > {pid}; exec sleep 60", ProblemCode.UNRESPONSIVE),
        ("exec cat /dev/zero", ProblemCode.NOT_READ),
    ],
)
def test_a_program_that_fails_is_a_problem_and_leaves_nothing_behind(
    script: str, code: ProblemCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, pid = tmp_path / "py-spy", tmp_path / "pid"
    fake.write_text(f"#!/bin/sh\n{script.format(pid=pid) if '{pid}' in script else script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(outside, "program", lambda: str(fake))
    monkeypatch.setattr(outside, "DUMP_SECONDS", 0.5)
    monkeypatch.setattr(outside, "_MAX_BYTES", 1 << 16)
    begin = time.monotonic()
    with pytest.raises(OutsideError) as error:
        read_threads(1)
    assert error.value.problem.code is code
    assert time.monotonic() - begin < 5.0
    assert not pid.exists() or not is_running(int(pid.read_text()))


def test_without_the_program_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "program", lambda: None)
    with pytest.raises(OutsideError, match="not installed"):
        read_threads(1)
