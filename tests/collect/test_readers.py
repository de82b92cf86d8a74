"""Which readings are reader when, and which values are believed."""

from contextlib import suppress
from types import SimpleNamespace

import pytest

from gpumon.collect.calls import Abandoned
from gpumon.collect.nvml import Nvml
from gpumon.collect.on_demand import ON_DEMAND_METRICS
from gpumon.collect.readers import READERS, MetricsReader
from gpumon.collect.schedule import RETRY_SECONDS, Period
from gpumon.core.metrics import METRICS
from gpumon.core.problems import ProblemCode
from tests.collect.fake import MIB, NO_PERMISSION, NOT_SUPPORTED, TOO_OLD, UNKNOWN, FakeNvml

POWER = "nvmlDeviceGetPowerUsage"
WIDTH = "nvmlDeviceGetCurrPcieLinkWidth"
FAN = "nvmlDeviceGetFanSpeed"
FIELDS = "nvmlDeviceGetFieldValues"
THRESHOLD = "nvmlDeviceGetTemperatureThreshold"
SELDOM = (
    "nvmlDeviceGetEnforcedPowerLimit", WIDTH, FIELDS, FAN, "nvmlDeviceGetRemappedRows", "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization",
)  # fmt: skip


def metrics_reader(fake: FakeNvml) -> MetricsReader:
    return MetricsReader(Nvml(library=fake), 0)


def test_every_metric_is_read() -> None:
    reader = metrics_reader(FakeNvml())
    reader.read(0)
    readings, problems = reader.read(1)
    assert set(readings) == set(METRICS) - {"memory_unattributed_bytes", *ON_DEMAND_METRICS}
    assert problems == {}
    assert readings["power_watts"] == pytest.approx(612.5)
    assert readings["clock_sm_hertz"] == 1_830_000_000
    assert readings["memory_total_bytes"] == 143771 * MIB


def test_each_reader_has_its_period() -> None:
    fake = FakeNvml()
    reader = metrics_reader(fake)
    for second in range(21):
        reader.read(second)
    count = fake.count()
    assert count[POWER] == 21
    assert count[WIDTH] == 3
    assert count[THRESHOLD] == 2, "slowdown and shutdown"
    assert {reader.period for reader in READERS} == set(Period) - {Period.ONE_MINUTE}, "the energy is read on demand"


def test_the_first_frame_does_not_wait_for_constant_values() -> None:
    fake = FakeNvml()
    reader = metrics_reader(fake)
    readings, problems = reader.read(0)
    assert not {"clock_sm_max_hertz", "fan_percent", "temperature_memory_celsius"} & set(readings)
    assert {"power_limit_watts", "pcie_width"} <= set(readings)
    assert problems["clock_sm_max_hertz"].code is ProblemCode.NOT_READ
    assert not fake.count().keys() & {"nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetFieldValues", FAN}
    readings, problems = reader.read(1)
    assert "clock_sm_max_hertz" in readings
    assert problems == {}


def test_unsupported_values_are_queried_rarely() -> None:
    for refusal in (NOT_SUPPORTED, TOO_OLD, NO_PERMISSION):
        fake = FakeNvml()
        fake.answer(POWER, refusal)
        reader = metrics_reader(fake)
        for second in range(int(RETRY_SECONDS) + 1):
            readings, problems = reader.read(second)
            assert "power_watts" not in readings
            assert "power_watts" in problems
        assert fake.count()[POWER] == 2


def test_a_passing_failure_is_asked_again_at_once() -> None:
    fake = FakeNvml()
    reader = metrics_reader(fake)
    reader.read(0)
    fake.answer(POWER, UNKNOWN)
    reader.read(1)
    fake.answer(POWER, 500_000)
    readings, problems = reader.read(2)
    assert readings["power_watts"] == 500
    assert "power_watts" not in problems


def test_a_passing_failure_keeps_the_last_value_twice_and_marks_the_value() -> None:
    fake = FakeNvml()
    reader = metrics_reader(fake)
    last = reader.read(0)[0]["power_watts"]
    fake.answer(POWER, UNKNOWN)
    for second in (1, 2):
        readings, problems = reader.read(second)
        assert readings["power_watts"] == last
        assert problems["power_watts"].code is ProblemCode.STALE
    for second in (3, 4):
        readings, problems = reader.read(second)
        assert "power_watts" not in readings
        assert problems["power_watts"].code is ProblemCode.UNKNOWN


def test_a_refusal_removes_the_last_value() -> None:
    fake = FakeNvml()
    reader = metrics_reader(fake)
    reader.read(0)
    fake.answer(POWER, NOT_SUPPORTED)
    readings, problems = reader.read(1)
    assert "power_watts" not in readings
    assert problems["power_watts"].code is ProblemCode.NOT_SUPPORTED


def test_a_static_value_that_failed_is_asked_again() -> None:
    fake = FakeNvml()
    fake.answer(THRESHOLD, UNKNOWN)
    reader = metrics_reader(fake)
    reader.read(0)
    reader.read(1)
    fake.answer(THRESHOLD, 92)
    assert "temperature_slowdown_celsius" not in reader.read(5)[0]
    assert reader.read(11)[0]["temperature_slowdown_celsius"] == 92


def test_memory_of_an_old_driver_has_no_reserve() -> None:
    fake = FakeNvml()

    def old(handle: int, version: int | None = None) -> object:
        if version is not None:
            raise TOO_OLD
        return SimpleNamespace(total=100 * MIB, used=10 * MIB, free=90 * MIB)

    fake.answer("nvmlDeviceGetMemoryInfo", old)
    readings, problems = metrics_reader(fake).read(0)
    assert readings["memory_used_bytes"] == 10 * MIB
    assert "memory_reserved_bytes" not in readings
    assert problems["memory_reserved_bytes"].code is ProblemCode.DRIVER_TOO_OLD


@pytest.mark.parametrize(("call", "metric"), [(THRESHOLD, "temperature_slowdown_celsius"), (WIDTH, "pcie_width")])
def test_what_a_call_that_hung_did_not_bring_is_read_when_the_device_is_back(call: str, metric: str) -> None:
    def hung(*_: object) -> None:
        raise Abandoned

    fake = FakeNvml()
    reader = metrics_reader(fake)
    fake.answer(call, hung)
    with suppress(Abandoned):
        reader.read(0)
    with suppress(Abandoned):  # what never changes is not read in the first tick
        reader.read(1)
    fake.answer(call, 16)
    reader.read(2)
    readings, problems = reader.read(3)
    assert readings[metric] == 16
    assert problems == {}


def test_slow_readings_do_not_all_run_in_one_tick() -> None:
    fake = FakeNvml()
    reader = metrics_reader(fake)
    reader.read(0)
    reader.read(1)
    fake.count()
    most, calls = 0, 0
    for tick in range(20, 220):
        reader.read(tick / 10)
        counted = fake.count()
        seldom = sum(counted[call] for call in SELDOM)
        most, calls = max(most, seldom), calls + seldom
    assert most <= 2
    assert 2 * len(SELDOM) - 2 <= calls <= 2 * len(SELDOM) + 2
