"""Records of the allocator from the JSON of a probe, on its socket or in a file it has left. Nothing is trusted."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from gpumon.core.allocator import AllocatorStatistics, Block, BlockState, PoolBytes, Segment
from gpumon.core.checks import Json, as_count, as_flag, as_integer, as_list, as_object, as_text, required

_BLOCK_STATES: Final = (BlockState.ALLOCATED, BlockState.PENDING_FREE, BlockState.INACTIVE)
"""By the number that stands for each of them in a document."""


def statistics_of(raw: Json) -> AllocatorStatistics:
    """One device's statistics, of which three fields must be there.

    Raises:
        TypeError: Something is of another type, or missing.
        ValueError: A number cannot be.
    """
    told: dict[str, Any] = {name: _READERS.get(name, as_count)(raw.get(name)) for name in _NAMES}
    for name in ("ordinal", "allocated_bytes", "reserved_bytes"):
        required(told[name])
    return AllocatorStatistics(**told)


def segment_of(raw: Json) -> Segment:
    """A segment with its blocks.

    Raises:
        TypeError: Something is of another type, or missing.
        ValueError: A number cannot be, or a list has another length.
        KeyError: A field is missing.
        IndexError: There is no such state of a block.
    """
    first, second = as_list(raw["pool"])
    return Segment(
        ordinal=required(as_count(raw["ordinal"])),
        address=required(as_count(raw["address"])),
        size_bytes=required(as_count(raw["size_bytes"])),
        stream=required(as_integer(raw["stream"])),
        pool=(required(as_integer(first)), required(as_integer(second))),
        is_large=required(as_flag(raw["is_large"])),
        is_expandable=as_flag(raw.get("is_expandable")) or False,
        blocks=tuple(_block(*as_list(block)) for block in as_list(raw["blocks"])),
    )


def _block(size: object, requested: object, code: object) -> Block:
    state = _BLOCK_STATES[required(as_count(code))]
    return Block(required(as_count(size)), state, required(as_count(requested)))


def _pool(raw: object) -> PoolBytes | None:
    if raw is None:
        return None
    told = as_object(raw)
    return PoolBytes(**{each.name: required(as_count(told.get(each.name))) for each in fields(PoolBytes)})


_NAMES: Final = tuple(each.name for each in fields(AllocatorStatistics))
_READERS: Final[Mapping[str, Callable[[object], object]]] = {
    "uuid": as_text,
    "name": as_text,
    "small_pool": _pool,
    "large_pool": _pool,
}
"""What is read otherwise than as a count."""
