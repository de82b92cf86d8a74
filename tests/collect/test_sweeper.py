"""Calls that do not return, threads that are left behind, and sessions that end."""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.collect.calls import CALLS, CallsInFlight
from gpumon.collect.nvml import Nvml, NvmlError
from gpumon.collect.nvml_session import LOST_RETRY_SECONDS, NvmlSession
from gpumon.collect.processes import ProcessTable
from gpumon.collect.sweeper import FIRST_REOPEN_PAUSE_SECONDS, MAX_REOPEN_PAUSE_SECONDS, MAX_STUCK_THREADS
from gpumon.core.metrics import METRICS
from gpumon.core.model import DeviceState
from gpumon.core.problems import ProblemCode
from tests.collect.bench import POWER, Bench
from tests.collect.fake import LOST, NOT_LOADED, OTHER_VERSION, TOO_OLD, UNINITIALIZED, UNKNOWN, VOID_HANDLE, FakeNvml
from tests.processes import eventually

READS = {metric.source.removesuffix("_v2") for metric in METRICS.values()} & set(CALLS)
"""Calls that read a metric of a device."""


def test_a_sweep_reads_every_device(bench: Bench) -> None:
    assert bench.sweep()
    assert [slot.device.state for slot in bench.sweeper.slots] == [DeviceState.OK] * 4
    assert bench.sweeper.stuck(0) is None
    assert bench.sweeper.last_seconds is not None


def test_a_hung_device_is_left_and_the_others_are_read(bench: Bench) -> None:
    gate = bench.hang(1)
    assert bench.sweep_into(gate)
    assert bench.sweeper.done.wait(1)
    assert bench.quarantined() == [False, True, False, False]
    assert [slot.read_at is not None for slot in bench.sweeper.slots] == [True, False, True, True]
    assert bench.sweeper.threads_stuck == 1
    bench.fake.count()
    assert bench.sweep()
    assert bench.fake.count()[POWER] == 3
    bench.fake.answer(POWER, 1000, 1)
    gate.open()
    assert eventually(lambda: bench.sweeper.threads_stuck == 0)
    assert bench.sweep()
    assert bench.quarantined() == [False] * 4
    assert all(slot.read_at is not None for slot in bench.sweeper.slots)


def test_no_more_threads_are_left_behind_than_allowed(bench: Bench) -> None:
    gates = [bench.hang(device) for device in range(4)]
    assert bench.sweep_into(gates[0])
    for gate in gates[1:MAX_STUCK_THREADS]:
        assert bench.replace_in(gate)
    assert not bench.replace_in(gates[MAX_STUCK_THREADS])
    assert bench.sweeper.threads_stuck == MAX_STUCK_THREADS
    assert not bench.sweeper.done.is_set()
    for gate in gates:
        gate.open()
    assert bench.sweeper.done.wait(1)
    assert eventually(lambda: bench.sweeper.threads_stuck == 0)
    assert bench.sweep()
    assert bench.quarantined() == [False] * 4


def test_a_call_of_no_device_is_waited_for(bench: Bench) -> None:
    gate = bench.hang(None, "nvmlDeviceGetCount")
    assert not bench.sweep_into(gate)
    assert bench.sweeper.threads_stuck == 0


def test_a_thread_that_comes_back_at_the_last_moment_goes_on(bench: Bench) -> None:
    gate = bench.hang(1)
    bench.sweeper.request()
    assert gate.entered.wait(1)
    stuck = bench.sweeper.stuck(0)
    assert stuck is not None
    last = bench.hang(3)
    gate.open()
    assert last.entered.wait(1)  # the same thread, in another call
    assert bench.sweeper.replace(stuck)
    assert bench.sweeper.threads_stuck == 0
    assert bench.quarantined() == [False] * 4
    last.open()
    assert bench.sweeper.done.wait(1)
    assert all(slot.read_at is not None for slot in bench.sweeper.slots)


def test_a_device_is_as_old_as_the_end_of_its_own_reading(bench: Bench) -> None:
    def slow(_: int) -> int:
        time.sleep(0.1)
        return 1000

    bench.fake.answer(POWER, slow, 1)
    assert bench.sweep()
    first, second = (slot.read_at for slot in bench.sweeper.slots[:2])
    assert first is not None
    assert second is not None
    assert second - first >= 0.1


def test_a_bug_costs_the_device_that_it_shows_on(bench: Bench) -> None:
    assert bench.sweep()
    bench.fake.answer(POWER, ZeroDivisionError("by zero"), 2)
    assert bench.sweep()
    states = [slot.device.state for slot in bench.sweeper.slots]
    assert states == [DeviceState.OK, DeviceState.OK, DeviceState.UNRESPONSIVE, DeviceState.OK]
    assert "ZeroDivisionError: by zero" in bench.sweeper.slots[2].device.problems["state"].reason
    assert bench.sweeper.slots[2].device.uuid == "GPU-2"
    assert bench.sweeper.problem is None


def test_a_bug_outside_the_devices_is_reported_and_the_next_sweep_tries_again(bench: Bench) -> None:
    bench.fake.answer("nvmlDeviceGetCount", ZeroDivisionError("by zero"))
    assert bench.sweep()
    assert "ZeroDivisionError: by zero" in str(bench.sweeper.problem)
    bench.fake.answer("nvmlDeviceGetCount", 4)
    assert bench.sweep()
    assert bench.sweeper.problem is None
    assert len(bench.sweeper.slots) == 4


class Paced:
    """A bench whose sweeps follow each other on a separate clock."""

    def __init__(self, proc: Path) -> None:
        self.now = 1000.0
        self.bench = Bench(proc, lambda: self.now)

    def opened(self, seconds: float, interval: float) -> list[float]:
        """Sweeps for ``seconds``; when NVML was initialized, counted from the beginning."""
        started, opened = self.now, []
        while self.now < started + seconds - interval / 2:
            self.bench.fake.count()
            assert self.bench.sweep()
            opened += [round(self.now - started, 3)] * self.bench.fake.count()["nvmlInitWithFlags"]
            self.now += interval
        return opened


@pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlDeviceGetCount", POWER])
def test_a_driver_that_stays_away_is_asked_less_and_less(tmp_path: Path, call: str) -> None:
    paced = Paced(tmp_path)
    paced.bench.fake.answer(call, UNINITIALIZED)
    opened = paced.opened(10, 0.1)
    assert len(opened) <= 9
    assert opened[:3] == [0, 0.1, 0.6]
    assert all(later - earlier <= 2 for earlier, later in pairwise(opened))
    assert MAX_REOPEN_PAUSE_SECONDS <= 2


def test_a_driver_that_is_back_is_noticed_within_two_refreshes(tmp_path: Path) -> None:
    for away in range(2, 12):
        paced = Paced(tmp_path)
        assert paced.bench.sweep()
        paced.bench.fake.answer(POWER, UNINITIALIZED)
        paced.bench.fake.answer("nvmlInitWithFlags", NOT_LOADED)
        paced.opened(away, 1.0)
        paced.bench.fake.restore()
        paced.opened(2, 1.0)
        assert len(paced.bench.sweeper.slots) == 4
        assert paced.bench.sweeper.problem is None


def test_a_handle_that_is_never_known_costs_its_device_alone(bench: Bench) -> None:
    assert bench.sweep()
    for call in READS:
        bench.fake.answer(call, VOID_HANDLE, 1)
    assert bench.sweep()
    assert bench.sweeper.session is None  # a handle that worked is void: the driver was reloaded
    bench.fake.count()
    for _ in range(5):
        assert bench.sweep()
        states = [slot.device.state for slot in bench.sweeper.slots]
        assert states == [DeviceState.OK, DeviceState.LOST, DeviceState.OK, DeviceState.OK]
    assert bench.fake.count()["nvmlInitWithFlags"] == 1


def test_a_device_that_left_its_bus_is_not_a_reload(bench: Bench) -> None:
    assert bench.sweep()
    bench.fake.answer(POWER, LOST, 1)
    assert bench.sweep()
    bench.fake.answer("nvmlDeviceGetHandleByIndex", VOID_HANDLE, 1)
    slot = bench.sweeper.slots[1]
    assert slot.read_at is not None
    slot.read(slot.read_at + 2 * LOST_RETRY_SECONDS, 0)  # raises no DriverGoneError
    assert slot.device.state is DeviceState.LOST


@pytest.mark.parametrize("had_session", [True, False])
def test_a_library_is_outdated_only_if_it_once_worked(bench: Bench, had_session: bool) -> None:
    if had_session:
        assert bench.sweep()
        bench.fake.answer(POWER, UNINITIALIZED)
        assert bench.sweep()
    bench.fake.answer("nvmlInitWithFlags", OTHER_VERSION)
    assert bench.sweep()
    assert bench.sweeper.problem is not None
    assert bench.sweeper.problem.code is ProblemCode.LIBRARY_MISMATCH
    assert bench.sweeper.outdated is had_session


@pytest.mark.parametrize("gone", [UNINITIALIZED, VOID_HANDLE])
def test_a_driver_that_goes_takes_its_handles_along(bench: Bench, gone: Exception) -> None:
    assert bench.sweep()
    for call in READS:
        bench.fake.answer(call, gone)
    bench.fake.answer("nvmlInitWithFlags", NOT_LOADED)
    bench.fake.count()
    assert bench.sweep()
    assert bench.fake.count()["nvmlShutdown"] == 1
    assert bench.sweeper.slots == []
    assert [device.uuid for device in bench.sweeper.outage_devices] == [f"GPU-{index}" for index in range(4)]
    assert bench.sweep()
    assert bench.sweeper.problem is not None
    assert bench.sweeper.problem.code is ProblemCode.DRIVER_NOT_LOADED
    bench.fake.restore()
    bench.fake.count()
    time.sleep(FIRST_REOPEN_PAUSE_SECONDS)
    assert bench.sweep()
    assert bench.fake.count()["nvmlDeviceGetHandleByIndex"] == 4
    assert bench.sweeper.outage_devices == []


def test_a_lost_device_is_asked_again_after_a_while(bench: Bench) -> None:
    assert bench.sweep()
    slot = bench.sweeper.slots[1]
    assert slot.read_at is not None
    now = slot.read_at
    bench.fake.answer(POWER, LOST, 1)
    slot.read(now, 0)
    lost = slot.device
    assert (lost.state, lost.uuid) == (DeviceState.LOST, "GPU-1")
    assert lost.problems["state"].code is ProblemCode.GPU_LOST
    bench.fake.answer(POWER, 1000, 1)
    bench.fake.count()
    slot.read(now + LOST_RETRY_SECONDS - 0.1, 0)
    assert not bench.fake.count()
    slot.read(now + LOST_RETRY_SECONDS, 0)
    assert bench.fake.count()["nvmlDeviceGetHandleByIndex"] == 1  # a new handle
    assert slot.device.state is DeviceState.OK


@pytest.fixture
def session_of(tmp_path: Path) -> Callable[[FakeNvml], NvmlSession]:
    return lambda fake: NvmlSession.open(Nvml(library=fake), ProcessTable(CallsInFlight(), tmp_path))


def test_versions_that_cannot_be_read_cost_the_versions(session_of: Callable[[FakeNvml], NvmlSession]) -> None:
    fake = FakeNvml()
    fake.answer("nvmlSystemGetDriverVersion", UNKNOWN)
    fake.answer("nvmlSystemGetCudaDriverVersion_v2", TOO_OLD)
    session = session_of(fake)
    assert (session.driver_version, session.cuda_driver_version) == (None, None)
    codes = {field: problem.code for field, problem in session.problems.items()}
    assert codes == {"driver_version": ProblemCode.UNKNOWN, "cuda_driver_version": ProblemCode.DRIVER_TOO_OLD}


def test_devices_come_and_go(session_of: Callable[[FakeNvml], NvmlSession]) -> None:
    fake = FakeNvml(2)
    session = session_of(fake)
    session.count_devices(0.0)
    first = session.slots[0]
    for now, count in ((1.0, 4), (2.0, 1)):
        fake.answer("nvmlDeviceGetCount", count)
        session.count_devices(now)
        assert [slot.device.index for slot in session.slots] == list(range(count))
    assert session.slots[0] is first
    fake.answer("nvmlDeviceGetCount", UNKNOWN)
    with pytest.raises(NvmlError):
        session.count_devices(3.0)


def test_devices_are_counted_about_once_a_second(session_of: Callable[[FakeNvml], NvmlSession]) -> None:
    fake = FakeNvml(2)
    session = session_of(fake)
    for tenth in range(21):
        session.count_devices(tenth / 10)
    assert fake.count()["nvmlDeviceGetCount"] == 3
