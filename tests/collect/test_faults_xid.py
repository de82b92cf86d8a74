"""Xid errors of a GPU: shown once, with their meaning; a fatal one ends all calls on the GPU."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.episodes import HistoryEventKind
from gpumon.core.model import DeviceEvent, Frame
from gpumon.core.problems import ProblemCode
from gpumon.core.store import Store
from tests.collect.conftest import Live, Watched
from tests.collect.test_faults import all_ok, states
from tests.nvml_mock import NvmlMock
from tests.processes import eventually, wait_gone

pytestmark = pytest.mark.xdist_group("clock")


def watched_calls(live: Live, path: Path, **more: Any) -> Watched:  # noqa: ANN401
    """A live stream whose calls are logged, with the events of its devices registered."""
    watched = live(NVML_MOCK_LOG=str(path), **more)
    watched.until(all_ok(3))
    deadline = time.monotonic() + 15
    while "nvmlDeviceRegisterEvents" not in (calls(path).get("calls") or {}) and time.monotonic() < deadline:
        time.sleep(0.05)
    return watched


def calls(path: Path, newer_than: float = -1.0) -> dict[str, Any]:
    """The call log, or nothing while none was written after ``newer_than`` seconds of the library's life."""
    if not path.exists():
        return {}
    log: dict[str, Any] = json.loads(path.read_text())
    return log if log["t"] > newer_than else {}


def next_calls(path: Path, after: float, rounds: int = 0) -> dict[str, Any]:
    """The first call log of a moment later than ``after``, with that many more calls about GPU 0."""
    wanted = rounds and calls(path)["by_device"][0] + rounds
    assert eventually(lambda: bool(log := calls(path, after)) and log["by_device"][0] >= wanted)
    return calls(path)


def events(frames: list[Frame]) -> list[DeviceEvent]:
    return [event for frame in frames for event in frame.events]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("xid", "state", "code"), [(79, "lost", ProblemCode.GPU_LOST), (119, "unresponsive", ProblemCode.UNRESPONSIVE)]
)
def test_a_fatal_xid_is_reported_once_and_ends_all_calls_on_its_gpu(
    live: Live, tmp_path: Path, xid: int, state: str, code: ProblemCode
) -> None:
    log = tmp_path / "calls.json"
    watched = watched_calls(live, log)
    earlier = watched.frames[-1]
    before = earlier.devices[1]
    watched.fault(f"xid:{xid}:1")
    frame = watched.until(lambda frame: bool(frame.events))
    (event,) = frame.events
    assert (event.device_key, event.xid) == (before.key, xid)
    assert earlier.monotonic_seconds < event.monotonic_seconds <= frame.monotonic_seconds
    assert earlier.time_seconds < event.time_seconds <= frame.time_seconds
    assert states(frame) == ["ok", state, "ok"]
    first = next_calls(log, calls(log)["t"], 60)  # a call that was under way has come back by then
    later = watched.collect(0.6)
    last = next_calls(log, first["t"], 60)
    assert last["by_device"][1] == first["by_device"][1]
    assert not events(later)
    assert all(states(frame) == ["ok", state, "ok"] for frame in later)
    dead = later[-1].devices[1]
    assert dead.problems["state"].code is code
    assert f"Xid {xid}" in dead.problems["state"].reason
    assert dead.problems["state"].remedy
    assert dead.uuid == before.uuid
    assert dead.age_seconds is not None
    assert dead.age_seconds > 0.5
    assert bool(dead.readings) == (state == "unresponsive")
    assert watched.stream.replaced == 0


def test_an_xid_of_a_program_costs_nothing_but_is_in_the_devices_events(live: Live, tmp_path: Path) -> None:
    watched = watched_calls(live, tmp_path / "calls.json")
    watched.fault("xid:31:2,xid:4711:0")
    watched.until(lambda _: len(events(watched.frames)) == 2)
    frames = watched.frames + watched.collect(0.5)
    assert sorted(event.xid for event in events(watched.frames)) == [31, 4711]
    assert states(frames[-1]) == ["ok", "ok", "ok"]
    store = Store()
    for frame in frames:
        store.apply(frame)
    noted = {}
    for device in frames[-1].devices:
        history = store.of_device(device.key)
        assert history is not None
        noted[device.index] = [event.text for event in history.events if event.kind is HistoryEventKind.XID]
    assert noted == {0: ["Xid 4711"], 1: [], 2: ["Xid 31: GPU memory page fault"]}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", ["uninit", "reload"])
def test_events_go_on_after_the_driver_was_restarted(live: Live, tmp_path: Path, fault: str) -> None:
    log = tmp_path / "calls.json"
    watched = watched_calls(live, log)
    registered = calls(log)["calls"]["nvmlDeviceRegisterEvents"]
    watched.fault(fault)
    watched.until(lambda frame: "driver" in frame.problems)
    watched.heal()
    watched.until(all_ok(3))
    assert eventually(lambda: calls(log)["calls"]["nvmlDeviceRegisterEvents"] >= 2 * registered)
    watched.fault("xid:13:0")
    frame = watched.until(lambda frame: bool(frame.events))
    assert [event.xid for event in frame.events] == [13]
    assert watched.stream.replaced == 0


def test_a_session_that_ends_gives_its_event_set_back(live: Live, tmp_path: Path) -> None:
    log = tmp_path / "calls.json"
    watched = watched_calls(live, log)
    registered = calls(log)["calls"]["nvmlDeviceRegisterEvents"]
    watched.fault("unknown:nvmlDeviceGetCount*")
    watched.until(lambda frame: "driver" in frame.problems)
    watched.heal()
    watched.until(all_ok(3))
    assert eventually(lambda: calls(log)["calls"]["nvmlDeviceRegisterEvents"] >= 2 * registered)
    assert next_calls(log, calls(log)["t"])["event_sets"] == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "fault",
    [
        "nofunc:nvmlEventSetCreate",
        "nofunc:nvmlEventSetWait_v2",
        "notsupported:events",
        "noperm:nvmlDeviceRegisterEvents",
        "unknown:nvmlDeviceGetSupportedEventTypes",
        "unknown:nvmlEventSetWait_v2",
        "hang:nvmlEventSetWait_v2=30",
    ],
)
def test_without_events_everything_else_goes_on(live: Live, tmp_path: Path, fault: str) -> None:
    log = tmp_path / "calls.json"
    watched = live(fault=f"{fault},xid:79:1", NVML_MOCK_LOG=str(log))
    watched.until(all_ok(3))
    frames = watched.collect(3)
    assert all(states(frame) == ["ok", "ok", "ok"] for frame in frames)
    assert len(frames) >= 5
    assert not events(frames)
    made = next_calls(log, 3.0)["calls"]
    assert sum(count for name, count in made.items() if name.startswith("nvmlEventSet")) <= 10, "it does not spin"
    (collector,) = watched.collectors()
    began = time.monotonic()
    watched.stream.close()
    assert time.monotonic() - began < 5
    assert wait_gone(collector, 5)


def test_an_old_library_has_no_events(live: Live, old_nvml_mock: NvmlMock, tmp_path: Path) -> None:
    log = tmp_path / "calls.json"
    watched = live(mock=old_nvml_mock, NVML_MOCK_LOG=str(log), fault="xid:79:1")
    watched.until(all_ok(3))
    assert not events(watched.collect(2))
    assert next_calls(log, 2.0)["event_sets"] == 0, "what was made was given back"


def test_a_library_that_dies_in_the_wait_is_not_asked_for_events_any_more(live: Live) -> None:
    watched = live(fault="segv:nvmlEventSetWait_v2")
    heard: list[str] = []
    watched.stream.inbox.on_arrival(lambda: heard.append(str(watched.stream.problem)))
    deadline = time.monotonic() + 30
    while not any("gpumon stopped calling nvmlEventSetWait_v2" in text for text in heard):
        assert time.monotonic() < deadline
        watched.collect(0.2)
    assert any("SIGSEGV in nvmlEventSetWait_v2" in text for text in heard)
    replaced = watched.stream.replaced
    watched.until(all_ok(3))
    frames = watched.collect(2.5)
    assert watched.stream.replaced <= replaced + 1, "the one that starts without that call is the last"
    assert all(states(frame) == ["ok", "ok", "ok"] for frame in frames)
