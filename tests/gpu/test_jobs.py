"""On all real GPUs of a host, two or more: `gpumon jobs` about jobs without a probe, from NCCL's RAS service alone.

Jobs that hang and a healthy one run at the same time, each with its own port, because gpumon asks NCCL only when the
youngest rank of a job is two minutes old. What NCCL answers is printed, so that one run explains a failure.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpumon.distributed.ras_client import RasError, read_text
from gpumon.distributed.ras_poller import nccl_version
from tests.gpu.test_hangs import KILLED, PROGRAM, SLEEPS, STOPPED, kill, start_ranks
from tests.hangs.runner import free_port
from tests.processes import tree

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300), pytest.mark.xdist_group("gpu")]

_AGE_SECONDS = 123.0
"""NCCL's service is asked when the youngest rank is two minutes old."""
_START_SECONDS = 60.0
_PATIENCE_SECONDS = 75.0
_SHOWN_CHARACTERS = 2000


class Job:
    """A rank on each GPU, without a probe.

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
        environment = {"GPUMON_PROBE": "0", "NCCL_RAS_ADDR": self.address}
        with self.output.open("wb") as output:
            self.processes = start_ranks([python], self.script, environment, output, has_torchrun=what != KILLED)
        self.process = self.processes[0]

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.output.read_text(errors="replace")

    def reports(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        """Its entries in a document of ``gpumon jobs --json``."""
        pids = {pid for process in self.processes for pid in tree(process.pid)}
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
        kill(self.processes)


def document() -> dict[str, Any]:
    """What ``gpumon jobs --json`` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "jobs", "--json"], capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode in {0, 1, 3}, done.stderr
    return dict(json.loads(done.stdout))


def test_jobs_without_a_probe(torch_python: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    bad = {
        kind: Job(torch_python, tmp_path / kind, what)
        for kind, what in (("not_entered", SLEEPS), ("stopped", STOPPED), ("dead", KILLED))
    }
    healthy = Job(torch_python, tmp_path / "healthy", "pass")
    by_kind: dict[str, dict[str, Any]] = {}
    try:
        while any("hang" not in job.text for job in bad.values()):
            assert time.monotonic() - begun < _START_SECONDS, [job.text for job in bad.values()]
            time.sleep(0.5)
        hung = time.monotonic()
        time.sleep(max(0.0, hung + _AGE_SECONDS - time.monotonic()))
        for job in (*bad.values(), healthy):
            job.show_service()
        assert healthy.process.poll() is None, healthy.text
        asked = time.monotonic()
        while len(by_kind) < len(bad) and time.monotonic() - asked < _PATIENCE_SECONDS:
            answer = document()
            good = healthy.reports(answer)
            hanging = {
                kind: [one for one in job.reports(answer) if one["state"] == "hanging"] for kind, job in bad.items()
            }
            by_kind |= {kind: reports[0] for kind, reports in hanging.items() if reports and kind not in by_kind}
            print(f"{time.monotonic() - asked:.1f} s after the first question:")
            jobs = [one for job in (*bad.values(), healthy) for one in job.reports(answer)]
            print(json.dumps([(job["state"], job["headline"], job["problems"]) for job in jobs], indent=1))
            assert [job["state"] for job in good] in (["running"], ["slow"]), good  # they share the GPUs
    finally:
        for job in (*bad.values(), healthy):
            job.close()
    print(json.dumps(by_kind, indent=1)[: 8 * _SHOWN_CHARACTERS])
    assert {kind: (job["verdict"]["kind"], job["verdict"]["rank"]) for kind, job in by_kind.items()} == {
        kind: (kind, 1) for kind in bad
    }
    assert by_kind["not_entered"]["headline"].startswith("Rank 1 has not entered all_reduce #"), by_kind
