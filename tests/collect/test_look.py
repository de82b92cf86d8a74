"""Who is looked at, how often, and what is left when nobody looks any more."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.collect.attention import DRIVER_SHARE, PERIOD_SECONDS, Attention
from gpumon.collect.device import DeviceReader
from gpumon.collect.flights import Abandoned, Flights
from gpumon.collect.glance import NOT_BUSY
from gpumon.collect.look import LOOK_METRICS, NOT_LOOKED
from gpumon.collect.nvml import Nvml
from gpumon.collect.processes import ProcessTable
from gpumon.collect.session import Session
from gpumon.core.model import Device, Frame
from gpumon.core.problems import ProblemCode
from gpumon.streams.base import Lookable
from gpumon.streams.live import LiveStream
from tests.collect.conftest import Live
from tests.collect.fake import LOST, NOT_SUPPORTED, UNKNOWN, FakeGpm, FakeNvml
from tests.collect.proc import add_process
from tests.collect.test_calls import log_after
from tests.nvml_mock import NvmlMock

ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
SHARES = "nvmlDeviceGetProcessUtilization"
SAMPLE = "nvmlGpmSampleGet"


class Room:
    """Devices of a fake driver, read in turn on a clock of their own, on which each sample of a chip costs time."""

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
        flights = Flights(lambda: self.now)
        self.api = Nvml(library=self.fake, flights=flights)
        self.attention = Attention(flights.clock)
        self.readers = [
            DeviceReader(self.api, index, ProcessTable(flights, proc), self.attention) for index in range(devices)
        ]

    def _sample(self, handle: int, sample: object) -> None:
        self.looks.append((self.now, handle))
        self.now += self.cost

    def look(self, *devices: int) -> None:
        self.attention.keys = frozenset(f"GPU-{device}" for device in devices)

    def tick(self, seconds: float = 1.0) -> list[Device]:
        """Reads all devices, then lets so much time go by."""
        tick = self.now
        self.attention.begin_sweep()
        found = [reader.read(tick, 10_000) for reader in self.readers]
        self.now = max(self.now, tick + seconds)
        return found


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def sm_percent(device: Device) -> float | None:
    assert device.processes is not None
    return device.processes[0].sm_percent


def test_while_nobody_looks_nothing_is_asked_and_the_reason_is_told(room: Room) -> None:
    for _ in range(5):
        (device,) = room.tick()
    assert not room.fake.count().keys() & {ENERGY, SHARES, SAMPLE, "nvmlGpmSampleAlloc", "nvmlGpmQueryDeviceSupport"}
    assert not set(LOOK_METRICS) & set(device.readings)
    assert {device.problems[metric] for metric in LOOK_METRICS} == {NOT_LOOKED, NOT_BUSY}
    assert device.problems["sm_activity_percent"] == NOT_BUSY
    assert device.processes is not None
    assert device.processes[0].problems["sm_percent"] == NOT_LOOKED


def test_a_look_brings_everything_at_its_second_turn(room: Room) -> None:
    room.tick()
    room.look(0)
    (first,) = room.tick()
    assert first.problems["sm_activity_percent"].code is ProblemCode.NOT_READ
    assert first.get("energy_joules") == 0
    (second,) = room.tick()
    assert set(LOOK_METRICS) <= set(second.readings)
    assert not set(LOOK_METRICS) & set(second.problems)
    assert second.get("energy_joules") == 500
    assert sm_percent(second) == 0


def test_only_the_device_that_is_looked_at_is_read_closely(tmp_path: Path) -> None:
    room = Room(tmp_path, 3)
    room.look(1)
    for _ in range(3):
        devices = room.tick()
    assert ["sm_activity_percent" in device.readings for device in devices] == [False, True, False]
    assert {device for _, device in room.looks} == {1}


def test_a_device_without_a_uuid_is_looked_at_by_its_index(room: Room) -> None:
    room.attention.keys = frozenset({"index:0"})
    room.tick()
    assert "sm_activity_percent" in room.tick()[0].readings


def test_a_device_is_looked_at_once_a_second_however_short_the_interval(room: Room) -> None:
    room.look(0)
    for _ in range(50):
        room.tick(0.1)
    times = [when for when, _ in room.looks]
    assert len(times) in {5, 6}
    assert min(later - earlier for earlier, later in pairwise(times)) >= PERIOD_SECONDS - 1e-6


def test_between_two_looks_the_last_one_is_shown(room: Room) -> None:
    room.look(0)
    room.tick(1.0)
    room.tick(0.1)
    (between,) = room.tick(0.1)
    assert len(room.looks) == 2
    assert set(LOOK_METRICS) <= set(between.readings)


@pytest.mark.parametrize(("devices", "cost"), [(1, 0.005), (1, 0.05), (8, 0.005), (8, 0.02)])
def test_looks_take_no_more_than_their_share_and_every_device_has_its_turn(
    tmp_path: Path, devices: int, cost: float
) -> None:
    room = Room(tmp_path, devices, cost)
    room.look(*range(devices))
    began = room.now
    while room.now < began + 200:
        room.tick(0.1)
    spent = len(room.looks) * cost
    assert spent <= DRIVER_SHARE * (room.now - began + PERIOD_SECONDS) + cost
    turns = [sum(device == each for _, each in room.looks) for device in range(devices)]
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


def test_what_was_seen_is_shown_no_longer_than_it_is_worth(room: Room) -> None:
    room.look(0)
    room.tick()
    room.cost = 0.9
    (seen,) = room.tick()
    assert "sm_activity_percent" in seen.readings
    assert "sm_activity_percent" in room.tick(20)[0].readings
    room.tick(20)
    (old,) = room.tick()
    assert len(room.looks) == 2  # the driver's time is used up
    assert not set(LOOK_METRICS) & set(old.readings)
    assert set(LOOK_METRICS) <= set(old.problems)


def test_nothing_is_left_when_nobody_looks_any_more(room: Room) -> None:
    room.look(0)
    room.tick()
    room.tick()
    assert len(room.gpm.samples) == 2
    room.look()
    (device,) = room.tick()
    assert room.gpm.samples == []
    assert not set(LOOK_METRICS) & set(device.readings)
    room.look(0)
    room.tick()
    (again,) = room.tick()
    assert again.get("energy_joules") == 500 * 4  # since the first look
    assert "sm_activity_percent" in again.readings


@pytest.mark.parametrize(
    ("call", "missing"),
    [(SAMPLE, set(LOOK_METRICS) - {"energy_joules"}), (ENERGY, {"energy_joules"}), (SHARES, set())],
)
@pytest.mark.parametrize(("failure", "asked"), [(NOT_SUPPORTED, 1), (UNKNOWN, 5)])
def test_a_part_that_fails_costs_its_cells(
    room: Room, call: str, missing: set[str], failure: Exception, asked: int
) -> None:
    room.fake.answer(call, failure)
    room.look(0)
    for _ in range(5):
        (device,) = room.tick()
    assert room.fake.count()[call] == asked
    assert not missing & set(device.readings)
    assert missing <= set(device.problems)
    assert set(LOOK_METRICS) - missing <= set(device.readings)
    assert (sm_percent(device) is None) is (call == SHARES)
    room.look()
    room.tick()
    room.look(0)
    room.tick()
    (device,) = room.tick()
    assert device.processes is not None
    assert ("sm_percent" in device.processes[0].problems) is (call == SHARES)


def test_values_that_cannot_be_true_are_missing(room: Room) -> None:
    room.gpm.values |= {2: float("nan"), 3: 250.0, 20: 1e300, 12: -1.0}
    room.look(0)
    room.tick()
    (device,) = room.tick()
    wrong = {
        "sm_activity_percent", "sm_occupancy_percent", "pcie_transmit_bytes_per_second", "fp32_activity_percent"
    }  # fmt: skip
    assert not wrong & set(device.readings)
    assert {device.problems[metric].code for metric in wrong} == {ProblemCode.INVALID_VALUE}
    assert set(LOOK_METRICS) - wrong <= set(device.readings)


def test_a_device_that_is_lost_gives_its_samples_back(room: Room) -> None:
    room.look(0)
    room.tick()
    room.readers[0].forget_handle()
    assert room.gpm.samples == []
    room.tick()
    assert len(room.gpm.samples) == 2


def test_a_look_that_hangs_is_made_again_when_the_device_is_back(room: Room) -> None:
    def hung(*_: object) -> None:
        raise Abandoned

    room.look(0)
    room.tick()
    room.fake.answer(ENERGY, hung)
    with suppress(Abandoned):
        room.tick()
    room.fake.answer(ENERGY, lambda handle: int(room.now * 500_000))
    (device,) = room.tick()
    assert set(LOOK_METRICS) <= set(device.readings)


@pytest.fixture
def session_of_two(tmp_path: Path) -> Callable[[FakeNvml], Session]:
    def open_session(fake: FakeNvml) -> Session:
        flights = Flights()
        attention = Attention(flights.clock)
        attention.keys = frozenset({"GPU-0", "GPU-1"})
        session = Session.open(Nvml(library=fake, flights=flights), ProcessTable(flights, tmp_path), attention)
        session.count_devices(0)
        for now, slot in enumerate(session.slots, 1):
            slot.read(100.0 * now, 0)
        return session

    return open_session


def test_samples_go_with_their_devices_and_with_the_session(session_of_two: Callable[[FakeNvml], Session]) -> None:
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
    session_of_two: Callable[[FakeNvml], Session],
) -> None:
    fake = FakeNvml(2)
    gpm = FakeGpm(fake)
    session = session_of_two(fake)
    session.slots[1].quarantined = True  # a thread may be writing to them
    session.close()
    assert len(gpm.samples) == 2


def test_a_lost_device_in_a_look_is_lost(session_of_two: Callable[[FakeNvml], Session]) -> None:
    fake = FakeNvml(2)
    gpm = FakeGpm(fake)
    fake.answer(ENERGY, LOST, 1)
    session = session_of_two(fake)
    assert [slot.device.state.value for slot in session.slots] == ["ok", "lost"]
    assert len(gpm.samples) == 2


# From the screen's side of the pipe to the driver's library and back


def seen(device: int) -> Callable[[Frame], bool]:
    return lambda frame: len(frame.devices) > device and "sm_occupancy_percent" in frame.devices[device].readings


def test_a_live_stream_can_be_told_who_is_looked_at(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    watched = live(NVML_MOCK_LOG=str(path), NVML_MOCK_IDLE="1")
    assert isinstance(watched.stream, Lookable)
    frame = watched.until(lambda frame: len(frame.devices) == 3)
    watched.stream.look([frame.devices[1].key])
    frame = watched.until(seen(1))
    assert not seen(0)(frame)
    assert not seen(2)(frame)
    assert frame.devices[1].get("sm_occupancy_percent") is not None
    watched.stream.look([frame.devices[2].key])
    frame = watched.until(seen(2))
    assert not seen(1)(frame)
    watched.stream.look([])
    watched.until(lambda frame: not seen(2)(frame))
    log = log_after(path, json.loads(path.read_text())["t"] + 0.5)
    assert log["gpm_samples"] == 0


def test_a_new_collector_is_told_too(live: Live) -> None:
    watched = live(gpus=1)
    frame = watched.until(lambda frame: bool(frame.devices))
    watched.stream.look([frame.devices[0].key])
    watched.until(seen(0))
    watched.fault("segv:nvmlDeviceGetPowerUsage")
    watched.until(lambda frame: watched.stream.replaced > 0)
    watched.heal()
    watched.until(seen(0))


def test_who_looks_before_the_start_is_heard(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in nvml_mock.environment(1).items():
        monkeypatch.setenv(name, value)
    stream = LiveStream(0.1)
    stream.look(["index:0"])
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
    watched.stream.look(["index:0"])
    device = watched.until(seen(0)).devices[0]
    assert device.get("utilization_gpu_percent") == 100
    assert device.get("sm_activity_percent") == 0
    assert device.get("pcie_receive_bytes_per_second") == 56_500 * (1 << 20)


def test_a_chip_without_counters_says_so(live: Live) -> None:
    watched = live(gpus=1, NVML_MOCK_GPM="0")
    watched.stream.look(["index:0"])
    device = watched.until(lambda frame: "energy_joules" in frame.devices[0].readings).devices[0]
    assert device.problems["sm_activity_percent"].code is ProblemCode.NOT_SUPPORTED


def test_slow_calls_are_made_more_seldom(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    watched = live(gpus=1, fault=f"slow:{ENERGY}=20000", NVML_MOCK_LOG=str(path))
    watched.stream.look(["index:0"])
    watched.collect(5)
    calls = log_after(path, 4)["calls"][ENERGY]
    assert 2 <= calls <= 3, "20 ms are 1 % of 2 s"
