"""What /proc shows of the main thread of a rank."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.operations.rank_state import RankState, read_state
from tests.processes import start_ticks

TCP = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
print(flush=True)
client.recv(1)
"""


@contextmanager
def program(code: str) -> Iterator["subprocess.Popen[str]"]:
    """A program that has printed a line."""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def state_when(process: "subprocess.Popen[str]", is_so: Callable[[RankState], bool]) -> RankState:
    """Its state as soon as it is as wanted."""
    deadline = time.monotonic() + 10.0
    state = RankState()
    while time.monotonic() < deadline:
        state = read_state(process.pid, start_ticks(process.pid))
        if is_so(state):
            return state
        time.sleep(0.02)
    raise AssertionError(state)


@pytest.mark.parametrize(
    ("code", "call", "target"),
    [
        ("import os; a, b = os.pipe(); print(flush=True); os.read(a, 1)", "read", "a pipe"),
        ("print(flush=True); input()", "read", "a pipe (standard input)"),
        ("import time; print(flush=True); time.sleep(60)", "clock_nanosleep", ""),
        ("import socket; a, b = socket.socketpair(); print(flush=True); a.recv(1)", "recvfrom", "a Unix socket"),
        (TCP, "recvfrom", "a socket to 127.0.0.1:"),
        ("import threading as t; a = t.Lock(); a.acquire(); print(flush=True); a.acquire()", "futex", ""),
        ("import subprocess; print(flush=True); subprocess.run(['sleep', '20'])", "wait4", ""),
    ],
)
def test_system_calls(code: str, call: str, target: str) -> None:
    with program(code) as process:
        state = state_when(process, lambda state: (state.state_code, state.system_call) == ("S", call))
        assert state.target[: len(target)] == target


def test_a_thread_that_computes_uses_time() -> None:
    with program("print(flush=True)\nwhile True: pass") as process:
        assert state_when(process, lambda state: state.cpu_seconds > 0.1).system_call == ""


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.abort()", -6)])
def test_the_exit_status_of_a_process_that_was_not_waited_for(code: str, status: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    ticks = start_ticks(process.pid)
    deadline = time.monotonic() + 10.0
    while read_state(process.pid, ticks).state_code != "Z" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert read_state(process.pid, ticks).exit_status == status
    process.wait()
    assert read_state(process.pid, ticks) == RankState()


def test_another_process_with_the_pid_is_not_read() -> None:
    with program("print(flush=True); input()") as process:
        assert read_state(process.pid, start_ticks(process.pid) + 1) == RankState()


def test_without_permission_the_function_of_the_kernel_names_the_call(tmp_path: Path) -> None:
    task = tmp_path / "7" / "task" / "7"
    task.mkdir(parents=True)
    fields = " ".join(["S", *["0"] * 18, "55", *["0"] * 30])
    for folder in (task, tmp_path / "7"):
        (folder / "stat").write_text(f"7 (python) {fields}")
    (task / "wchan").write_text("pipe_read")
    state = read_state(7, 55, proc=tmp_path)
    assert (state.kernel_function, state.system_call, state.target) == ("pipe_read", "read", "a pipe")
    assert read_state(7, 55, "230 0x0", proc=tmp_path).system_call == "clock_nanosleep"
