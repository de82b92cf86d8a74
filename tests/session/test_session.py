"""The session without a screen: one state for each draw, the pause, the demand, and the question before a start."""

import ast
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from gpumon.core.model import Frame
from gpumon.operations.device_selection import CPU, gpu_target
from gpumon.operations.gpu_processes import OtherProcess
from gpumon.operations.runs import HeadlessRuns
from gpumon.operations.workload import StartQuestion, WorkloadRun, start_question
from gpumon.session.app_session import AppSession, Bells, Demand
from gpumon.session.run_registry import RunRegistry
from gpumon.workload_runs.interpreter import Interpreter
from tests import builders, runs
from tests.frames import machine
from tests.ui.fakes import FakeLive, FakeRecording, FakeStream
from tests.ui.probing import BEGAN, PID, FakeWatcher, moment, probe, statistics


class DemandingLive(FakeLive):
    """A live stream that reads some values on demand only."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[Collection[str]] = []
        self.counts: list[bool] = []

    def request_on_demand(self, keys: Collection[str], process_keys: Collection[str] = ()) -> None:
        self.keys.append(keys)

    def set_call_stats(self, wanted: bool) -> None:
        self.counts.append(wanted)


def session_on(stream: FakeStream, watcher: FakeWatcher) -> AppSession:
    bells = Bells(lambda: None, lambda: None, lambda: None)
    return AppSession(stream, bells, lambda call: call(), lambda: watcher)


def test_the_session_imports_no_textual() -> None:
    code = "import sys, gpumon.session.app_session; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_screens_import_no_controller() -> None:
    """Screens are drawn from a `ViewState` and send messages."""
    forbidden = {"WorkloadController", "RunRegistry", "ProbeRegistry", "FrameSession", "AppSession"}
    folder = Path(sys.modules[AppSession.__module__].__file__ or "").parents[1] / "ui" / "screens"
    for file in folder.glob("*.py"):
        names = {
            alias.name
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert not names & forbidden, file.name


# Pause


def test_frames_alerts_and_probes_freeze_together(watcher: FakeWatcher) -> None:
    stream = FakeLive()
    session = session_on(stream, watcher)
    session.probes.start()
    watcher.inbox.put(probe(PID, statistics()))
    session.probes.drain()
    stream.put(moment(0.0))
    session.drain_frames()
    session.toggle_pause()
    before = session.view_state()
    assert before is not None
    assert before.is_paused
    hot = builders.device(0, throttle_reasons=("hw_thermal_slowdown",), readings={"temperature_celsius": 93.0})
    stream.put(moment(2.0, hot), moment(5.0, hot))
    watcher.inbox.put(probe(77, statistics(), at=BEGAN + 5))
    session.drain_frames()
    session.probes.drain()
    after = session.view_state()
    assert after is not None
    assert (after.frame, after.alerts, after.alerts_over) == (before.frame, before.alerts, before.alerts_over)
    assert set(after.probes.probes) == {PID}
    assert after.probes.now_monotonic == before.probes.now_monotonic
    session.toggle_pause()
    resumed = session.view_state()
    assert resumed is not None
    assert (resumed.frame.monotonic_seconds, set(resumed.probes.probes)) == (BEGAN + 5, {PID, 77})
    assert resumed.alerts != before.alerts


def test_a_recording_pauses_itself_and_its_state_has_no_probes_of_this_host(watcher: FakeWatcher) -> None:
    stream = FakeRecording()
    session = session_on(stream, watcher)
    stream.put(machine())
    session.drain_frames()
    session.toggle_pause()
    state = session.view_state()
    assert stream.paused
    assert state is not None
    assert state.is_paused
    assert not state.probes.probes


def test_a_state_references_the_store_and_copies_no_history(watcher: FakeWatcher) -> None:
    stream = FakeLive()
    session = session_on(stream, watcher)
    stream.put(machine())
    session.drain_frames()
    state = session.view_state()
    assert state is not None
    assert state.store is session.store
    assert state.costs == (), "nothing is measured unless a screen shows it"


# Demand


def test_only_what_is_shown_is_read(watcher: FakeWatcher) -> None:
    stream = DemandingLive()
    session = session_on(stream, watcher)
    session.probes.start()
    stream.put(machine())
    session.drain_frames()
    session.set_demand(Demand(frozenset({"a"}), costs=True, probes=True))
    assert (stream.keys[-1], stream.counts[-1], watcher.paces[-1]) == ({"a"}, True, 0.5)
    for _ in range(3):
        state = session.view_state()
    assert state is not None
    assert len(state.costs) == 3
    session.set_demand(Demand())
    assert (stream.keys[-1], stream.counts[-1], watcher.paces[-1]) == (frozenset(), False, 1.0)
    state = session.view_state()
    assert state is not None
    assert state.costs == ()


# The question before a start


def waiting_run(gpu: int | None = 0, **uses: object) -> WorkloadRun:
    run = runs.new_run(gpu=gpu)
    runs.send_plan(run, **uses)
    return run


def with_pids(monkeypatch: pytest.MonkeyPatch, *pids: int) -> list[WorkloadRun]:
    """Runs on GPU 0 and on the next ones, with such PIDs; each of them uses all GPUs."""
    pair = [waiting_run(number, peers=True) for number in range(len(pids))]
    by_job = {id(run.child): pid for run, pid in zip(pair, pids, strict=True)}
    monkeypatch.setattr(type(pair[0].child), "pid", property(lambda job: by_job[id(job)]))
    return pair


def question_of(session: AppSession) -> StartQuestion | None:
    session.drain_runs()
    return session.workloads.question


def host_with(*pids: int) -> Frame:
    devices = tuple(builders.device(index, processes=(builders.process(pid),)) for index, pid in enumerate(pids))
    return builders.frame(devices=devices)


def test_two_workloads_of_gpumon_do_not_ask_about_each_other(
    watcher: FakeWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = FakeLive()
    session = session_on(stream, watcher)
    pair = with_pids(monkeypatch, 4000, 4001)
    session.workloads.registry.runs = list(pair)
    stream.put(host_with(4000, 4001))
    session.drain_frames()
    session.drain_runs()
    assert session.workloads.question is None
    assert [run.state.began_seconds is not None for run in pair] == [True, True]


def test_a_process_of_another_program_is_asked_about_once(
    watcher: FakeWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = FakeLive()
    session = session_on(stream, watcher)
    pair = with_pids(monkeypatch, 4000, 4001)
    session.workloads.registry.runs = list(pair)
    stream.put(host_with(4000, 5555))
    session.drain_frames()
    first = question_of(session)
    assert first is not None
    assert first.run is pair[0]
    assert [other.process and other.process.pid for other in first.others] == [5555]
    assert question_of(session) is first
    session.workloads.answer(pair[0], confirmed=True)
    second = question_of(session)
    assert second is not None
    assert second.run is pair[1]
    session.workloads.answer(pair[1], confirmed=False)
    assert question_of(session) is None
    assert [run.state.began_seconds is not None for run in pair] == [True, False]
    assert [run.is_stopping for run in pair] == [False, True]


def test_the_command_line_has_the_same_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = with_pids(monkeypatch, 4000, 4001)
    asked: list[list[OtherProcess]] = []

    class Output:
        def on_event(self, *_: object) -> None: ...

        def on_tick(self, *_: object) -> None: ...

        def confirm_start(self, _: WorkloadRun, others: list[OtherProcess]) -> bool:
            asked.append(list(others))
            return False

    class Stream(FakeLive):
        keys: frozenset[str] = frozenset()

        def request_on_demand(self, keys: set[str]) -> None:
            self.keys = frozenset(keys)

    for pids, count in (((4000, 4001), 0), ((4000, 5555), 1)):
        stream = Stream()
        headless = HeadlessRuns(pair[:1] if count else pair, stream, Output())  # type: ignore[arg-type]
        stream.put(host_with(*pids))
        for run in pair:
            run.state.began_seconds = None
        headless._drain(can_wait=True)
        assert len(asked) == count
        assert stream.keys == {run.device.key for run in headless.runs if run.device}, "its hardware counters are read"
        assert len(stream.keys) == 1


def test_on_the_cpu_only_the_workload_itself_asks() -> None:
    frame = builders.frame()
    assert start_question(waiting_run(gpu=None), [], frame) is None
    question = start_question(waiting_run(gpu=None, asks="It breaks its own context."), [], frame)
    assert question is not None
    assert question.others == ()
    assert start_question(waiting_run(), [], None) is None, "there is no frame of this host"


def test_runs_that_end_are_dropped_and_a_device_runs_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = RunRegistry(lambda: None)
    working = runs.live_run(1)
    registry.runs = [*(runs.ended_run() for _ in range(60)), working]
    monkeypatch.setattr(WorkloadRun, "start", lambda _: None)
    registry.start(runs.workload(), CPU, {}, Interpreter(Path("/opt/torch/bin/python"), "PATH"))
    assert len(registry.runs) == 52
    assert registry.running == [registry.runs[0], working]
    with pytest.raises(ValueError, match="CPU is busy with matmul"):
        registry.start_again(registry.runs[0])


def test_a_gpu_is_named_by_its_uuid_and_the_others_follow() -> None:
    devices = (*machine(2).devices, builders.device(2, uuid=None))
    target = gpu_target(devices[1], devices)
    assert target is not None
    assert (target.label, target.device) == ("GPU 1", "cuda:0")
    assert target.environment == {"CUDA_VISIBLE_DEVICES": f"{devices[1].uuid},{devices[0].uuid}"}
    assert gpu_target(devices[2], devices) is None


@pytest.mark.parametrize("first", [1, 2, 5])
def test_earlier_history_is_asked_for_once_however_many_frames_come_first(
    first: int, watcher: FakeWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr("gpumon.session.app_session._earlier_history", asked.append)
    stream = FakeLive()
    session = session_on(stream, watcher)
    stream.put(*(moment(float(second)) for second in range(first)))
    session.drain_frames()
    for second in range(first, 7):
        stream.put(moment(float(second)))
        session.drain_frames()
    assert len(asked) == 1
