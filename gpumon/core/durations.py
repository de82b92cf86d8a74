"""Stretches of time as people write them, and how much time is remembered."""

import re
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

from gpumon.core.text import safe_text

HISTORY_SECONDS: Final = 3600.0
"""How much is remembered if nothing else is asked for."""
LEAST_HISTORY_SECONDS: Final = 60.0
MOST_HISTORY_SECONDS: Final = 7 * 86_400.0

_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhd]?)", re.ASCII)
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Since(NamedTuple):
    """Where to begin: so long before the end, or at a Unix time; the other one is None."""

    last_seconds: float | None = None
    time_seconds: float | None = None


def duration_seconds(text: str) -> float:
    """Seconds of a duration such as ``90``, ``10m`` or ``2.5h``.

    Raises:
        ValueError: It is none.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{safe_text(text, 40)!r} is not a duration such as 90s, 10m, 2h or 1d.")
    return float(found[1]) * _SECONDS[found[2]]


def since(text: str) -> Since:
    """Where to begin, from a duration or a time in ISO 8601; without a zone it is this machine's.

    Raises:
        ValueError: It is neither.
    """
    with suppress(ValueError):
        return Since(last_seconds=duration_seconds(text))
    try:
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
        return Since(time_seconds=moment.timestamp())
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{safe_text(text, 40)!r} is neither a duration such as 10m nor a time such as 2026-05-01T14:30."
        ) from None
