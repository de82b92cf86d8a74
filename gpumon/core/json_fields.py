"""Type checks for fields of a JSON document of unknown origin; each function raises `TypeError` for a wrong type."""

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from gpumon.core.text import safe_text

TEXT_LIMIT: Final = 512
"""Characters of a text that are kept."""
_MAX_COUNT: Final = 1 << 62
_MAX_INTEGER: Final = 1 << 64  # JSON integers are unbounded, and a larger one overflows on conversion to float

Json = dict[str, Any]
T = TypeVar("T")


def object_in(line: str | bytes) -> Json | None:
    """The object in a line of unknown origin; None if it is not JSON, or no object."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


def as_object(raw: object) -> Json:
    """Return an object; an empty one for null."""
    if raw is None:
        return {}
    if type(raw) is not dict:
        raise TypeError(f"expected an object, found {type(raw).__name__}")
    return raw


def as_tuple(raw: object, parse: Callable[[Json], T]) -> tuple[T, ...]:
    """Return a list of objects, each converted by ``parse``."""
    if raw is None:
        raise TypeError("expected a list, found null")
    return tuple(parse(as_object(item)) for item in as_list(raw))


def as_number(raw: object) -> float | None:
    """Return a finite number, or None for null."""
    if raw is None or type(raw) is int:
        return as_integer(raw)
    if type(raw) is not float or raw - raw != 0:  # NaN and infinity minus themselves are NaN
        raise TypeError(f"expected a number, found {raw!r:.40}")
    return raw


def as_integer(raw: object) -> int | None:
    """Return an integer of at most 64 bits, or None for null."""
    if raw is None or (type(raw) is int and abs(raw) <= _MAX_INTEGER):
        return raw
    raise TypeError(f"expected an integer, found {raw!r:.40}")


def as_count(raw: object) -> int | None:
    """Return a non-negative integer, or None for null.

    Raises:
        ValueError: The number is negative, or larger than any count or size.
    """
    count = as_integer(raw)
    if count is not None and not 0 <= count <= _MAX_COUNT:
        raise ValueError(f"{count} is out of range")
    return count


def as_duration(raw: object) -> float | None:
    """Return a number that is not negative, such as seconds, or None for null.

    Raises:
        ValueError: The number is negative.
    """
    number = as_number(raw)
    if number is not None and number < 0:
        raise ValueError(f"a time is {number}")
    return number


def as_flag(raw: object) -> bool | None:
    """Return true or false, or None for null."""
    if raw is None or type(raw) is bool:
        return raw
    raise TypeError(f"expected true or false, found {type(raw).__name__}")


def as_list(raw: object) -> list[Any]:
    """Return a list; an empty one for null."""
    if raw is None:
        return []
    if type(raw) is not list:
        raise TypeError(f"expected a list, found {type(raw).__name__}")
    return raw


def as_text(raw: object) -> str | None:
    """Return text made safe, or None for null."""
    if raw is None:
        return None
    if type(raw) is not str:
        raise TypeError(f"expected text, found {type(raw).__name__}")
    return safe_text(raw, TEXT_LIMIT)


def required(value: T | None) -> T:
    """Return the value, which must not be null."""
    if value is None:
        raise TypeError("a required value is null")
    return value
