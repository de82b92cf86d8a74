"""Loading the probe into a running process: the target, the errors, and the complete way on Python 3.14."""

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
from typing import Any

import pytest

from gpumon.core.problems import CommandError, ExitCode
from gpumon.probe import agent
from gpumon.probe import attach as attaching
from gpumon.probe.attach import Attached, attach, interpreter, remote_script
from gpumon.probe.attach.handshake import listening_in
from gpumon.probe.attach.refusals import RefusalError
from gpumon.probe.attach.script_dir import AttachOutcome, ScriptDir
from gpumon.probe.attach.target import Target, read_target
from tests.probe.children import waited
from tests.probe.pythons import PYTHON314, needs_python314
from tests.processes import is_running, started_programs

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
SOURCES = {
    "__init__.py": "from .mark import start",
    "mark.py": "import os, sys\ndef start(): sys._gpumon_probe_pid = os.getpid()\n",
}


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
    with started_programs() as start:
        yield lambda *argv, env=None: start(*argv, env={**os.environ, **(env or {})})


def left(folder: Path) -> list[str]:
    return [item.name for item in folder.iterdir() if item.name.startswith("gpumon-attach-")]


def refusal(call: Callable[[], object], code: ExitCode = ExitCode.MISSING_PREREQUISITE) -> str:
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
        self.write("stat", f"{pid} (a ) b) S " + " ".join(["1"] * 18) + " 777" + " 0" * 32)
        self.write("maps", "")
        self.write("environ", "")
        self.write("cmdline", "python\0train.py\0")
        self.program(Path(sys.executable).resolve())
        (root / "self").symlink_to("/proc/self")
        (self.folder / "ns").symlink_to("/proc/self/ns")
        self.mounts("/")

    def mounts(self, root: Path | str) -> None:
        """The root folder of the process."""
        (self.folder / "root").unlink(missing_ok=True)
        (self.folder / "root").symlink_to(root)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def status(self, *uids: int) -> None:
        numbers = "\t".join(str(uid) for uid in (*uids, uids[-1]))
        self.write(
            "status", f"Name:\tpython\nTgid:\t{self.pid}\nUid:\t{numbers}\nGid:\t{numbers}\nNSpid:\t{self.pid}\t7\n"
        )

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
    assert not target.has_other_file_system
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
    proc.write("stat", f"{proc.pid} (python) S " + " ".join(["1"] * 18) + " 778" + " 0" * 32)
    assert target.state is None


def test_a_library_has_the_version_and_a_program_that_was_replaced(proc: FakeProc) -> None:
    proc.program("/opt/trainer")
    proc.write("maps", "7f00-7f01 r-xp 0 08:01 9   /opt/lib/libpython3.14.so.1.0\n")
    target = proc.read()
    assert not target.is_interpreter
    assert target.named_version == (3, 14)
    assert target.own_pid == 7
    proc.program("/opt/python3.14 (deleted)")
    target = proc.read()
    assert target.is_replaced
    assert not target.has_other_file_system
    assert target.program == "/opt/python3.14"


def test_a_process_in_another_file_system(proc: FakeProc, tmp_path: Path) -> None:
    proc.program("/none/python3.14")
    target = proc.read()
    assert target.has_other_file_system
    message = refusal(lambda: raise_(RefusalError("other_file_system", target=target, program=target.program)))
    assert "container" in message
    assert "gpumon attach 7" in message
    assert (target.sees(tmp_path), target.shares_mounts) == (True, True)
    proc.mounts(tmp_path)
    assert (target.sees(tmp_path), target.shares_mounts) == (False, False)


def raise_(error: CommandError) -> None:
    raise error


# What it may not be


@pytest.mark.parametrize("pid", [NO_SUCH_PID, 1 << 40])
def test_no_such_process(pid: int) -> None:
    assert f"no process {pid}" in refusal(lambda: read_target(pid))


def test_a_process_that_has_ended(start: Start) -> None:
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
        message = refusal(lambda: read_target(number), ExitCode.USAGE)
    finally:
        gate.set()
        thread.join()
    assert f"gpumon attach {os.getpid()}" in message


def test_not_python(sleepers: Callable[[int], list[int]], proc: FakeProc) -> None:
    message = refusal(lambda: read_target(sleepers(1)[0]))
    assert "sleep" in message
    assert "not Python" in message
    proc.folder.joinpath("exe").unlink()
    assert "belongs to the kernel" in refusal(proc.read)


def test_a_process_of_another_user(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.status(54321, 54321, 54321)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    message = refusal(proc.read)
    assert "54321" in message
    assert "as root" in message
    proc.status(1000, 0, 0)
    assert "user root" in refusal(proc.read)
    proc.status(1000, 1000, 1000)
    assert not proc.read().is_foreign
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert proc.read().is_foreign


def test_a_process_that_proc_hides_or_that_cannot_be_inspected(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "kill", forbidden)
    assert "another user" in refusal(lambda: read_target(1, proc.root))
    monkeypatch.setattr(Path, "readlink", forbidden)
    assert "SYS_PTRACE" in refusal(proc.read)


def test_a_proc_that_blocks_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(attaching, "read_target", lambda _: gate.wait())
    monkeypatch.setattr(attaching, "_PROC_TIMEOUT_SECONDS", 0.05)
    try:
        assert "does not respond" in refusal(lambda: attach(NO_SUCH_PID))
    finally:
        gate.set()


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


def test_a_script_that_is_accepted(proc: FakeProc, tmp_path: Path) -> None:
    target = pretend(proc, tmp_path, f'echo "$@" > {tmp_path}/arguments; {answered([3, 14, 1])}')
    interpreter.remote_exec(target, Path("/x/script.py"))
    message = (tmp_path / "arguments").read_text()
    assert message.startswith("-I -S -c ")
    assert message.endswith(f" {proc.pid} /x/script.py\n")


def test_an_interpreter_that_is_too_old(proc: FakeProc, tmp_path: Path) -> None:
    target = pretend(proc, tmp_path, answered([3, 9, 18]), "python3")
    assert "it runs Python 3.9.18" in refusal(lambda: interpreter.remote_exec(target, tmp_path))


def test_every_python_can_be_asked(tmp_path: Path) -> None:
    target = FakeProc(tmp_path / "proc", NO_SUCH_PID).read()
    message = refusal(lambda: interpreter.remote_exec(target, tmp_path))
    assert "Python 3" in message if sys.version_info < (3, 14) else "cannot reach" in message


@pytest.mark.parametrize("said", ["", "nonsense", "[]", "{}", '{"version": "x"}', "[" * 10_000])
def test_an_interpreter_with_invalid_output(proc: FakeProc, tmp_path: Path, said: str) -> None:
    (tmp_path / "said").write_text(said)
    target = pretend(proc, tmp_path, f"cat {tmp_path}/said; echo 'Fatal \033[31merror' >&2")
    message = refusal(lambda: interpreter.remote_exec(target, tmp_path))
    assert ": Fatal" in message
    assert "\033" not in message


def test_an_interpreter_that_cannot_be_run(proc: FakeProc, tmp_path: Path) -> None:
    target = pretend(proc, tmp_path, "exit 1")
    assert "gpumon cannot run" in refusal(lambda: interpreter.remote_exec(target, tmp_path))
    replaced = dataclasses.replace(target, is_replaced=True)
    assert "was replaced" in refusal(lambda: interpreter.remote_exec(replaced, tmp_path))
    proc.program("/proc/self/fd/none")
    assert "ended before" in refusal(lambda: interpreter.remote_exec(target, tmp_path))


def test_the_pid_of_another_process_by_now(proc: FakeProc, tmp_path: Path) -> None:
    target = pretend(proc, tmp_path, f"touch {tmp_path}/ran")
    others: list[dict[str, Any]] = [{"uid": target.uid + 1}, {"gid": target.gid + 1}, {"start_ticks": 1}]
    for other in others:
        with pytest.raises(CommandError, match="ended before"):
            interpreter.remote_exec(dataclasses.replace(target, **other), tmp_path)
    assert not (tmp_path / "ran").exists()


def test_an_interpreter_that_hangs(proc: FakeProc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_TIMEOUT_SECONDS", 0.2)
    target = pretend(proc, tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    assert "more than 0.2 s" in refusal(lambda: interpreter.remote_exec(target, tmp_path))
    assert not is_running(int((tmp_path / "pid").read_text()))


def chosen(target: Target) -> interpreter._Interpreter:
    with interpreter._opened_program(target) as descriptor:
        return interpreter._interpreter(target, descriptor)


def test_root_runs_programs_of_a_user_only_as_that_user(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.geteuid()
    proc.status(own + 1, own + 1, own + 1)
    proc.write("environ", "LD_LIBRARY_PATH=/opt/lib\0LD_PRELOAD=/x\0")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    shell = str(Path("/bin/sh").resolve())
    proc.program(shell)
    proc.write("maps", "7f00-7f01 r-xp 0 08:01 9   /opt/lib/libpython3.99.so.1.0\n")
    system_file = dataclasses.replace(proc.read(), is_interpreter=True)
    assert (chosen(system_file).user, chosen(system_file).environment) == (None, {})
    proc.mounts(proc.root)
    assert chosen(system_file).user == own + 1
    proc.mounts("/")
    proc.program(proc.root / "status")
    (proc.root / "status").touch()
    for target in (system_file, dataclasses.replace(system_file, program=str(proc.root / "status"))):
        assert (chosen(target).user, chosen(target).group) == (own + 1, own + 1)
        assert chosen(target).environment == {"LD_LIBRARY_PATH": "/opt/lib"}
    proc.mounts(proc.root)
    assert "in another file system" in refusal(lambda: chosen(system_file))
    same = dataclasses.replace(system_file, named_version=sys.version_info[:2])
    assert (chosen(same).program, chosen(same).user) == (sys.executable, None)


FORBIDDEN = ["RuntimeError: lookup failed", "PermissionError: [Errno 1] Operation not permitted"]


def test_what_the_kernel_forbids(proc: FakeProc, tmp_path: Path) -> None:
    target = pretend(proc, tmp_path, answered([3, 14, 0], *FORBIDDEN, is_forbidden=True))
    assert "The kernel does not allow gpumon" in refusal(lambda: interpreter.remote_exec(target, tmp_path))


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
    assert words in refusal(lambda: interpreter.remote_exec(target, tmp_path))


def test_any_other_error_is_reported(proc: FakeProc, tmp_path: Path) -> None:
    target = pretend(proc, tmp_path, answered([3, 15, 0], "RuntimeError: outer", "OSError: inner"))
    assert "cannot reach process 4242 (python train.py): RuntimeError: outer, from OSError: inner." in refusal(
        lambda: interpreter.remote_exec(target, tmp_path)
    )
    ends = f"sed -i 's/ S / Z /' {proc.folder}/stat; {answered([3, 15, 0], 'RuntimeError: outer')}"
    target = pretend(proc, tmp_path, ends)
    assert "ended before" in refusal(lambda: interpreter.remote_exec(target, tmp_path))


# The folder between the two


@pytest.fixture
def script_dir(proc: FakeProc) -> Iterator[ScriptDir]:
    opened = ScriptDir(proc.read())
    yield opened
    if opened.folder.exists():
        opened.close()


def run_script(script_dir: ScriptDir, sources: dict[str, str] = SOURCES, seconds_left: float = 60.0) -> None:
    """What the process does that runs the script."""
    deadline = time.time() + seconds_left
    remote_script.run(os.getpid(), str(script_dir.folder), "/none/agent", sources, ["json"], deadline=deadline)


@pytest.fixture
def unprobed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process as one into which a probe can be loaded."""
    monkeypatch.delattr(sys, "_gpumon_probe_pid", raising=False)
    monkeypatch.setattr(sys, "_gpumon_probe_pid", None, raising=False)
    monkeypatch.delitem(sys.modules, remote_script.AGENT, raising=False)
    yield
    sys.modules.pop(remote_script.AGENT, None)


def test_the_outcome_of_a_script(script_dir: ScriptDir, unprobed: None) -> None:
    assert stat.S_IMODE(script_dir.folder.stat().st_mode) == 0o700
    compile(script_dir.script.read_text(), "script", "exec")
    assert script_dir.outcome() is None
    run_script(script_dir)
    assert script_dir.outcome() == AttachOutcome(reason=None, runs=True, was_there=False)
    assert sys.modules[remote_script.AGENT].__file__ == "/none/agent/__init__.py"
    run_script(script_dir, {"__init__.py": "1 / 0"})
    assert script_dir.outcome() == AttachOutcome(reason=None, runs=True, was_there=True)
    script_dir.close()
    assert not script_dir.folder.exists()


@pytest.mark.parametrize(
    ("source", "seconds_left", "reason"),
    [
        ("1 / 0", 60.0, "ZeroDivisionError: division by zero"),
        ("def start(): raise OSError('x')", 60.0, "OSError: x"),
        (SOURCES["mark.py"], -1.0, "the process ran no Python code in time"),
    ],
)
def test_a_probe_that_cannot_start(
    script_dir: ScriptDir, unprobed: None, source: str, seconds_left: float, reason: str
) -> None:
    run_script(script_dir, {"__init__.py": source}, seconds_left)
    waited(lambda: not script_dir.is_waiting())
    assert script_dir.outcome() == AttachOutcome(reason=reason, runs=False, was_there=False)


def test_a_module_that_is_only_there_in_part(
    script_dir: ScriptDir, unprobed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["json"].__spec__, "_initializing", True)
    run_script(script_dir)
    waited(lambda: not script_dir.is_waiting())
    assert script_dir.outcome() == AttachOutcome(reason=remote_script.IMPORTING, runs=False, was_there=False)


def test_a_script_without_a_waiting_gpumon_removes_itself(script_dir: ScriptDir, unprobed: None) -> None:
    script_dir.stop_waiting()
    script_dir.close()
    assert script_dir.script.exists()
    run_script(script_dir)
    assert not script_dir.folder.exists()
    run_script(script_dir)  # the folder is gone: nothing is raised


def test_a_script_that_ran_before_gpumon_stopped_waiting(script_dir: ScriptDir, unprobed: None) -> None:
    run_script(script_dir)
    script_dir.stop_waiting()
    script_dir.close()
    assert not script_dir.folder.exists()


def test_the_script_is_self_contained(script_dir: ScriptDir, tmp_path: Path) -> None:
    """The script that Python 3.14 runs, in a process that cannot import gpumon."""
    program = tmp_path / "program.py"
    code = (
        "import os, re, sys; path, finders = list(sys.path), list(sys.meta_path); "
        f"text = re.sub('\\nrun.[0-9]+', f'\\nrun({{os.getpid()}}', open({str(script_dir.script)!r}).read()); "
        "exec(text, {'__name__': '__main__'}); "
        "print(sorted(name for name in sys.modules if 'gpumon' in name)); "
        "print(path == sys.path, finders == sys.meta_path, 'gpumon' in sys.modules); "
        "print({type(sys.modules[name]).__name__ for name in sys.modules if 'gpumon' in name}); "
        "import time; time.sleep(0.5); print(len(os.listdir(os.environ['GPUMON_PROBE_DIR'])))"
    )
    program.write_text(code)
    done = subprocess.run([sys.executable, "-I", str(program)], capture_output=True, text=True, check=True, cwd="/")
    modules, unchanged, kinds, sockets = done.stdout.splitlines()
    names = {path.stem for path in Path(agent.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules == str(sorted(["_gpumon_probe_agent", *(f"_gpumon_probe_agent.{name}" for name in names)]))
    assert (unchanged, kinds, sockets) == ("True True False", "{'module'}", "1")
    assert script_dir.outcome() == AttachOutcome(reason=None, runs=True, was_there=False)


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "[]", "{}", "[" * 4000, '{"reason": null, "was_there": ' + " " * 9000],
    ids=["nothing", "text", "list", "empty", "deep", "long"],
)
def test_an_invalid_outcome(script_dir: ScriptDir, text: str) -> None:
    (script_dir.folder / "outcome").write_text(text)
    assert script_dir.outcome() is None
    (script_dir.folder / "outcome").unlink()
    os.mkfifo(script_dir.folder / "outcome")
    assert script_dir.outcome() is None


def test_folders_of_ended_processes_are_removed(tmp_path: Path, proc: FakeProc) -> None:
    gone, running, held = (
        tmp_path / f"gpumon-attach-{name}" for name in (f"{NO_SUCH_PID}-x", f"{os.getpid()}-x", f"{NO_SUCH_PID}-y")
    )
    for folder in (gone, running, held):
        folder.mkdir(mode=0o700)
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    ScriptDir(proc.read()).close()
    os.close(descriptor)
    assert (gone.exists(), running.exists(), held.exists()) == (False, True, True)
    running.rmdir()
    held.rmdir()


def test_no_writable_temporary_folder(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start(sys.executable, "-c", FOR_EVER)
    target = dataclasses.replace(read_target(process.pid), named_version=(3, 14))
    monkeypatch.setattr(attaching, "read_target", lambda _: target)
    monkeypatch.setattr(tempfile, "tempdir", "/none")
    message = refusal(lambda: attach(process.pid))
    assert "No such file" in message
    assert "TMPDIR" in message


# How it goes on


def follow(
    target: Target, monkeypatch: pytest.MonkeyPatch, outcome: AttachOutcome | None, seconds: float = 0.1
) -> Attached:
    monkeypatch.setattr(attaching, "remote_exec", lambda *_: None)
    monkeypatch.setattr(ScriptDir, "outcome", lambda _: outcome)
    script_dir = ScriptDir(target)
    try:
        return attaching._run_script(target, script_dir, seconds, None)
    finally:
        shutil.rmtree(script_dir.folder)


@pytest.mark.parametrize(("state", "words"), [("S", "has run no Python code for 0.1 s"), ("T", "kill -CONT 4242")])
def test_a_process_that_has_not_run_the_script(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch, state: str, words: str
) -> None:
    proc.write("stat", f"{proc.pid} (python) {state} " + " ".join(["1"] * 18) + " 777" + " 0" * 32)
    assert words in refusal(lambda: follow(proc.read(), monkeypatch, None), ExitCode.BAD_VERDICT)


def test_a_process_that_ends_first(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    target = dataclasses.replace(proc.read(), start_ticks=1)
    assert "ended before" in refusal(lambda: follow(target, monkeypatch, None, 60.0))


def test_a_probe_that_does_not_answer_yet(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    started = AttachOutcome(reason=None, runs=True, was_there=False)
    proc.mounts(proc.root)
    message = refusal(lambda: follow(proc.read(), monkeypatch, started), ExitCode.BAD_VERDICT)
    assert "may listen in the /tmp of that process" in message
    proc.mounts("/")
    message = refusal(lambda: follow(proc.read(), monkeypatch, started), ExitCode.BAD_VERDICT)
    assert "has not answered for 0.1 s" in message


def test_other_outcomes(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    target = proc.read()
    assert "GPUMON_PROBE=0" in refusal(lambda: follow(target, monkeypatch, AttachOutcome(None, False, False)))
    assert "OSError: x" in refusal(lambda: follow(target, monkeypatch, AttachOutcome("OSError: x", False, False)))
    assert follow(target, monkeypatch, AttachOutcome(None, True, True)) == Attached(target, was_there=True, folder=None)


def test_ctrl_c_withdraws_the_script(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(attaching, "remote_exec", lambda _, script: asked.append(script))
    monkeypatch.setattr(attaching, "_wait_for_probe", interrupted)
    script_dir = ScriptDir(proc.read())
    with pytest.raises(KeyboardInterrupt):
        attaching._run_script(proc.read(), script_dir, 1.0, None)
    script_dir.close()
    assert asked == [script_dir.script, Path(os.devnull)]


# On a Python that can


@needs_python314
def test_the_probe_is_loaded_into_a_running_process(start: Start, folders: Path) -> None:
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
def test_a_busy_main_thread_starts_the_probe_later(start: Start, folders: Path, tmp_path: Path) -> None:
    process = start(PYTHON314, "-c", SLEEPY)
    message = refusal(lambda: attach(process.pid, 0.2), ExitCode.BAD_VERDICT)
    assert "if the main thread runs Python code again within an hour" in message
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
        ((), {"GPUMON_PROBE": "0"}, "disables the probe"),
    ],
)
def test_processes_that_disallow_the_probe(
    start: Start, folders: Path, option: tuple[str, ...], environment: dict[str, str], words: str
) -> None:
    process = start(PYTHON314, *option, "-c", FOR_EVER, env=environment)
    assert words in refusal(lambda: attach(process.pid))
    assert list(folders.iterdir()) == []
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("", "")
