"""Metrics that come from field values: one call for many, and each value has a return code and a type."""

from typing import Any

import pynvml  # noqa: TID251 - its error codes
import pytest

from gpumon.collect import nvml
from gpumon.collect.nvml import DeviceLostError, DriverGoneError, Nvml
from gpumon.collect.readers import MetricsReader
from gpumon.collect.schedule import RETRY_SECONDS
from gpumon.core.problems import ProblemCode
from tests.collect.fake import LOST, NOT_SUPPORTED, UNINITIALIZED, UNKNOWN, FakeNvml, error, fields

FIELDS = "nvmlDeviceGetFieldValues"
TEMPERATURE = nvml.FIELD_MEMORY_TEMPERATURE
SPEED = nvml.FIELD_NVLINK_SPEED
RATE = "nvlink_bytes_per_second"
LINKS = "nvlink_links_count"


class Asked:
    """Keeps what was asked for."""

    def __init__(self, values: dict[int, Any] | None = None) -> None:
        self.values = values or {}
        self.calls: list[list[Any]] = []

    def __call__(self, handle: int, asked: list[Any]) -> list[Any]:
        self.calls.append(asked)
        return fields(self.values)(handle, asked)


def taken(fake: FakeNvml, *times: float) -> tuple[dict[str, float], dict[str, Any]]:
    reader = MetricsReader(Nvml(library=fake), 0)
    reader.read(0)
    for now in times or (1,):
        values = reader.read(now)
    return values


def test_all_fields_come_from_one_call_with_room_behind_the_last() -> None:
    fake, asked = FakeNvml(), Asked()
    fake.answer(FIELDS, asked)
    readings, problems = taken(fake)
    assert fake.count()[FIELDS] == 1
    (call,) = asked.calls
    assert call[-1] == call[-2]
    assert len(call) == len(set(call)) + 1 == 9 + nvml.MAX_NVLINK_LINKS + 1
    assert problems == {}
    assert readings["temperature_memory_celsius"] == 47
    assert readings["power_instant_watts"] == pytest.approx(598)
    assert (readings["ecc_corrected_volatile_count"], readings["ecc_uncorrected_volatile_count"]) == (7, 0)
    assert (readings["ecc_corrected_aggregate_count"], readings["ecc_uncorrected_aggregate_count"]) == (70, 1)


def test_a_field_that_fails_costs_its_cell_and_is_remembered() -> None:
    fake, asked = FakeNvml(), Asked({TEMPERATURE: NOT_SUPPORTED})
    fake.answer(FIELDS, asked)
    readings, problems = taken(fake, 1, 20)
    assert "temperature_memory_celsius" not in readings
    assert problems["temperature_memory_celsius"].code is ProblemCode.NOT_SUPPORTED
    assert readings["power_instant_watts"] == pytest.approx(598)
    assert set(problems) == {"temperature_memory_celsius"}
    first, second = asked.calls
    assert TEMPERATURE in {field.id for field in first}
    assert TEMPERATURE not in {field.id for field in second}
    asked.values.clear()
    asked.calls.clear()
    assert "temperature_memory_celsius" in taken(fake, RETRY_SECONDS + 2)[0]


def test_fields_stay_together_after_a_passing_failure() -> None:
    fake, asked = FakeNvml(), Asked({TEMPERATURE: UNKNOWN})
    fake.answer(FIELDS, asked)
    readings, problems = taken(fake, *range(1, 40))
    assert problems["temperature_memory_celsius"].code is ProblemCode.UNKNOWN
    assert len(asked.calls) == 4
    assert "power_instant_watts" in readings


def test_a_failed_call_affects_only_its_fields() -> None:
    fake = FakeNvml()
    fake.answer(FIELDS, UNKNOWN)
    readings, problems = taken(fake)
    assert problems[RATE].code is problems["temperature_memory_celsius"].code is ProblemCode.UNKNOWN
    assert "bar1_total_bytes" in readings
    fake.answer(FIELDS, fields())
    assert RATE in taken(fake)[0]


@pytest.mark.parametrize(("kind", "value"), [(0, 47.5), (1, 47), (2, 47), (3, 47), (4, -3), (5, -4), (6, 47)], ids=str)
def test_a_value_is_taken_by_its_type(kind: int, value: float) -> None:
    fake = FakeNvml()
    fake.answer(FIELDS, fields({TEMPERATURE: (kind, value)}))
    assert taken(fake)[0]["temperature_memory_celsius"] == value


@pytest.mark.parametrize("kind", [7, 99, -1])
def test_a_value_of_an_unknown_type_is_missing(kind: int) -> None:
    fake = FakeNvml()
    fake.answer(FIELDS, fields({TEMPERATURE: (kind, 47)}))
    readings, problems = taken(fake)
    assert "temperature_memory_celsius" not in readings
    assert problems["temperature_memory_celsius"].code is ProblemCode.INVALID_VALUE
    assert str(kind) in problems["temperature_memory_celsius"].reason


def test_an_invalid_value_is_missing() -> None:
    fake = FakeNvml()
    fake.answer(FIELDS, fields(dict.fromkeys((TEMPERATURE, nvml.FIELD_POWER_INSTANT, SPEED, 3, 4, 5, 6), 0xFFFFFFFF)))
    readings, problems = taken(fake)
    missing = {"temperature_memory_celsius", "power_instant_watts", RATE, "ecc_corrected_volatile_count"}
    assert not missing & set(readings)
    assert {problems[metric].code for metric in missing} == {ProblemCode.INVALID_VALUE}


@pytest.mark.parametrize(("raised", "kind"), [(LOST, DeviceLostError), (UNINITIALIZED, DriverGoneError)])
def test_a_single_field_can_report_a_lost_device(raised: Exception, kind: type[Exception]) -> None:
    fake = FakeNvml()
    fake.answer(FIELDS, fields({TEMPERATURE: raised}))
    with pytest.raises(kind):
        taken(fake)


# NVLink


def speeds(*speed: Any) -> Asked:  # noqa: ANN401
    """Links with these speeds, and no others."""

    class Links(Asked):
        def __call__(self, handle: int, asked: list[Any]) -> list[Any]:
            values = []
            for field in asked:
                if field.id == SPEED:
                    self.values[SPEED] = speed[field.scope] if field.scope < len(speed) else INVALID_LINK
                values += fields(self.values)(handle, [field])
            return values

    return Links()


INVALID_LINK = error(pynvml.NVML_ERROR_INVALID_ARGUMENT)


def test_the_rates_of_all_links_are_one_rate_in_one_direction() -> None:
    fake = FakeNvml()
    readings, _ = taken(fake)
    assert readings[LINKS] == 18
    assert readings[RATE] == 18 * 26_562_000_000


def test_links_that_are_down_or_not_there_do_not_count() -> None:
    fake = FakeNvml()
    fake.answer(FIELDS, speeds(25_000, 0, NOT_SUPPORTED, 25_000))
    readings, problems = taken(fake)
    assert (readings[LINKS], readings[RATE]) == (2, 50_000_000_000)
    assert not {LINKS, RATE} & set(problems)


def test_without_any_link_the_reason_is_the_drivers() -> None:
    fake = FakeNvml()
    fake.answer(FIELDS, speeds(NOT_SUPPORTED))
    readings, problems = taken(fake)
    assert not {LINKS, RATE} & set(readings)
    assert problems[LINKS].code is problems[RATE].code is ProblemCode.NOT_SUPPORTED


def test_all_links_down_is_a_rate_of_nothing() -> None:
    fake = FakeNvml()
    fake.answer(FIELDS, speeds(0, 0))
    readings, _ = taken(fake)
    assert (readings[LINKS], readings[RATE]) == (0, 0)


def test_link_speeds_are_read_rarely_but_again_since_a_link_may_go_down() -> None:
    fake, asked = FakeNvml(), Asked()
    fake.answer(FIELDS, asked)
    taken(fake, *range(1, 60))
    assert 5 <= sum(SPEED in {field.id for field in call} for call in asked.calls) <= 7
