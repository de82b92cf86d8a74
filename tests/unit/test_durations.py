"""Stretches of time and moments as people write them."""

from datetime import datetime

import pytest

from gpumon.core.durations import Since, duration_seconds, since


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("2 d", 172_800), (" 5m ", 300)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds
    assert since(text) == Since(last_seconds=seconds)


@pytest.mark.parametrize("text", ["", "m", "-5m", "5 weeks", "nan", "inf", "1e9", "\u0661m", "5m5m", "9" * 400])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration_seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-01T14:30:00Z", 1_777_645_800.0),
        ("2026-05-01T16:30:00+02:00", 1_777_645_800.0),
        ("2026-05-01 14:30", datetime(2026, 5, 1, 14, 30).timestamp()),  # noqa: DTZ001 - this machine's own zone
    ],
)
def test_moments(text: str, expected: float) -> None:
    assert since(text) == Since(time_seconds=expected)


@pytest.mark.parametrize("text", ["yesterday", "0001-01-01T00:00+24:00", "\x1b[2J", "14:30"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError, match="neither a duration") as error:
        since(text)
    assert "\x1b" not in str(error.value)
