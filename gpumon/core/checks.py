"""Types of what comes out of a JSON document of unknown origin; each function raises `TypeError` for a wrong one."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from gpumon.core.text import safe_text

TEXT_LIMIT: Final = 512
_LARGEST_COUNT: Final = 1 << 62
_LARGEST_INTEGER: Final = 1 << 64  # JSON has no limit, and a longer one overflows where it meets a float

Json = dict[str, Any]
T = TypeVar("T")


def as_object(raw: object) -> Json:
    """An object; an empty one for null."""
    if raw is None:
        return {}
    if type(raw) is not dict:
        raise TypeError(f"expected an object, found {type(raw).__name__}")
    return raw


def as_tuple(raw: object, item: Callable[[Json], T]) -> tuple[T, ...]:
    """A list of objects, each made into something by ``item``."""
    if raw is None:
        raise TypeError("expected a list, found null")
    return tuple(item(as_object(each)) for each in as_list(raw))


def as_number(raw: object) -> float | None:
    """A finite number, or None for null."""
    if raw is None or type(raw) is int:
        return as_integer(raw)
    if type(raw) is not float or raw - raw != 0:  # NaN and infinity are not equal to themselves after a subtraction
        raise TypeError(f"expected a number, found {raw!r:.40}")
    return raw


def as_integer(raw: object) -> int | None:
    """A whole number of 64 bits, or None for null."""
    if raw is None or (type(raw) is int and abs(raw) <= _LARGEST_INTEGER):
        return raw
    raise TypeError(f"expected a whole number, found {raw!r:.40}")


def as_count(raw: object) -> int | None:
    """A whole number that is not negative, or None for null.

    Raises:
        ValueError: It is negative, or larger than any count or size.
    """
    found = as_integer(raw)
    if found is not None and not 0 <= found <= _LARGEST_COUNT:
        raise ValueError(f"{found} cannot be")
    return found


def as_flag(raw: object) -> bool | None:
    """True or false, or None for null."""
    if raw is None or type(raw) is bool:
        return raw
    raise TypeError(f"expected true or false, found {type(raw).__name__}")


def as_list(raw: object) -> list[Any]:
    """A list; an empty one for null."""
    if raw is None:
        return []
    if type(raw) is not list:
        raise TypeError(f"expected a list, found {type(raw).__name__}")
    return raw


def as_text(raw: object) -> str | None:
    """Text made safe, or None for null."""
    if raw is None:
        return None
    if type(raw) is not str:
        raise TypeError(f"expected text, found {type(raw).__name__}")
    return safe_text(raw, TEXT_LIMIT)


def required(value: T | None) -> T:
    """The value, which must not be null."""
    if value is None:
        raise TypeError("a required value is null")
    return value
