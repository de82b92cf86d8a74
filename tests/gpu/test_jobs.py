"""On two real GPUs: `gpumon jobs` about jobs without a probe, from NCCL's RAS service alone.

A job that hangs and a healthy one run at the same time, each with its own port, because gpumon asks NCCL only when the
youngest rank of a job is two minutes old. What NCCL answers is printed, so that one run explains a failure.
"""

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

from gpumon.distributed.nccl_version import nccl_version
from gpumon.distributed.ras_client import RasError, read_text
from tests.gpu.test_hangs import PROGRAM, SLEEPS
from tests.hangs.runner import free_port
from tests.processes import tree

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300), pytest.mark.xdist_group("gpu")]

_AGE_SECONDS = 123.0
"""NCCL's service is asked when the youngest rank is two minutes old."""
_START_SECONDS = 60.0
_PATIENCE_SECONDS = 75.0
_SHOWN_CHARACTERS = 2000


class Job:
    """Two ranks without a probe.

    Args:
        python: The interpreter with torch.
        folder: For its script and its output.
        what: What rank 1 does at step 300.
    """

    def __init__(self, python: str, folder: Path, what: str) -> None:
        folder.mkdir()
        self.script = folder / "train.py"
        self.script.write_text(PROGRAM.format(what=what, steps=20_000))
        self.address = f"127.0.0.1:{free_port()}"
        self.output = folder / "output"
        command = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [python, *command, str(self.script)],
                env={**os.environ, "GPUMON_PROBE": "0", "NCCL_RAS_ADDR": self.address},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.output.read_text(errors="replace")

    def reports(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        """Its entries in a document of ``gpumon jobs --json``."""
        pids = set(tree(self.process.pid))
        return [job for job in document["jobs"] if any(rank["pid"] in pids for rank in job["ranks"])]

    def show_service(self) -> None:
        """Print which NCCL the ranks have, and what its service answers."""
        versions = {pid: nccl_version(pid) for pid in tree(self.process.pid)}
        print(f"{self.script}: NCCL by PID: {versions}; RAS at {self.address}:")
        try:
            print(read_text(self.address).decode(errors="replace")[:_SHOWN_CHARACTERS], flush=True)
        except RasError as error:
            print(error.problem, flush=True)

    def close(self) -> None:
        """End it."""
        for pid in tree(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(20)


def document() -> dict[str, Any]:
    """What ``gpumon jobs --json`` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "jobs", "--json"], capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode in {0, 1, 3}, done.stderr
    return dict(json.loads(done.stdout))


def test_jobs_without_a_probe(torch_python: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    hanging = Job(torch_python, tmp_path / "hanging", SLEEPS)
    healthy = Job(torch_python, tmp_path / "healthy", "pass")
    try:
        while "hang" not in hanging.text and time.monotonic() - begun < _START_SECONDS:
            assert hanging.process.poll() is None, hanging.text
            time.sleep(0.5)
        hung = time.monotonic()
        assert "hang" in hanging.text, hanging.text
        time.sleep(max(0.0, hung + _AGE_SECONDS - time.monotonic()))
        hanging.show_service()
        healthy.show_service()
        assert healthy.process.poll() is None, healthy.text
        asked = time.monotonic()
        while True:
            answer = document()
            bad, good = hanging.reports(answer), healthy.reports(answer)
            now = time.monotonic()
            print(f"{now - asked:.1f} s after the first question, {now - hung:.1f} s after the hang:")
            print(json.dumps([(job["state"], job["headline"], job["problems"]) for job in bad + good], indent=1))
            assert all(job["state"] != "hanging" for job in good), good
            if any(job["state"] == "hanging" for job in bad) or now - asked > _PATIENCE_SECONDS:
                break
    finally:
        hanging.close()
        healthy.close()
    print(json.dumps(bad, indent=1)[: 2 * _SHOWN_CHARACTERS])
    assert [job["state"] for job in bad] == ["hanging"], (bad, answer["problems"])
    assert bad[0]["headline"].startswith("Rank 1 has not entered all_reduce #"), bad
    assert bad[0]["verdict"]["rank"] == 1, bad
    assert [job["state"] for job in good] in (["running"], ["slow"]), good  # they share the GPUs
