"""One look at the jobs of this host, as ``gpumon jobs`` takes it, where NCCL's counts alone show progress."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.ranks import HangKind
from gpumon.distributed import ras_poller
from gpumon.insight.hangs import hang_verdict
from gpumon.operations.training_jobs import ras_ranks, watcher
from gpumon.operations.training_jobs.report import TrainingJobReport, TrainingJobState
from tests.distributed.ras_server import FakeRank, FakeService, report_json, serving

STANDSTILL_SECONDS = 2.0


@pytest.fixture
def service() -> FakeService:
    return FakeService(b"")


@pytest.fixture
def job(service: FakeService, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two ranks, the second of which sleeps, and a service that has their counts."""
    monkeypatch.setenv("GPUMON_PROBE_DIR", str(short_path))
    monkeypatch.setattr(ras_poller, "MIN_AGE_SECONDS", 0.0)
    monkeypatch.setattr(ras_poller, "nccl_version", lambda *_: (2, 28, 9))
    monkeypatch.setattr(watcher, "_RAS_SECONDS", 0.5)
    monkeypatch.setattr(watcher, "_COUNTED_SECONDS", STANDSTILL_SECONDS + 5.0)
    monkeypatch.setattr(hang_verdict, "MIN_COUNTED_SECONDS", STANDSTILL_SECONDS)
    monkeypatch.setattr(ras_ranks, "MIN_COUNTED_SECONDS", STANDSTILL_SECONDS)
    name = f"counted-{time.monotonic_ns()}"
    with serving(service) as address:
        variables = {
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": "1",
            "TORCHELASTIC_RUN_ID": name,
            "NCCL_RAS_ADDR": address,
            "GPUMON_PROBE": "0",
        }
        programs = ("while True: pass", "import time; time.sleep(60)")
        ranks = [
            subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **variables, "RANK": str(rank)})
            for rank, program in enumerate(programs)
        ]
        time.sleep(0.5)
        service.report = report_json(
            [FakeRank(rank, process.pid, all_reduces=301 - rank) for rank, process in enumerate(ranks)]
        )
        yield name
        for process in ranks:
            process.kill()
            process.wait()


def look(name: str) -> TrainingJobReport:
    return next(report for report in watcher.sample_jobs().reading.reports if report.id == name)


def test_counts_that_stand_still_are_a_hang(job: str, service: FakeService) -> None:
    report = look(job)
    assert report.state is TrainingJobState.HANGING
    assert report.headline.startswith("Rank 1 has not entered all_reduce #301, as NCCL counts: it sleeps")
    assert report.headline.endswith("; 1 rank waits.")
    assert report.verdict is not None
    assert (report.verdict.kind, report.verdict.rank) == (HangKind.NOT_ENTERED, 1)
    assert service.open_at_once == 1


def test_counts_that_change_are_none(job: str, service: FakeService) -> None:
    first = service.report

    count = iter(range(301, 1000))
    serve = service.serve

    def serve_next(connection: object) -> None:
        service.report = first.replace(b'"AllReduce": 301', f'"AllReduce": {next(count)}'.encode())
        serve(connection)  # type: ignore[arg-type]

    service.serve = serve_next  # type: ignore[method-assign]
    report = look(job)
    assert report.state is TrainingJobState.RUNNING, report.headline
