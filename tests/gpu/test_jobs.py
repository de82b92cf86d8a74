"""On two real GPUs: `gpumon jobs` about a job without a probe, from NCCL's RAS service alone."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.test_hangs import PROGRAM, SLEEPS
from tests.hangs.runner import free_port
from tests.processes import tree

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240), pytest.mark.xdist_group("gpu")]

_PATIENCE = 200.0
"""NCCL's service is asked when the youngest rank is two minutes old."""
_POLLS = 80


def jobs() -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "jobs", "--json"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode in {0, 1, 3}, done.stderr
    return list(json.loads(done.stdout)["jobs"]) if done.stdout else []


@pytest.mark.parametrize("what", [SLEEPS, "pass"], ids=["hang", "healthy"])
def test_a_job_without_a_probe(what: str, torch_python: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(what=what, steps=20_000))
    command = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}", str(script)]
    process = subprocess.Popen([torch_python, *command], env={**os.environ, "GPUMON_PROBE": "0"})
    states: list[tuple[str, str]] = []
    try:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and len(states) < _POLLS and process.poll() is None:
            ranks = set(tree(process.pid))
            ours = [job for job in jobs() if any(rank["pid"] in ranks for rank in job["ranks"])]
            states += [(job["state"], job["headline"]) for job in ours]
            if states and states[-1][0] == "hanging":
                print(json.dumps(ours, indent=1)[:4000])
                break
            time.sleep(1.0)
    finally:
        for pid in tree(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(20)
    print(states[-3:])
    if what == SLEEPS:
        assert states
        assert states[-1][0] == "hanging", states
        assert states[-1][1].lower().startswith("rank 1 has not entered"), states
    else:
        assert states
        assert not any(state == "hanging" for state, _ in states), states
