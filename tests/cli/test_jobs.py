"""`gpumon jobs` about a real job of torchrun on the CPU, and about none."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.processes import tree

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
TRAINING = """
import sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
while True:
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    step += 1
    if step == int(sys.argv[1]) and dist.get_rank() == 1:
        time.sleep(1000)  # the line that hangs
    time.sleep(0.02)
"""
HANGING_LINE = TRAINING.splitlines().index("        time.sleep(1000)  # the line that hangs") + 1


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "GPUMON_"))}
    return {**own, "GPUMON_PROBE_DIR": str(tmp_path / "probes"), "OMP_NUM_THREADS": "1", "COLUMNS": "140"}


@contextmanager
def training(folder: Path, environment: dict[str, str], hangs_at: int) -> Iterator[str]:
    """Run two ranks; yields the id of their job."""
    script = folder / "train.py"
    script.write_text(TRAINING)
    job_id = f"test-{os.getpid()}-{hangs_at}"
    rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--rdzv-id={job_id}"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *rendezvous, str(script)]
    watch = [sys.executable, "-m", "gpumon", "watch", "--", *torchrun, str(hangs_at)]
    process = subprocess.Popen(
        watch, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield job_id
    finally:
        for pid in tree(process.pid):  # each rank has a separate session
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def run(environment: dict[str, str], *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gpumon", "jobs", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def job_when(
    environment: dict[str, str], job_id: str, holds: Callable[[dict[str, Any]], bool]
) -> tuple[dict[str, Any], int]:
    """The job as soon as something is true of it, and the exit code of the command."""
    deadline = time.monotonic() + 60
    job: dict[str, Any] = {}
    while time.monotonic() < deadline:
        result = run(environment, "--json")
        document = json.loads(result.stdout)
        job = next((job for job in document["jobs"] if job["id"] == job_id), {})
        if job and holds(job):
            return job, result.returncode
        time.sleep(0.5)
    pytest.fail(json.dumps(job)[:2000])


def has_started(job: dict[str, Any]) -> bool:
    """Whether all ranks take steps, so that they have left the broadcast of the start behind."""
    collectives = [rank["steps_count"] and (rank["last_collective"] or {}).get("name") for rank in job["ranks"]]
    return job["state"] == "running" and all(name and name != "broadcast" for name in collectives)


@pytest.mark.long
@needs_torch
def test_a_job_that_makes_progress(tmp_path: Path, environment: dict[str, str]) -> None:
    with training(tmp_path, environment, hangs_at=0) as job_id:
        job, _ = job_when(environment, job_id, has_started)
    assert (job["name"], job["launcher"], job["world_size"], job["verdict"]["is_hang"]) == (
        "train",
        "torchrun",
        2,
        False,
    )
    assert [rank["rank"] for rank in job["ranks"]] == [0, 1]
    assert len(job["ranks"]) == 2
    assert 0.02 < job["step_seconds"] < 5
    assert job["ranks"][0]["last_collective"]["name"] == "all_reduce"


@pytest.mark.long
@needs_torch
def test_a_rank_that_hangs_is_named_with_collective_and_line(tmp_path: Path, environment: dict[str, str]) -> None:
    with training(tmp_path, environment, hangs_at=30) as job_id:
        job, exit_code = job_when(environment, job_id, lambda job: job["state"] == "hanging")
        text = run(environment)
    assert (exit_code, text.returncode) == (1, 1)
    verdict = job["verdict"]
    assert (verdict["kind"], verdict["rank"], verdict["line"]) == ("not_entered", 1, f"train.py:{HANGING_LINE}")
    assert verdict["collective"].startswith("all_reduce #")
    assert f"Rank 1 has not entered {verdict['collective']}" in text.stdout
    assert [rank["state"] for rank in job["ranks"]] == ["waits", "not entered"]


def test_what_cannot_be_combined(environment: dict[str, str]) -> None:
    assert run(environment, "--hosts", "a", "--dump", "b").returncode == 2
    assert run(environment, "--hosts", "-oProxyCommand=x").returncode == 2
