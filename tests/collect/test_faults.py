"""What a driver can do to a monitor, and what gpumon shows of it: the real library interface, a real collector."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.collect.sweeper import MAX_REOPEN_PAUSE_SECONDS
from gpumon.core.model import DeviceState, Frame
from gpumon.core.problems import ProblemCode
from gpumon.core.store import Store
from gpumon.operations.one_shot import sample_frame
from gpumon.streams.live import LiveStream
from tests.collect.conftest import Live, Watched
from tests.nvml_mock import NvmlMock
from tests.processes import is_running, kill, threads, tree, wait_gone

pytestmark = pytest.mark.xdist_group("clock")

DEADLINE_SECONDS = 0.25
"""After this time a call counts as hung, at the interval of these tests."""


def states(frame: Frame) -> list[str]:
    return [device.state.value for device in frame.devices]


def all_ok(count: int) -> Callable[[Frame], bool]:
    return lambda frame: not frame.problems and states(frame) == ["ok"] * count


def driver_problem(code: ProblemCode) -> Callable[[Frame], bool]:
    return lambda frame: "driver" in frame.problems and frame.problems["driver"].code is code


# Faults of the start


@pytest.mark.long
def test_version_mismatch_is_named_and_healed(live: Live) -> None:
    watched = live(fault="init:18")
    frame = watched.until(driver_problem(ProblemCode.LIBRARY_MISMATCH))
    assert frame.devices == ()
    assert "differ" in frame.problems["driver"].reason
    assert "eboot" in frame.problems["driver"].remedy
    watched.fault("")
    watched.until(all_ok(3))
    assert watched.stream.replaced == 0  # a library that never worked is not given up by a new process either


def test_a_driver_of_another_version_gets_a_collector_with_its_library(live: Live) -> None:
    watched = live()
    watched.until(all_ok(3))
    (first,) = watched.collectors()
    heard: list[object] = []
    watched.stream.inbox.on_arrival(lambda: heard.append(watched.stream.problem))
    replaced = watched.fault("reload,init:18")
    frame = watched.until(driver_problem(ProblemCode.LIBRARY_MISMATCH))
    assert frame.monotonic_seconds - replaced < 4
    (second,) = watched.collectors()
    assert second != first
    watched.heal()
    watched.until(all_ok(3))
    assert watched.collectors() == [second]
    assert watched.stream.replaced == 1
    assert set(heard) == {None}


def test_no_library(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in nvml_mock.environment_without_library().items():
        monkeypatch.setenv(name, value)
    began = time.monotonic()
    frame = sample_frame()
    assert frame is not None
    assert frame.problems["driver"].code is ProblemCode.LIBRARY_NOT_FOUND
    assert "nstall" in frame.problems["driver"].remedy
    assert frame.host.memory_total_bytes
    assert time.monotonic() - began < 5  # the patience was not used up


@pytest.mark.parametrize(
    ("code", "problem"), [(9, ProblemCode.DRIVER_NOT_LOADED), (999, ProblemCode.CONTAINER_LOST_GPU)]
)
def test_init_failures_have_reasons_of_their_own(live: Live, code: int, problem: ProblemCode) -> None:
    frame = live(fault=f"init:{code}").until(lambda frame: True)
    assert frame.problems["driver"].code is problem
    assert frame.problems["driver"].remedy


def test_no_gpus_then_hot_plug(live: Live) -> None:
    watched = live(gpus=0)
    frame = watched.until(driver_problem(ProblemCode.NO_DEVICES))
    assert frame.devices == ()
    assert frame.driver_version == "580.95.05"
    watched.fault("count:2")
    watched.until(all_ok(2))
    watched.fault("count:1")
    watched.until(all_ok(1))
    assert watched.stream.replaced == 0


# Calls that do not return


def test_one_device_hangs(live: Live) -> None:
    watched = live()
    watched.until(all_ok(3))
    hung = watched.fault("hang:1=30")
    frame = watched.until(lambda frame: states(frame) == ["ok", "unresponsive", "ok"])
    between = [other for other in watched.frames if hung + 0.1 < other.monotonic_seconds < frame.monotonic_seconds]
    assert len(between) <= 4
    assert frame.monotonic_seconds - hung < 4 * (0.1 + 2 * DEADLINE_SECONDS), "far below the 30 s of the call"
    assert frame.devices[1].age_seconds is not None
    assert frame.devices[1].readings  # the last values stay, with their age
    later = watched.collect(1)
    assert len(later) >= 4  # one hung device does not slow the others down
    assert all(states(frame) == ["ok", "unresponsive", "ok"] for frame in later)
    assert all((frame.devices[2].age_seconds or 0) < 0.5 for frame in later)
    assert later[-1].devices[1].age_seconds > 1  # type: ignore[operator]
    assert "driver" not in later[-1].problems
    assert later[-1].sweep.threads_stuck == 1


def test_hung_device_comes_back(live: Live) -> None:
    watched = live()
    watched.until(all_ok(3))
    watched.fault("hang:1=0.8")
    watched.until(lambda frame: states(frame)[1] == "unresponsive")
    watched.heal()
    frame = watched.until(all_ok(3))
    assert frame.sweep.threads_stuck == 0
    assert watched.stream.replaced == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("fault", "lock"), [("hang:1=30", "1"), ("hangall=30", "0"), ("hang=30", "0")])
def test_whole_driver_hangs(live: Live, fault: str, lock: str) -> None:
    watched = live(gpus=6, NVML_MOCK_GLOBAL_LOCK=lock)
    watched.until(all_ok(6))
    watched.fault(fault)
    frame = watched.until(driver_problem(ProblemCode.UNRESPONSIVE))
    assert states(frame) == ["unresponsive"] * 6
    assert all(device.age_seconds is not None and device.readings for device in frame.devices)
    later = watched.collect(1.5)
    assert len(later) >= 2
    assert states(later[-1]) == ["unresponsive"] * 6
    assert later[-1].devices[0].age_seconds > 1  # type: ignore[operator]
    (collector,) = watched.collectors()
    assert threads(collector) <= 7  # main, three left behind, one that waits, those of the events and of the host rates
    assert watched.stream.replaced == 0
    began = time.monotonic()
    watched.stream.close()
    assert time.monotonic() - began < 5
    assert wait_gone(collector, 5)


# A collector that cannot die. Only a real driver holds a process against SIGKILL, so here SIGKILL is not delivered.

LEAVER = """
import subprocess, sys, time
from gpumon.streams.live import LiveStream

send = subprocess.Popen.send_signal
subprocess.Popen.send_signal = lambda self, number: number == 9 or send(self, number)
stream = LiveStream(0.1)
stream.start()
while True:
    stream.inbox.arrived.wait(5)
    if any(device.state == "unresponsive" for frame in stream.inbox.drain() for device in frame.devices):
        break
print(stream._child.pid, flush=True)
sys.stdin.readline()
began = time.monotonic()
stream.close()
print(time.monotonic() - began, flush=True)
"""


@pytest.fixture
def left_behind(nvml_mock: NvmlMock) -> Iterator[tuple[int, float]]:
    """A collector in D state that an earlier gpumon left behind, and the seconds its `close` took."""
    with subprocess.Popen(
        [sys.executable, "-c", LEAVER],
        env=nvml_mock.environment(2, fault="dstate:1=60"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as leaver:
        assert leaver.stdin is not None
        assert leaver.stdout is not None
        collector = int(leaver.stdout.readline())
        subprocess.run(["kill", "-STOP", str(collector)], check=True)  # as deaf as the driver would make it
        seconds = float(leaver.communicate("close\n")[0])
    yield collector, seconds
    for pid in tree(collector):  # the stand-in's D state is that of the parent of a vfork child
        kill(pid)
    wait_gone(collector, 5)


def test_collector_that_cannot_die_is_left_behind(left_behind: tuple[int, float], live: Live) -> None:
    collector, close_seconds = left_behind
    assert close_seconds < 2
    assert is_running(collector)
    frame = live().until(lambda frame: "left_behind" in frame.problems)
    assert frame.problems["left_behind"].code is ProblemCode.COLLECTOR_LEFT_BEHIND
    assert str(collector) in frame.problems["left_behind"].reason
    assert states(frame) == ["ok"] * 3


# The driver goes and comes back


def test_reload(live: Live) -> None:
    watched = live()
    watched.until(all_ok(3))
    uuids = [device.uuid for device in watched.frames[-1].devices]
    watched.fault("reload")
    frame = watched.until(driver_problem(ProblemCode.DRIVER_NOT_LOADED))
    assert [device.uuid for device in frame.devices] == uuids
    assert states(frame) == ["lost"] * 3
    assert not any(device.readings for device in frame.devices)
    watched.collect(0.5)
    healed = watched.heal()
    frame = watched.until(all_ok(3))
    assert [device.uuid for device in frame.devices] == uuids
    assert frame.monotonic_seconds - healed < 2 * MAX_REOPEN_PAUSE_SECONDS
    assert watched.stream.replaced == 0
    watched.collect(0.3)
    store = Store(bucket_seconds=1.0)
    for frame in watched.frames:  # a history has buckets of a second, so time is stretched
        store.apply(replace(frame, monotonic_seconds=10 * frame.monotonic_seconds, interval_seconds=1.0))
    history = store.history(uuids[0] or "", "memory_used_bytes", 25)
    assert None in history
    assert history[-2] is not None
    assert 0 not in history


def test_silent_restart_of_the_driver(live: Live) -> None:
    watched = live()
    watched.until(all_ok(3))
    watched.fault("uninit")
    frames = watched.collect(1)
    assert watched.frames[-1].problems == {}
    assert states(frames[-1]) == ["ok"] * 3
    assert sum("driver" in frame.problems for frame in frames) <= 2


# The driver kills the collector


def test_call_that_kills_the_collector_is_dropped(live: Live) -> None:
    heard: list[str] = []
    watched = live(gpus=2, fault="segv:nvmlDeviceGetPowerUsage")
    watched.stream.inbox.on_arrival(lambda: heard.append(str(watched.stream.problem)))
    frame = watched.until(all_ok(2))
    assert watched.stream.replaced == 2
    deaths = [text for text in dict.fromkeys(heard) if "SIGSEGV in nvmlDeviceGetPowerUsage" in text]
    assert ["0.25 s" in deaths[0], "0.5 s" in deaths[1]] == [True, True]
    assert "gpumon stopped calling" in deaths[1]
    for device in frame.devices:
        assert device.problems["power_watts"].code is ProblemCode.DROPPED
        assert device.get("temperature_celsius") is not None
        assert device.get("utilization_gpu_percent") is not None
    assert len(watched.collect(0.5)) >= 1
    assert watched.stream.replaced == 2


def test_killed_collector_is_replaced(live: Live) -> None:
    watched = live()
    watched.until(all_ok(3))
    (collector,) = watched.collectors()
    kill(collector)
    died = time.monotonic()
    frame = watched.until(lambda frame: frame.monotonic_seconds > died + 0.2)
    assert states(frame) == ["ok"] * 3
    assert watched.stream.replaced == 1
    assert watched.stream.problem is not None
    assert watched.stream.problem.code is ProblemCode.COLLECTOR_DIED
    assert "SIGKILL" in watched.stream.problem.reason
    assert watched.collectors() != [collector]


def test_silent_collector_is_replaced(tmp_path: Path) -> None:
    mute = (sys.executable, "-c", "import time; time.sleep(60)")
    watched = Watched(LiveStream(0.1, mute, silence_seconds=0.3), tmp_path / "unused")
    watched.stream.start()
    try:
        deadline = time.monotonic() + 10
        while watched.stream.replaced == 0 and time.monotonic() < deadline:
            watched.collect(0.05)
        assert watched.stream.replaced == 1
        assert watched.stream.problem is not None
        assert watched.stream.problem.code is ProblemCode.COLLECTOR_SILENT
    finally:
        watched.stream.close()


# Answers that cannot be true, and drivers that cannot answer


@pytest.mark.sampled(2)
@pytest.mark.parametrize("garbage", ["name", "esc", "longname", "emptyname"])
def test_hostile_names_are_harmless(live: Live, garbage: str) -> None:
    device = live(gpus=1, fault=f"garbage:{garbage}").until(all_ok(1)).devices[0]
    assert device.get("power_watts") is not None
    if device.name is None:
        assert garbage in {"name", "emptyname"}
    else:
        assert device.name.isprintable()
        assert len(device.name) <= 512


def test_devices_with_one_uuid_have_keys_of_their_own(live: Live) -> None:
    frame = live(fault="garbage:uuid").until(lambda frame: len(frame.devices) == 3)
    assert len({device.key for device in frame.devices}) == 3
    assert all(device.problems["uuid"].code is ProblemCode.INVALID_VALUE for device in frame.devices)


@pytest.mark.long
def test_old_driver_falls_back(live: Live, old_nvml_mock: NvmlMock) -> None:
    device = live(gpus=1, mock=old_nvml_mock).until(all_ok(1)).devices[0]
    assert device.get("memory_used_bytes") is not None
    assert device.get("temperature_celsius") is not None
    assert device.problems["memory_reserved_bytes"].code is ProblemCode.DRIVER_TOO_OLD


def test_processes_of_other_namespaces(live: Live) -> None:
    frame = live(gpus=1, fault="deadpids").until(all_ok(1))
    processes = frame.devices[0].processes or ()
    assert len(processes) == 4
    assert all(process.problems["command"].code is ProblemCode.PROCESS_NOT_VISIBLE for process in processes)
    assert all(process.memory_bytes for process in processes)


def test_process_list_that_never_fits_costs_that_list(live: Live, sleepers: Callable[[int], list[int]]) -> None:
    pids = ",".join(map(str, sleepers(1)))
    frame = live(gpus=1, fault="grow", NVML_MOCK_PIDS=pids).until(all_ok(1))
    assert frame.devices[0].processes is None
    assert "processes" in frame.devices[0].problems
    assert frame.devices[0].state is DeviceState.OK


def test_slow_driver_stretches_the_period_openly(live: Live) -> None:
    watched = live(gpus=2, fault="slow=10000")  # every call takes 10 ms
    watched.until(all_ok(2))
    frames = watched.collect(1.5)
    assert len(frames) >= 2
    assert all(states(frame) == ["ok", "ok"] for frame in frames)
    assert all(later.monotonic_seconds - frame.monotonic_seconds > 0.1 for frame, later in pairwise(frames))
    assert frames[-1].sweep.seconds is not None
    assert frames[-1].sweep.seconds > frames[-1].interval_seconds
