"""On a real GPU: the probe is loaded into a training run that was not prepared, used, and ended.

Prints the time of a step before, during and after (``pytest -m gpu -n 0 -s``).
"""

import os
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from gpumon.core.allocator import EmptyCacheResult
from gpumon.operations.recorded_file import connected_watcher, record_snapshot, record_traces
from gpumon.probe.attach import attach, detach
from gpumon.probe.client import RequestKind
from tests.cli.running import GPUMON
from tests.gpu.test_probe import answer_of, watching
from tests.workloads.conftest import TORCH_PYTHON

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(170),
    pytest.mark.xdist_group("gpu"),
    pytest.mark.skipif(TORCH_PYTHON is None or os.uname().machine != "x86_64", reason="needs torch and x86-64"),
]

SECONDS = 8.0
MAX_CHANGE = 0.03
TRAINING = """
import sys, time, torch
layer = torch.nn.TransformerEncoderLayer(1024, 8, 4096, batch_first=True, device="cuda")
model = torch.nn.TransformerEncoder(layer, 6)
optimizer = torch.optim.AdamW(model.parameters())
times = open(sys.argv[1], "w", buffering=1)
while True:
    start = time.perf_counter()
    loss = model(torch.randn(32, 128, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    print(time.perf_counter() - start, file=times)
"""


@pytest.fixture
def tmp_path(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUMON_PROBE_DIR", str(short_path / "sockets"))
    return short_path


def step_seconds(path: Path) -> float:
    """The median step of the next seconds."""
    before = len(path.read_text().splitlines())
    time.sleep(SECONDS)
    return statistics.median(float(line) for line in path.read_text().splitlines()[before:-1])


def test_an_unprepared_training_run(tmp_path: Path) -> None:
    times = tmp_path / "times"
    with subprocess.Popen(
        [str(TORCH_PYTHON), "-c", TRAINING, str(times)], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            while not times.exists() or len(times.read_text().splitlines()) < 50:
                assert process.poll() is None
                time.sleep(0.1)
            pid = process.pid
            before = step_seconds(times)
            attached = attach(pid, 30.0)
            assert not attached.was_there
            during = step_seconds(times)
            use(pid, tmp_path)
            assert detach(pid) is not None
            after = step_seconds(times)
            stopped = 1000 * (attached.stopped_seconds or 0.0)
            print(
                f"\n  main thread stood still {stopped:.2f} ms; step before {1000 * before:.2f} ms, "
                f"with the probe {1000 * during:.2f} ms, after {1000 * after:.2f} ms"
            )
            assert process.poll() is None
            assert during < before * (1 + MAX_CHANGE)
        finally:
            process.kill()


def use(pid: int, folder: Path) -> None:
    """Ask the probe for everything that it offers."""
    with watching(folder) as watcher:
        while pid not in watcher.probes or watcher.probes[pid].reading is None:
            time.sleep(0.1)
        reading = watcher.probes[pid].reading
        assert reading is not None
        assert reading.devices[0].allocated_bytes
        assert isinstance(answer_of(watcher, watcher.ask(pid, RequestKind.EMPTY_CACHE)), EmptyCacheResult)
    why = subprocess.run([GPUMON, "why", str(pid), "--seconds", "5"], capture_output=True, text=True, check=False)
    print(why.stdout)
    assert why.returncode in {0, 1}, why.stderr
    with connected_watcher([pid]) as watcher:
        (trace,) = record_traces(watcher, [pid], 500)
        assert trace.problem is None, trace
        snapshot = record_snapshot(watcher, pid, 1.0)
        assert snapshot.problem is None, snapshot
