"""Values to text."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core import units
from gpumon.core.metrics import Unit

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
        (0, "0s"),
        (59.9, "50s"),
        (60, "60s"),
        (120, "2m"),
        (3599, "59m"),
        (3600, "1h00"),
        (11_100, "3h05"),
        (187_200, "2d04h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert units.duration_text(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (7, "7s"), (95, "95s"), (119, "119s"), (180, "3m")])
def test_age(seconds: float, text: str) -> None:
    assert units.age_text(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(-1, "00:00"), (125, "02:05"), (3725.9, "1:02:05")])
def test_clock(seconds: float, text: str) -> None:
    assert units.clock_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3 * GIB, Unit.BYTES, "3.00 GiB"),
        (1_980_000_000, Unit.HERTZ, "1980 MHz"),
        (612.54, Unit.WATTS, "612.5 W"),
        (56, Unit.CELSIUS, "56 °C"),
        (87, Unit.PERCENT, "87 %"),
        (16, Unit.NONE, "16"),
        (478.116e9, Unit.BYTES_PER_SECOND, "478 GB/s"),
        (55.4321e9, Unit.BYTES_PER_SECOND, "55.4 GB/s"),
        (0, Unit.BYTES_PER_SECOND, "0 B/s"),
        (999.4, Unit.JOULES, "999 J"),
        (1_254_000, Unit.JOULES, "1.25 MJ"),
        (1_234_567, Unit.COUNT, "1234567"),
        (6016, Unit.BITS, "6016 bit"),
    ],
)
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
