"""The parts of the app without an app: navigation, what changes a process, runs, and notifications."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gpumon.core.model import DeviceState, Process
from gpumon.operations.gpu_processes import Owner
from gpumon.operations.signals import SentSignal, SignalRefusal, SignalTarget
from gpumon.operations.workload import WorkloadRun
from gpumon.session import app_session
from gpumon.session.alert_notifier import NotifySettings
from gpumon.session.app_session import AppSession
from gpumon.session.wait_registry import wait_choices
from gpumon.ui import messages
from gpumon.ui.navigation import Navigation
from gpumon.ui.notifications import Notifications, notice_sequence
from gpumon.ui.process_actions import READ_ONLY, ProcessActions
from gpumon.ui.run_controller import MIN_RUN_DRAIN_SECONDS, RunController
from gpumon.ui.screens.alerts import AlertsScreen
from gpumon.ui.screens.choice import NotifyWhenDialog
from gpumon.ui.screens.confirm import ConfirmStartDialog, QuitDialog, SignalDialog
from gpumon.ui.screens.cost import CostScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.doctor import DoctorScreen
from gpumon.ui.screens.empty_cache import EmptyCacheDialog
from gpumon.ui.screens.fleet import FleetScreen
from gpumon.ui.screens.fleet_setup import FleetSetupScreen
from gpumon.ui.screens.memory import MemoryScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.processes import ProcessesScreen
from gpumon.ui.screens.run import RunScreen
from gpumon.workload_runs.interpreter import Interpreter
from tests import builders, runs
from tests.frames import machine
from tests.ui.fakes import FakeLive, FakeRecording, FakeStack, FakeStream, session_on
from tests.ui.probing import probe, statistics

KEYS = [device.key for device in machine(4).devices]


# Navigation


def navigation(*names: str, stream: FakeStream | None = None) -> tuple[FakeStack, Navigation]:
    """After opening screens, from the overview on, by their names."""
    stack = FakeStack(OverviewScreen())
    result = Navigation(stack, session_on(stream or FakeLive(), machine(4)))
    for name in names:
        result.open(name)
    return stack, result


def test_screens_of_tabs_replace_each_other_and_an_open_one_comes_back() -> None:
    stack, parts = navigation("memory", "alerts", "doctor", "processes")
    assert stack.kinds == [OverviewScreen, ProcessesScreen]
    processes = stack.screen
    stack.push_screen(DeviceScreen(KEYS[0]))
    stack.push_screen(QuitDialog(1))
    parts.open("processes")
    assert stack.screen is processes
    parts.open("processes")
    assert stack.screen is processes
    stack.push_screen(DeviceScreen(KEYS[0]))
    parts.open("alerts")
    assert stack.kinds == [OverviewScreen, AlertsScreen]
    parts.open("gpus")
    assert stack.kinds == [OverviewScreen]


def test_the_cost_opens_once_above_any_screen() -> None:
    stack, _ = navigation("doctor", "cost", "cost")
    assert stack.kinds == [OverviewScreen, DoctorScreen, CostScreen]


def test_a_host_of_the_fleet_keeps_its_overview_except_below_the_fleet() -> None:
    stack, parts = navigation("alerts")
    stack.push_screen(OverviewScreen(is_of_fleet=True))
    parts.open("doctor")
    assert stack.kinds == [OverviewScreen, AlertsScreen, OverviewScreen, DoctorScreen]
    parts.open("fleet")
    assert stack.kinds == [OverviewScreen, FleetSetupScreen], "how to add hosts"
    stack.switch_screen(FleetScreen())
    parts.open_host(messages.FleetHostRequested("box9"))
    assert (stack.kinds[-1], stack.notices) == (FleetScreen, ["box9 reports no GPU now."])


def test_the_memory_screen_shows_the_gpu_in_front_or_the_first_one() -> None:
    stack, parts = navigation("memory")
    assert isinstance(stack.screen, MemoryScreen)
    assert stack.screen.device_key == KEYS[0]
    parts.open("gpus")
    stack.push_screen(DeviceScreen(KEYS[2]))
    parts.open("memory")
    assert (stack.kinds, stack.screen.device_key) == ([OverviewScreen, MemoryScreen], KEYS[2])
    stack = FakeStack(OverviewScreen())
    Navigation(stack, session_on(FakeLive())).open("memory")
    assert (stack.kinds, stack.notices) == ([OverviewScreen], ["No GPU to show."])


@pytest.mark.parametrize(
    ("stream", "actions"),
    [
        (FakeStream(), {"select_device"}),
        (FakeLive(), {"select_device", "change_pace"}),
        (FakeRecording(), {"select_device", "change_pace", "seek"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_keys_without_a_use_are_not_offered(stream: FakeStream, actions: set[str]) -> None:
    stack, parts = navigation(stream=stream)
    candidates = {"select_device", "change_pace", "seek"}
    assert {action for action in candidates if parts.applies(action, (1,))} == actions
    assert parts.applies("open_screen", ("workloads",))
    stack.push_screen(DoctorScreen(None))
    stack.push_screen(QuitDialog(1))
    assert not parts.applies("select_device", (1,)), "the doctor shows no GPU, and a dialog is not in front"


# What changes a process


class Examiner:
    """Stands in for the sender of signals."""

    def __init__(self, *refused: int) -> None:
        self.refused = refused
        self.sent: list[tuple[int, SentSignal]] = []

    def examine(self, process: Process, _: object) -> SignalTarget | SignalRefusal:
        if process.pid in self.refused:
            return SignalRefusal(process.pid, f"PID {process.pid} is a zombie.")
        return SignalTarget(process.pid, 1, 0, "ada", "python", "python", 0.0, is_foreign=False)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the background is done at once."""

    def run(work: Callable[[], Any], then: Callable[[Any], None], _: object) -> None:
        then(work())

    monkeypatch.setattr(app_session, "run_in_background", run)


@pytest.mark.parametrize(
    ("stream", "options", "notice"),
    [
        (FakeRecording(), {}, "not of this host now"),
        (FakeStream(), {}, "not of this host now"),
        (FakeLive(), {"is_read_only": True}, READ_ONLY),
    ],
)
def test_no_signal_where_none_may_be_sent(stream: FakeStream, options: dict[str, Any], notice: str) -> None:
    stack = FakeStack()
    parts = ProcessActions(stack, session_on(stream, **options))
    parts.ask_for_signal(messages.SignalRequested([builders.process(1)]))
    assert [notice in text for text in stack.notices] == [True]
    assert stack.screen_stack == []


@pytest.mark.usefixtures("at_once")
def test_the_processes_that_can_get_a_signal_are_asked_about() -> None:
    stack, session = FakeStack(), session_on(FakeLive())
    signals: list[tuple[Sequence[SignalTarget], SentSignal]] = []
    session.signals.sender = Examiner(2)  # type: ignore[assignment]
    session.signals.send = lambda targets, sent: signals.append((targets, sent))  # type: ignore[method-assign]
    parts = ProcessActions(stack, session)
    parts.ask_for_signal(messages.SignalRequested([builders.process(2)]))
    assert (stack.notices, stack.screen_stack) == (["PID 2 is a zombie."], [])
    for answer in (None, SentSignal.TERM):
        parts.ask_for_signal(messages.SignalRequested([builders.process(1), builders.process(2)]))
        assert stack.kinds == [SignalDialog]
        stack.answer(answer)
    assert [([target.pid for target in targets], signal) for targets, signal in signals] == [([1], SentSignal.TERM)]


def test_a_cache_is_not_emptied_by_a_read_only_gpumon_or_where_the_probe_refuses() -> None:
    stack, session = FakeStack(), session_on(FakeLive())
    refusals = ["", "PID 4000 belongs to another user."]
    session.probes.refusal = lambda shown: refusals.pop()  # type: ignore[method-assign]
    parts = ProcessActions(stack, session)
    owner = Owner(4000, None, probe(4000, statistics()), statistics())
    parts.ask_to_empty_cache(messages.EmptyCacheRequested(owner, builders.device(0)))
    session.is_read_only = True
    parts.ask_to_empty_cache(messages.EmptyCacheRequested(owner, builders.device(0)))
    assert (stack.notices, stack.screen_stack) == (["PID 4000 belongs to another user.", READ_ONLY], [])
    session.is_read_only = False
    parts.ask_to_empty_cache(messages.EmptyCacheRequested(owner, builders.device(0)))
    assert stack.kinds == [EmptyCacheDialog]


# Runs


class Running:
    """The controller of runs, on a host whose first GPU is in use by others, or by no process."""

    def __init__(self, *waiting: WorkloadRun, others: bool = True, **options: Any) -> None:  # noqa: ANN401
        self.stack = FakeStack(OverviewScreen())
        processes = (builders.process(4000),) if others else ()
        frame = builders.frame(devices=(builders.device(0, processes=processes),))
        self.session: AppSession = session_on(FakeLive(), frame, **options)
        self.session.workloads.registry.runs = [*waiting]
        self.timers: list[Callable[[], object]] = []
        self.draws = 0
        self.controller = RunController(self.stack, self.session, self._draw, lambda _, then: self.timers.append(then))

    def _draw(self) -> None:
        self.draws += 1


def waiting() -> WorkloadRun:
    """A run that has sent its plan."""
    run = runs.new_run()
    runs.send_plan(run)
    return run


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_run_on_a_gpu_in_use_is_confirmed(confirmed: bool) -> None:
    run = waiting()
    host = Running(run)
    host.controller.drain_soon(messages.RunsChanged())
    assert host.stack.kinds == [OverviewScreen, ConfirmStartDialog]
    host.stack.answer(confirmed)
    assert (run.state.began_seconds is not None, run.is_stopping) == (confirmed, not confirmed)


def test_a_run_on_a_gpu_without_processes_starts_without_a_question() -> None:
    run = waiting()
    host = Running(run, others=False)
    host.controller.drain_soon(messages.RunsChanged())
    assert (host.stack.kinds, run.state.began_seconds is not None) == ([OverviewScreen], True)


def test_a_question_that_no_longer_matters_closes_unless_another_screen_covers_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = waiting()
    host = Running(run)
    monkeypatch.setattr(ConfirmStartDialog, "dismiss", lambda _, result: host.stack.answer(result))
    host.controller.drain_soon(messages.RunsChanged())
    run.cancel()
    host.stack.push_screen(CostScreen())
    host.controller._drain()
    assert host.stack.kinds == [OverviewScreen, ConfirmStartDialog, CostScreen]
    host.stack.pop_screen()
    host.controller._drain()
    assert host.stack.kinds == [OverviewScreen]
    host.session.workloads.registry.runs = [waiting()]
    host.controller._drain()
    assert host.stack.kinds == [OverviewScreen, ConfirmStartDialog], "the question of another run"


def test_events_of_runs_are_drawn_a_few_times_per_second() -> None:
    host = Running()
    for _ in range(9):
        host.controller.drain_soon(messages.RunsChanged())
    assert (host.draws, len(host.timers)) == (1, 1)
    host.timers.pop()()
    host.controller.drain_soon(messages.RunsChanged())
    assert (host.draws, len(host.timers)) == (2, 1)
    assert MIN_RUN_DRAIN_SECONDS >= 0.2


def test_a_single_run_opens_its_screen_and_a_new_one_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    host, run, again = Running(), runs.live_run(), runs.live_run()
    registry = host.session.workloads.registry
    python = Interpreter.__new__(Interpreter)
    request = messages.StartRequested(messages.StartRequest(run.request.workload, [run.target], {}, python))
    monkeypatch.setattr(registry, "start", lambda *_: run)
    monkeypatch.setattr(registry, "start_again", lambda _: again)
    host.controller.start(request)
    assert host.stack.kinds == [OverviewScreen, RunScreen]
    first = host.stack.screen
    host.controller.restart(messages.RestartRequested(run))
    assert host.stack.kinds == [OverviewScreen, RunScreen]
    assert host.stack.screen is not first
    host.controller.stop(messages.StopRequested(again))
    assert again.is_stopping

    def refuse(*_: object) -> WorkloadRun:
        raise ValueError("Another workload runs on GPU 0.")

    monkeypatch.setattr(registry, "start", refuse)
    monkeypatch.setattr(registry, "start_again", refuse)
    host.controller.start(request)
    host.controller.restart(messages.RestartRequested(run))
    host.session.is_read_only = True
    host.controller.start(request)
    assert host.stack.notices == ["Another workload runs on GPU 0."] * 2 + [READ_ONLY]


# Notifications


def test_the_user_chooses_what_to_wait_for() -> None:
    stack, session = FakeStack(DeviceScreen(KEYS[1])), session_on(FakeLive(), machine(4))
    written: list[str] = []
    parts = Notifications(stack, session, NotifySettings(), written.append)
    for answers in (None, wait_choices(machine(4).devices[1], None)):
        parts.choose()
        assert isinstance(stack.screen, NotifyWhenDialog)
        assert next(item.label for item in stack.screen.choices()) == "GPU 1 is free"
        stack.answer(answers)
        assert len(session.waits.armed) == len(answers or ())
    session.waits.report("GPU 1 is free.")
    session.jobs.ring("train hangs.")
    session.notifier.show("GPU 2 is hot.")
    assert stack.notices == ["GPU 1 is free.", "train hangs."]
    assert written == ["\a", "\a", ""], "an alert rings only if the settings ask for it"


@pytest.mark.parametrize(
    ("bell", "terminal", "environment", "expected"),
    [
        (True, "", {}, "\a"),
        (False, "osc9", {}, "\x1b]9;gpumon: a; b\a"),
        (True, "osc777", {}, "\x1b]777;notify;gpumon;a, b\a\a"),
        (False, "osc9", {"TMUX": "/tmp/t,1,0"}, "\x1bPtmux;\x1b\x1b]9;gpumon: a; b\a\x1b\\"),
        (False, "", {}, ""),
    ],
)
def test_what_is_written_to_a_terminal(bell: bool, terminal: str, environment: dict[str, str], expected: str) -> None:
    assert notice_sequence("a; b", bell=bell, terminal=terminal, environment=environment) == expected


def test_a_hostile_text_ends_no_sequence() -> None:
    sequence = notice_sequence("x\x1b]52;c;AAAA\a\x9cy", bell=False, terminal="osc9", environment={})
    assert sequence.count("\x1b") == sequence.count("\a") == 1
    assert "\x9c" not in sequence


@pytest.mark.parametrize(("stream", "rings"), [(FakeLive(), ["\a"]), (FakeRecording(), [])], ids=["live", "replay"])
def test_a_new_alert_of_this_host_reaches_the_terminal(stream: FakeStream, rings: list[str]) -> None:
    settings = NotifySettings(bell=True)
    written: list[str] = []
    session = session_on(stream, notify=settings)
    Notifications(FakeStack(), session, settings, written.append)
    for second in range(4):
        lost = builders.device(1, state=DeviceState.LOST, age_seconds=None, processes=None)
        devices = (builders.device(0), builders.device(1) if second < 2 else lost)
        stream.put(builders.frame(devices=devices, monotonic_seconds=100.0 + second))
        session.drain_frames()
    assert written == rings
