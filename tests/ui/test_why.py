"""The screen that explains why a training run is slow: progress, the account, a reason in its place, and traces."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot

from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.step_classes import DATA
from gpumon.insight.bottlenecks.slowness_verdict import judge_run
from gpumon.operations.attaching import ProbePlan
from gpumon.operations.why.examination import PASSIVE, TRACE, ExaminationProgress, Listener, WhyReport
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens import probe_question
from gpumon.ui.screens import why as screen_module
from gpumon.ui.screens.confirm import LoadProbeDialog
from gpumon.ui.screens.process import ProcessScreen
from gpumon.ui.screens.why import WhyScreen
from tests import builders
from tests.insight.bottlenecks.makers import evidence
from tests.insight.bottlenecks.test_causes import GPU, SICK
from tests.ui.fakes import FakeLive, app_on, screen_text, until


def report(stages: tuple[str, ...] = (PASSIVE,)) -> WhyReport:
    run = SICK["main_process"] if stages == (PASSIVE,) else evidence({DATA: 0.4}, gpu=GPU)
    device = builders.frame().devices[0]
    return WhyReport(4242, "python train.py", device, stages, 5.0, run, judge_run(run))


class FakeExamination:
    """Reports progress, and answers when the test lets it."""

    def __init__(self, result: WhyReport | Problem) -> None:
        self.result = result
        self.release = threading.Event()
        self.calls = 0
        self.cancelled = 0
        self.traces = 0

    def examine(self, pid: int, seconds: None, listener: Listener, *, has_trace: bool) -> WhyReport:
        self.calls += 1
        listener.on_progress(ExaminationProgress("observing", 2.0, 5.0))
        while not self.release.wait(0.01):
            if listener.is_cancelled():
                self.cancelled += 1
                raise CommandError(Problem(ProblemCode.NOT_READ, "Cancelled."), ExitCode.USAGE)
        if self.calls > 1:
            self.release.clear()
        if isinstance(self.result, Problem):
            raise CommandError(self.result, ExitCode.MISSING_PREREQUISITE)
        self.traces += has_trace
        return report((PASSIVE, TRACE)) if has_trace else self.result


@pytest.fixture
def examination(monkeypatch: pytest.MonkeyPatch) -> FakeExamination:
    fake = FakeExamination(report())
    monkeypatch.setattr(screen_module, "examine_process", fake.examine)
    monkeypatch.setattr(screen_module, "ask_for_probe", lambda screen, pid, policy, then: then(None))
    return fake


@asynccontextmanager
async def opened(seconds: float) -> AsyncIterator[tuple[GpumonApp, Pilot[None]]]:
    """The screen, some time after it was opened."""
    app = app_on(stream := FakeLive())
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(builders.frame())
        await app.push_screen(WhyScreen(4242))
        await pilot.pause(seconds)
        yield app, pilot


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 10)])
async def test_progress_and_then_the_account(size: tuple[int, int], examination: FakeExamination) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=size) as pilot:
        stream.put(builders.frame())
        await pilot.pause()
        await app.push_screen(WhyScreen(4242))
        await pilot.pause(0.1)
        stream.put(builders.frame())
        await pilot.pause(0.1)
        assert "observing 2 of 5 s" in screen_text(app)

        examination.release.set()
        await pilot.pause(0.3)

        text = screen_text(app)
        assert "Loading data in the main process" in text
        assert examination.calls > 1, "it goes on observing"
        await pilot.press("escape")
        await pilot.pause(0.1)
        assert not isinstance(app.screen, WhyScreen)


async def test_a_reason_takes_the_place_of_the_account(examination: FakeExamination) -> None:
    examination.result = Problem(ProblemCode.NOT_FOUND, "Process 4242 has no probe.", "Start it with gpumon watch.")
    examination.release.set()
    async with opened(0.2) as (app, _pilot):
        assert "Process 4242 has no probe." in screen_text(app)
        assert "Start it with gpumon watch." in screen_text(app)
        assert examination.calls == 1


async def test_a_trace_on_request_stays(examination: FakeExamination) -> None:
    async with opened(0.1) as (app, pilot):
        await pilot.press("r")
        await pilot.pause(0.1)
        assert examination.cancelled == 1, "the observation that ran has ended"

        examination.release.set()
        await pilot.pause(0.3)

        assert examination.traces == 1
        assert "from a trace" in screen_text(app)
        calls = examination.calls
        await pilot.pause(0.1)
        assert examination.calls == calls


async def test_nothing_is_observed_while_another_screen_is_in_front(examination: FakeExamination) -> None:
    async with opened(0.1) as (_app, pilot):
        await pilot.press("question_mark")
        await pilot.pause(0.1)

        assert examination.cancelled == 1


async def test_the_key_of_a_process_opens_it(examination: FakeExamination) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        device = builders.device(processes=(builders.process(4242),))
        stream.put(builders.frame(devices=(device,)))
        await pilot.pause()
        await app.push_screen(ProcessScreen(device.key, 4242))
        await pilot.pause()
        await pilot.press("w")
        await pilot.pause(0.1)

        assert isinstance(app.screen, WhyScreen)


class FakeLoading:
    """Two ranks without a probe."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loaded: list[tuple[int, ...]] = []
        self.plan = ProbePlan("pretrain.py", (), (4242, 4243), {}, is_own=True)
        monkeypatch.setattr(probe_question, "plan_for", lambda _: self.plan)
        monkeypatch.setattr(probe_question, "load_probes", self.load)
        monkeypatch.setattr(screen_module, "examine_outside", lambda *_: report(("outside",)))
        monkeypatch.setattr(screen_module, "examine_process", lambda *_, **__: report())

    def load(self, pids: tuple[int, ...]) -> dict[int, object]:
        self.loaded.append(pids)
        return dict.fromkeys(pids, object())


@pytest.mark.parametrize(
    ("load_probe", "is_asked", "button", "loaded"),
    [("ask", True, "yes", True), ("ask", True, "no", False), ("own", False, "", True), ("never", False, "", False)],
)
async def test_without_a_probe_it_asks_once_for_the_whole_job(
    load_probe: str, is_asked: bool, button: str, loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = FakeLoading(monkeypatch)
    stream = FakeLive()
    app = GpumonApp(stream, load_probe=load_probe)
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(builders.frame())
        await pilot.pause()
        screen = WhyScreen(4242)
        await app.push_screen(screen)
        if is_asked:
            await until(pilot, lambda: "They stop for about 1 ms." in screen_text(app))
            assert isinstance(app.screen, LoadProbeDialog)
            assert "Load the probe into 2 processes of pretrain.py?" in screen_text(app)
            await pilot.click(f"#{button}")
        await until(pilot, lambda: screen.report is not None)
        assert loading.loaded == ([(4242, 4243)] if loaded else [])
        assert isinstance(screen.report, WhyReport)
        assert screen.report.stages == (PASSIVE if loaded else "outside",)
