"""Values to text, in one place. Every function takes None and returns a dash for it."""

from collections.abc import Callable
from typing import Final

from gpumon.core.metrics import Unit

MISSING: Final = "–"
UNTRUE: Final = "?"
"""In place of an answer of the driver that cannot be true."""

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_RATES: Final = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s")
_JOULES: Final = ("J", "kJ", "MJ", "GJ", "TJ", "PJ")


def bytes_text(value: float | None) -> str:
    """Binary units with three significant figures: ``1.25 GiB``, ``140 GiB``."""
    return _scaled_text(value, 1024, _BINARY)


def rate_text(value: float | None) -> str:
    """Decimal units a second with three significant figures, as links are rated: ``55.4 GB/s``."""
    return _scaled_text(value, 1000, _RATES)


def energy_text(value: float | None) -> str:
    """Joules with three significant figures: ``870 J``, ``1.25 MJ``."""
    return _scaled_text(value, 1000, _JOULES)


def gibibytes_text(value: float | None, decimals: int = 1) -> str:
    """GiB without the unit, for columns whose heading names it."""
    return MISSING if value is None else f"{value / (1 << 30):.{decimals}f}"


def number_text(value: float | None, decimals: int = 0) -> str:
    """A plain number."""
    return MISSING if value is None else f"{value:.{decimals}f}"


def megahertz_text(value: float | None) -> str:
    """MHz without the unit."""
    return MISSING if value is None else f"{value / 1e6:.0f}"


def duration_text(seconds: float | None) -> str:
    """Coarse, so that a screen at rest does not change: ``10s`` in steps of ten, ``12m``, ``3h05``, ``2d04h``."""
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
    """Whole seconds up to two minutes, then as `duration_text`: ``7s``, ``95s``, ``3m``."""
    if seconds is None:
        return MISSING
    return f"{seconds:.0f}s" if seconds < 120 else duration_text(seconds)


def clock_text(seconds: float) -> str:
    """A position on a time line: ``02:05``, ``1:02:05``."""
    hours, rest = divmod(max(0, int(seconds)), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"


def value_text(value: float | None, unit: Unit) -> str:
    """A value with its unit, for lists where no heading names it."""
    if value is None:
        return MISSING
    if unit in _TEXTS:
        return _TEXTS[unit](value)
    if unit is Unit.PERFORMANCE_STATE:
        return f"P{value:.0f}"
    if unit is Unit.COUNT:
        return f"{value:.0f}"
    if unit is Unit.HERTZ:
        return f"{value / 1e6:.0f} MHz"
    text = f"{value:.1f}" if unit is Unit.WATTS else f"{value:g}"
    return f"{text} {unit.value}".rstrip()


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
