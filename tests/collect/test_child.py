"""A collector as its parent sees it: torn, silent, flooding, deaf, dead."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.collect.loop import MAX_INTERVAL_SECONDS, MIN_INTERVAL_SECONDS, clamp_interval
from gpumon.core.frames import encode
from gpumon.core.model import Frame
from gpumon.core.problems import ProblemCode
from gpumon.streams.child import Child
from gpumon.streams.live import LiveStream
from tests.builders import frame
from tests.processes import eventually, kill

pytestmark = pytest.mark.xdist_group("clock")

Start = Callable[[str], Child]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a child that runs a program in Python."""
    children: list[Child] = []

    def begin(program: str) -> Child:
        child = Child([sys.executable, "-c", f"import os, signal, sys, time\n{program}"])
        children.append(child)
        return child

    yield begin
    for child in children:
        kill(child.pid)
        child.end()
        child.close()


def seconds_of(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def test_lines_are_complete_however_they_were_cut(start: Start) -> None:
    child = start("for piece in (b'on', b'e\\n\\ntw', b'o\\nthree\\n'): os.write(1, piece); time.sleep(0.02)")
    assert [child.read_line(10) for _ in range(4)] == [b"one", b"two", b"three", None]


def test_last_line_without_its_end_is_not_a_line(start: Start) -> None:
    assert start("os.write(1, b'torn')").read_line(10) is None


def test_silence_is_reported(start: Start) -> None:
    assert start("time.sleep(60)").read_line(0.1) == b""


def test_errors_are_drained_and_their_last_line_is_kept(start: Start) -> None:
    child = start("os.write(2, b'noise\\n' * 200_000 + b'the \\x1b[2J cause\\n'); os.write(1, b'x\\n'); sys.exit(7)")
    assert child.read_line(15) == b"x"
    assert child.read_line(15) is None
    child.end()
    assert child.end_text() == "exit code 7: the \ufffd[2J cause"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_signal_is_named(start: Start, number: signal.Signals) -> None:
    child = start(f"os.kill(os.getpid(), {int(number)})")
    assert child.read_line(10) is None
    child.end()
    assert child.end_text() == number.name
    assert child.exit_code == -number


def test_a_child_that_ends_after_its_output_is_waited_for(start: Start) -> None:
    child = start("os.close(1); time.sleep(0.3); os._exit(7)")
    assert child.read_line(10) is None
    assert child.end_text() == "exit code 7"


def test_the_running_call_outlives_the_child(start: Start) -> None:
    child = start("import mmap; input(); mmap.mmap(int(sys.argv[2]), 64)[:4] = b'call'; os.kill(os.getpid(), 9)")
    assert child.running_call() is None
    child.send({})
    assert child.read_line(10) is None
    assert child.running_call() == "call"


def test_a_deaf_child_is_ended_in_time(start: Start) -> None:
    child = start("signal.signal(15, signal.SIG_IGN); os.write(1, b'deaf\\n'); time.sleep(60)")
    assert child.read_line(10) == b"deaf"
    assert seconds_of(child.end) < 3
    assert child.exit_code == -signal.SIGKILL


def test_a_child_that_is_not_gone_in_time_leaves_no_zombie(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_CLOSE_TIMEOUT_SECONDS", "_SIGNAL_TIMEOUT_SECONDS"):
        monkeypatch.setattr(f"gpumon.streams.child.{name}", 0.0)
    child = start("signal.signal(15, signal.SIG_IGN); time.sleep(60)")
    child.end()
    assert eventually(lambda: not Path("/proc", str(child.pid)).exists())


def test_settings_that_are_not_read_block_nothing(start: Start) -> None:
    child = start("time.sleep(60)")
    began = time.monotonic()
    for _ in range(10_000):
        child.send({"interval": 1.0})
    assert time.monotonic() - began < 10
    child.end()
    child.send({"interval": 1.0})


def test_settings_are_never_sent_through_a_pipe_that_is_being_closed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start("sys.stdin.readline()")
    write = os.write
    written: list[int] = []

    def slow_write(descriptor: int, data: bytes) -> int:
        ending.start()
        time.sleep(0.1)
        written.append(write(descriptor, data))  # fails when the descriptor is closed or reused by now
        return written[0]

    ending = threading.Thread(target=child.end)
    monkeypatch.setattr(os, "write", slow_write)
    child.send({"interval": 1.0})
    ending.join(2)
    assert written
    child.send({"interval": 1.0})
    assert len(written) == 1


def test_the_shared_memory_needs_no_disk(start: Start) -> None:
    child = start("os.write(1, os.readlink('/proc/self/fd/' + sys.argv[2]).encode() + b'\\n')")
    assert (child.read_line(10) or b"").startswith(b"/memfd:")


def test_a_collector_that_fails_prints_the_reason_and_runs_no_exit_handler(tmp_path: Path) -> None:
    program = (
        "import atexit, os; from gpumon.collect.__main__ import main; "
        "atexit.register(os.write, 2, b'exit handler'); main()"
    )
    with (
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path
        ) as process,
    ):
        errors = process.communicate(timeout=10)[1]
    assert process.returncode == 1
    assert b"No space left on device" in errors
    assert b"exit handler" not in errors


def test_lines_that_are_no_frames_are_reported_and_skipped() -> None:
    program = f"print('garbage'); print({encode(frame())!r}, flush=True); import time; time.sleep(60)"
    stream = LiveStream(0.1, (sys.executable, "-c", program))
    stream.start()
    try:
        arrivals: list[object] = []
        deadline = time.monotonic() + 5
        while not arrivals and time.monotonic() < deadline:
            stream.inbox.arrived.wait(0.1)
            arrivals += stream.inbox.drain()
        assert [type(arrival) for arrival in arrivals] == [Frame]
        assert stream.problem is not None
        assert stream.problem.code is ProblemCode.DAMAGED
        assert stream.replaced == 0
    finally:
        stream.close()


def test_replaced_collectors_leave_no_descriptors_open() -> None:
    stream = LiveStream(0.1, (sys.executable, "-c", "pass"))
    stream.start()
    fewest: dict[int, int] = {}
    deadline = time.monotonic() + 10
    try:
        while stream.replaced < 3 and time.monotonic() < deadline:
            replaced, count = stream.replaced, len(list(Path("/proc/self/fd").iterdir()))
            fewest[replaced] = min(count, fewest.get(replaced, count))
            time.sleep(0.01)
        assert stream.replaced == 3
        assert fewest[2] - fewest[0] <= 1
    finally:
        stream.close()


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        (1.0, 1.0),
        (0.0, MIN_INTERVAL_SECONDS),
        (-1.0, MIN_INTERVAL_SECONDS),
        (float("nan"), MIN_INTERVAL_SECONDS),
        (float("inf"), MAX_INTERVAL_SECONDS),
    ],
)
def test_interval_is_kept_within_bounds(asked: float, used: float) -> None:
    assert clamp_interval(asked) == used


def test_collector_goes_when_its_parent_is_killed(start: Start) -> None:
    program = (
        "from gpumon.streams.live import LiveStream; stream = LiveStream(0.1); stream.start(); "
        "stream.inbox.arrived.wait(5); print(stream._child.pid, flush=True); time.sleep(60)"
    )
    parent = start(program)
    line = parent.read_line(15)
    assert line
    os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 2
    while Path(f"/proc/{int(line)}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{int(line)}").exists()
