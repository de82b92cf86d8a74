"""Frozen records as JSON: what a recording keeps of probes and training jobs.

A field that has its default is left out. Decoding trusts nothing: types are checked, and text is made safe.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from gpumon.core.json_fields import (
    as_count,
    as_duration,
    as_flag,
    as_integer,
    as_list,
    as_number,
    as_object,
    as_text,
    required,
)

RecordT = TypeVar("RecordT")
_SCALARS: Final[Mapping[Any, Callable[[object], Any]]] = {
    str: as_text, int: as_integer, float: as_number, bool: as_flag
}  # fmt: skip
_UNSIGNED: Final = {**_SCALARS, int: as_count, float: as_duration}


def to_json(value: object) -> Any:  # noqa: ANN401 - whatever JSON has
    """Return a record, or what its fields contain, as JSON."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    kind: Any = type(value)
    defaults = _fields(kind)
    if defaults is not None:
        items = ((name, getattr(value, name), default) for name, (_, default) in defaults.items())
        return {name: to_json(item) for name, item, default in items if item != default}
    return [to_json(item) for item in value] if isinstance(value, tuple) else value


def from_json(kind: type[RecordT], raw: object, *, is_signed: bool = True) -> RecordT:
    """Return the record of a class; fields that it does not have are ignored.

    Args:
        kind: The class.
        raw: Its document.
        is_signed: Whether numbers may be negative.

    Raises:
        TypeError: A field has the wrong type, or a required one is missing.
        ValueError: A text is no value of its enumeration, or a number is out of range.
    """
    record: RecordT = _value(kind, raw, _SCALARS if is_signed else _UNSIGNED)
    return record


def _value(hint: Any, raw: object, scalars: Mapping[Any, Callable[[object], Any]]) -> Any:  # noqa: ANN401
    arguments = get_args(hint)
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        return None if raw is None else _value(next(one for one in arguments if one is not type(None)), raw, scalars)
    if origin is tuple:
        items = as_list(raw)
        kinds = (arguments[0],) * len(items) if arguments[1:] == (...,) else arguments
        return tuple(_value(kind, item, scalars) for kind, item in zip(kinds, items, strict=True))
    if origin is not None:  # a mapping of text
        return {required(as_text(key)): _value(arguments[1], item, scalars) for key, item in as_object(raw).items()}
    if hint in scalars:
        return required(scalars[hint](raw))
    known = _fields(hint)
    if known is None:
        return hint(required(as_text(raw)))
    values = as_object(raw)
    present = {name: field_hint for name, (field_hint, _) in known.items() if name in values}
    return hint(**{name: _value(field_hint, values[name], scalars) for name, field_hint in present.items()})


@lru_cache(maxsize=64)
def _fields(kind: Any) -> dict[str, tuple[Any, Any]] | None:  # noqa: ANN401
    """The type and the default of each field of a class of records; None for any other class."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return {
            field.name: (
                hints[field.name],
                field.default if field.default_factory is MISSING else field.default_factory(),
            )
            for field in fields(kind)
        }
    if hasattr(kind, "_field_defaults"):
        return {name: (hint, kind._field_defaults.get(name, MISSING)) for name, hint in get_type_hints(kind).items()}
    return None
