"""Traces on demand of real PyTorch on the CPU: they disturb nothing, and nothing is left of them."""

import threading
import time
from pathlib import Path

import pytest

from gpumon.operations.recorded_file import RecordedTrace, connected_watcher, record_snapshot, record_traces
from gpumon.traces.reader import read
from tests.probe.traced import Training, training
from tests.workloads.conftest import needs_torch

pytestmark = [pytest.mark.timeout(90)]


@pytest.fixture
def folder(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a case, in which its probes listen and write."""
    sockets = short_path / "p"
    sockets.mkdir(mode=0o700)
    monkeypatch.setenv("GPUMON_PROBE_DIR", str(sockets))
    return short_path


def check(recorded: RecordedTrace) -> None:
    """Check that a trace has operators, and remove it."""
    assert recorded.problem is None, recorded
    assert recorded.path is not None
    trace = read(recorded.path).trace
    recorded.path.unlink()
    assert trace.events["operator"] > 0


def left_files(folder: Path) -> list[Path]:
    return list((folder / "p" / "files").iterdir())


@pytest.mark.long
@needs_torch
def test_traces_in_a_row_and_the_programs_own_profile(folder: Path) -> None:
    with training("cpu", folder, rest_seconds=0.5) as run:
        check(*run.trace(300))
        check(*run.trace(300))
        assert own_profile(run)
        check(*run.trace(300))
        assert not left_files(folder)
        document = run.end(has_own_profile=True)
        run.print_row(document)
    assert document["facts"]["own_profiles"][0] > 0
    assert document["facts"]["exit_code_of_fork"] == 7


def own_profile(run: Training) -> bool:
    """Have the program use torch.profiler for a moment."""
    (run.folder / "profile").touch()
    run.wait_for((run.folder / "profiling").exists)
    time.sleep(0.3)
    (run.folder / "profile").unlink()
    run.wait_for(lambda: not (run.folder / "profiling").exists())
    return True


@pytest.mark.long
@needs_torch
def test_the_programs_own_profiler_takes_precedence(folder: Path) -> None:
    with training("cpu", folder, rest_seconds=0.0) as run:
        (folder / "profile").touch()
        run.wait_for((folder / "profiling").exists)
        assert "torch.profiler is active" in str(run.trace(300)[0].problem)
        (folder / "profile").unlink()
        run.wait_for(lambda: not (folder / "profiling").exists())
        assert "has already used torch.profiler" in str(run.trace(300)[0].problem)
        (count,) = run.end(has_own_profile=True)["facts"]["own_profiles"]
    assert count > 0


@pytest.mark.long
@needs_torch
def test_a_profile_that_starts_in_the_middle(folder: Path) -> None:
    with training("cpu", folder, rest_seconds=0.0) as run:
        traces = in_the_background(run, 6_000)
        run.wait_for(lambda: list((folder / "p").glob("files/trace-*")))
        time.sleep(2.0)
        assert own_profile(run)
        assert "torch.profiler is active" in str(traces()[0].problem)
        assert not left_files(folder)
        (count,) = run.end(has_own_profile=True)["facts"]["own_profiles"]
    assert count > 0


def in_the_background(run: Training, milliseconds: int) -> "_Traces":
    """Request a trace; the result is a function that waits for it."""
    return _Traces(run, milliseconds)


class _Traces:
    """A request for traces on a thread."""

    def __init__(self, run: Training, milliseconds: int) -> None:
        self._result: list[RecordedTrace] = []
        self._thread = threading.Thread(target=lambda: self._result.extend(run.trace(milliseconds)))
        self._thread.start()

    def __call__(self) -> list[RecordedTrace]:
        self._thread.join(60)
        return self._result


@pytest.mark.long
@needs_torch
def test_a_process_that_ends_in_the_middle_waits_for_the_file(folder: Path) -> None:
    with training("cpu", folder, rest_seconds=0.0) as run:
        traces = in_the_background(run, 10_000)
        run.wait_for(lambda: list((folder / "p").glob("files/trace-*")))
        run.end()
        (trace,) = traces()
        if trace.path is not None:  # Kineto wrote the file before the process ended
            trace.path.unlink()
        else:
            assert "ended" in str(trace.problem)
        assert not left_files(folder)


@pytest.mark.long
@needs_torch
def test_a_client_that_has_gone_leaves_nothing_and_keeps_others_waiting(folder: Path) -> None:
    with training("cpu", folder, rest_seconds=0.0) as run:
        with connected_watcher(run.pids) as watcher:
            watcher.ask(run.pids[0], "trace", milliseconds=2_000)
            run.wait_for(lambda: list((folder / "p").glob("files/trace-*")))
            with connected_watcher(run.pids) as second:
                (busy,) = record_traces(second, run.pids, 300)
                assert "answering a request of this kind" in str(busy.problem)
        with connected_watcher(run.pids) as watcher:
            (busy,) = record_traces(watcher, run.pids, 300)
            assert "previous trace" in str(busy.problem)
        run.wait_for(lambda: not left_files(folder))
        check(*run.trace(300))
        run.end()


@pytest.mark.long
@needs_torch
def test_no_cuda_context_no_memory_history(folder: Path) -> None:
    with training("cpu", folder, rest_seconds=0.0) as run:
        with connected_watcher(run.pids) as watcher:
            file = record_snapshot(watcher, run.pids[0], 0.0)
        assert "no CUDA context" in str(file.problem)
        run.end()
