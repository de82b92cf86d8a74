"""A workload and its GPU: matched, sampled, judged, saved and compared."""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.model import DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.operations.workload import WorkloadRun, measurements_of, metric_changes
from gpumon.workload_runs import results
from gpumon.workload_runs.protocol import RunEvent, RunEventKind
from gpumon.workload_runs.results import recent_results
from gpumon.workload_runs.supervised_run import RunEnded
from tests.builders import device, frame, process
from tests.processes import eventually
from tests.runs import measured
from tests.workload_runs.conftest import FINE, PATIENCE, Stage

SECOND = device(1)
CLEAN = RunEnded(0, cancelled=False, reason="")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where results are kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gpumon" / "results.jsonl"


def plan(chip: Any = None, *, peers: bool = False) -> RunEvent:  # noqa: ANN401
    fields = {
        "torch": "2.9.0",
        "cuda": "13.0",
        "device": "cuda:0",
        "chip": chip,
        "uses": {"memory_bytes": 0, "seconds": 1.0, "peers": peers},
        "parameters": {},
    }
    return RunEvent(RunEventKind.PLAN, 1.0, fields)


def result(verdict: str = "ok", value: float = 3.0, name: str = "speed") -> RunEvent:
    figures = [{"name": name, "value": value, "unit": "GB/s", "repetitions": 1, "limit": None, "limit_source": ""}]
    return RunEvent(RunEventKind.RESULT, 2.0, {"verdict": verdict, "why": "Well.", "figures": figures})


CHIP = {"uuid": SECOND.uuid, "name": "NVIDIA H200", "pci_bus_id": "0000:1b:00.0"}


@pytest.fixture
def run(stage: Stage) -> WorkloadRun:
    """A run whose job says what the test puts into its inbox."""
    return WorkloadRun(stage.request(device="cuda:0", parameters={"size": 3}))


def deliver(run: WorkloadRun, *arrivals: RunEvent | RunEnded) -> list[RunEvent]:
    for arrival in arrivals:
        run.child.inbox.put(arrival)
    events = run.drain()
    while run.state.end is not None and not run.ended:
        assert run.child.inbox.arrived.wait(PATIENCE)
        events += run.drain()
    return events


def whole(run: WorkloadRun, *watched: Frame, verdict: str = "ok", value: float = 3.0) -> list[RunEvent]:
    """A run from its plan to its end."""
    deliver(run, plan(CHIP))
    run.allow()
    for shown in watched:
        run.observe(shown)
    return deliver(run, result(verdict, value), CLEAN)


def played(run: WorkloadRun, *answers: Callable[[], object]) -> list[RunEvent]:
    """A real run, with the answers to its plan."""
    run.start()
    events: list[RunEvent] = []

    def ended() -> bool:
        events.extend(run.drain())
        if run.state.awaits_confirmation:
            for answer in answers:
                answer()
        return run.ended

    assert eventually(ended, PATIENCE)
    assert run.child.wait(PATIENCE)
    return events


def test_a_real_run_from_its_start_to_its_kept_result(stage: Stage) -> None:
    run = WorkloadRun(stage.request(parameters={"size": 3}))
    events = played(run, run.allow)
    kinds = [event.kind for event in events]
    assert (kinds[0], kinds[-2:]) == (RunEventKind.HELLO, [RunEventKind.RESULT, RunEventKind.BYE])
    assert kinds.count(RunEventKind.RESULT) == kinds.count(RunEventKind.BYE) == 1
    assert events[-2].fields["verdict"] == "ok"
    (saved,) = recent_results()
    assert (saved["workload"], saved["device"], saved["uuid"], saved["torch"]) == ("toy", "cpu", None, "2.9.0+cpu")
    assert (saved["parameters"], saved["verdict"], saved["figures"][0]["value"]) == ({"size": 3}, "ok", 3.0)
    assert run.problem is None


def test_a_run_that_is_cancelled_is_told_and_not_kept(stage: Stage) -> None:
    body = "while not context.stopping: time.sleep(0.01)\n" + FINE
    run = WorkloadRun(stage.request(body))
    events = played(run, run.allow, run.cancel)
    assert [event.fields["verdict"] for event in events if event.kind is RunEventKind.RESULT] == ["cancelled"]
    assert list(recent_results()) == []


def test_its_gpu_is_found_by_uuid_whatever_its_index(run: WorkloadRun) -> None:
    deliver(run, plan(CHIP))
    run.observe(frame())
    assert run.device == SECOND
    assert not run.samples, "the work has not started"
    run.allow()
    run.observe(frame())
    assert len(run.samples) == 1


@pytest.mark.parametrize(
    "chip",
    [
        None,
        {},
        "chip",
        {"uuid": "GPU-of-another-machine", "pci_bus_id": "0000:1b:00.0"},
        {"uuid": None, "pci_bus_id": "0001:1b:00.0"},
        {"uuid": None, "pci_bus_id": "nowhere"},
        {"uuid": 7, "pci_bus_id": 7},
    ],
)
def test_without_a_match_no_gpu_is_watched_and_the_run_goes_on(run: WorkloadRun, chip: Any) -> None:  # noqa: ANN401
    odd = frame(devices=(device(0, pci_bus_id=None), device(1, pci_bus_id="odd")))
    deliver(run, plan(chip))
    run.allow()
    for shown in (frame(), odd):
        run.observe(shown)
        assert run.other_processes(shown) == []
    assert run.device is None
    events = deliver(run, result(), CLEAN)
    assert events[-2].fields["verdict"] == "ok"


def test_neighbours_are_others_on_its_gpu_and_never_itself(run: WorkloadRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(run.child), "pid", 4001)
    shared = device(1, processes=(process(4001), process(4002)))
    deliver(run, plan(CHIP))
    both = frame(devices=(device(0), shared))
    assert pids(run, both) == [4002]
    assert run.other_processes(both)[0].device is shared
    assert run.other_processes(frame(devices=(device(0), device(1, processes=None)))) == []


def test_other_processes_on_peers_count_where_peers_are_used(run: WorkloadRun) -> None:
    deliver(run, plan(CHIP, peers=True))
    assert pids(run, frame()) == [4000, 4001]


def pids(run: WorkloadRun, now: Frame) -> list[int | None]:
    return [None if other.process is None else other.process.pid for other in run.other_processes(now)]


def test_a_process_of_another_namespace_counts_only_if_it_was_there_before(run: WorkloadRun) -> None:
    unseen = {"command": Problem(ProblemCode.PROCESS_NOT_VISIBLE, "Not in this namespace.")}
    there, itself = (process(pid, command=None, problems=unseen) for pid in (90001, 90002))
    run.observe(frame(devices=(device(1, processes=(there,)),)))
    deliver(run, plan(CHIP))
    assert pids(run, frame(devices=(device(1, processes=(there, itself)),))) == [90001]


def test_memory_whose_owner_cannot_be_seen_counts(run: WorkloadRun) -> None:
    held = device(1, processes=(), readings={"memory_unattributed_bytes": 60 << 30})
    run.observe(frame(devices=(held,)))
    deliver(run, plan(CHIP))
    (other,) = run.other_processes(frame(devices=(held,)))
    assert other.process is None
    assert other.memory_bytes == 60 << 30


def test_the_result_is_told_once_completed_with_what_its_gpu_did(run: WorkloadRun) -> None:
    events = whole(run, frame(), frame(devices=(device(1, throttle_reasons=("sw_power_cap",)),)))
    assert [event.kind for event in events] == [RunEventKind.RESULT, RunEventKind.BYE]
    fields = events[0].fields
    assert (fields["workload"], fields["device"], fields["verdict"]) == ("toy", "cuda:0", "ok")
    assert fields["why"].startswith("Well. Power-capped at 700 W")
    assert [field["name"] for field in fields["figures"]] == ["speed", "sm_clock", "power", "temperature"]
    json.dumps(events[0].document(), allow_nan=False)


@pytest.mark.parametrize(("verdict", "after"), [("ok", "warn"), ("fail", "fail"), ("cancelled", "cancelled")])
def test_a_chip_that_was_slowed_by_a_fault_is_not_fine(run: WorkloadRun, verdict: str, after: str) -> None:
    hot = device(1, throttle_reasons=("hw_thermal_slowdown",))
    events = whole(run, frame(devices=(hot,)), verdict=verdict)
    assert events[0].fields["verdict"] == after
    assert "a high temperature" in events[0].fields["why"]


@pytest.mark.parametrize(
    ("metric", "verdict", "after"),
    [
        ("ecc_uncorrected_volatile_count", "ok", "fail"),
        ("ecc_uncorrected_volatile_count", "cancelled", "cancelled"),
        ("remapped_rows_correctable_count", "ok", "warn"),
        ("remapped_rows_correctable_count", "fail", "fail"),
    ],
)
def test_memory_errors_during_the_run_make_the_verdict_worse(
    run: WorkloadRun, metric: str, verdict: str, after: str
) -> None:
    before, later = (frame(devices=(device(1, readings={metric: value}),)) for value in (3, 4))
    events = whole(run, before, later, verdict=verdict)
    assert events[0].fields["verdict"] == after


@pytest.mark.parametrize(("verdict", "after"), [("ok", "fail"), ("warn", "fail"), ("cancelled", "cancelled")])
def test_a_gpu_that_was_lost_meanwhile_makes_it_fail(run: WorkloadRun, verdict: str, after: str) -> None:
    lost = device(1, state=DeviceState.LOST)
    events = whole(run, frame(), frame(devices=(lost,)), verdict=verdict)
    assert events[0].fields["verdict"] == after
    assert events[0].fields["why"].endswith("The GPU is lost now.")


def test_what_it_cannot_do_here_has_no_result_and_is_not_kept(run: WorkloadRun) -> None:
    error = RunEvent(RunEventKind.ERROR, 1.0, {"class": "UnsupportedError", "text": "No fp8.", "expected": False})
    events = deliver(run, error, RunEnded(3, cancelled=False, reason=""))
    assert [event.kind for event in events] == [RunEventKind.ERROR, RunEventKind.BYE]
    assert run.ended
    assert list(recent_results()) == []


def test_figures_are_compared_with_the_last_ones_alike(run: WorkloadRun, stage: Stage) -> None:
    whole(run, value=2.0)
    assert run.changes == ()
    again = WorkloadRun(run.request)
    whole(again, value=3.0)
    (change,) = again.changes
    assert (change.metric.name, change.before, change.after, change.share) == ("speed", 2.0, 3.0, 0.5)
    other = WorkloadRun(stage.request(device="cuda:0", parameters={"size": 4}))
    whole(other)
    assert other.changes == (), "other parameters are another measurement"
    assert change._replace(before=0.0).share is None


@pytest.mark.parametrize("verdict", ["ok", "warn", "fail"])
def test_what_came_to_its_end_is_kept(run: WorkloadRun, verdict: str) -> None:
    whole(run, frame(), verdict=verdict)
    (saved,) = recent_results()
    assert (saved["verdict"], saved["uuid"], saved["device_name"]) == (verdict, SECOND.uuid, "NVIDIA H200")


def test_a_result_that_cannot_be_kept_is_a_problem_and_no_failure(
    run: WorkloadRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    events = whole(run)
    assert events[0].fields["verdict"] == "ok"
    assert run.problem is not None
    assert run.problem.remedy


@pytest.mark.parametrize("is_read", [True, False], ids=["reading", "saving"])
def test_a_file_system_that_never_responds_does_not_keep_the_run(
    run: WorkloadRun, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_SAVE_SECONDS", 0.2)
    released = threading.Event()
    monkeypatch.setattr(results, "last_similar" if is_read else "save_result", lambda *_: released.wait() or None)
    try:
        events = whole(run)
    finally:
        released.set()
    assert [event.kind for event in events] == [RunEventKind.RESULT, RunEventKind.BYE]
    assert run.problem is not None
    assert "did not respond within 0.2 s" in run.problem.reason


def test_while_a_result_is_saved_the_run_has_not_ended(run: WorkloadRun, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(results, "save_result", lambda *_: released.wait(PATIENCE) and None)
    deliver(run, plan(CHIP))
    run.allow()
    for arrival in (result(), CLEAN):
        run.child.inbox.put(arrival)
    assert run.drain() == []
    assert run.state.result is not None, "the screen shows it"
    assert not run.ended
    released.set()
    assert [event.kind for event in deliver(run)] == [RunEventKind.RESULT, RunEventKind.BYE]
    assert run.ended


def test_the_record_says_on_which_host_and_with_which_driver_it_ran(run: WorkloadRun) -> None:
    whole(run, frame())
    saved = next(recent_results())
    assert (saved["host"], saved["driver"]) == (socket.gethostname(), frame().driver_version)
    assert saved["driver"]


def test_changes_are_those_of_the_same_case() -> None:
    def figure(value: float, case: str) -> dict[str, Any]:
        return {"name": "speed", "value": value, "unit": "GB/s", "repetitions": 1, "case": case}

    before = measurements_of({"figures": [figure(1.0, ""), figure(2.0, "bf16"), {"name": "speed"}]})
    (change,) = metric_changes(before, measured(figure(3.0, "bf16"), figure(4.0, "fp8")))
    assert (change.case, change.before, change.after, change.share) == ("bf16", 2.0, 3.0, 0.5)
    assert metric_changes((), measured(figure(1.0, ""))) == ()
