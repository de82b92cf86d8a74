"""Stacks of a program that answers, and of one that cannot because a C call holds the GIL."""

import json
import os
import time
from pathlib import Path

import pytest

from gpumon.core.allocator import ProbedProcess
from gpumon.core.stacks import StackFrame
from gpumon.probe.messages import RequestKind
from gpumon.probe.protocol import Reply, parse, result_of
from gpumon.probe.stack_file import parse_stacks, read_stack
from tests.probe.children import Probe, Program, complaints, pythons, running, waited

DISTRIBUTED = """
import ctypes, os, sys, threading, time, types
sys.modules["torch.distributed.distributed_c10d"] = types.SimpleNamespace(_pg_map={1: 2})
import torch
torch.cuda.allocate(0, 1)
print("ready", flush=True)
sys.stdin.readline()
def hold():
    ctypes.PyDLL(None).sleep(9)
hold()
print("done", flush=True)
sys.stdin.readline()
"""
TIMER = """
import faulthandler, os, sys, time, types
sys.modules["torch.distributed.distributed_c10d"] = types.SimpleNamespace(_pg_map={1: 2})
import torch
torch.cuda.allocate(0, 1)
file = open("own", "w+")
faulthandler.dump_traceback_later(2, file=file)
print("ready", flush=True)
time.sleep(3)
print(len(open("own").read().splitlines()) > 1, flush=True)
sys.stdin.readline()
"""
FORKING = """
import os, sys, time, types
sys.modules["torch.distributed.distributed_c10d"] = types.SimpleNamespace(_pg_map={1: 2})
import torch
torch.cuda.allocate(0, 1)
print("ready", flush=True)
sys.stdin.readline()
times = []
for _ in range(20):
    times.append(time.monotonic())
    child = os.fork()
    if not child:
        import faulthandler
        faulthandler.dump_traceback_later(60)
        faulthandler.cancel_dump_traceback_later()
        sys.exit(5)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 5
print(min(after - before for before, after in zip(times, times[1:])) < 0.4, flush=True)
sys.stdin.readline()
"""
WAITING = """
import sys, threading, torch
torch.cuda.allocate(0, 1)
lock = threading.Lock()
def helper():
    with lock:
        print("ready", flush=True)
        sys.stdin.readline()
threading.Thread(target=helper, name="feeder").start()
while not lock.locked():
    pass
lock.acquire()
"""

pytestmark = pytest.mark.sampled(2)


@pytest.fixture(params=pythons())
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def greeted(program: Program, probe: Probe) -> ProbedProcess:
    """What the probe says of its process."""
    assert program.hear() == "ready"

    process = parse(json.dumps(probe.until("hello")).encode(), program.process.pid)
    assert isinstance(process, ProbedProcess)
    return process


def test_the_stacks_of_all_threads(tmp_path: Path, python: str) -> None:
    with running(tmp_path, WAITING, python=python) as program:
        assert program.hear() == "ready"
        probe = program.probe()
        threads = waited(lambda: [item for item in probe.ask("stacks")["threads"] if item["frames"]])
        main = next(item for item in threads if item["is_main"])
        feeder = next(item for item in threads if item["name"] == "feeder")
        assert main["frames"] == [["<string>", 12, "<module>"]]
        assert main["native_id"] == program.process.pid
        assert [frame[2] for frame in feeder["frames"][:2]] == ["helper", "run"]
        assert main["system_call"].split()[0] in {"202", "98"}  # futex
        body = {"threads": threads}
        assert len(result_of(RequestKind.STACKS, Reply(1, None, body))) == len(threads)  # type: ignore[arg-type]
        probe.close()
    assert not complaints(tmp_path)


def test_a_thread_that_holds_the_gil_is_seen(tmp_path: Path, python: str) -> None:
    with running(tmp_path, DISTRIBUTED, python=python) as program:
        probe = program.probe()
        process = greeted(program, probe)
        assert process.stack_descriptor is not None
        time.sleep(1.0)
        assert read_stack(process) == ()
        program.say("")
        stack: tuple[StackFrame, ...] = waited(lambda: read_stack(process))
        assert [(frame.line, frame.function) for frame in stack] == [(9, "hold"), (10, "<module>")]
        assert program.hear() == "done"
        waited(lambda: read_stack(process) == ())  # the probe runs again
        assert program.end()[0] == 0
    assert not complaints(tmp_path)


def test_the_timer_of_the_program_is_its_own(tmp_path: Path) -> None:
    with running(tmp_path, TIMER) as program:
        probe = program.probe()
        assert greeted(program, probe).stack_descriptor is None
        assert program.hear() == "True"
        assert program.end()[0] == 0


def test_a_forked_child_ends(tmp_path: Path, python: str) -> None:
    with running(tmp_path, FORKING, python=python) as program:
        probe = program.probe()
        greeted(program, probe)
        time.sleep(1.0)
        program.say("")
        assert program.hear() == "True", "no child waits for what it does not have"
        assert program.end()[0] == 0


def test_stacks_of_faulthandler_are_parsed() -> None:
    text = (
        "Timeout (0:00:05)!\nThread 0x00007f15 [loader] (most recent call first):\n"
        '  File "/a b/train.py", line 7 in <module>\n\nCurrent thread 0x0000ff (most recent call first):\n'
        '  File "x.py", line 3 in f\n  File "x.py", line 9 in <module>\n  ...\n'
    )
    assert parse_stacks(text) == {
        0x7F15: (StackFrame("/a b/train.py", 7, "<module>"),),
        0xFF: (StackFrame("x.py", 3, "f"), StackFrame("x.py", 9, "<module>")),
    }


def test_another_file_at_the_descriptor_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w+") as file:
        file.write('Thread 0x1 (most recent call first):\n  File "x", line 1 in f\n')
        file.flush()
        process = ProbedProcess(os.getpid(), os.getpid(), stack_descriptor=file.fileno(), main_thread_id=1)
        assert read_stack(process) == ()
