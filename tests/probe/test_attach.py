"""Loading the probe into a process that runs already: what it is, why not, and how it comes about on Python 3.14."""

import dataclasses
import errno
import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.core.exits import CommandError, ExitCode
from gpumon.probe import attach as attaching
from gpumon.probe.attach import Attached, attach, inside, interpreter, refusals
from gpumon.probe.attach.handover import Handover, Outcome
from gpumon.probe.attach.hello import listening_in
from gpumon.probe.attach.target import Target, read_target
from tests.probe.pythons import PYTHON314, needs_python314
from tests.processes import is_running

Start = Callable[..., subprocess.Popen[str]]

FOR_EVER = "import time; print('on', flush=True)\nwhile True: time.sleep(0.02)"
SLEEPY = """
import time
print('on', flush=True)
time.sleep(2)
print('awake', flush=True)
time.sleep(0.2)
raise SystemExit(7)
"""
NO_SUCH_PID = (1 << 22) + 1
SOURCE = "import os, sys\ndef start(): sys._gpumon_probe_pid = os.getpid()\n"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets, with a short path as they need, and one for scripts, of which none may be left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = Path(tempfile.mkdtemp(prefix="gpumon-", dir="/tmp"))
    monkeypatch.setenv("GPUMON_PROBE_DIR", str(folder))
    monkeypatch.delenv("GPUMON_PROBE", raising=False)
    yield folder
    shutil.rmtree(folder)
    assert left(tmp_path) == []


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts programs; each has said its first line when it is returned."""
    started: list[subprocess.Popen[str]] = []

    def run(*argv: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **(env or {})})
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def left(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir() if each.name.startswith("gpumon-attach-")]


def refusal(call: Callable[[], object], code: ExitCode = ExitCode.NOT_THERE) -> str:
    """What a command is ended with, cause and remedy."""
    with pytest.raises(CommandError) as caught:
        call()
    assert caught.value.exit_code is code
    assert caught.value.problem.reason.endswith(".")
    return str(caught.value)


class FakeProc:
    """A /proc with one process in it, which is whatever a test says."""

    def __init__(self, root: Path, pid: int = 4242) -> None:
        self.root = root
        self.pid = pid
        self.folder = root / str(pid)
        self.folder.mkdir(parents=True)
        own = os.geteuid()
        self.status(own, own, own)
        self.write("stat", f"{pid} (a ) b) S " + " ".join(["1"] * 18) + " 777 0 0")
        self.write("maps", "")
        self.write("environ", "")
        self.write("cmdline", "python\0train.py\0")
        self.program(Path(sys.executable).resolve())

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def status(self, *uids: int) -> None:
        numbers = "\t".join(str(each) for each in (*uids, uids[-1]))
        self.write("status", f"Name:\tpython\nTgid:\t{self.pid}\nUid:\t{numbers}\nNSpid:\t{self.pid}\t7\n")

    def program(self, path: Path | str) -> None:
        (self.folder / "exe").unlink(missing_ok=True)
        (self.folder / "exe").symlink_to(path)

    def scope(self, value: str) -> None:
        folder = self.root / "sys/kernel/yama"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ptrace_scope").write_text(f"{value}\n")

    def read(self) -> Target:
        return read_target(self.pid, self.root)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


# What it is


def test_a_process_of_python_is_read(start: Start) -> None:
    process = start(sys.executable, "-c", FOR_EVER, env={"GPUMON_TEST": "here"})
    target = read_target(process.pid)
    assert (target.pid, target.uid, target.is_foreign) == (process.pid, os.geteuid(), False)
    assert Path(target.program) == Path(sys.executable).resolve()
    assert target.is_interpreter
    assert not target.is_replaced
    assert not target.is_elsewhere
    assert target.named_version in {None, sys.version_info[:2]}
    assert str(target).startswith(f"Process {process.pid} (")
    assert "import time" in target.name
    assert target.environment()["GPUMON_TEST"] == "here"
    assert "-c" in target.arguments()
    assert target.state in {"S", "R"}
    process.kill()
    process.wait()
    assert target.state is None


def test_another_process_of_the_same_pid_is_not_it(proc: FakeProc) -> None:
    target = proc.read()
    assert target.state == "S"
    proc.write("stat", f"{proc.pid} (python) S " + " ".join(["1"] * 18) + " 778 0 0")
    assert target.state is None


@pytest.mark.parametrize(
    ("program", "version"),
    [
        ("python3.14", (3, 14)),
        ("python3.14t", (3, 14)),
        ("python3.13-dbg", (3, 13)),
        ("python3", None),
        ("python", None),
    ],
)
def test_versions_by_name(proc: FakeProc, program: str, version: tuple[int, int] | None) -> None:
    proc.program(f"/opt/{program}")
    target = proc.read()
    assert target.is_interpreter
    assert target.named_version == version


def test_a_library_tells_the_version(proc: FakeProc) -> None:
    proc.program("/opt/trainer")
    proc.write("maps", "7f00-7f01 r-xp 0 08:01 9   /opt/lib/libpython3.14.so.1.0\n")
    target = proc.read()
    assert not target.is_interpreter
    assert target.named_version == (3, 14)
    assert target.own_pid == 7


def test_a_program_that_was_replaced(proc: FakeProc) -> None:
    proc.program("/opt/python3.14 (deleted)")
    target = proc.read()
    assert target.is_replaced
    assert not target.is_elsewhere
    assert target.program == "/opt/python3.14"


def test_what_is_in_another_file_system(proc: FakeProc, tmp_path: Path) -> None:
    proc.program("/none/python3.14")
    target = proc.read()
    assert target.is_elsewhere
    told = refusal(lambda: raise_(refusals.elsewhere(target)))
    assert "container" in told
    assert "gpumon attach 7" in told
    (proc.folder / "root").symlink_to(tmp_path)
    assert not target.sees(tmp_path)
    (proc.folder / "root").unlink()
    (proc.folder / "root").symlink_to("/")
    assert target.sees(tmp_path)


def raise_(error: CommandError) -> None:
    raise error


# What it may not be


@pytest.mark.parametrize("pid", [NO_SUCH_PID, 1 << 40])
def test_no_such_process(pid: int) -> None:
    assert f"no process {pid}" in refusal(lambda: read_target(pid))


def test_one_that_has_ended(start: Start) -> None:
    process = start(sys.executable, "-c", "print('on', flush=True)")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert "has ended" in refusal(lambda: read_target(process.pid))


def test_a_thread_names_its_process() -> None:
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    try:
        number = thread.native_id
        assert number is not None
        told = refusal(lambda: read_target(number), ExitCode.USAGE)
    finally:
        gate.set()
        thread.join()
    assert f"gpumon attach {os.getpid()}" in told


def test_not_python(sleepers: Callable[[int], list[int]], proc: FakeProc) -> None:
    told = refusal(lambda: read_target(sleepers(1)[0]))
    assert "sleep" in told
    assert "not Python" in told
    proc.folder.joinpath("exe").unlink()
    assert "the kernel's own" in refusal(proc.read)


def test_another_users(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.status(54321, 54321, 54321)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    told = refusal(proc.read)
    assert "54321" in told
    assert "as root" in told
    proc.status(1000, 0, 0)
    assert "user root" in refusal(proc.read)
    proc.status(1000, 1000, 1000)
    assert not proc.read().is_foreign
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert proc.read().is_foreign


def test_one_that_proc_hides(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "kill", forbidden)
    assert "another user" in refusal(lambda: read_target(1, proc.root))


def test_one_that_does_not_let_itself_be_looked_into(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_: Path) -> Path:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(Path, "readlink", forbidden)
    assert "SYS_PTRACE" in refusal(proc.read)


def test_a_proc_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(attaching, "read_target", lambda _: gate.wait())
    monkeypatch.setattr(attaching, "_PATIENCE_SECONDS", 0.05)
    try:
        assert "does not answer" in refusal(lambda: attach(NO_SUCH_PID))
    finally:
        gate.set()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python is new enough")
def test_an_old_python_and_what_to_do(start: Start) -> None:
    process = start(sys.executable, "-c", FOR_EVER)
    told = refusal(lambda: attach(process.pid))
    assert f"runs Python {sys.version_info[0]}.{sys.version_info[1]}" in told
    assert "gpumon watch -- " in told
    assert "gpumon.probe.start()" in told


# Asking for it


def pretend(proc: FakeProc, folder: Path, script: str, name: str = "python3.14") -> Target:
    """A process whose interpreter is a script for the shell."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    proc.program(program)
    return dataclasses.replace(proc.read(), named_version=None)


def answered(version: list[int], *errors: str, is_forbidden: bool = False) -> str:
    return f"cat <<'END'\n{json.dumps({'version': version, 'errors': errors, 'is_forbidden': is_forbidden})}\nEND"


def test_a_script_that_is_taken(proc: FakeProc, tmp_path: Path) -> None:
    target = pretend(proc, tmp_path, f'echo "$@" > {tmp_path}/told; {answered([3, 14, 1])}')
    interpreter.ask_to_run(target, Path("/x/script.py"))
    told = (tmp_path / "told").read_text()
    assert told.startswith("-I -S -c ")
    assert told.endswith(f" {proc.pid} /x/script.py\n")


def test_an_interpreter_that_turns_out_to_be_old(proc: FakeProc, tmp_path: Path) -> None:
    target = pretend(proc, tmp_path, answered([3, 9, 18]), "python3")
    assert "runs Python 3.9.18" in refusal(lambda: interpreter.ask_to_run(target, tmp_path))


def test_every_python_can_be_asked(proc: FakeProc, tmp_path: Path) -> None:
    proc.program(sys.executable)
    target = dataclasses.replace(proc.read(), pid=NO_SUCH_PID)
    (proc.root / str(NO_SUCH_PID)).symlink_to(proc.folder)
    told = refusal(lambda: interpreter.ask_to_run(target, tmp_path))
    assert "Python 3" in told if sys.version_info < (3, 14) else "could not be reached" in told


@pytest.mark.parametrize(
    "said",
    ["", "nonsense", "[]", "{}", '{"version": "x"}', "[" * 100_000],
    ids=["nothing", "text", "list", "empty", "no numbers", "deep"],
)
def test_an_interpreter_that_answers_nonsense(proc: FakeProc, tmp_path: Path, said: str) -> None:
    (tmp_path / "said").write_text(said)
    target = pretend(proc, tmp_path, f"cat {tmp_path}/said; echo 'Fatal \033[31merror' >&2")
    told = refusal(lambda: interpreter.ask_to_run(target, tmp_path))
    assert "cannot be run by gpumon: Fatal" in told
    assert "\033" not in told


def test_an_interpreter_that_cannot_be_run_any_more(proc: FakeProc, tmp_path: Path) -> None:
    target = pretend(proc, tmp_path, "exit 1")
    assert "cannot be run" in refusal(lambda: interpreter.ask_to_run(target, tmp_path))
    replaced = dataclasses.replace(target, is_replaced=True)
    assert "was replaced" in refusal(lambda: interpreter.ask_to_run(replaced, tmp_path))
    proc.program("/none/python3.14")
    assert "No such file" in refusal(lambda: interpreter.ask_to_run(target, tmp_path))


def test_an_interpreter_that_hangs(proc: FakeProc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_PATIENCE_SECONDS", 0.2)
    target = pretend(proc, tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    assert "more than 0.2 s" in refusal(lambda: interpreter.ask_to_run(target, tmp_path))
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_a_program_with_python_inside(proc: FakeProc, tmp_path: Path) -> None:
    proc.program("/opt/trainer")
    proc.write("maps", "7f00-7f01 r-xp 0 08:01 9   /opt/lib/libpython3.99.so.1.0\n")
    target = proc.read()
    assert "Run gpumon with Python 3.99" in refusal(lambda: interpreter.ask_to_run(target, tmp_path))
    own = dataclasses.replace(target, named_version=sys.version_info[:2])
    assert interpreter._interpreter(own).program == sys.executable


def test_root_runs_nothing_of_a_user_but_as_that_user(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.program("/opt/python3.99")
    proc.write("environ", "LD_LIBRARY_PATH=/opt/lib\0LD_PRELOAD=/x\0")
    target = proc.read()
    assert interpreter._interpreter(target).environment == {"LD_LIBRARY_PATH": "/opt/lib"}
    assert interpreter._interpreter(target).user is None
    foreign = dataclasses.replace(target, uid=target.uid + 1)
    assert interpreter._interpreter(foreign).user == target.uid + 1
    systems = dataclasses.replace(foreign, program=str(Path("/bin/sh").resolve()))
    assert (interpreter._interpreter(systems).user, interpreter._interpreter(systems).environment) == (None, {})
    same = dataclasses.replace(foreign, named_version=sys.version_info[:2])
    assert (interpreter._interpreter(same).program, interpreter._interpreter(same).user) == (sys.executable, None)


FORBIDDEN = ["RuntimeError: lookup failed", "PermissionError: [Errno 1] Operation not permitted"]


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (None, "docker run --cap-add SYS_PTRACE"),
        ("0", "docker run --cap-add SYS_PTRACE"),
        ("1", "only parents touch the memory of their children"),
        ("2", "ptrace_scope is 2"),
        ("3", "gpumon watch -- "),
    ],
)
def test_what_the_kernel_forbids(proc: FakeProc, tmp_path: Path, scope: str | None, words: str) -> None:
    if scope is not None:
        proc.scope(scope)
    target = pretend(proc, tmp_path, answered([3, 14, 0], *FORBIDDEN, is_forbidden=True))
    assert words in refusal(lambda: interpreter.ask_to_run(target, tmp_path))


@pytest.mark.parametrize(
    ("environ", "cmdline", "words"),
    [
        ("PYTHON_DISABLE_REMOTE_DEBUG=1\0", "python\0", "PYTHON_DISABLE_REMOTE_DEBUG is set"),
        ("PYTHON_DISABLE_REMOTE_DEBUG=\0", "python\0-Xdisable-remote-debug\0", "-X disable-remote-debug"),
        ("", "python\0", "built without"),
    ],
)
def test_why_remote_debugging_is_off(proc: FakeProc, tmp_path: Path, environ: str, cmdline: str, words: str) -> None:
    proc.write("environ", environ)
    proc.write("cmdline", cmdline)
    target = pretend(proc, tmp_path, answered([3, 14, 0], "RuntimeError: Remote debugging is not enabled in it"))
    assert words in refusal(lambda: interpreter.ask_to_run(target, tmp_path))


def test_any_other_error_is_told(proc: FakeProc, tmp_path: Path) -> None:
    target = pretend(proc, tmp_path, answered([3, 15, 0], "RuntimeError: outer", "OSError: inner"))
    assert "could not be reached: RuntimeError: outer, from OSError: inner." in refusal(
        lambda: interpreter.ask_to_run(target, tmp_path)
    )
    proc.write("stat", f"{proc.pid} (python) Z " + " ".join(["1"] * 18) + " 777 0 0")
    assert "ended before" in refusal(lambda: interpreter.ask_to_run(target, tmp_path))


# The folder between the two


@pytest.fixture
def unprobed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process as one into which a probe can be loaded."""
    monkeypatch.delattr(sys, "_gpumon_probe_pid", raising=False)
    monkeypatch.setattr(sys, "_gpumon_probe_pid", None, raising=False)
    monkeypatch.delitem(sys.modules, inside.NAME, raising=False)
    yield
    sys.modules.pop(inside.NAME, None)


def test_what_comes_of_a_script(proc: FakeProc, unprobed: None) -> None:
    handover = Handover(proc.read())
    try:
        assert stat.S_IMODE(handover.folder.stat().st_mode) == 0o700
        compile(handover.script.read_text(), "script", "exec")
        assert handover.outcome() is None
        inside.begin(str(handover.folder), "/none/agent.py", SOURCE)
        assert handover.outcome() == Outcome(reason=None, runs=True, was_there=False)
        assert sys.modules[inside.NAME].__file__ == "/none/agent.py"
        inside.begin(str(handover.folder), "/none/agent.py", "1 / 0")
        assert handover.outcome() == Outcome(reason=None, runs=True, was_there=True)
    finally:
        handover.close()
    assert not handover.folder.exists()


@pytest.mark.parametrize(
    ("source", "reason"),
    [("1 / 0", "ZeroDivisionError: division by zero"), ("def start(): raise OSError('x')", "OSError: x")],
)
def test_a_probe_that_cannot_start(proc: FakeProc, unprobed: None, source: str, reason: str) -> None:
    handover = Handover(proc.read())
    inside.begin(str(handover.folder), "/none/agent.py", source)
    assert handover.outcome() == Outcome(reason=reason, runs=False, was_there=False)
    handover.close()


def test_a_script_that_nobody_waits_for_removes_itself(proc: FakeProc, unprobed: None) -> None:
    handover = Handover(proc.read())
    handover.leave()
    handover.close()
    assert handover.script.exists()
    inside.begin(str(handover.folder), "/none/agent.py", SOURCE)
    assert not handover.folder.exists()
    inside.begin(str(handover.folder), "/none/agent.py", SOURCE)  # somebody cleans /tmp up: it raises nothing


def test_a_script_that_ran_before_it_was_left(proc: FakeProc, unprobed: None) -> None:
    handover = Handover(proc.read())
    inside.begin(str(handover.folder), "/none/agent.py", SOURCE)
    handover.leave()
    handover.close()
    assert not handover.folder.exists()


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "[]", "{}", "[" * 4000, '{"reason": null, "was_there": ' + " " * 9000],
    ids=["nothing", "text", "list", "empty", "deep", "long"],
)
def test_an_outcome_that_is_none(proc: FakeProc, text: str) -> None:
    handover = Handover(proc.read())
    (handover.folder / "outcome").write_text(text)
    assert handover.outcome() is None
    (handover.folder / "outcome").unlink()
    os.mkfifo(handover.folder / "outcome")
    assert handover.outcome() is None
    handover.close()


def test_what_processes_have_left_that_are_gone_is_swept(tmp_path: Path, proc: FakeProc) -> None:
    gone, running, held = (
        tmp_path / f"gpumon-attach-{name}" for name in (f"{NO_SUCH_PID}-x", f"{os.getpid()}-x", f"{NO_SUCH_PID}-y")
    )
    for folder in (gone, running, held):
        folder.mkdir()
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    Handover(proc.read()).close()
    os.close(descriptor)
    assert (gone.exists(), running.exists(), held.exists()) == (False, True, True)
    running.rmdir()
    held.rmdir()


def test_no_place_for_the_script(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start(sys.executable, "-c", FOR_EVER)
    target = dataclasses.replace(read_target(process.pid), named_version=None)
    monkeypatch.setattr(attaching, "read_target", lambda _: target)
    monkeypatch.setattr(tempfile, "tempdir", "/none")
    told = refusal(lambda: attach(process.pid))
    assert "No such file" in told
    assert "TMPDIR" in told


# How it goes on


def follow(target: Target, monkeypatch: pytest.MonkeyPatch, outcome: Outcome | None, seconds: float = 0.1) -> Attached:
    monkeypatch.setattr(attaching, "ask_to_run", lambda *_: None)
    monkeypatch.setattr(Handover, "outcome", lambda _: outcome)
    handover = Handover(target)
    try:
        return attaching._handed_over(target, handover, seconds)
    finally:
        shutil.rmtree(handover.folder)


@pytest.mark.parametrize(
    ("state", "words"), [("S", "no Python code on its main thread for 0.1 s"), ("T", "kill -CONT 4242")]
)
def test_one_that_does_not_run_the_script_yet(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch, state: str, words: str
) -> None:
    proc.write("stat", f"{proc.pid} (python) {state} " + " ".join(["1"] * 18) + " 777 0 0")
    assert words in refusal(lambda: follow(proc.read(), monkeypatch, None), ExitCode.BAD_VERDICT)


def test_one_that_ends_before(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    target = dataclasses.replace(proc.read(), start_ticks=1)
    assert "ended before" in refusal(lambda: follow(target, monkeypatch, None, 60.0))


def test_a_probe_that_does_not_answer_yet(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Outcome(reason=None, runs=True, was_there=False)
    told = refusal(lambda: follow(proc.read(), monkeypatch, started), ExitCode.BAD_VERDICT)
    assert "may listen in its /tmp, which is another one" in told
    (proc.folder / "root").symlink_to("/")
    told = refusal(lambda: follow(proc.read(), monkeypatch, started), ExitCode.BAD_VERDICT)
    assert "has not answered for 0.1 s" in told


def test_other_outcomes(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    target = proc.read()
    assert "GPUMON_PROBE=0" in refusal(lambda: follow(target, monkeypatch, Outcome(None, False, False)))
    assert "OSError: x" in refusal(lambda: follow(target, monkeypatch, Outcome("OSError: x", False, False)))
    assert follow(target, monkeypatch, Outcome(None, True, True)) == Attached(target, was_there=True, folder=None)
    foreign = dataclasses.replace(target, uid=target.uid + 1)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    assert follow(foreign, monkeypatch, Outcome(None, True, False)) == Attached(foreign, was_there=False, folder=None)


def test_ctrl_c_takes_the_script_back(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(attaching, "ask_to_run", lambda _, script: asked.append(script))
    monkeypatch.setattr(attaching, "_followed", interrupted)
    handover = Handover(proc.read())
    with pytest.raises(KeyboardInterrupt):
        attaching._handed_over(proc.read(), handover, 1.0)
    handover.close()
    assert asked == [handover.script, Path(os.devnull)]


# On a Python that can


@needs_python314
def test_a_probe_gets_into_a_running_process(start: Start, folders: Path) -> None:
    process = start(PYTHON314, "-c", FOR_EVER)
    attached = attach(process.pid)
    assert (attached.was_there, attached.folder) == (False, folders)
    assert attached.target.pid == process.pid
    assert listening_in(attached.target, 5.0) == folders
    again = attach(process.pid)
    assert (again.was_there, again.folder) == (True, folders)


@needs_python314
def test_the_program_notices_nothing(start: Start) -> None:
    code = (
        "import threading, time; print('on', flush=True)\nfor _ in range(100): time.sleep(0.01)\n"
        "print(threading.active_count(), sorted(name for name in globals() if name[0] != '_'))\nraise SystemExit(7)"
    )
    process = start(PYTHON314, "-c", code)
    attach(process.pid)
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ("1 ['threading', 'time']\n", "", 7)


@needs_python314
def test_a_main_thread_that_is_busy_starts_it_later(start: Start, folders: Path, tmp_path: Path) -> None:
    process = start(PYTHON314, "-c", SLEEPY)
    told = refusal(lambda: attach(process.pid, 0.2), ExitCode.BAD_VERDICT)
    assert "as soon as Python code runs again" in told
    assert len(left(tmp_path)) == 1
    target = read_target(process.pid)
    assert process.stdout is not None
    assert process.stdout.readline() == "awake\n"
    deadline = time.monotonic() + 10
    while (folder := listening_in(target)) is None and time.monotonic() < deadline and target.state is not None:
        time.sleep(0.01)
    assert folder == folders
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ("", "", 7)
    assert left(tmp_path) == []


@needs_python314
@pytest.mark.parametrize(
    ("option", "environment", "words"),
    [
        ((), {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}, "PYTHON_DISABLE_REMOTE_DEBUG is set"),
        (("-X", "disable-remote-debug"), {}, "-X disable-remote-debug"),
        ((), {"GPUMON_PROBE": "0"}, "keeps probes out"),
    ],
)
def test_processes_that_refuse(
    start: Start, folders: Path, option: tuple[str, ...], environment: dict[str, str], words: str
) -> None:
    process = start(PYTHON314, *option, "-c", FOR_EVER, env=environment)
    assert words in refusal(lambda: attach(process.pid))
    assert list(folders.iterdir()) == []
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("", "")


@needs_python314
def test_variables_that_python_itself_does_not_heed_forbid_nothing(start: Start) -> None:
    process = start(PYTHON314, "-I", "-c", FOR_EVER, env={"PYTHON_DISABLE_REMOTE_DEBUG": "1"})
    assert not attach(process.pid).was_there
