"""The screens of training jobs: a row per job with its verdict, and a row per rank."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from gpumon.core.model import Frame
from gpumon.operations.run_report import watched
from gpumon.operations.training_jobs import dump
from gpumon.operations.training_jobs.report import NO_PROBE, THIS_HOST, TrainingJobReport, TrainingJobState
from gpumon.operations.training_jobs.watcher import JobsReading
from gpumon.probe.messages import Probe
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens import jobs
from gpumon.ui.screens.process import ProcessScreen
from gpumon.ui.screens.why import WhyScreen
from tests import builders, training_jobs
from tests.frames import machine
from tests.training_jobs import HANGING, JOBS, RUNS
from tests.ui.fakes import FakeLive, FakeRecording, app_on, screen_lines, screen_text


class FakeWatcher:
    """Reads what a test says."""

    def __init__(self, *reports: TrainingJobReport) -> None:
        self.reports = reports
        self.open_keys: list[str] = []

    def read(self, frame: Frame | None, probes: Mapping[int, Probe], *, open_key: str = "") -> JobsReading:
        self.open_keys.append(open_key)
        return JobsReading(self.reports)


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


async def shown(pilot: Pilot[Any], stream: FakeLive, *reports: TrainingJobReport) -> FakeWatcher:
    """Open the screen of jobs, and wait until the jobs were read."""
    app = pilot.app
    assert isinstance(app, GpumonApp)
    watcher = FakeWatcher(*reports)
    app.session.jobs._watcher = watcher  # type: ignore[assignment]
    await pilot.press("4")
    await tick(pilot, stream, 100.0)
    return watcher


async def tick(pilot: Pilot[Any], stream: FakeLive, seconds: float) -> None:
    """Let a frame arrive, and what is read with it."""
    app = pilot.app
    assert isinstance(app, GpumonApp)
    stream.put(machine(8, monotonic_seconds=seconds, time_seconds=1e9 + seconds))
    await pilot.pause(0.05)
    for _ in range(100):
        if not app.session.jobs._is_reading and app.session.jobs.state.is_read:
            break
        await pilot.pause(0.02)
    await pilot.pause(0.05)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(160, 50), (120, 40), (80, 24), (60, 10)])
async def test_a_job_has_a_row_and_its_verdict(size: tuple[int, int]) -> None:
    app = app_on(stream := FakeLive())
    async with app.run_test(size=size) as pilot:
        await shown(pilot, stream, *JOBS)
        assert app.screen.query("#jobs")
        lines = screen_lines(app)
        row = next(line for line in lines if "train" in line)
        assert "8/16" in row
        assert "x hangs" in row
        assert any("Rank 3 has not entered all_reduce #288686" in line for line in lines)
        if size[0] >= 80:
            assert all(text in row for text in ("0-7", "412 ms", "4m"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(160, 50), (120, 40), (80, 24), (60, 10)])
async def test_a_rank_has_a_row_below_the_verdict(size: tuple[int, int]) -> None:
    app = app_on(stream := FakeLive())
    async with app.run_test(size=size) as pilot:
        watcher = await shown(pilot, stream, *JOBS)
        await pilot.press("enter")
        await tick(pilot, stream, 102.0)
        assert app.screen.query("#ranks")
        lines = screen_lines(app)
        assert any("Rank 3 has not entered all_reduce #288686" in line for line in lines)
        row = next(line for line in lines if "x not entered" in line)
        assert "all_reduce #288685" in row
        if size[0] >= 80:
            assert "train.py:214" in row
        if size[0] >= 120:
            assert "56.0 MiB" in row
            assert any("The main thread of rank 3 has been" in line for line in lines)
        assert watcher.open_keys[-1] == HANGING.key
        await pilot.press("escape")
        assert app.screen.query("#jobs")


async def test_a_hang_is_shown_on_the_pages_of_the_gpus_of_its_job_alone() -> None:
    app = app_on(stream := FakeLive())
    ranks = tuple(rank for rank in HANGING.ranks if rank.gpus[:1] == HANGING.gpus[1:2])
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot, stream, replace(HANGING, ranks=ranks))
        await tick(pilot, stream, 102.0)
        await pilot.press("1", "home", "enter")
        assert "hangs" not in screen_text(app)
        await pilot.press("]")
        await pilot.pause()
        assert "hangs" in screen_text(app)


@pytest.mark.parametrize(("key", "screen"), [("enter", ProcessScreen), ("w", WhyScreen)])
async def test_keys_of_a_rank_open_its_process_and_why_it_is_slow(key: str, screen: type[Screen[Any]]) -> None:
    app = app_on(stream := FakeLive())
    with_process = replace(RUNS, ranks=(training_jobs.rank(0, pid=4000, process=builders.process(4000)),))
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot, stream, with_process)
        await pilot.press("enter")
        await tick(pilot, stream, 102.0)
        await pilot.press(key)
        await pilot.pause(0.1)
        assert isinstance(app.screen, screen)


async def test_a_recording_has_the_jobs_that_its_processes_show() -> None:
    app = app_on(recording := FakeRecording())
    devices = tuple(builders.device(index, processes=(builders.process(4000 + index),)) for index in range(4))
    async with app.run_test(size=(120, 40)) as pilot:
        recording.put(builders.frame(devices=devices))
        await pilot.press("4")
        await pilot.pause(0.1)
        (row,) = [line for line in screen_lines(app) if "– unknown" in line]
        assert "1 unknown" in screen_lines(app)[1]
        assert all(text in row for text in ("ada", "train", " 4 ", "0-3", "277.3"))
        assert "A recording or another host shows processes alone" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause(0.1)
        assert "4002" in screen_text(app)


async def test_a_hang_rings_the_bell_once_and_is_an_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_on(stream := FakeLive())
    rung: list[str] = []

    def ring(text: str, *, always_rings: bool = False) -> None:
        assert always_rings
        rung.append(text)

    monkeypatch.setattr(app.notifications, "notify_terminal", ring)
    async with app.run_test(size=(120, 40)) as pilot:
        watcher = await shown(pilot, stream, RUNS)
        assert rung == []
        assert HANGING.verdict is not None
        young = replace(HANGING, verdict=replace(HANGING.verdict, since_seconds=20.0))
        for number, report in enumerate((young, HANGING, HANGING, replace(HANGING, since_seconds=300.0))):
            watcher.reports = (RUNS, report)
            await tick(pilot, stream, 110.0 + 2 * number)
        assert rung == [f"train of ada (pretrain-7b) hangs: {HANGING.headline}"]
        state = app.session.view_state()
        assert state is not None
        (alert,) = [alert for alert in state.alerts if alert.id == "job_hangs"]
        assert alert.needs_attention
        watcher.reports = (RUNS, replace(HANGING, state=TrainingJobState.RUNNING, verdict=RUNS.verdict))
        await tick(pilot, stream, 130.0)
        watcher.reports = (RUNS, HANGING)
        await tick(pilot, stream, 132.0)
        assert len(rung) == 2


async def test_what_is_known_of_a_job_is_saved_with_the_last_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[tuple[Path, int]] = []

    def write(folder: Path, *, frames: Sequence[Frame]) -> dump.DumpResult:
        saved.append((folder, len(frames)))
        return dump.DumpResult(folder, ("jobs.json",), "Nothing was replaced.")

    monkeypatch.setattr(dump, "dump_jobs", write)
    stream = FakeLive()
    async with app_on(stream).run_test(size=(120, 30)) as pilot:
        await shown(pilot, stream, *JOBS)
        for second in range(1, 6):
            await tick(pilot, stream, 100.0 + second)
        await pilot.press("enter", "S")
        for _ in range(100):
            if saved:
                break
            await pilot.pause(0.02)
        await pilot.pause(0.1)
        assert [count for _, count in saved] == [5]
        assert saved[0][0].name.startswith("gpumon-jobs-")
        assert any("jobs.json" in str(notice.message) for notice in pilot.app._notifications)


async def test_a_report_of_the_selected_job_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[Sequence[int]] = []
    monkeypatch.setattr(jobs, "ask_for_probe", lambda *arguments: arguments[-1](NO_PROBE))
    monkeypatch.setattr(watched, "follow_run", lambda folder, pids, stop, write: followed.append(pids))
    async with app_on(stream := FakeLive()).run_test(size=(120, 30)) as pilot:
        await shown(pilot, stream, *JOBS)
        await pilot.press("S")
        await pilot.pause(0.2)
        notices = [str(notice.message) for notice in pilot.app._notifications]
        assert followed == [[rank.pid for rank in JOBS[0].ranks if rank.host == THIS_HOST]]
        assert any(
            "report.html about train until" in text and "without steps: No rank has a probe" in text for text in notices
        )
        assert any(text.startswith("The job has ended: gpumon-report-") for text in notices)
