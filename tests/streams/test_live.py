"""The live stream goes on, whatever ends its collector and whatever keeps it from starting another."""

import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from gpumon.core.exits import COLLECTOR_OUTDATED
from gpumon.core.frames import encode
from gpumon.core.problems import Problem
from gpumon.streams import live
from gpumon.streams.child import Child
from gpumon.streams.live import LiveStream
from tests.builders import frame

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


def eventually(true: Callable[[], bool], timeout: float = 15) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.01)
    return False


def refuse(times: int) -> type[Child]:
    """A child that cannot be started so many times."""
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
    assert "OSError: [Errno 24] Too many open files. It is tried again in 0.5 s." in said[-2]
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
