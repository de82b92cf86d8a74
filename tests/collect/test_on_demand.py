"""Which devices are sampled on demand, how often, and what is freed afterward."""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpumon.collect.calls import CallsInFlight
from gpumon.collect.device import DeviceReader
from gpumon.collect.nvml import Nvml
from gpumon.collect.nvml_session import NvmlSession
from gpumon.collect.on_demand import (
    DRIVER_SHARE,
    NOT_BUSY,
    NOT_SELECTED,
    ON_DEMAND_METRICS,
    PROCESS_SHARE,
    SAMPLE_SECONDS,
    SamplingBudget,
)
from gpumon.collect.processes import ProcessTable
from gpumon.core.model import Device, Frame
from gpumon.core.problems import ProblemCode
from gpumon.streams.live import LiveStream
from tests.collect.conftest import Live
from tests.collect.fake import NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, FakeGpm, FakeNvml
from tests.collect.proc import add_process
from tests.nvml_mock import NvmlMock

ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
SHARES = "nvmlDeviceGetProcessUtilization"
SAMPLE = "nvmlGpmSampleGet"
PCIE = "nvmlDeviceGetPcieThroughput"
PCIE_METRICS = {"pcie_transmit_bytes_per_second", "pcie_receive_bytes_per_second"}


class Room:
    """Devices of a fake driver, read in turn on a separate clock, on which each sample costs time."""

    def __init__(self, proc: Path, devices: int = 1, cost: float = 0.0) -> None:
        add_process(proc, 4000)
        self.now = 100.0
        self.cost = cost
        self.fake = FakeNvml(devices)
        self.gpm = FakeGpm(self.fake)
        self.fake.answer(ENERGY, lambda handle: int(self.now * 500_000))
        self.fake.answer(SHARES, lambda handle, seen: [])
        self.looks: list[tuple[float, int]] = []
        self.fake.answer(SAMPLE, self._sample)
        in_flight = CallsInFlight(lambda: self.now)
        self.api = Nvml(library=self.fake, in_flight=in_flight)
        self.budget = SamplingBudget(in_flight.clock)
        self.readers = [
            DeviceReader(self.api, index, ProcessTable(in_flight, proc), self.budget) for index in range(devices)
        ]

    def without_counters(self, seconds: float = 0.0) -> None:
        """Remove the GPM counters, as before Hopper; measuring one direction of PCIe takes some seconds."""

        def measure(handle: int, direction: int) -> int:
            self.now += seconds
            return (1200, 2100)[direction]

        self.gpm = FakeGpm(self.fake, supported=False)
        self.fake.answer(PCIE, measure)

    def slow_energy(self, handle: int) -> int:
        self.now += 0.0033
        return int(self.now * 500_000)

    def _sample(self, handle: int, sample: object) -> None:
        self.looks.append((self.now, handle))
        self.now += self.cost

    def look(self, *devices: int) -> None:
        self.budget.keys = frozenset(f"GPU-{device}" for device in devices)

    def show_processes(self, *devices: int) -> None:
        self.budget.process_keys = frozenset(f"GPU-{device}" for device in devices)

    def tick(self, seconds: float = 1.0) -> list[Device]:
        """Reads all devices, then advances the clock."""
        tick = self.now
        self.budget.start_sweep()
        devices = [reader.read(tick, 10_000) for reader in self.readers]
        self.now = max(self.now, tick + seconds)
        return devices


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def sm_percent(device: Device) -> float | None:
    assert device.processes is not None
    return device.processes[0].sm_percent


def test_without_a_selected_device_only_the_energy_is_read_once_and_the_reason_is_shown(room: Room) -> None:
    (device,) = room.tick()
    assert room.fake.count()[ENERGY] == 0, "the first sweep is short"
    for _ in range(5):
        (device,) = room.tick()
    count = room.fake.count()
    assert not count.keys() & {SHARES, PCIE, SAMPLE, "nvmlGpmSampleAlloc", "nvmlGpmQueryDeviceSupport"}
    assert count[ENERGY] == 1
    assert not set(ON_DEMAND_METRICS) & set(device.readings)
    assert {device.problems[metric] for metric in ON_DEMAND_METRICS} == {NOT_SELECTED, NOT_BUSY}
    assert device.problems["sm_activity_percent"] == NOT_BUSY
    assert device.processes is not None
    assert device.processes[0].problems["sm_percent"] == NOT_SELECTED


def test_the_second_sample_of_a_selected_device_has_all_values(room: Room) -> None:
    room.tick()
    room.look(0)
    (first,) = room.tick()
    assert first.problems["sm_activity_percent"].code is ProblemCode.NOT_READ
    assert first.get("energy_joules") == 0
    (second,) = room.tick()
    assert set(ON_DEMAND_METRICS) <= set(second.readings)
    assert not set(ON_DEMAND_METRICS) & set(second.problems)
    *_, (later,) = [room.tick() for _ in range(9)]
    assert later.get("energy_joules") == 500 * 10, "every ten seconds"
    assert sm_percent(second) == 0


def shares_of_two(handle: int, seen: int) -> list[SimpleNamespace]:
    stamp = int(time.time() * 1e6)
    return [SimpleNamespace(pid=pid, timeStamp=stamp, smUtil=percent) for pid, percent in ((4000, 37), (4999, 60))]


def test_only_the_shares_are_sampled_of_a_device_of_which_the_processes_are_shown(room: Room) -> None:
    room.fake.answer(SHARES, shares_of_two)
    room.tick()
    room.show_processes(0)
    for _ in range(3):
        (device,) = room.tick()
    assert sm_percent(device) == 37
    assert {device.problems[metric] for metric in ON_DEMAND_METRICS} == {NOT_SELECTED, NOT_BUSY}
    count = room.fake.count()
    assert not count.keys() & {SAMPLE, PCIE, "nvmlGpmSampleAlloc"}
    assert count[ENERGY] == 1, "once, when gpumon starts"
    room.show_processes()
    (device,) = room.tick()
    assert sm_percent(device) is None
    assert device.processes is not None
    assert device.processes[0].problems["sm_percent"] == NOT_SELECTED
    assert not room.fake.count()[SHARES]


def test_shares_of_many_devices_stay_within_the_budget(tmp_path: Path) -> None:
    room = Room(tmp_path, devices=16)

    def slow(handle: int, seen: int) -> list[SimpleNamespace]:
        room.now += 0.01
        room.looks.append((room.now, handle))
        return []

    room.fake.answer(SHARES, slow)
    room.show_processes(*range(16))
    begin = room.now
    for _ in range(60):
        devices = room.tick()
    assert {handle for _, handle in room.looks} == set(range(16))
    assert 0.01 * len(room.looks) <= PROCESS_SHARE * (room.now - begin + SAMPLE_SECONDS) + 0.01
    ages = [device.sm_age_seconds for device in devices]
    assert max(age for age in ages if age is not None) <= 16 * 0.01 / PROCESS_SHARE + 1


def test_energy_counts_from_the_start_of_gpumon(tmp_path: Path) -> None:
    room = Room(tmp_path, 3)
    for _ in range(100):
        room.tick()
    assert room.fake.count()[ENERGY] == 3
    room.look(1)
    device = room.tick()[1]
    assert device.get("energy_joules") == pytest.approx(500 * 99, rel=0.05)
    assert room.readers[0].read(room.now, 0).problems["energy_joules"] == NOT_SELECTED


def test_starting_the_energy_stays_within_the_budget(tmp_path: Path) -> None:
    room = Room(tmp_path, 8)
    room.fake.answer(ENERGY, room.slow_energy)
    starts = []
    for _ in range(160):
        room.tick(0.1)
        starts.append(room.fake.count()[ENERGY])
    assert sum(starts) == 8, "each device once"
    assert max(starts) == 1, "one in a sweep"


def test_an_energy_counter_that_does_not_exist_is_not_queried_again_soon(room: Room) -> None:
    room.fake.answer(ENERGY, NOT_SUPPORTED)
    for _ in range(100):
        room.tick()
    assert room.fake.count()[ENERGY] == 1


def test_without_counters_the_driver_measures_the_pcie_rates(room: Room) -> None:
    room.without_counters()
    room.tick()
    assert room.fake.count()[PCIE] == 0
    room.look(0)
    for _ in range(10):
        (device,) = room.tick()
    assert device.get("pcie_transmit_bytes_per_second") == 1_200_000
    assert device.get("pcie_receive_bytes_per_second") == 2_100_000
    assert not PCIE_METRICS & set(device.problems)
    assert device.problems["sm_activity_percent"].code is ProblemCode.NOT_SUPPORTED
    assert device.problems["nvlink_receive_bytes_per_second"].code is ProblemCode.NOT_SUPPORTED
    assert room.fake.count()[PCIE] == 10, "two directions, every two seconds"
    room.look()
    (device,) = room.tick()
    assert device.problems["pcie_receive_bytes_per_second"] == NOT_SELECTED
    assert room.fake.count()[PCIE] == 0


@pytest.mark.parametrize("failure", [NOT_SUPPORTED, UNKNOWN])
def test_pcie_rates_that_cannot_be_measured_are_missing(room: Room, failure: Exception) -> None:
    room.without_counters()
    room.fake.answer(PCIE, failure)
    room.look(0)
    for _ in range(5):
        (device,) = room.tick()
    assert not PCIE_METRICS & set(device.readings)
    assert set(device.problems) >= PCIE_METRICS


def test_only_the_selected_device_is_sampled(tmp_path: Path) -> None:
    room = Room(tmp_path, 3)
    room.look(1)
    for _ in range(3):
        devices = room.tick()
    assert ["sm_activity_percent" in device.readings for device in devices] == [False, True, False]
    assert {device for _, device in room.looks} == {1}


def test_a_selected_device_is_sampled_once_a_second_at_any_interval(room: Room) -> None:
    room.look(0)
    for _ in range(50):
        room.tick(0.1)
    times = [when for when, _ in room.looks]
    assert len(times) in {5, 6}
    assert min(later - earlier for earlier, later in pairwise(times)) >= SAMPLE_SECONDS - 1e-6


def test_between_two_samples_the_last_one_is_shown(room: Room) -> None:
    room.look(0)
    room.tick(1.0)
    room.tick(0.1)
    (between,) = room.tick(0.1)
    assert len(room.looks) == 2
    assert set(ON_DEMAND_METRICS) <= set(between.readings)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("devices", "cost"), [(1, 0.005), (1, 0.05), (8, 0.005), (8, 0.02)])
def test_samples_stay_within_the_budget_and_every_device_has_its_turn(
    tmp_path: Path, devices: int, cost: float
) -> None:
    room = Room(tmp_path, devices, cost)
    room.look(*range(devices))
    began = room.now
    while room.now < began + 200:
        room.tick(0.1)
    spent = len(room.looks) * cost
    assert spent <= DRIVER_SHARE * (room.now - began + SAMPLE_SECONDS) + cost
    turns = [sum(device == other for _, other in room.looks) for device in range(devices)]
    assert max(turns) - min(turns) <= 1
    assert min(turns) > 0
    if devices * cost <= DRIVER_SHARE:
        assert max(turns) >= 180
    else:
        assert spent >= 0.7 * DRIVER_SHARE * (room.now - began), "it is used as well"


def test_a_device_that_hangs_or_is_gone_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    room = Room(tmp_path, 2)
    room.look(0, 1, 7)
    room.tick()
    gone = room.readers.pop(0)
    for _ in range(6):
        room.tick()
    assert sum(device == 1 for _, device in room.looks) >= 4
    room.readers.insert(0, gone)
    room.tick()
    assert room.looks[-1][1] in {0, 1}


def test_old_samples_are_not_shown(room: Room) -> None:
    room.look(0)
    room.tick()
    room.cost = 0.9
    (seen,) = room.tick()
    assert "sm_activity_percent" in seen.readings
    assert "sm_activity_percent" in room.tick(20)[0].readings
    room.tick(20)
    (old,) = room.tick()
    assert len(room.looks) == 2  # the driver's time is used up
    assert not set(ON_DEMAND_METRICS) & set(old.readings)
    assert set(ON_DEMAND_METRICS) <= set(old.problems)


def test_samples_are_freed_when_no_device_is_selected(room: Room) -> None:
    room.look(0)
    room.tick()
    room.tick()
    assert len(room.gpm.samples) == 2
    room.look()
    (device,) = room.tick()
    assert room.gpm.samples == []
    assert not set(ON_DEMAND_METRICS) & set(device.readings)
    room.look(0)
    *_, again = [device for _ in range(8) for device in room.tick()]
    assert again.get("energy_joules") == 500 * 10  # since the first look
    assert "sm_activity_percent" in again.readings


@pytest.mark.parametrize(
    ("call", "missing"),
    [(SAMPLE, set(ON_DEMAND_METRICS) - {"energy_joules"}), (ENERGY, {"energy_joules"}), (SHARES, set())],
)
@pytest.mark.parametrize("failure", [NOT_SUPPORTED, NO_PERMISSION, UNKNOWN])
def test_a_source_that_fails_affects_only_its_metrics(
    room: Room, call: str, missing: set[str], failure: Exception
) -> None:
    room.fake.answer(call, failure)
    room.look(0)
    for _ in range(5):
        (device,) = room.tick()
    assert room.fake.count()[call] == ({SAMPLE: 5, SHARES: 3}.get(call, 1) if failure is UNKNOWN else 1)
    assert not missing & set(device.readings)
    assert missing <= set(device.problems)
    assert set(ON_DEMAND_METRICS) - missing <= set(device.readings)
    assert (sm_percent(device) is None) is (call == SHARES)
    room.look()
    room.tick()
    room.look(0)
    room.tick()
    (device,) = room.tick()
    assert device.processes is not None
    assert ("sm_percent" in device.processes[0].problems) is (call == SHARES)


def test_invalid_values_are_missing(room: Room) -> None:
    room.gpm.values |= {2: float("nan"), 3: 250.0, 20: 1e300, 12: -1.0}
    room.look(0)
    room.tick()
    (device,) = room.tick()
    wrong = {
        "sm_activity_percent", "sm_occupancy_percent", "pcie_transmit_bytes_per_second", "fp32_activity_percent"
    }  # fmt: skip
    assert not wrong & set(device.readings)
    assert {device.problems[metric].code for metric in wrong} == {ProblemCode.INVALID_VALUE}
    assert set(ON_DEMAND_METRICS) - wrong <= set(device.readings)


def test_a_device_that_is_lost_gives_its_samples_back(room: Room) -> None:
    room.look(0)
    room.tick()
    room.readers[0].forget_handle()
    assert room.gpm.samples == []
    room.tick()
    assert len(room.gpm.samples) == 2


@pytest.fixture
def session_of_two(tmp_path: Path) -> Callable[[FakeNvml], NvmlSession]:
    def open_session(fake: FakeNvml) -> NvmlSession:
        in_flight = CallsInFlight()
        budget = SamplingBudget(in_flight.clock)
        budget.keys = frozenset({"GPU-0", "GPU-1"})
        session = NvmlSession.open(Nvml(library=fake, in_flight=in_flight), ProcessTable(in_flight, tmp_path), budget)
        session.count_devices(0)
        for now, slot in enumerate(session.slots, 1):
            slot.read(100.0 * now, 0)
        return session

    return open_session


def test_samples_go_with_their_devices_and_with_the_session(session_of_two: Callable[[FakeNvml], NvmlSession]) -> None:
    fake = FakeNvml(2)
    gpm = FakeGpm(fake)
    session = session_of_two(fake)
    assert len(gpm.samples) == 4
    fake.answer("nvmlDeviceGetCount", 1)
    session.count_devices(10)
    assert len(gpm.samples) == 2
    fake.count()
    session.close()
    assert gpm.samples == []
    assert fake.calls[-1] == "nvmlShutdown"


def test_samples_of_a_device_in_a_call_that_hangs_are_left_alone(
    session_of_two: Callable[[FakeNvml], NvmlSession],
) -> None:
    fake = FakeNvml(2)
    gpm = FakeGpm(fake)
    session = session_of_two(fake)
    session.slots[1].quarantined = True  # a thread may be writing to them
    session.close()
    assert len(gpm.samples) == 2


# From the screen's side of the pipe to the driver's library and back


def seen(device: int) -> Callable[[Frame], bool]:
    return lambda frame: len(frame.devices) > device and "sm_occupancy_percent" in frame.devices[device].readings


def test_a_new_collector_receives_the_selection(live: Live) -> None:
    watched = live(gpus=1)
    frame = watched.until(lambda frame: bool(frame.devices))
    watched.stream.request_on_demand([frame.devices[0].key])
    watched.until(seen(0))
    watched.fault("segv:nvmlDeviceGetPowerUsage")
    watched.until(lambda frame: watched.stream.replaced > 0)
    watched.heal()
    watched.until(seen(0))


def test_a_selection_before_the_start_is_kept(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in nvml_mock.environment(1).items():
        monkeypatch.setenv(name, value)
    stream = LiveStream(0.1)
    stream.request_on_demand(["index:0"])
    stream.start()
    try:
        deadline = time.monotonic() + 15
        while not any(seen(0)(frame) for frame in stream.inbox.drain() if isinstance(frame, Frame)):
            assert time.monotonic() < deadline
            stream.inbox.arrived.wait(1)
    finally:
        stream.close()


def test_copies_keep_a_gpu_busy_that_computes_nothing(live: Live) -> None:
    watched = live(gpus=1, NVML_MOCK_COPIES="1")
    watched.stream.request_on_demand(["index:0"])
    device = watched.until(seen(0)).devices[0]
    assert device.get("utilization_gpu_percent") == 100
    assert device.get("sm_activity_percent") == 0
    assert device.get("pcie_receive_bytes_per_second") == 56_500 * (1 << 20)
