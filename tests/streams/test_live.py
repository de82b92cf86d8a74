"""The live stream goes on, whatever ends its collector and whatever keeps it from starting another."""

import errno
import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpumon.core.collector_contract import COLLECTOR_OUTDATED
from gpumon.core.frames import encode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.streams import live
from gpumon.streams.child import Child
from gpumon.streams.live import LiveStream
from tests.builders import frame
from tests.processes import eventually

ONE_FRAME = f"import os, signal, sys, time; print({encode(frame())!r}, flush=True)"
Start = Callable[[str], LiveStream]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a stream whose collector is a program in Python."""
    streams: list[LiveStream] = []

    def begin(program: str) -> LiveStream:
        streams.append(LiveStream(0.1, (sys.executable, "-c", f"{ONE_FRAME}; {program}")))
        streams[-1].start()
        return streams[-1]

    yield begin
    for stream in streams:
        stream.close()


def refuse(times: int) -> type[Child]:
    """A child whose start fails this many times."""
    left = [times]

    class Refused(Child):
        def __init__(self, command: list[str]) -> None:
            if left[0]:
                left[0] -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            super().__init__(command)

    return Refused


@pytest.mark.parametrize(("number", "name"), [(35, "signal 35"), (signal.SIGRTMIN, "SIGRTMIN"), (9, "SIGKILL")])
def test_a_collector_that_any_signal_ends_is_replaced(start: Start, number: int, name: str) -> None:
    stream = start(f"os.kill(os.getpid(), {int(number)})")
    assert eventually(lambda: stream.replaced >= 1)
    assert stream.problem is not None
    assert f"The collector ended: {name}." in stream.problem.reason


def test_the_pipes_of_a_collector_are_closed(start: Start) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        stream = start("pass")
        assert eventually(lambda: stream.replaced >= 2)
        gc.collect()
    assert not [warning for warning in caught if "unclosed file" in str(warning.message)]


def test_a_restart_that_fails_is_told_and_tried_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Problem | None] = []
    stream = start("sys.stdin.readline()")
    stream.inbox.on_arrival(lambda: heard.append(stream.problem))
    assert eventually(lambda: bool(stream.inbox.drain()))
    monkeypatch.setattr(live, "Child", refuse(2))
    assert stream._child is not None
    os.kill(stream._child.pid, signal.SIGKILL)
    assert eventually(lambda: stream.replaced == 1)
    said = [str(problem) for problem in dict.fromkeys(heard)]
    assert "The system does not open more files: the limit of this process is " in said[-2]
    assert said[-2].endswith("Raise the limit: ulimit -n 1024. gpumon tries again in 0.5 s.")
    assert "again in 1 s." in said[-1]
    assert eventually(lambda: bool(stream.inbox.drain())), "frames come again"


def test_a_first_start_that_fails_is_tried_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "Child", refuse(1))
    stream = start("sys.stdin.readline()")
    assert eventually(lambda: bool(stream.inbox.drain()))


def test_a_bell_that_fails_does_not_end_the_stream(start: Start) -> None:
    stream = start("sys.stdin.readline()")
    rung: list[None] = []

    def broken() -> None:
        rung.append(None)
        raise RuntimeError("no loop")

    with suppress(RuntimeError):
        stream.inbox.on_arrival(broken)
    assert eventually(lambda: len(rung) >= 3)
    assert stream.problem is not None
    assert "RuntimeError: no loop" in stream.problem.reason


def test_a_collector_that_asks_for_a_new_process_gets_one_at_once(start: Start) -> None:
    heard: list[Problem | None] = []
    stream = start(f"os._exit({COLLECTOR_OUTDATED})")
    stream.inbox.on_arrival(lambda: heard.append(stream.problem))
    assert eventually(lambda: stream.replaced >= 3)
    assert set(heard) == {None}


# Which driver call is blamed

SEGV, KILL = "os.kill(os.getpid(), 11)", "os.kill(os.getpid(), 9)"
ENDED, RUNNING, WAITING = "m[:4] = b'call'; m[0] = 0; ", "m[:4] = b'call'; ", "m[64:68] = b'wait'; "


def breadcrumb(calls: str, end: str) -> str:
    """A program that notes driver calls as a collector does, and then ends."""
    return f"import mmap; m = mmap.mmap(int(sys.argv[-1]), 128); {calls}{end}"


@pytest.mark.parametrize(
    ("calls", "end", "reason", "counted"),
    [
        (ENDED, SEGV, "The collector ended: SIGSEGV.", {}),
        (RUNNING, SEGV, "The collector ended: SIGSEGV in call.", {"call": 1}),
        (WAITING, SEGV, "The collector ended: SIGSEGV in wait.", {"wait": 1}),
        (ENDED + WAITING, SEGV, "The collector ended: SIGSEGV in wait.", {"wait": 1}),
        (RUNNING + WAITING, SEGV, "The collector ended: SIGSEGV in call.", {"call": 1}),
        (RUNNING + WAITING, "os.abort()", "The collector ended: SIGABRT in call.", {"call": 1}),
        (RUNNING + WAITING, KILL, "The collector ended: SIGKILL in call.", {}),
        (ENDED + WAITING, KILL, "The collector ended: SIGKILL.", {}),
        (RUNNING + WAITING, "os._exit(3)", "The collector ended: exit code 3 in call.", {}),
        (ENDED + WAITING, "os._exit(3)", "The collector ended: exit code 3.", {}),
    ],
)
def test_only_a_call_that_was_running_is_blamed(
    start: Start, calls: str, end: str, reason: str, counted: dict[str, int]
) -> None:
    stream = start(breadcrumb(calls, end))
    assert eventually(lambda: stream.problem is not None)
    assert stream.problem is not None
    assert (stream.problem.code, stream.problem.reason) == (ProblemCode.COLLECTOR_DIED, reason)
    assert stream.problem.remedy == "A new collector starts in 0.25 s."
    assert stream._crashes == counted


@pytest.mark.parametrize(("calls", "where"), [(ENDED, ""), (RUNNING, " in call"), (ENDED + WAITING, "")])
def test_a_silent_collector_names_the_call_that_is_running(start: Start, calls: str, where: str) -> None:
    stream = start(breadcrumb(calls, "time.sleep(60)"))
    stream._silence_seconds = 0.3
    assert eventually(lambda: bool(stream.inbox.drain()))
    assert eventually(lambda: stream.problem is not None)
    assert stream.problem is not None
    assert stream.problem.code is ProblemCode.COLLECTOR_SILENT
    assert stream.problem.reason == f"The collector stopped responding{where} and is replaced."
    assert not stream._crashes, "a hang is not a crash"


def test_a_call_that_crashed_two_collectors_is_dropped_and_no_other(start: Start) -> None:
    reported: list[str] = []
    crash = breadcrumb("m[:4] = b'call'; ", f"time.sleep(60) if '--drop' in sys.argv else {SEGV}")
    stream = start(crash)
    stream.inbox.on_arrival(lambda: reported.append(str(stream.problem)))
    assert eventually(lambda: stream.replaced == 2)
    assert "gpumon stopped calling" not in reported[0]
    assert any(
        "SIGSEGV in call. gpumon stopped calling call. A new collector starts in 0.5 s." in text for text in reported
    )
    assert eventually(lambda: b"--drop" in command_line(stream))
    command = command_line(stream)
    assert command[command.index(b"--drop") + 1] == b"call"
    assert command.count(b"--drop") == 1


def command_line(stream: LiveStream) -> list[bytes]:
    child = stream._child
    return [] if child is None else Path(f"/proc/{child.pid}/cmdline").read_bytes().split(b"\0")
