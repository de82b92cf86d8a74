"""Conversion of values to text and of durations and start times from text.

Every function that formats a value returns a dash for None.
"""

import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.core.metrics import Unit
from gpumon.core.text import safe_text

MISSING: Final = "–"
INVALID: Final = "?"
"""Shown in place of a value from the driver that is out of range."""

_TIMES: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_JOULES_PER_KILOWATT_HOUR: Final = 3_600_000
_MAX_TEXTS: Final = 256
"""Number of cached texts: most sizes are those of the moment before."""
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhd]?)", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([kmgt]?(?:i?b)?)", re.ASCII | re.IGNORECASE)

SECONDS_PER_UNIT: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
BYTES_PER_UNIT: Final = {
    prefix + ending: 1 << 10 * power for power, prefix in enumerate("kmgt", 1) for ending in ("", "b", "ib")
}
"""By the unit in lower case, of which the prefix is enough."""


class StartTime(NamedTuple):
    """Where to start in a recording: a number of seconds before its end, or a Unix time; the other one is None."""

    last_seconds: float | None = None
    time_seconds: float | None = None


def parse_duration(text: str) -> float:
    """Parse a duration such as ``90``, ``10m`` or ``2.5h`` into seconds.

    Raises:
        ValueError: The text is not a duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{safe_text(text, 40)!r} is not a duration such as 90s, 10m, 2h or 1d.")
    return float(match[1]) * SECONDS_PER_UNIT[match[2] or "s"]


def parse_size(text: str) -> float:
    """Parse an amount of memory such as ``20G`` or ``512 MiB``, in multiples of 1024, into bytes.

    Raises:
        ValueError: The text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 20G or 512M.")
    return float(match[1]) * BYTES_PER_UNIT.get(match[2].lower(), 1)


def parse_start_time(text: str) -> StartTime:
    """Parse a duration, or a time in ISO 8601; a time without a zone is local time.

    Raises:
        ValueError: The text is neither.
    """
    with suppress(ValueError):
        return StartTime(last_seconds=parse_duration(text))
    try:
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
        return StartTime(time_seconds=moment.timestamp())
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{safe_text(text, 40)!r} is neither a duration such as 10m nor a time such as 2026-05-01T14:30."
        ) from None


def parse_moment(text: str, now_seconds: float) -> float:
    """Parse a moment in the past into Unix time: ``-2h``, ``03:12`` for the last one, or a time in ISO 8601.

    Raises:
        ValueError: The text is none of these.
    """
    text = text.strip()
    if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
        today = datetime.fromtimestamp(now_seconds, timezone.utc).astimezone()
        hour, minute, second = (*map(int, text.split(":")), 0)[:3]
        moment = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return (moment if moment <= today else moment - timedelta(days=1)).timestamp()
    start = parse_start_time(text.removeprefix("-"))
    return now_seconds - start.last_seconds if start.last_seconds is not None else start.time_seconds or 0.0


def bytes_text(value: float | None) -> str:
    """Binary units with three significant digits: ``1.25 GiB``, ``140 GiB``."""
    return _scaled_text(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def of_text(value: str, total: str, word: str = "of") -> str:
    """Two values with their unit once: ``25.4 of 140 GiB``, ``26.1 to 28.7 ms``, or ``615 MiB of 140 GiB``."""
    number, space, unit = value.rpartition(" ")
    return f"{number if space and total.endswith(f' {unit}') else value} {word} {total}"


def rate_text(value: float | None) -> str:
    """Decimal units per second with three significant digits, as links are rated: ``55.4 GB/s``."""
    return _scaled_text(value, 1000, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"))


def energy_text(value: float | None) -> str:
    """Joules with three significant digits: ``870 J``, ``1.25 MJ``."""
    return _scaled_text(value, 1000, ("J", "kJ", "MJ", "GJ", "TJ", "PJ"))


def kilowatt_hours_text(joules: float | None) -> str:
    """Energy as on a bill, to the watt-hour: ``1.250 kWh``."""
    return MISSING if joules is None else f"{joules / _JOULES_PER_KILOWATT_HOUR:.3f} kWh"


def bill_energy_text(joules: float | None) -> str:
    """Energy with three digits: ``1.25 kWh``, ``740 kWh``, ``12.5 MWh``."""
    if joules is None:
        return MISSING
    kilowatt_hours = joules / _JOULES_PER_KILOWATT_HOUR
    number, unit = (kilowatt_hours, "kWh") if kilowatt_hours < 1000 else (kilowatt_hours / 1000, "MWh")
    return f"{number:,.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"


def gibibytes_text(value: float | None, decimals: int = 1) -> str:
    """GiB without the unit, for columns whose heading contains the unit."""
    return MISSING if value is None else f"{value / (1 << 30):.{decimals}f}"


def number_text(value: float | None, decimals: int = 0) -> str:
    """A plain number."""
    return MISSING if value is None else f"{value:.{decimals}f}"


def count_text(value: float | None) -> str:
    """A number of things: ``12,345``."""
    return MISSING if value is None else f"{value:,.0f}"


def percent_of(part: float | None, total: float | None) -> float | None:
    """A part in percent; None if one of the two is unknown, or the total is 0."""
    return None if part is None or not total else 100 * part / total


def percent_text(value: float | None) -> str:
    """A percentage in a table: ``42%``."""
    return MISSING if value is None else f"{value:.0f}%"


def spaced_percent_text(value: float | None) -> str:
    """A percentage outside of tables: ``42 %``."""
    return MISSING if value is None else f"{value:.0f} %"


def power_text(watts: float | None) -> str:
    """Watts, kilowatts or megawatts with three digits: ``450 W``, ``5.6 kW``."""
    if watts is None:
        return MISSING
    for factor, unit in ((1e6, "MW"), (1e3, "kW")):
        if watts >= factor:
            return f"{watts / factor:.0f} {unit}" if watts >= 100 * factor else f"{watts / factor:.3g} {unit}"
    return f"{watts:.0f} W"


def compact_rate_text(rate: float | None) -> str:
    """Bytes per second in at most four cells, without the unit: ``1.2G``, ``310M``, ``0``."""
    if rate is None:
        return MISSING
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= factor * 0.9995:
            scaled = rate / factor
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return "0" if rate < 1 else f"{rate:.0f}"


def compact_gibibytes_text(value: float | None) -> str:
    """GiB without the unit, with a decimal where the number is small: ``0.4``, ``80``."""
    return gibibytes_text(value, 0 if value is None or not value or value >= 9.95 * (1 << 30) else 1)


def megahertz_text(value: float | None) -> str:
    """MHz without the unit."""
    return MISSING if value is None else f"{value / 1e6:.0f}"


def duration_text(seconds: float | None) -> str:
    """Coarse, so that an idle screen does not change: ``10s`` in steps of 10 s, ``12m``, ``3h05``, ``2d04h``."""
    if seconds is None:
        return MISSING
    if seconds < 120:
        return f"{int(seconds) // 10 * 10}s"
    hours, minutes = divmod(int(seconds // 60), 60)
    if not hours:
        return f"{minutes}m"
    if hours < 24:
        return f"{hours}h{minutes:02d}"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h"


def age_text(seconds: float | None) -> str:
    """Seconds without decimals up to two minutes, then as `duration_text`: ``7s``, ``95s``, ``3m``."""
    if seconds is None:
        return MISSING
    return f"{seconds:.0f}s" if seconds < 120 else duration_text(seconds)


def precise_age_text(seconds: float) -> str:
    """An age to the second, or to the minute from an hour on: ``42s``, ``2m 14s``, ``1h 05m``."""
    minutes, rest = divmod(int(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}h {minutes % 60:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def range_text(seconds: float) -> str:
    """The length of a time range, up to a day in hours: ``24h``, ``7d``."""
    return duration_text(seconds).replace("h00", "h").replace("d00h", "d") if seconds != 86_400 else "24h"


def step_text(seconds: float) -> str:
    """The time that a column of a chart covers: ``2 s``, ``5 min``."""
    if seconds < 60:
        return f"{seconds:g} s"
    return f"{seconds / 60:g} min" if seconds < 3600 else f"{seconds / 3600:g} h"


def short_time_text(seconds: float | None) -> str:
    """A measured time with three significant digits: ``4.10 µs``, ``12.0 ms``, ``1.50 s``."""
    if not seconds:
        return MISSING if seconds is None else "0 s"
    factor, unit = next((scale for scale in _TIMES if seconds >= scale[0] * 0.9995), _TIMES[-1])
    scaled = seconds / factor
    decimals = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{decimals}f} {unit}"


def counted(count: int, noun: str) -> str:
    """A count with its noun: ``1 GPU``, ``8 GPUs``, ``2 processes``, ``3 copies``, ``12,000 events``."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith(("py", "ry", "ty", "dy")):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'x')) else 's'}"


def times_text(count: int) -> str:
    """A number of occurrences: ``once``, ``3 times``."""
    return "once" if count == 1 else f"{count:,} times"


def signal_name(number: int) -> str:
    """The name of a signal: ``SIGKILL``; real-time signals between the first and the last one have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def clock_text(seconds: float) -> str:
    """A position on a timeline: ``02:05``, ``1:02:05``."""
    hours, rest = divmod(max(0, int(seconds)), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"


def local_time_text(seconds: float, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A Unix time in the local time zone; a dash if the calendar has no such time.

    Args:
        seconds: The Unix time.
        pattern: The format of strftime(3).
    """
    try:
        return time.strftime(pattern, time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return MISSING


def time_of_day_text(seconds: float) -> str:
    """The time of day of a Unix time in the local time zone: ``06:10:12``."""
    return local_time_text(seconds, "%H:%M:%S")


def file_stamp() -> str:
    """The time now for the name of a file: ``20260501-143000``."""
    return local_time_text(time.time(), "%Y%m%d-%H%M%S")


def value_text(value: float | None, unit: Unit) -> str:
    """A value with its unit."""
    if value is None:
        return MISSING
    if unit in _TEXTS:
        return _TEXTS[unit](value)
    if unit is Unit.PERFORMANCE_STATE:
        return f"P{value:.0f}"
    if unit is Unit.COUNT:
        return count_text(value)
    if unit is Unit.HERTZ:
        return f"{value / 1e6:.0f} MHz"
    text = f"{value:.1f}" if unit is Unit.WATTS else f"{value:g}"
    return f"{text} {unit.value}".rstrip()


@lru_cache(maxsize=_MAX_TEXTS)
def _scaled_text(value: float | None, step: int, names: tuple[str, ...]) -> str:
    if value is None:
        return MISSING
    power = 0
    scaled = float(value)
    while scaled >= 999.5 and power < len(names) - 1:
        scaled /= step
        power += 1
    decimals = 0 if power == 0 or scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{scaled:.{decimals}f} {names[power]}"


_TEXTS: Final[dict[Unit, Callable[[float | None], str]]] = {
    Unit.BYTES: bytes_text,
    Unit.BYTES_PER_SECOND: rate_text,
    Unit.JOULES: energy_text,
}
