"""Reads pickled trace events with a regular expression, one match per event.

A pickler writes a text once and refers to it afterwards, so the bytes of two events differ only in their numbers. An
event that does not match is read opcode by opcode, which takes ten times as long.
"""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from gpumon.snapshots.pickle_reader import PickleValue
from gpumon.snapshots.trace_table import NO_STACK, StackRef, StackTable, TraceEvents, action_of, whole

NEEDED: Final = ("action", "addr", "size", "time_us")
FRAMES: Final = "frames"
"""The last key of an event; missing in an event that was recorded without a stack."""
_MAX_CACHED: Final = 1 << 18
_BEGIN: Final = rb"\}\x94\("
_REFERENCE: Final = rb"h.|j.{4}"
_NUMBER: Final = rb"(?:\x8a(?:\x06.{6}|\x07.{7}|\x05.{5}|\x08.{8})|J.{4}|M..|K.)"
_TEXT: Final = rb"\x8c(?:\x00|" + b"|".join(b"%b.{%d}" % (re.escape(bytes((n,))), n) for n in range(1, 33)) + rb")\x94"
_PAIR: Final = b"(?:%b){2}\x86\x94" % _NUMBER
_INLINE: Final = b"(?:%b|%b)" % (_TEXT, _PAIR)
_TEXT_CODE: Final = 0x8C
_LIST: Final = rb"\]\x94(?:\((?:h.|j.{4})+e|h.a|j.{4}a)?"
_EMPTY_LIST: Final = ord("]")
_REFERENCES: Final = re.compile(_REFERENCE, re.DOTALL)
_NUMBERS: Final = re.compile(_NUMBER, re.DOTALL)

CachedT = TypeVar("CachedT")


def pattern(keys: Sequence[str], memo_indexes: Mapping[str, int], inline: Container[str]) -> "re.Pattern[bytes]":
    """The pattern of an event, with a group for each needed field and each inline value.

    The value of an inline key, a text or a pair of numbers, is written in the event and not a reference.
    """
    kinds = {
        **dict.fromkeys(keys, b"(?:%b|%b|[N\x88\x89])" % (_REFERENCE, _NUMBER)),
        **{key: b"(%b)" % _INLINE for key in keys if key in inline},
        **dict.fromkeys(("addr", "size", "time_us"), b"(%b)" % _NUMBER),
        "action": b"(%b)" % _REFERENCE,
        FRAMES: b"(%b|%b)" % (_REFERENCE, _LIST),
    }
    parts = [_BEGIN]
    for key in keys:
        index = memo_indexes[key]
        reference = b"h%c" % index if index < 256 else b"j" + index.to_bytes(4, "little")
        parts += [re.escape(reference), kinds[key]]
    return re.compile(b"".join((*parts, b"()" if FRAMES not in keys else b"", b"u")), re.DOTALL)


class Cache(dict[bytes, CachedT]):
    """Decoded values by their bytes: addresses, sizes, stacks and texts repeat."""

    def __init__(self, decode: Callable[[bytes], CachedT]) -> None:
        super().__init__()
        self._decode = decode

    def __missing__(self, raw: bytes) -> CachedT:
        if len(self) >= _MAX_CACHED:
            self.clear()
        value = self[raw] = self._decode(raw)
        return value


class EventPattern:
    """Reads all consecutive events that have the same keys.

    Args:
        keys: The keys of an event, in their order, with all of `NEEDED`; `FRAMES` is the last one or missing.
        inline: The keys whose value, a text or a pair of numbers, is written in the event and not a reference.
        memo_indexes: The index of each key in the memo.
        memo: The memo of the pickle reader.
        stacks: The table that receives the stacks.
    """

    def __init__(
        self,
        keys: Sequence[str],
        inline: Sequence[str],
        memo_indexes: Mapping[str, int],
        memo: list[PickleValue],
        stacks: StackTable,
    ) -> None:
        captured = [*(key for key in keys if key in NEEDED or key in inline), FRAMES]
        self.match: Callable[[bytes, int], re.Match[bytes] | None] = pattern(keys, memo_indexes, inline).match
        self._groups = tuple(1 + captured.index(key) for key in (*NEEDED, FRAMES, *inline))
        self._memo = memo
        self._stacks = stacks
        self._actions = Cache(lambda raw: action_of(memo[_memo_index(raw)]))
        self._numbers = Cache(lambda raw: whole(number(raw)))
        self._lists = Cache(self._list)
        self._inline = Cache(_inline_value)

    def read(
        self, data: bytes, at: int, safe_end: int, events: TraceEvents, placeholder: PickleValue
    ) -> tuple[int, int]:
        """Read consecutive events.

        An event that starts before ``safe_end`` is completely in the chunk; ``placeholder`` stands for each in the
        memo.

        Returns:
            How many events were read, and where the last one ends.
        """
        rows = []
        match, groups = self.match, self._groups
        event = match(data, at)
        while event is not None:
            rows.append(event.group(*groups))
            at = event.end()
            event = match(data, at) if at < safe_end else None
        actions, addresses, sizes, times, frames, *inline = zip(*rows, strict=True)
        numbers = self._numbers.__getitem__
        events.actions.extend(map(self._actions.__getitem__, actions))
        events.addresses.extend(map(numbers, addresses))
        events.sizes.extend(map(numbers, sizes))
        events.times.extend([whole(number(raw)) for raw in times])
        events.stacks.extend(self._stack_numbers(frames, inline, placeholder))
        return len(rows), at

    def _stack_numbers(
        self, frames: Sequence[bytes], inline: Sequence[Sequence[bytes]], placeholder: PickleValue
    ) -> Iterator[int]:
        """The stack of each event; also appends to the memo what later events may refer to."""
        memo, number_of = self._memo, self._stacks.number
        for index, raw in enumerate(frames):
            memo.append(placeholder)
            for column in inline:
                memo.append(self._inline[column[index]])
            if not raw:
                yield NO_STACK
            elif raw[0] == _EMPTY_LIST:  # an inline list; equal lists have equal bytes
                ref = self._lists[raw]
                memo.append(ref)
                yield ref.number
            else:
                yield number_of(memo[_memo_index(raw)])

    def _list(self, raw: bytes) -> StackRef:
        """The stack of an inline list of frames."""
        frames = [self._memo[_memo_index(reference)] for reference in _REFERENCES.findall(raw[2:-1])]
        return self._stacks.refs[self._stacks.number(frames)]


def number(raw: bytes) -> int:
    """The value of an opcode for a number."""
    begin = 2 if raw[0] == 0x8A else 1
    return int.from_bytes(raw[begin:], "little", signed=raw[0] not in b"KM")


def _inline_value(raw: bytes) -> PickleValue:
    """A text or a pair of numbers."""
    if raw[0] == _TEXT_CODE:
        return raw[2:-1].decode("utf-8", "replace")
    return tuple(map(number, _NUMBERS.findall(raw[:-2])))


def _memo_index(raw: bytes) -> int:
    return int.from_bytes(raw[1:], "little")
