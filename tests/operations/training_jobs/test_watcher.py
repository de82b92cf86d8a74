"""From frames and probes to the report on a job: which rank slows the others. The ranks are real processes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpumon.core.allocator import ProbedProcess, ProbeReading, ProbeState
from gpumon.core.model import Frame
from gpumon.core.ranks import HangKind
from gpumon.core.steps import StepProgress
from gpumon.distributed.environment import JobRank, TrainingJob
from gpumon.operations import rank_watch
from gpumon.operations.hangs import HangWatch
from gpumon.operations.training_jobs.report import SLOWS, TrainingJobReport, TrainingJobState
from gpumon.operations.training_jobs.watcher import JobWatcher
from gpumon.probe.messages import Probe
from tests import builders
from tests.processes import start_ticks

JOB = "watched-by-a-test"
FOREIGN = 1


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Two ranks."""
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": JOB}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(60)"],
            env={**os.environ, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank), "GPUMON_PROBE": "0"},
        )
        for rank in range(2)
    ]
    yield [rank.pid for rank in ranks]
    for rank in ranks:
        rank.kill()
        rank.wait()


def frame(pids: list[int], **of_second: Any) -> Frame:  # noqa: ANN401
    """A frame in which each rank has a GPU, the second one with other values."""
    uses = [[builders.process(pid, start_ticks=start_ticks(pid), sm_percent=95.0)] for pid in pids]
    uses[1] += of_second.pop("more", [])
    devices = (builders.device(0, processes=tuple(uses[0])), builders.device(1, processes=tuple(uses[1]), **of_second))
    return builders.frame(devices=devices)


def probes(pids: list[int], steps: int) -> dict[int, Probe]:
    """What the probes of the ranks report after some steps."""
    now = time.monotonic()
    progress = StepProgress(steps, steps, now, 0.4, 0.001, 0.0)
    reading = ProbeReading(ProbeState.LIVE, now, training=progress)
    return {pid: Probe(ProbedProcess(pid, pid, rank=rank, world_size=2), reading, now) for rank, pid in enumerate(pids)}


def report(pids: list[int], **of_second: Any) -> TrainingJobReport:  # noqa: ANN401
    """The report after some readings."""
    watcher = JobWatcher(lambda *_, **__: 0)
    for steps in range(100, 104):
        reading = watcher.read(frame(pids, **of_second), probes(pids, steps), max_reads=1 << 20)
    return next(report for report in reading.reports if report.id == JOB)


def test_a_gpu_at_a_low_clock_is_named(pids: list[int]) -> None:
    result = report(pids, readings={"clock_sm_hertz": 1_200_000_000}, throttle_reasons=("sw_power_cap",))
    sentence = "Rank 1 slows the others: the SM clock of GPU 1 is 1,200 MHz, that of the others 1,830 MHz (power cap)."
    assert (result.state, result.headline) == (TrainingJobState.SLOW, sentence)
    assert [(rank.state, rank.is_culprit) for rank in result.ranks] == [("running", False), (SLOWS, True)]
    assert result.steps_per_second == pytest.approx(2.5)


def test_a_narrow_link_and_a_shared_gpu(pids: list[int]) -> None:
    result = report(pids, readings={"pcie_generation": 1, "pcie_width": 8})
    assert "the PCIe link of GPU 1 is Gen 1 x8, that of the others Gen 5 x16" in result.headline
    result = report(pids, more=[builders.process(FOREIGN, sm_percent=40.0)])
    assert f"GPU 1 also runs PID {FOREIGN} of another job (40 % of the time)" in result.headline


def test_a_helper_of_a_rank_is_not_foreign(pids: list[int]) -> None:
    result = report(pids, more=[builders.process(pids[0], start_ticks=start_ticks(pids[0]), sm_percent=40.0)])
    assert result.state is TrainingJobState.RUNNING


def test_equal_gpus_slow_nobody(pids: list[int]) -> None:
    result = report(pids)
    assert result.verdict is not None
    assert (result.state, result.verdict.kind) == (TrainingJobState.RUNNING, HangKind.RUNNING)


def test_one_reading_alone_accuses_nobody(pids: list[int]) -> None:
    watcher = JobWatcher(lambda *_, **__: 0)
    low = frame(pids, readings={"clock_sm_hertz": 1_200_000_000})
    states = []
    for steps in range(100, 103):
        reading = watcher.read(low, probes(pids, steps), max_reads=1 << 20)
        states.append(next(report.state for report in reading.reports if report.id == JOB))
    assert states[0] is TrainingJobState.RUNNING
    assert states[-1] is TrainingJobState.SLOW


def test_a_column_says_which_ranks_have_a_probe_or_why_not(pids: list[int]) -> None:
    assert report(pids).probe == "probe"
    watcher = JobWatcher(lambda *_, **__: 0)
    some = probes(pids, 100)
    for known, text in ((some, "probe"), ({pids[1]: some[pids[1]]}, "1/2 probe"), ({}, "disabled")):
        reading = watcher.read(frame(pids), known, max_reads=1 << 20)
        job = next(report for report in reading.reports if report.id == JOB)
        assert job.probe == text
    assert [rank.probe for rank in job.ranks] == ["disabled"] * 2, "their environment refuses the probe"


def test_a_process_that_shows_no_progress_is_read_from_outside_only_while_its_job_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []

    def read_threads(pid: int) -> tuple[()]:
        read.append(pid)
        return ()

    monkeypatch.setattr(rank_watch, "read_threads", read_threads)
    own = os.getpid()
    watch = HangWatch(lambda *_, **__: 0)
    job = TrainingJob("alone", 0, "user", "", 1, (JobRank(own, start_ticks(own), None, None, "python train.py"),))
    for now in (1.0, 60.0):
        watch.update([job], {}, now)
    assert not read
    watch.update([job], {}, 61.0, is_open=lambda _: True)
    assert read == [own]
