"""Whether kernels run on a busy device that is not selected."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpumon.collect.on_demand import DRIVER_SHARE, NOT_BUSY, NOT_SELECTED, ON_DEMAND_METRICS
from gpumon.collect.schedule import Period
from gpumon.core.model import Device
from gpumon.core.problems import ProblemCode
from tests.collect.conftest import Live
from tests.collect.fake import LOST, UNKNOWN, FakeGpm
from tests.collect.test_on_demand import ENERGY, SHARES, Room

METRIC = "sm_activity_percent"
RATES = "nvmlDeviceGetUtilizationRates"


@pytest.fixture
def room(tmp_path: Path) -> Room:
    made = Room(tmp_path)
    busy(made, 100)
    return made


def busy(room: Room, percent: int, device: int | None = None) -> None:
    room.fake.answer(RATES, SimpleNamespace(gpu=percent, memory=2), device)


def ticks(room: Room, seconds: int) -> Device:
    for _ in range(seconds):
        devices = room.tick()
    return devices[0]


def test_the_second_idle_check_of_a_busy_device_shows_whether_kernels_run(room: Room) -> None:
    room.gpm.values[2] = 0.0
    first = ticks(room, 1)
    assert first.problems[METRIC].code is ProblemCode.NOT_READ
    second = ticks(room, 1)
    assert second.get(METRIC) == 0.0
    assert METRIC not in second.problems
    rest = set(ON_DEMAND_METRICS) - {METRIC}
    assert not rest & set(second.readings)
    assert {second.problems[metric] for metric in rest} == {NOT_SELECTED}


def test_later_checks_run_every_ten_seconds_without_expensive_calls(room: Room) -> None:
    ticks(room, 62)
    times = [time for time, _ in room.looks]
    assert times[1] - times[0] == pytest.approx(1.0)
    assert {round(later - earlier) for earlier, later in pairwise(times[1:])} == {10}
    count = room.fake.count()
    assert (count[ENERGY], count[SHARES]) == (1, 0), "the energy has a start"


def test_a_value_is_kept_between_two_checks(room: Room) -> None:
    ticks(room, 2)
    room.gpm.values[2] = 77.0
    assert ticks(room, 9).get(METRIC) == 1.0
    assert ticks(room, 1).get(METRIC) == 77.0


def test_a_device_below_the_limit_is_left_alone_and_its_samples_are_given_back(room: Room) -> None:
    ticks(room, 3)
    assert len(room.gpm.samples) == 2
    busy(room, 89)
    device = ticks(room, 1)
    assert (device.get(METRIC), device.problems[METRIC]) == (None, NOT_BUSY)
    assert room.gpm.samples == []


def test_a_device_that_fluctuates_around_the_limit_is_not_checked_more_often(room: Room) -> None:
    for tick in range(61):
        busy(room, 88 if tick % 2 else 100)
        room.tick()
    assert len(room.looks) <= 2 * 61 / Period.TEN_SECONDS + 2


def test_an_unknown_utilization_is_no_busy_device(room: Room) -> None:
    room.fake.answer(RATES, UNKNOWN)
    assert ticks(room, 3).problems[METRIC] == NOT_BUSY
    assert room.looks == []


@pytest.mark.parametrize(("devices", "cost"), [(8, 0.0005), (8, 0.004), (2, 0.2)])
def test_idle_checks_stay_within_the_budget(tmp_path: Path, devices: int, cost: float) -> None:
    room = Room(tmp_path, devices, cost)
    busy(room, 100)
    began = room.now
    ticks(room, 120)
    spent = len(room.looks) * cost
    assert spent <= DRIVER_SHARE * (room.now - began) + cost
    if cost < DRIVER_SHARE:
        assert {device for _, device in room.looks} == set(range(devices))


def test_a_selection_replaces_the_idle_check_until_it_ends(room: Room) -> None:
    ticks(room, 3)
    room.look(0)
    assert ticks(room, 2).get("dram_activity_percent") is not None
    assert len(room.gpm.samples) == 2, "those of the look alone"
    room.look()
    device = ticks(room, 12)
    assert device.get(METRIC) is not None
    assert device.get("dram_activity_percent") is None


def test_a_chip_without_the_counters_is_queried_rarely(room: Room) -> None:
    FakeGpm(room.fake, supported=False)
    device = ticks(room, 100)
    assert device.problems[METRIC].code is ProblemCode.NOT_SUPPORTED
    assert "Hopper" in device.problems[METRIC].reason
    assert room.fake.count()["nvmlGpmQueryDeviceSupport"] == 1


def test_an_invalid_value_is_a_problem(room: Room) -> None:
    room.gpm.values[2] = 4e9
    assert ticks(room, 3).problems[METRIC].code is ProblemCode.INVALID_VALUE


def test_a_counter_that_fails_is_reported_and_retried(room: Room) -> None:
    ticks(room, 2)
    room.gpm.values[2] = UNKNOWN
    assert ticks(room, 10).problems[METRIC].code is ProblemCode.UNKNOWN
    room.gpm.values[2] = 5.0
    assert ticks(room, 10).get(METRIC) == 5.0


def test_a_device_that_is_given_up_gives_its_samples_back(room: Room) -> None:
    ticks(room, 2)
    room.fake.answer(RATES, LOST)
    (reader,) = room.readers
    reader.forget_handle()
    assert room.gpm.samples == []


def test_copies_show_a_full_load_and_no_work(live: Live) -> None:
    watched = live(gpus=2, NVML_MOCK_COPIES="1")
    frame = watched.until(
        lambda frame: len(frame.devices) == 2 and all(METRIC in device.readings for device in frame.devices)
    )
    assert [device.get("utilization_gpu_percent") for device in frame.devices] == [100, 100]
    assert [device.get(METRIC) for device in frame.devices] == [0, 0]


def test_idle_checks_of_other_devices_do_not_delay_the_selected_device(tmp_path: Path) -> None:
    room = Room(tmp_path, 8, 0.0005)
    busy(room, 100)
    room.look(0)
    ticks(room, 60)
    assert sum(device == 0 for _, device in room.looks) >= 55
    assert min(sum(device == other for _, device in room.looks) for other in range(1, 8)) >= 5


def test_a_chip_without_counters_has_a_problem_whenever_the_chip_is_busy(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.fake.answer("nvmlGpmQueryDeviceSupport", SimpleNamespace(isSupportedDevice=0))
    problems = []
    for second in range(60):
        busy(room, 50 if second % 5 == 4 else 100)
        (device,) = room.tick()
        problems.append(device.problems[METRIC])
    assert {problem.code for problem in problems[2:] if problem is not NOT_BUSY} == {ProblemCode.NOT_SUPPORTED}
