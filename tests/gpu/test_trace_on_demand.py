"""On real GPUs: traces and memory history on demand, what they cost the program, and what they leave behind.

Every case prints a line of the table of worst steps (``pytest -m gpu -n 0 -s``).
"""

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpumon.core.file_reader import read_to_end
from gpumon.insight.bottlenecks.slowness_verdict import judge_traces
from gpumon.operations.recorded_file import RecordedFile, RecordedTrace, connected_watcher, record_snapshot
from gpumon.snapshots.model import Snapshot
from gpumon.snapshots.reader import SnapshotReader
from gpumon.traces.reader import read
from tests.probe.traced import Training, training
from tests.workloads.conftest import TORCH_PYTHON

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(170), pytest.mark.xdist_group("gpu")]


@pytest.fixture
def folder(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a case, in which its probes listen and write."""
    sockets = short_path / "p"
    sockets.mkdir(mode=0o700)
    monkeypatch.setenv("GPUMON_PROBE_DIR", str(sockets))
    return short_path


def check(recorded: RecordedTrace, *, steps: bool = True) -> None:
    """Check that a trace has kernels and an account that adds up, and remove it."""
    assert recorded.problem is None, recorded
    assert recorded.path is not None
    content = recorded.path.read_bytes()
    assert len(content) == recorded.size_bytes
    kernels = len(re.findall(rb'"cat": ?"kernel"', content))
    trace = read(recorded.path).trace
    recorded.path.unlink()
    (verdict,) = judge_traces([trace])
    print(
        f"\n  {recorded.size_bytes / 1e6:.1f} MB, {kernels:,} kernels, {len(trace.steps)} steps of "
        f"{trace.step_ns / 1e6:.2f} ms, {trace.duration_ns / 1e6:.0f} ms: {verdict.summary} {recorded.notes}",
        end="",
    )
    assert kernels > 0
    assert trace.device is not None
    if steps:
        assert len(trace.steps) > 1
        assert sum(item.time_ns for item in trace.classes) == trace.step_ns


@pytest.mark.parametrize("kind", ["plain", "small", "graph", "compile"])
def test_traces_in_sequence(kind: str, folder: Path) -> None:
    """Two traces of each kind of loop; the table of worst steps."""
    if kind == "compile" and importlib.util.find_spec("triton") is None:
        pytest.skip("no triton here")
    with training(kind, folder) as run:
        for _ in range(2):
            check(*run.trace(), steps=kind != "graph")
        run.print_row(run.end()).check()


def test_without_a_trace(folder: Path) -> None:
    """The noise of the table: the same windows, without a request."""
    with training("plain", folder) as run:
        for _ in range(2):
            time.sleep(3.0)
            start = time.time()
            time.sleep(4.0)
            run.windows.append((start, time.time()))
        run.print_row(run.end(), "no trace").check()


@pytest.mark.parametrize(("kind", "package"), [("trainer", "transformers"), ("lightning", "lightning")])
def test_trainers(kind: str, package: str, folder: Path) -> None:
    names = [package, "accelerate"] if kind == "trainer" else [package]
    if any(importlib.util.find_spec(name) is None for name in names):
        pytest.skip(f"no {' or '.join(names)} here")
    with training(kind, folder) as run:
        check(*run.trace())
        run.print_row(run.end()).check()


def test_two_ranks(folder: Path) -> None:
    count = subprocess.run(
        [TORCH_PYTHON or sys.executable, "-c", "import torch; print(torch.cuda.device_count())"],
        capture_output=True,
        text=True,
        check=True,
    )
    if int(count.stdout) < 2:
        pytest.skip("one GPU")
    with training("plain", folder, ranks=2) as run:
        for _ in range(2):
            traces = run.trace()
            assert all(not trace.notes for trace in traces), "both began at the common start"
            for trace in traces:
                check(trace)
        run.print_row(run.end(), "two ranks, DDP").check()


def test_the_programs_own_profiler_starts_in_the_middle(folder: Path) -> None:
    """It takes precedence: the request fails, and the program has its profile."""
    with training("plain", folder) as run:
        traces: list[RecordedTrace] = []
        thread = threading.Thread(target=lambda: traces.extend(run.trace(8_000)))
        thread.start()
        time.sleep(9.0)  # 3 s undisturbed, up to 1 s until Kineto asks, 2 s until it starts
        (folder / "profile").touch()
        run.wait_for((folder / "profiling").exists)
        thread.join(60)
        (folder / "profile").unlink()
        run.wait_for(lambda: not (folder / "profiling").exists())
        assert "torch.profiler" in str(traces[0].problem)
        assert not list((folder / "p" / "files").iterdir())
        (kernels,) = run.end(has_own_profile=True)["facts"]["own_profiles"]
    assert kernels > 0


def test_the_process_ends_in_the_middle(folder: Path) -> None:
    """The exit waits for the file; exit code and output are as ever."""
    with training("plain", folder) as run:
        traces: list[RecordedTrace] = []
        thread = threading.Thread(target=lambda: traces.extend(run.trace(3_000)))
        thread.start()
        time.sleep(7.5)
        start = time.monotonic()
        run.windows.clear()
        run.end()
        thread.join(60)
        print(f"\n  the exit took {time.monotonic() - start:.1f} s; {traces[0].problem}")
    assert traces[0].problem is not None
    assert not list((folder / "p" / "files").iterdir())


@pytest.mark.quick
def test_the_command(folder: Path) -> None:
    """The command records, writes a file for Perfetto, and prints the account."""
    with training("plain", folder) as run:
        gpumon = [sys.executable, "-m", "gpumon", "trace", "--pid"]
        output = folder / "trace.json.gz"
        done = subprocess.run(
            [*gpumon, str(run.pids[0]), "--seconds", "0.5", "--json", "--output", str(output)],
            capture_output=True,
            text=True,
            check=False,
        )
        print(done.stderr)
        assert done.returncode == 0, done.stderr
        (trace,) = json.loads(done.stdout)["traces"]
        assert trace["device"] is not None
        assert b'"traceEvents"' in gzip.decompress(output.read_bytes())
        missing = subprocess.run([*gpumon, str(os.getpid())], capture_output=True, text=True, check=False)
        assert missing.returncode == 3, missing.stderr
        run.end()


def recorded_history(run: Training, seconds: float) -> tuple[RecordedFile, Snapshot]:
    """The answer to a request for a snapshot, and the snapshot."""
    time.sleep(3.0)
    with connected_watcher(run.pids) as watcher:
        start = time.time()
        file = record_snapshot(watcher, run.pids[0], seconds)
        run.windows.append((start, time.time()))
    assert file.problem is None, (file, run.complaints())
    assert file.path is not None
    snapshot = read_to_end(SnapshotReader(file.path))
    file.path.unlink()
    histories = [device.history for device in snapshot.devices]
    print(f"\n  {file.size_bytes / 1e6:.1f} MB, {file.notes}, {snapshot.notes}, {str(histories)[:300]}")
    return file, snapshot


def test_memory_history(folder: Path) -> None:
    with training("plain", folder) as run:
        _, snapshot = recorded_history(run, 2.0)
        assert any(device.history is not None for device in snapshot.devices)
        _, snapshot = recorded_history(run, 0.0)
        assert any(device.segments for device in snapshot.devices)
        document = run.end()
        assert document["facts"]["history_enabled"] is False
        run.print_row(document, "memory history").check()


def test_a_memory_history_of_the_program_is_left_alone(folder: Path) -> None:
    with training("history", folder) as run:
        file, _ = recorded_history(run, 1.0)
        assert any("records memory history itself" in note for note in file.notes)
        assert run.end()["facts"]["history_enabled"] is True
