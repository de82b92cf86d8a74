"""Requests for traces and memory history: what is refused, written and undone, with a stand-in for torch."""

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumon.probe.agent import written_files
from gpumon.probe.agent.messages import RefusedError
from tests.probe.children import Program, running

PROGRAM = """
import sys, torch
memory = sys.modules["torch.cuda.memory"]
state = {"on": %(on)s, "calls": []}
def record(enabled="all", **options):
    state["calls"].append([enabled, options])
    state["on"] = enabled is not None
def snapshot():
    %(fault)s
    return {"segments": [], "device_traces": [[]], "recorded": state["on"]}
memory._record_memory_history, memory._snapshot = record, snapshot
torch._C._cuda_isHistoryEnabled = lambda: state["on"]
torch.__version__ = %(version)r
torch.cuda.allocate(0, 1 << 20)
print("ready", flush=True)
sys.stdin.readline()
print(state["on"], len(state["calls"]), flush=True)
"""


def program(on: bool = False, fault: str = "pass", version: str = "2.11.0+cu130") -> str:
    return PROGRAM % {"on": on, "fault": fault, "version": version}


def refusal(program: Program, ask: str, **arguments: int) -> str:
    """Why a request is refused."""
    answer = program.probe().ask(ask, **arguments)
    assert not answer["ok"]
    return str(answer["reason"])


@pytest.mark.parametrize(
    ("version", "variable", "reason"),
    [
        ("2.11.0+cu130", "", "has no Kineto"),
        ("2.4.1", "", "need PyTorch 2.8 or later; the process has 2.4.1"),
        ("1.13.1", "", "need PyTorch 2.8 or later"),
        ("2.11.0", "KINETO_USE_DAEMON", "KINETO_USE_DAEMON is set"),
        ("2.11.0", "NSYS_PROFILING_SESSION_ID", "another profiler"),
    ],
)
def test_processes_that_cannot_be_traced(version: str, variable: str, reason: str, tmp_path: Path) -> None:
    more = {variable: "1"} if variable else {}
    with running(tmp_path, program(version=version), **more) as run:
        assert run.hear() == "ready"
        assert reason in refusal(run, "trace", milliseconds=500)
        run.say("")
        assert run.end() == (0, "False 0\n", "")


@pytest.mark.parametrize("milliseconds", [0, 100, 20_000, -1])
def test_the_duration_of_a_trace_is_limited(milliseconds: int, tmp_path: Path) -> None:
    with running(tmp_path, program()) as run:
        assert run.hear() == "ready"
        assert "200 to 10,000 ms" in refusal(run, "trace", milliseconds=milliseconds)


def test_memory_history_is_recorded_and_switched_off(tmp_path: Path) -> None:
    with running(tmp_path, program()) as run:
        assert run.hear() == "ready"
        answer = run.probe().ask("memory_history", milliseconds=300)
        assert answer["ok"], answer
        path = Path(answer["path"])
        assert (path.stat().st_size, path.stat().st_mode & 0o777) == (answer["size_bytes"], 0o600)
        assert path.parent.stat().st_mode & 0o077 == 0
        assert pickle.loads(path.read_bytes())["recorded"] is True
        run.say("")
        assert run.end() == (0, "False 2\n", "")


def test_a_snapshot_without_history_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path, program()) as run:
        assert run.hear() == "ready"
        answer = run.probe().ask("memory_history", milliseconds=0)
        assert pickle.loads(Path(answer["path"]).read_bytes())["recorded"] is False
        run.say("")
        assert run.end() == (0, "False 0\n", "")


def test_the_programs_own_history_is_left_alone(tmp_path: Path) -> None:
    with running(tmp_path, program(on=True)) as run:
        assert run.hear() == "ready"
        answer = run.probe().ask("memory_history", milliseconds=300)
        assert "records memory history itself" in answer["notes"][0]
        run.say("")
        assert run.end() == (0, "True 0\n", "")


def test_a_failed_snapshot_switches_the_history_off_and_leaves_no_file(tmp_path: Path) -> None:
    with running(tmp_path, program(fault='raise RuntimeError("broken")')) as run:
        assert run.hear() == "ready"
        assert "RuntimeError: broken" in refusal(run, "memory_history", milliseconds=200)
        assert not list(tmp_path.glob("sockets/files/*"))
        run.say("")
        assert run.end() == (0, "False 2\n", "")


@pytest.mark.parametrize(("has_gone", "printed"), [(True, "False 2\n"), (False, "True 1\n")])
def test_a_client_that_has_gone_or_the_end_of_the_process_ends_the_history(
    tmp_path: Path, has_gone: bool, printed: str
) -> None:
    with running(tmp_path, program()) as run:
        assert run.hear() == "ready"
        probe = run.probe()
        probe.send({"ask": "memory_history", "id": 1, "milliseconds": 60_000})
        time.sleep(0.5)
        if has_gone:
            probe.close()
            time.sleep(1.0)
        start = time.monotonic()
        run.say("")
        assert run.end() == (0, printed, "")
        assert time.monotonic() - start < 3.0


def test_files_of_ended_processes_and_old_ones_are_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = {
        f"trace-0123abcd_{gone.pid}.json.tmp": (120, False),
        f"memory-0123abcd_{gone.pid}.pickle": (120, False),
        f"trace-0123abce_{gone.pid}.json": (10, True),
        f"trace-0123abcd_{os.getpid()}.json": (120, True),
        f"trace-0123abce_{os.getpid()}.json": (4000, False),
        "notes.json": (100_000, True),
    }
    for name, (age, _) in names.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    folders = {f"kineto-{gone.pid}-012abc": False, f"kineto-{os.getpid()}-012abc": True}
    for name in folders:
        (tmp_path / name).mkdir()
        (tmp_path / name / "dynolog").touch()
        os.utime(tmp_path / name, (time.time() - 120,) * 2)
    written_files.remove_old_files(str(tmp_path))
    assert {name: (tmp_path / name).exists() for name in names} == {name: stays for name, (_, stays) in names.items()}
    assert {name: (tmp_path / name).exists() for name in folders} == folders


def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_PROBE_DIR", str(tmp_path))
    monkeypatch.setattr(written_files, "_free_bytes", lambda _: 10 << 20)
    with pytest.raises(RefusedError, match=r"up to 500 MiB, and only 10 MiB are free"):
        written_files.new_file("trace", 500 << 20)


def test_a_path_too_long_for_kinetos_socket_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_PROBE_DIR", str(tmp_path / ("long" * 12)))
    folder = written_files.new_client_folder(54)
    try:
        assert len(folder) <= 54
        assert folder.startswith(f"/tmp/gpumon-{os.getuid()}/kineto-")
    finally:
        written_files.remove_client_folder(folder)
    assert not Path(folder).exists()
