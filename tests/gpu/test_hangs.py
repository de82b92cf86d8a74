"""On two real GPUs: hangs with NCCL, found with the probe."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpumon.core.ranks import HangKind, HangVerdict
from gpumon.distributed.environment import RankVariables
from gpumon.distributed.grouping import JobScanner
from gpumon.operations.hangs import HangWatch
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Answer
from tests.hangs.runner import free_port
from tests.processes import tree

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240), pytest.mark.xdist_group("gpu")]

PATIENCE = 120.0
PROGRAM = """
import os, time
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
gradient = torch.ones(1 << 20, device="cuda")
for step in range({steps}):
    if step == 300:
        print("hang", flush=True)
        if rank == 1:
            {what}
    dist.all_reduce(gradient)
    torch.cuda.synchronize()
    time.sleep(0.02)
dist.destroy_process_group()
"""
SLEEPS = "time.sleep(600)"
PIPE = "os.read(os.pipe()[0], 1)"
GIL = "__import__('ctypes').PyDLL(None).sleep(600)"
OTHER = "dist.broadcast(gradient, 0)"
SHAPE = "gradient = torch.ones(1 << 22, device='cuda')"
STOPPED = "os.kill(os.getpid(), 19)"


@pytest.fixture
def folder(short_path: Path) -> Path:
    path = short_path / "sockets"
    path.mkdir(mode=0o700)
    return path


class NcclJob:
    """Two ranks under ``gpumon watch``, and a watch over them."""

    def __init__(self, python: str, folder: Path, what: str, steps: int = 4000) -> None:
        self.script = folder.parent / "train.py"
        self.script.write_text(PROGRAM.format(what=what, steps=steps))
        self.line = f"train.py:{1 + self.script.read_text().splitlines().index(f'            {what}')}"
        self.output = (folder.parent / "output").open("w+b")
        command = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpumon", "watch", "--", python, *command, str(self.script)],
            env={**os.environ, "GPUMON_PROBE_DIR": str(folder), "OMP_NUM_THREADS": "1"},
            stdout=self.output,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[2],
        )
        self.probes = ProbeWatcher([folder])
        self.probes.start()

    def verdicts(self) -> Iterator[HangVerdict]:
        """The verdicts, twice a second, until the job has ended."""
        scanner, watch = JobScanner(), HangWatch(self.probes.ask)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            time.sleep(0.5)
            now = time.monotonic()
            for message in self.probes.inbox.drain():
                if isinstance(message, Answer):
                    watch.receive(message, now)
            probes = self.probes.probes
            workers = {
                pid: RankVariables(probe.process.rank, probe.process.world_size, probe.process.local_rank)
                for pid, probe in probes.items()
            }
            jobs = [job for job in scanner.scan(workers) if str(self.script) in job.command]
            yield from watch.update(jobs, probes, now).values()

    def text(self) -> str:
        """What the job has printed."""
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def close(self) -> None:
        """End the job."""
        for pid in tree(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(20)
        self.probes.close()
        self.output.close()


@pytest.mark.parametrize(
    ("what", "kind", "has_line"),
    [
        (SLEEPS, HangKind.NOT_ENTERED, True),
        (PIPE, HangKind.BLOCKED, True),
        (GIL, HangKind.GIL_HELD, True),
        (STOPPED, HangKind.STOPPED, False),
    ],
)
def test_a_hang_with_nccl_is_explained(
    torch_python: str, folder: Path, what: str, kind: HangKind, has_line: bool
) -> None:
    job = NcclJob(torch_python, folder, what)
    try:
        verdict = next((verdict for verdict in job.verdicts() if verdict.is_hang), None)
        text = job.text()
    finally:
        job.close()
    assert verdict is not None, text
    print(json.dumps([verdict.summary, *verdict.evidence], indent=1))
    assert verdict.kind is kind, (verdict, text)
    assert verdict.rank == 1, verdict
    assert verdict.collective.startswith("all_reduce #"), verdict
    assert verdict.waiting_ranks == (0,), verdict
    if has_line:
        assert verdict.line == job.line, verdict


def test_different_shapes_with_nccl(torch_python: str, folder: Path) -> None:
    job = NcclJob(torch_python, folder, SHAPE, steps=600)
    try:
        verdict = next((verdict for verdict in job.verdicts() if verdict.is_hang), None)
        text = job.text()
    finally:
        job.close()
    if verdict is None:
        pytest.skip("NCCL has not waited")
    print(json.dumps([verdict.summary, *verdict.evidence], indent=1))
    assert verdict.kind is HangKind.MISMATCHED, (verdict, text)
    assert "[4194304]" in verdict.summary, verdict
    assert "[1048576]" in verdict.summary, verdict


def test_different_collectives_with_nccl(torch_python: str, folder: Path) -> None:
    """NCCL may also finish with wrong values; then the rank that is one collective ahead ends first."""
    job = NcclJob(torch_python, folder, OTHER, steps=600)
    try:
        verdict = next((verdict for verdict in job.verdicts() if verdict.is_hang), None)
        text = job.text()
    finally:
        job.close()
    if verdict is None:
        pytest.skip("NCCL has not waited")
    print(json.dumps([verdict.summary, *verdict.evidence], indent=1))
    is_mismatch = verdict.kind is HangKind.MISMATCHED
    is_ahead = verdict.kind is HangKind.NOT_ENTERED and verdict.rank == 0
    assert is_mismatch or (is_ahead and "destroy_process_group" in verdict.summary), (verdict, text)


def test_a_healthy_job_with_nccl_never_hangs(torch_python: str, folder: Path) -> None:
    job = NcclJob(torch_python, folder, "pass", steps=1000)
    try:
        alarms = [verdict.summary for verdict in job.verdicts() if verdict.is_hang]
        code, text = job.process.wait(20), job.text()
    finally:
        job.close()
    assert (alarms, code) == ([], 0), text
    assert "deprecated" not in text.lower(), text
