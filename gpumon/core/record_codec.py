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
    hint: Any = kind
    record: RecordT = _reader(hint, is_signed)(raw)
    return record


@lru_cache(maxsize=256)
def _reader(hint: Any, is_signed: bool) -> Callable[[object], Any]:  # noqa: ANN401
    """What reads the values of a type, made once: a recording has hundreds of thousands of values."""
    arguments, origin = get_args(hint), get_origin(hint)
    if origin in {Union, types.UnionType}:
        read = _reader(next(one for one in arguments if one is not type(None)), is_signed)
        return lambda raw: None if raw is None else read(raw)
    if origin is tuple and arguments[1:] == (...,):
        read = _reader(arguments[0], is_signed)
        return lambda raw: tuple([read(item) for item in as_list(raw)])
    if origin is tuple:
        reads = [_reader(one, is_signed) for one in arguments]
        return lambda raw: tuple([read(item) for read, item in zip(reads, as_list(raw), strict=True)])
    if origin is not None:  # a mapping of text
        read = _reader(arguments[1], is_signed)
        return lambda raw: {required(as_text(key)): read(item) for key, item in as_object(raw).items()}
    scalars = _SCALARS if is_signed else _UNSIGNED
    if hint in scalars:
        read = scalars[hint]
        return lambda raw: required(read(raw))
    known = _fields(hint)
    return (lambda raw: hint(required(as_text(raw)))) if known is None else _record_reader(hint, known, is_signed)


def _record_reader(kind: Any, known: Mapping[str, tuple[Any, Any]], is_signed: bool) -> Callable[[object], Any]:  # noqa: ANN401
    reads = {name: _reader(hint, is_signed) for name, (hint, _) in known.items()}

    def read(raw: object) -> Any:  # noqa: ANN401
        values = as_object(raw)
        return kind(**{name: read(values[name]) for name, read in reads.items() if name in values})

    return read


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
