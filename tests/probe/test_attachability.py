"""What is known about a process before gpumon attaches, and what is left in it after the probe has gone."""

import os
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
            assert program.hear() == "same 3"
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


@pytest.mark.parametrize("scope", ["1", "2"])
def test_remedies_name_what_this_host_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str) -> None:
    proc = FakeProc(tmp_path / "proc")
    proc.scope(scope)
    (proc.root / "self").unlink()
    (proc.root / "self").mkdir()
    (proc.root / "self/status").write_text("CapEff:\t0000000000000000\n")
    result = attachability(proc.pid, proc.root)
    assert result.word == f"ptrace_scope {scope}"
    assert result.problem is not None
    assert f"sudo gpumon attach {proc.pid}" in result.problem.remedy
    assert ("kernel.yama.ptrace_scope=0" in result.problem.remedy) == (scope == "1")
