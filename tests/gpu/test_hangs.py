"""On all real GPUs of a host, two or more: hangs with NCCL, found with the probe."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from gpumon.core.ranks import HangKind, HangVerdict
from gpumon.distributed.environment import RankVariables
from gpumon.distributed.grouping import JobScanner
from gpumon.operations.hangs import HangWatch
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Answer
from tests.gpu.test_live import smi
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
KILLED = "os.kill(os.getpid(), 9)"


@pytest.fixture
def folder(short_path: Path) -> Path:
    path = short_path / "sockets"
    path.mkdir(mode=0o700)
    return path


class NcclJob:
    """A rank on each GPU under ``gpumon watch``, and a watch over them; torchrun ends them with the first that dies."""

    def __init__(self, python: str, folder: Path, what: str, steps: int = 4000, *, has_torchrun: bool = True) -> None:
        self.script = folder.parent / "train.py"
        self.script.write_text(PROGRAM.format(what=what, steps=steps))
        self.line = f"train.py:{1 + self.script.read_text().splitlines().index(f'            {what}')}"
        self.output = (folder.parent / "output").open("w+b")
        self.processes = start_ranks(
            [sys.executable, "-m", "gpumon", "watch", "--", python],
            self.script,
            {"GPUMON_PROBE_DIR": str(folder), "OMP_NUM_THREADS": "1"},
            self.output,
            has_torchrun=has_torchrun,
        )
        self.process = self.processes[0]
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

    def hang(self) -> "tuple[HangVerdict | None, str]":
        """The first verdict of a hang, and what the job has printed; ends the job."""
        try:
            return next((verdict for verdict in self.verdicts() if verdict.is_hang), None), self.text()
        finally:
            self.close()

    def text(self) -> str:
        """What the job has printed."""
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def close(self) -> None:
        """End the job."""
        kill(self.processes)
        self.probes.close()
        self.output.close()


def start_ranks(
    python: list[str], script: Path, environment: dict[str, str], output: IO[bytes], *, has_torchrun: bool
) -> "list[subprocess.Popen[bytes]]":
    """Start a script with one rank on each GPU: torchrun, or a process for each rank."""
    port, count = str(free_port()), len(smi("gpu", "uuid"))
    launchers = [["-m", "torch.distributed.run", f"--nproc-per-node={count}", f"--master-port={port}"]]
    variables: list[dict[str, str]] = [{}]
    if not has_torchrun:
        launchers = [[]] * count
        common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        variables = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    return [
        subprocess.Popen(
            [*python, *launcher, str(script)],
            env={**os.environ, "NCCL_NVLS_ENABLE": "0", **environment, **own},
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[2],
        )
        for launcher, own in zip(launchers, variables, strict=True)
    ]


def kill(processes: "list[subprocess.Popen[bytes]]") -> None:
    """End processes and what they have started."""
    for pid in {pid for process in processes for pid in tree(process.pid)}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.wait(20)


@pytest.mark.parametrize(
    ("what", "kind", "has_line"),
    [
        (SLEEPS, HangKind.NOT_ENTERED, True),
        (PIPE, HangKind.BLOCKED, True),
        (GIL, HangKind.GIL_HELD, True),
        (STOPPED, HangKind.STOPPED, False),
        (KILLED, HangKind.DEAD, False),
    ],
)
def test_a_hang_with_nccl_is_explained(
    torch_python: str, folder: Path, what: str, kind: HangKind, has_line: bool
) -> None:
    job = NcclJob(torch_python, folder, what, has_torchrun=what != KILLED)
    verdict, text = job.hang()
    assert verdict is not None, text
    print(json.dumps([verdict.summary, *verdict.evidence], indent=1))
    assert verdict.kind is kind, (verdict, text)
    assert verdict.rank == 1, verdict
    assert verdict.collective.startswith("all_reduce #"), verdict
    assert verdict.waiting_ranks == tuple(rank for rank in range(len(smi("gpu", "uuid"))) if rank != 1), verdict
    if has_line:
        assert verdict.line == job.line, verdict


@pytest.mark.quick
def test_different_shapes_with_nccl(torch_python: str, folder: Path) -> None:
    job = NcclJob(torch_python, folder, SHAPE, steps=600)
    verdict, text = job.hang()
    if verdict is None:
        pytest.skip("NCCL has not waited")
    print(json.dumps([verdict.summary, *verdict.evidence], indent=1))
    assert verdict.kind is HangKind.MISMATCHED, (verdict, text)
    assert "[4194304]" in verdict.summary, verdict
    assert "[1048576]" in verdict.summary, verdict
    assert verdict.rank == 1 or len(verdict.waiting_ranks) < 3, verdict


def test_different_collectives_with_nccl(torch_python: str, folder: Path) -> None:
    """NCCL may also finish with wrong values; then the rank that is one collective ahead ends first."""
    job = NcclJob(torch_python, folder, OTHER, steps=600)
    verdict, text = job.hang()
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
