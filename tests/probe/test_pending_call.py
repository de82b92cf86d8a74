"""Loading the probe into running processes of Python 3.8 to 3.13, and what happens to those processes meanwhile."""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from gpumon.core.problems import CommandError
from gpumon.probe import attach as attaching
from gpumon.probe.attach import attach, detach, injection, ptrace, python_image, x86_64
from gpumon.probe.attach.injection import pending_call
from gpumon.probe.attach.target import Target, read_target
from tests.probe.children import pythons, waited
from tests.probe.pythons import PYTHON314
from tests.processes import started_programs

Start = Callable[..., subprocess.Popen[str]]

PYTHONS = [python for python in pythons() if python != PYTHON314]
PYTHON = PYTHONS[0] if PYTHONS else ""
pytestmark = [
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="not tested on this architecture yet"),
    pytest.mark.skipif(not PYTHONS, reason="no Python 3.8 to 3.13 here, on PATH or in GPUMON_TEST_PYTHONS"),
]
BUSY = """
import ctypes, math, os, select, signal, sys, threading, time
print('on', flush=True)
alarms = []
signal.signal(signal.SIGALRM, lambda *_: alarms.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
reading, _ = os.pipe()
poll = select.poll()
poll.register(reading, select.POLLIN)
done = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    start = time.monotonic()
    assert poll.poll(5) == [], 'a timeout returned something'
    assert time.monotonic() - start >= 0.0049, 'a timeout was too short'
    first, second = (math.fsum(math.sin(number) for number in range(2000)) for _ in '12')
    assert first == second, 'a result was wrong'
    done += 1
signal.setitimer(signal.ITIMER_REAL, 0)
names = [name for name in globals() if 'gpumon' in name]
print(len(alarms) > 20, done > 0, len(os.listdir('/proc/self/task')), names, flush=True)
raise SystemExit(7)
"""
IN_C = "import ctypes\nprint('on', flush=True)\nctypes.CDLL(None).sleep({})\nprint('awake', flush=True)\ninput()"


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gpumon-", dir="/tmp"))
    monkeypatch.setenv("GPUMON_PROBE_DIR", str(folder))
    monkeypatch.delenv("GPUMON_PROBE", raising=False)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def start() -> Iterator[Start]:
    with started_programs() as start:
        yield lambda code, python=PYTHON: start(python, "-c", code)


def status(process: "subprocess.Popen[str]", name: str) -> str:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{name}:"))


def requests(process: "subprocess.Popen[str]") -> int:
    """How many mappings look like those of a request."""
    maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    return sum(" r-xp 00000000 00:00 0" in line and not line.endswith("]") for line in maps)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(CommandError) as caught:
        call()
    return str(caught.value)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("python", PYTHONS)
def test_a_busy_program_gets_the_probe_and_loses_it(start: Start, sockets: Path, python: str) -> None:
    process = start(BUSY, python)
    blocked = status(process, "SigBlk")
    for _ in range(3):
        attached = attach(process.pid, 30.0)
        assert (attached.was_there, attached.folder) == (False, sockets)
        assert attached.stopped_seconds
        assert attach(process.pid).was_there
        assert detach(process.pid) is not None
        assert list(sockets.iterdir()) == []  # the next attach must not meet a probe that ends
        assert status(process, "SigBlk") == blocked
    waited(lambda: status(process, "Threads").endswith("\t1"))
    assert requests(process) == 0
    out, err = process.communicate("\n", timeout=30)
    assert (out, err, process.returncode) == ("True True 1 []\n", "", 7)


def test_gpumon_is_killed_after_any_of_its_calls(start: Start) -> None:
    process = start(BUSY)
    blocked, target = status(process, "SigBlk"), read_target(process.pid)
    kills = 0
    while inject(target, kills) == signal.SIGKILL:
        kills += 1
        waited(lambda: status(process, "SigBlk") == blocked)
        assert process.poll() is None
        assert not status(process, "State").startswith(("State:\tT", "State:\tt"))
    assert kills > 15
    out, err = process.communicate("\n", timeout=30)
    assert (out, err, process.returncode) == ("True True 1 []\n", "", 7)


needs_root = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare")


@needs_root
def test_a_container_with_its_own_processes_files_and_users(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUMON_PROBE_DIR")
    if subprocess.run(["unshare", "-Urmpf", "--mount-proc", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no container may be made here: run the tests on the host")
    code = """
import os, select, sys
print(os.getpid(), flush=True)
while not select.select([sys.stdin], [], [], 0.05)[0]: pass
print(os.listdir('/tmp'))
"""
    inside = 'mount -t tmpfs none /tmp && exec "$0" -c "$1"'
    python = str(Path(PYTHONS[0]).resolve())  # a virtual environment may be in /tmp
    command = ["unshare", "-Urmpf", "--mount-proc", "--kill-child", "sh", "-c", inside, python, code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "1\n"
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            pid = int(children[0])
            folder = attach(pid, 20.0).folder
            assert folder is not None
            assert folder.parent == Path(f"/proc/{pid}/root", "tmp")
            assert attaching.attachability(pid).folder == folder
            assert detach(pid) is not None
            assert process.communicate("\n", timeout=30)[0] == "['gpumon-0']\n"
        finally:
            process.kill()


def inject(target: Target, calls: int) -> int:
    """Make a request in a child, which is killed after some calls of ptrace; return its status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    remaining = [calls]
    original = ptrace.Tracee._call

    def call(self: ptrace.Tracee, request: int, address: int = 0, data: int = 0) -> None:
        original(self, request, address, data)
        remaining[0] -= 1
        if remaining[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    ptrace.Tracee._call = call  # type: ignore[method-assign]
    try:
        with pending_call(target, "pass", time.time() + 60):
            os._exit(0)
    finally:
        os._exit(1)


def test_a_main_thread_in_c_is_reported_and_runs_the_request_later(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "_QUIET_SECONDS", 0.1)
    process = start(IN_C.format(1))
    waiting: list[Target] = []
    message = refusal(lambda: attach(process.pid, 0.3, waiting.append))
    assert "has run no Python code for 0.3 s" in message
    assert [target.pid for target in waiting] == [process.pid]
    assert requests(process) == 1
    attached = attach(process.pid, 10.0)  # the request that waits is used, and nothing is stopped
    assert (attached.was_there, attached.stopped_seconds) == (False, 0.0)
    assert requests(process) == 0
    out, err = process.communicate("\n", timeout=30)
    assert (out, err, process.returncode) == ("awake\n", "", 0)


@pytest.mark.parametrize(
    "code",
    [
        """
import sys, threading
sys.modules['struct'] = None
print('on', flush=True)
threading.Thread(target=lambda: sys.stdin.readline() and sys.modules.pop('struct'), daemon=True).start()
while True: pass
""",
        """
import builtins, select, sys
build = builtins.__build_class__
def build_later(body, name, *bases, **options):
    if name == 'Thread':
        print('on', flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]: pass
    return build(body, name, *bases, **options)
builtins.__build_class__ = build_later
sys.modules.pop('threading', None)
import threading
while True: pass
""",
    ],
    ids=["a module is missing", "threading is there in part"],
)
def test_a_program_that_is_importing_modules_is_asked_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    process = start(code)
    calls: list[str] = []

    def counted(target: Target, text: str, deadline: float) -> AbstractContextManager[injection.PendingCall]:
        calls.append(text)
        if len(calls) == 2:
            os.write(process.stdin.fileno(), b"\n")  # type: ignore[union-attr]
        return pending_call(target, text, deadline)

    monkeypatch.setattr(attaching, "pending_call", counted)
    assert not attach(process.pid, 30.0).was_there
    assert len(calls) >= 2


@pytest.mark.parametrize("how", ["deadline", "ctrl-c"])
def test_a_request_that_is_too_late_does_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch, sockets: Path, how: str
) -> None:
    process = start(IN_C.format(1))
    if how == "deadline":
        monkeypatch.setattr(attaching, "REQUEST_SECONDS", 0.0)
        refusal(lambda: attach(process.pid, 0.0))
    else:
        monkeypatch.setattr(attaching, "_wait_for_probe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            attach(process.pid)
    assert process.stdout is not None
    assert process.stdout.readline() == "awake\n"
    waited(lambda: requests(process) == 0)
    assert list(sockets.iterdir()) == []
    out, err = process.communicate("\n", timeout=30)
    assert (out, err, process.returncode) == ("", "", 0)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.long
def test_two_gpumons_at_once(start: Start) -> None:
    process = start(IN_C.format(1))
    results: list[object] = []

    def run() -> None:
        try:
            results.append(attach(process.pid, 20.0).folder)
        except CommandError as error:
            results.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    waited(lambda: requests(process))
    assert requests(process) == 1
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert process.communicate("\n", timeout=30) == ("awake\n", "")


@pytest.mark.parametrize(("number", "words"), [(signal.SIGSTOP, "is stopped by a signal"), (0, "is traced by process")])
def test_a_process_that_is_held_is_refused(start: Start, number: int, words: str) -> None:
    process = start("print('on', flush=True)\ninput()")
    if number:
        process.send_signal(number)
        waited(lambda: status(process, "State").startswith("State:\tT"))
    else:
        tracee = ptrace.Tracee(process.pid)
    assert words in refusal(lambda: attach(process.pid))
    assert requests(process) == 0
    if not number:
        tracee.interrupt()
        tracee.wait_for_interrupt(1.0)
        tracee.detach()
    process.send_signal(signal.SIGCONT)
    assert process.communicate("\n", timeout=30) == ("", "")


def test_the_mask_is_kept_until_the_kernel_has_read_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start("print('on', flush=True)\ninput()")
    tracee = ptrace.Tracee(process.pid)
    tracee.interrupt()
    tracee.wait_for_interrupt(1.0)
    call = tracee._call

    def use_freed_memory(*arguments: int) -> None:
        others = [ctypes.c_uint64(0x5555) for _ in range(1000)]
        call(*arguments)
        del others

    monkeypatch.setattr(tracee, "_call", use_freed_memory)
    tracee.write_mask(1 << (signal.SIGUSR1 - 1))
    assert int(status(process, "SigBlk").split()[1], 16) == 1 << (signal.SIGUSR1 - 1)
    tracee.detach()


def test_programs_without_a_suitable_python(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start("print('on', flush=True)\ninput()")
    loading = partial(attach, process.pid)
    monkeypatch.setattr(python_image.PythonImage, "is_ready", lambda _: False)
    monkeypatch.setattr(injection, "_READY_SECONDS", 0.1)
    assert "its Python is starting or ending" in refusal(loading)
    monkeypatch.setattr(injection, "MIN_VERSION", (9, 0))
    assert "requires Python 3.8 or later" in refusal(loading)
    assert requests(process) == 0
    monkeypatch.setattr(python_image, "_image", without_symbols)
    monkeypatch.setattr(injection, "_READY_SECONDS", 60.0)
    assert "its Python is starting or ending" in refusal(loading)
    monkeypatch.setattr(injection, "_READY_SECONDS", 0.0)
    assert "no CPython with dynamic symbols" in refusal(loading)


def without_symbols(*_: object) -> None:
    raise python_image.NoPythonError


ASSEMBLY = Path(__file__).with_name("request_x86_64.s").read_text()


@pytest.mark.skipif(not (shutil.which("as") and shutil.which("objcopy")), reason="needs binutils")
def test_the_code_of_a_request_is_that_of_its_comments(tmp_path: Path) -> None:
    (tmp_path / "code.s").write_text(ASSEMBLY)
    subprocess.run(["as", "-o", "code.o", "code.s"], check=True, cwd=tmp_path)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", "code.o", "code"], check=True, cwd=tmp_path)
    assert (tmp_path / "code").read_bytes() == x86_64.CODE
