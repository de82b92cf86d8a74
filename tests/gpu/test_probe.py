"""On real GPUs: a probe reports what the process itself prints, and the sum agrees with the driver's values."""

import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.model import Frame
from gpumon.operations.one_shot import sample_frame
from gpumon.operations.waterfall import PartKind, Waterfall, waterfall
from gpumon.probe.client import Answer, Probe, ProbeWatcher, RequestKind
from tests.probe.children import PATIENCE, waited
from tests.terminal import Terminal

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180), pytest.mark.xdist_group("gpu")]

REPOSITORY = Path(__file__).parents[2]
MIB, GIB = 1 << 20, 1 << 30
TRAINING = """
import json, os, sys, torch
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
torch.cuda.set_device(device)
layer = torch.nn.TransformerEncoderLayer(2048, 16, 8192, batch_first=True, device=device)
model = torch.nn.TransformerEncoder(layer, 8)
optimizer = torch.optim.AdamW(model.parameters())
def train(size):
    loss = model(torch.randn(size, 256, 2048, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
def report():
    torch.cuda.synchronize()
    held = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated()]
    print(json.dumps(held), flush=True)
for size in (64, 16, 32):
    train(size)
report()
for line in sys.stdin:
    exec(line)
"""
FRAGMENTED = """
import torch
torch.cuda.init()
total = torch.cuda.get_device_properties(0).total_memory
pieces = [torch.empty(2 << 30, dtype=torch.uint8, device="cuda") for _ in range(int(0.9 * total) >> 31)]
count = len(pieces)
del pieces
halves = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(count)]
more = []
while True:
    more.append(torch.empty(1536 << 20, dtype=torch.uint8, device="cuda"))
"""
OTHER_PROCESS = """
import sys, torch
held = torch.empty(int(0.6 * torch.cuda.get_device_properties(0).total_memory), dtype=torch.uint8, device="cuda")
print("ready", flush=True)
sys.stdin.readline()
"""
CROWDED = """
import torch
want = int(0.55 * torch.cuda.get_device_properties(0).total_memory)
torch.empty(want, dtype=torch.uint8, device="cuda")
"""


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    return short_path


class WatchedProgram:
    """A program under `gpumon watch`, whose probe uses a folder of the test."""

    def __init__(self, folder: Path, code: str, more: Mapping[str, str]) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "gpumon", "watch", "--", sys.executable, "-c", code]
        own = {**os.environ, **probe_environment(folder), "PYTHONPATH": python_path(), **more}
        self.process = subprocess.Popen(
            command, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read(self) -> Any:  # noqa: ANN401 - what the program prints
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr and self.process.stderr.read()
        return json.loads(line)


def probe_environment(folder: Path) -> dict[str, str]:
    return {"GPUMON_PROBE_DIR": str(folder / "sockets"), "XDG_STATE_HOME": str(folder / "state")}


def python_path() -> str:
    return os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])


@contextmanager
def running(folder: Path, code: str = TRAINING, **more: str) -> Iterator[WatchedProgram]:
    job = WatchedProgram(folder, code, more)
    try:
        yield job
    finally:
        job.process.kill()
        job.process.communicate()


@contextmanager
def watching(folder: Path) -> Iterator[ProbeWatcher]:
    watcher = ProbeWatcher([folder / "sockets"], pace=0.5)
    watcher.start()
    try:
        yield watcher
    finally:
        watcher.close()


def fresh(watcher: ProbeWatcher, count: int = 1) -> Mapping[int, Probe]:
    """The next readings of the probes."""
    now = time.monotonic()

    def new_probes() -> Mapping[int, Probe] | None:
        new = {
            pid: probe
            for pid, probe in watcher.probes.items()
            if probe.reading and probe.reading.monotonic_seconds > now and probe.reading.devices
        }
        return new if len(new) == count else None

    probes: Mapping[int, Probe] = waited(new_probes)
    return probes


def answer_of(watcher: ProbeWatcher, number: int) -> Any:  # noqa: ANN401 - what was asked for
    """The result of a request."""
    arrived: list[Answer] = []

    def arrival() -> Answer | None:
        arrived.extend(item for item in watcher.inbox.drain() if isinstance(item, Answer))
        return next((item for item in arrived if item.id == number), None)

    answer: Answer = waited(arrival)
    assert answer.result is not None, answer.problem
    return answer.result


def gpu_count() -> int:
    return len(sample_frame().gpus)


def sizes(memory: Waterfall) -> dict[PartKind, int]:
    by_kind = dict.fromkeys(PartKind, 0)
    for part in memory.parts:
        by_kind[part.kind] += part.bytes
    return by_kind


NOTEBOOK = """
import gpumon, torch
from types import SimpleNamespace
def run(text):
    exec(compile(text, "/tmp/ipykernel_1/2.py", "exec"), globals())
    return SimpleNamespace(raise_error=lambda: None)
shell = SimpleNamespace(run_cell=run, compile=SimpleNamespace(_filename_map={"/tmp/ipykernel_1/2.py": 1}))
shell.register_magic_function = lambda function, *_: function("", CELL)
kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
CELL = "del kept; a = torch.empty(3 << 30, dtype=torch.uint8, device='cuda')\\nb = a.clone(); del a"
gpumon.load_ipython_extension(shell)
print(torch.cuda.max_memory_allocated() >> 30)
"""


def of_gpu(frame: Frame, probes: Mapping[int, Probe], index: int = 0) -> Waterfall:
    memory = waterfall(frame.gpus[index], probes)
    print("\n".join(f"{part.kind.value:16} {part.pid or '':>8} {part.bytes / MIB:12.1f} MiB" for part in memory.parts))
    print(*memory.notes, sep="\n")
    return memory


def test_the_magic_of_notebooks_has_the_peak_of_a_cell() -> None:
    command = [sys.executable, "-c", NOTEBOOK]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=90, check=False)
    head, *lines, peak = done.stdout.splitlines() or [done.stderr]
    assert head.endswith(": peak 6.00 GiB, before 1.00 GiB, change +2.00 GiB"), done
    assert [" ".join(line.split()) for line in lines] == [f"3.00 GiB 1 tensor In [1], line {n}" for n in (1, 2)]
    assert peak == "6"


@pytest.mark.parametrize("setting", ["", "expandable_segments:True", "backend:cudaMallocAsync"])
def test_the_statistics_are_those_of_the_process_and_little_is_unattributed(tmp_path: Path, setting: str) -> None:
    with running(tmp_path, PYTORCH_CUDA_ALLOC_CONF=setting) as job, watching(tmp_path) as watcher:
        allocated, reserved, peak = job.read()
        probes = fresh(watcher)
        (probe,) = probes.values()
        assert probe.reading is not None
        (statistics,) = probe.reading.devices
        assert (statistics.allocated_bytes, statistics.reserved_bytes) == (allocated, reserved)
        assert statistics.allocated_peak_bytes == peak
        frame = sample_frame()
        parts = sizes(of_gpu(frame, probes))
        used = frame.gpus[0].get("memory_used_bytes")
        assert used is not None
        assert sum(parts.values()) == frame.gpus[0].get("memory_total_bytes")
        assert parts[PartKind.ALLOCATED] == allocated
        assert parts[PartKind.UNATTRIBUTED] < 0.01 * used
        assert 0.1 * GIB < parts[PartKind.CONTEXT] < 2 * GIB
        print(f"unattributed {parts[PartKind.UNATTRIBUTED] / MIB:.1f} MiB of {used / MIB:.0f}")
        assert probe.reading.cost is not None
        print(probe.reading.cost)


def test_two_ranks_on_two_gpus(tmp_path: Path) -> None:
    if gpu_count() < 2:
        pytest.skip("needs two GPUs")
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(running(tmp_path, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2"))
            for rank in range(2)
        ]
        watcher = stack.enter_context(watching(tmp_path))
        printed = [job.read() for job in jobs]
        probes = fresh(watcher, 2)
        frame = sample_frame()
        by_rank = {probe.process.rank: probe for probe in probes.values()}
        for rank, (allocated, reserved, _) in enumerate(printed):
            reading = by_rank[rank].reading
            assert reading is not None
            (statistics,) = reading.devices
            assert (statistics.allocated_bytes, statistics.reserved_bytes) == (allocated, reserved)
            parts = sizes(of_gpu(frame, probes, rank))
            assert parts[PartKind.ALLOCATED] == allocated
            assert parts[PartKind.UNATTRIBUTED] < 0.01 * (frame.gpus[rank].get("memory_used_bytes") or 0)


def test_emptying_the_cache_frees_the_releasable_bytes(tmp_path: Path) -> None:
    with running(tmp_path) as job, watching(tmp_path) as watcher:
        job.read()
        job.send("model(torch.randn(64, 256, 2048, device=device)).sum().item(); report()")
        job.read()
        ((pid, probe),) = fresh(watcher).items()
        assert probe.reading is not None
        releasable = probe.reading.devices[0].releasable_bytes
        before = sample_frame().gpus[0].get("memory_used_bytes")
        emptied = answer_of(watcher, watcher.ask(pid, RequestKind.EMPTY_CACHE))
        assert emptied.before[0].reserved_bytes - emptied.after[0].reserved_bytes == releasable
        after = sample_frame().gpus[0].get("memory_used_bytes")
        assert releasable is not None
        assert before is not None
        assert after is not None
        print(f"releasable {releasable / MIB:.1f} MiB, memory in use fell by {(before - after) / MIB:.1f} MiB")
        assert releasable > GIB
        assert before - after == pytest.approx(releasable, abs=4 * MIB)
        job.send("train(8); report()")
        assert job.read()


def test_the_cache_is_emptied_from_the_screen(tmp_path: Path) -> None:
    environment = {**os.environ, **probe_environment(tmp_path), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    with running(tmp_path) as job:
        job.read()
        with Terminal([sys.executable, "-m", "gpumon", "--interval", "0.5"], environment, 50, 160) as terminal:
            terminal.wait_for(r"Python|python", PATIENCE)
            terminal.send("3")
            terminal.wait_for(r"tensors", PATIENCE)
            terminal.wait_for(r"fragmented", PATIENCE)
            before = sample_frame().gpus[0].get("memory_used_bytes") or 0
            terminal.send("E")
            print(terminal.wait_for(r"Empty the cache", PATIENCE))
            terminal.send("\t\r")
            screen = terminal.wait_for(r"The driver agrees", PATIENCE)
            print(screen)
            terminal.send("\x1b")
            terminal.wait_for(r"Segments", PATIENCE)  # the footer, once the dialog has closed
            terminal.send("\r")
            print(terminal.wait_for(r"largest hole", PATIENCE))
            terminal.send("v")
            print(terminal.wait_for(r"PyTorch CUDA memory summary", PATIENCE))
            terminal.send("q")
            assert terminal.wait_exit() == 0
        fell = before - (sample_frame().gpus[0].get("memory_used_bytes") or 0)
        freed = re.search(r"([\d.]+) GiB [a-z ]+ in \d+ ms", screen)
        assert freed is not None
        assert fell / GIB == pytest.approx(float(freed[1]), rel=0.01)
        job.send("train(8); report()")
        assert job.read()


def explained(folder: Path) -> dict[str, Any]:
    """The first match of `gpumon explain` for the file that the probe has written."""
    (path,) = (folder / "state" / "gpumon" / "oom").glob("oom-*.json.gz")
    document = json.loads(gzip.decompress(path.read_bytes()))
    print({key: document[key] for key in ("request", "device")}, len(document["segments"]), path.stat().st_size)
    command = [sys.executable, "-m", "gpumon", "explain", "--no-live", "--json", str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": python_path()}
    )
    matches: list[dict[str, Any]] = json.loads(done.stdout)["matches"]
    return matches[0]


def test_fragmentation_is_explained_from_the_file(tmp_path: Path) -> None:
    if any(device.processes for device in sample_frame().gpus):
        pytest.skip("needs a GPU that no other process uses")
    with running(tmp_path, FRAGMENTED) as job:
        _, err = job.process.communicate(timeout=PATIENCE * 4)
        assert job.process.returncode == 1
        assert (
            err.strip()
            .splitlines()[-1]
            .startswith("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50")
        )
    match = explained(tmp_path)
    assert (match["id"], match["memory_cause"]) == ("oom", "fragmentation")


def test_another_process_is_explained_from_the_file(tmp_path: Path) -> None:
    if any(device.processes for device in sample_frame().gpus):
        pytest.skip("needs a GPU that no other process uses")
    holding = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "ready\n"
        with running(tmp_path, CROWDED) as job:
            job.process.communicate(timeout=PATIENCE * 4)
            assert job.process.returncode == 1
    finally:
        holding.kill()
        holding.communicate()
    match = explained(tmp_path)
    assert (match["id"], match["memory_cause"]) == ("oom", "neighbour")
