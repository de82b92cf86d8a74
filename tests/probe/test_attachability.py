"""What is known about a process before gpumon attaches, and what is left in it after the probe has gone."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from gpumon.probe import agent
from gpumon.probe.attach import AttachState, attachability, detach
from tests.probe.children import running
from tests.probe.test_attach import FakeProc

AGENT = Path(agent.__file__)
PROGRAM = """
import gc, os, sys, threading, time
def state():
    modules = sorted(name for name in sys.modules if "gpumon" in name)
    return modules, len(gc.callbacks), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
import torch
from importlib.util import module_from_spec, spec_from_file_location
before = state()
for _ in range(2):
    spec = spec_from_file_location("_gpumon_probe_agent", AGENT)
    agent = sys.modules["_gpumon_probe_agent"] = module_from_spec(spec)
    spec.loader.exec_module(agent)
    agent.start()
    print("on", flush=True)
    sys.stdin.readline()
    del agent, spec
    for _ in range(200):
        after = state()  # the thread is gone a moment later
        if after == before:
            break
        time.sleep(0.01)
    print([after, before] if after != before else "same", len(sys._gpumon_probe_calls), flush=True)
    os.waitpid(os.fork() or os._exit(0), 0)
"""


def test_a_detached_probe_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_PROBE_DIR", str(tmp_path / "sockets"))
    with running(tmp_path, PROGRAM.replace("AGENT", repr(str(AGENT)))) as program:
        pid = program.process.pid
        assert attachability(pid).state is not AttachState.PROBE
        assert detach(pid) is None
        for _ in range(2):
            assert program.hear() == "on"
            program.socket()
            assert attachability(pid).word == "probe"
            assert detach(pid) is not None
            program.say("")
            assert program.hear() == f"same {3 + (sys.version_info >= (3, 13))}"
        assert program.end() == (0, "", "")


def test_words_for_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = FakeProc(tmp_path / "proc")

    def word(status: str = "") -> str:
        own = os.geteuid()
        proc.status(own, own, own)
        proc.write("status", (proc.folder / "status").read_text() + status)
        return attachability(proc.pid, proc.root).word

    assert word() == "can attach"
    assert word("TracerPid:\t1\n") == "traced"
    assert word("State:\tT (stopped)\n") == "stopped"
    assert word("Seccomp:\t1\n") == "seccomp"
    proc.scope("3")
    assert word() == "ptrace_scope 3"
    proc.scope("0")
    proc.write("environ", "GPUMON_PROBE=0\0")
    assert word() == "disabled"
    proc.write("environ", "")
    for library, expected in [
        ("libpython3.7m.so.1.0", "Python too old"),
        ("libpython3.13t.so.1.0", "no GIL"),
        ("_json.cpython-37m-x86_64-linux-gnu.so", "Python too old"),
    ]:
        proc.write("maps", f"7f00-7f01 r-xp 0 08:01 9   /opt/lib/{library}\n")
        assert word() == expected
    proc.program("/usr/bin/pypy3.10")
    assert word() == "PyPy"


REMEDIES = {
    "1 user /usr/bin/gpumon": "sudo gpumon attach 4242, or allow it until the next boot (sudo sysctl kernel.yama.",
    "2 user /home/ann/venv/bin/gpumon": "sudo /home/ann/venv/bin/gpumon attach 4242. For programs",
    "1 root /usr/bin/gpumon": "docker run --cap-add SYS_PTRACE",
    "3 user /usr/bin/gpumon": "gpumon watch -- COMMAND",
}


@pytest.mark.parametrize("case", REMEDIES)
def test_remedies_name_what_this_host_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    scope, user, program = case.split()
    monkeypatch.setattr(shutil, "which", lambda _: program)
    monkeypatch.setattr("gpumon.probe.attach.errors._has_no_more_rights", lambda: user == "root")
    proc = FakeProc(tmp_path / "proc")
    proc.scope(scope)
    monkeypatch.setattr("gpumon.probe.attach.access._has_ptrace_capability", lambda _: False)
    result = attachability(proc.pid, proc.root)
    assert result.word == f"ptrace_scope {scope}"
    assert REMEDIES[case] in str(result.problem)
    if scope == "1":
        proc.write("mem", "")  # opens: the process has allowed it with PR_SET_PTRACER
        assert attachability(proc.pid, proc.root).word == "can attach"
