"""Values to text, and durations and start times from text."""

from collections.abc import Callable
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core import units
from gpumon.core.metrics import Unit
from gpumon.core.units import StartTime, parse_duration, parse_start_time

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1023, "1.00 KiB"),
        (1.25 * GIB, "1.25 GiB"),
        (9.994 * GIB, "9.99 GiB"),
        (9.995 * GIB, "10.0 GiB"),
        (140.4 * GIB, "140 GiB"),
        (1000 * MIB, "0.98 GiB"),
        (2 * TIB, "2.00 TiB"),
        (5000 * 1024 * TIB, "5000 PiB"),
    ],
)
def test_bytes(value: float, text: str) -> None:
    assert units.bytes_text(value) == text


@given(st.integers(0, 1 << 60))
def test_bytes_keep_their_size(value: int) -> None:
    number, unit = units.bytes_text(value).split()
    scale = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)
    assert float(number) * scale == pytest.approx(value, rel=0.01, abs=0.5)
    assert len(number) <= 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (59.9, "50s"), (60, "60s"), (120, "2m"), (3599, "59m"), (3600, "1h00"), (11_100, "3h05"),
        (119.9, "110s"), (86_399, "23h59"), (86_400, "1d00h"), (187_200, "2d04h"),
    ],
)  # fmt: skip
def test_duration(seconds: float, text: str) -> None:
    assert units.duration_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (7, "7s"), (95, "95s"), (119, "119s"), (120, "2m"), (180, "3m")]
)
def test_age(seconds: float, text: str) -> None:
    assert units.age_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (4.1e-6, "4.10 µs"), (5e-9, "0.01 µs"), (250e-6, "250 µs"), (0.1, "100 ms"), (0.9994, "999 ms"),
        (0.9995, "1.00 s"), (1.5, "1.50 s"), (9.994, "9.99 s"), (9.995, "10.0 s"), (99.94, "99.9 s"),
        (99.95, "100 s"), (250, "250 s"), (None, units.MISSING),
    ],
)  # fmt: skip
def test_a_short_time_has_three_digits(seconds: float | None, text: str) -> None:
    assert units.short_time_text(seconds) == text


@pytest.mark.parametrize(
    ("kibibytes", "text"),
    [
        (9.994, "9.99 KiB"),
        (9.995, "10.0 KiB"),
        (99.94, "99.9 KiB"),
        (99.95, "100 KiB"),
        (999.4, "999 KiB"),
        (999.5, "0.98 MiB"),
    ],
)
def test_bytes_have_three_digits(kibibytes: float, text: str) -> None:
    assert units.bytes_text(kibibytes * KIB) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 GPUs"), (1, "1 GPU"), (2, "2 GPUs"), (12_000, "12,000 GPUs"), (-1, "-1 GPUs")]
)
def test_a_count_has_its_plural(count: int, text: str) -> None:
    assert units.counted(count, "GPU") == text
    assert units.counted(2, "process") == "2 processes"
    assert units.counted(1, "process") == "1 process"


def test_numbers_without_units() -> None:
    assert [units.times_text(count) for count in (1, 2, 1500)] == ["once", "2 times", "1,500 times"]
    assert (units.gibibytes_text(1.26 * GIB), units.gibibytes_text(1.26 * GIB, 0)) == ("1.3", "1")
    assert units.megahertz_text(1_234_567e6) == "1234567"


@pytest.mark.parametrize(("seconds", "text"), [(-1, "00:00"), (125, "02:05"), (3725.9, "1:02:05")])
def test_clock(seconds: float, text: str) -> None:
    assert units.clock_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3 * GIB, Unit.BYTES, "3.00 GiB"), (1_980_000_000, Unit.HERTZ, "1980 MHz"), (612.54, Unit.WATTS, "612.5 W"),
        (56, Unit.CELSIUS, "56 °C"), (87, Unit.PERCENT, "87 %"), (16, Unit.NONE, "16"),
        (478.116e9, Unit.BYTES_PER_SECOND, "478 GB/s"), (55.4321e9, Unit.BYTES_PER_SECOND, "55.4 GB/s"),
        (0, Unit.BYTES_PER_SECOND, "0 B/s"), (999.4, Unit.JOULES, "999 J"), (1_254_000, Unit.JOULES, "1.25 MJ"),
        (1_234_567, Unit.COUNT, "1,234,567"), (6016, Unit.BITS, "6016 bit"),
    ],
)  # fmt: skip
def test_value(value: float, unit: Unit, text: str) -> None:
    assert units.value_text(value, unit) == text


@pytest.mark.parametrize(
    "function",
    [
        units.bytes_text,
        units.gibibytes_text,
        units.number_text,
        units.megahertz_text,
        units.duration_text,
        units.age_text,
        units.rate_text,
        units.energy_text,
        lambda value: units.value_text(value, Unit.WATTS),
    ],
)
def test_missing_is_a_dash_never_zero(function: Callable[[float | None], str]) -> None:
    assert function(None) == units.MISSING
    assert function(0) != units.MISSING


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("2 d", 172_800), (" 5m ", 300)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_start_time(text) == StartTime(last_seconds=seconds)


@pytest.mark.parametrize("text", ["", "m", "-5m", "5 weeks", "nan", "inf", "1e9", "\u0661m", "5m5m", "9" * 400])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-01T14:30:00Z", 1_777_645_800.0),
        ("2026-05-01T16:30:00+02:00", 1_777_645_800.0),
        ("2026-05-01 14:30", datetime(2026, 5, 1, 14, 30).timestamp()),  # noqa: DTZ001 - local time
    ],
)
def test_start_times(text: str, expected: float) -> None:
    assert parse_start_time(text) == StartTime(time_seconds=expected)


@pytest.mark.parametrize("text", ["yesterday", "0001-01-01T00:00+24:00", "\x1b[2J", "14:30"])
def test_an_invalid_start_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither a duration") as error:
        parse_start_time(text)
    assert "\x1b" not in str(error.value)
