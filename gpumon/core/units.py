"""Values to text, in one place. Every function takes None and returns a dash for it."""

from typing import Final

from gpumon.core.metrics import Unit

MISSING: Final = "–"

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(value: float | None) -> str:
    """Binary units with three significant figures: ``1.25 GiB``, ``140 GiB``."""
    if value is None:
        return MISSING
    power = 0
    scaled = float(value)
    while scaled >= 999.5 and power < len(_BINARY) - 1:
        scaled /= 1024
        power += 1
    if power == 0:
        return f"{scaled:.0f} B"
    decimals = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{decimals}f} {_BINARY[power]}"


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
    if unit is Unit.BYTES:
        return bytes_text(value)
    if unit is Unit.PERFORMANCE_STATE:
        return f"P{value:.0f}"
    if unit is Unit.HERTZ:
        return f"{value / 1e6:.0f} MHz"
    text = f"{value:.1f}" if unit is Unit.WATTS else f"{value:g}"
    return f"{text} {unit.value}".rstrip()
