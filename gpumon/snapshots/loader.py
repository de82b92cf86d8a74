"""Loads a snapshot from its pickle: events and blocks become columns and small tuples as soon as they are read.

Events are read with a regular expression, one match per event: a pickler writes a text once and refers to it
afterwards, so the bytes of two events differ only in their numbers. An event that does not match is read opcode by
opcode, which takes ten times as long.
"""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from gpumon.snapshots.pickle_reader import GUARD_BYTES, ByteSource, PickleReader, PickleValue
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


_MAX_LAYOUTS: Final = 16
_MAX_KEYS: Final = 64
_FREE_BYTES: Final = "device_free"
"""The key that an OOM event has in place of ``addr``."""

_Layout = tuple[tuple[str, ...], tuple[str, ...]]
"""The keys of an event, and those of them whose value is inline."""


class EventPlaceholder:
    """Stands for an event that was added to the columns."""


_PLACEHOLDER: Final = EventPlaceholder()


class SnapshotLoader(PickleReader):
    """Loads one file.

    ``on_chunk`` is called after each chunk with the number of bytes read so far.
    """

    def __init__(self, source: ByteSource, on_chunk: Callable[[int], None] = lambda _: None) -> None:
        super().__init__(source, on_chunk)
        self.stacks = StackTable()
        self.events: dict[int, TraceEvents] = {}
        """The events of each list, by the identity of the list; the list itself stays empty."""
        self._lists: list[PickleValue] = []
        self._patterns: list[EventPattern] = []
        self._layouts: set[_Layout] = set()

    def begin_dict(self) -> bool:
        """Read events with a pattern as long as one matches."""
        for pattern in self._patterns:
            if pattern.match(self.data, self.at):
                self._read_matching(pattern)
                return True
        return False

    def end_dict(self) -> None:
        """Convert an event or a block that was read opcode by opcode."""
        filled: dict[str, Any] = self.stack[-1]
        if "action" in filled:
            self._add_event(filled)
        elif "state" in filled and "size" in filled:
            self.stack[-1] = self._block(filled)
            filled.clear()  # the memo still refers to the dict

    def events_of(self, trace: PickleValue) -> TraceEvents | None:
        """The events of a device's trace, a list of the pickle."""
        return self.events.get(id(trace))

    def _read_matching(self, pattern: EventPattern) -> None:
        safe_end = len(self.data) if self.is_at_end else len(self.data) - GUARD_BYTES
        count, self.at = pattern.read(self.data, self.at, safe_end, self._current_events(self.stack), _PLACEHOLDER)
        self.stack += [_PLACEHOLDER] * count

    def _add_event(self, filled: dict[str, Any]) -> None:
        action = action_of(filled["action"])
        address = whole(filled.get(_FREE_BYTES, filled.get("addr")))
        size, time = whole(filled.get("size")), whole(filled.get("time_us"))
        stack = self.stacks.number(filled.get("frames"))
        self.stack.pop()
        self._current_events(self.stack).add(action, address, size, time, stack)
        self.stack.append(_PLACEHOLDER)
        self._add_pattern(filled)
        filled.clear()

    def _add_pattern(self, filled: dict[str, Any]) -> None:
        """Create a pattern for further events with the layout of this one."""
        layout = self._layout_of(filled)
        if layout is None or layout in self._layouts or len(self._layouts) >= _MAX_LAYOUTS:
            return
        self._layouts.add(layout)
        keys, inline = layout
        is_supported = set(NEEDED) <= set(keys) and not {*NEEDED, FRAMES} & set(inline) and _FREE_BYTES not in keys
        if is_supported and FRAMES not in keys[:-1]:
            indexes = {
                value: index for index, value in enumerate(self.memo) if isinstance(value, str) and value in keys
            }
            if len(indexes) == len(keys):
                self._patterns.append(EventPattern(keys, inline, indexes, self.memo, self.stacks))

    def _layout_of(self, filled: dict[str, Any]) -> _Layout | None:
        """The layout of an event. Its inline values follow the event itself in the memo."""
        begin = max(0, len(self.memo) - _MAX_KEYS)
        own_index = next((index for index in range(begin, len(self.memo)) if self.memo[index] is filled), None)
        if own_index is None:
            return None
        following = iter(self.memo[own_index + 1 :])
        expected = next(following, None)
        inline = []
        for key, value in filled.items():
            if isinstance(value, (str, tuple)) and value is expected:
                inline.append(key)
                expected = next(following, None)
        return tuple(filled), tuple(inline)

    def _current_events(self, stack: list[PickleValue]) -> TraceEvents:
        """The events of the list that the next item is appended to.

        The list is on top of the stack if the item is appended alone or is the first one above a mark; otherwise the
        list is below the mark.
        """
        target = stack[-1] if isinstance(stack[-1], list) else stack[self.marks[-1] - 1]
        events = self.events.get(id(target))
        if events is None:
            if not isinstance(target, list):
                raise TypeError(target)
            self._lists.append(target)  # keeps the list alive, so that its identity stays unique
            events = self.events[id(target)] = TraceEvents()
        return events

    def _extend(self, items: list[PickleValue]) -> None:
        super()._extend([item for item in items if item is not _PLACEHOLDER])

    def _block(self, raw: dict[str, Any]) -> tuple[int, int, int, str, int]:
        """Address, size, requested size, state and stack of a block."""
        size, state = whole(raw.get("size")), raw["state"]
        requested, frames = raw.get("requested_size"), raw.get("frames")
        history = raw.get("history")  # written by torch 2.0
        if isinstance(history, list) and history and isinstance(history[0], dict):
            frames = frames or history[0].get("frames")
            requested = history[0].get("real_size") if requested is None else requested
        return (
            whole(raw.get("address", raw.get("addr"))),
            size,
            size if requested is None else whole(requested),
            state if isinstance(state, str) else "",
            self.stacks.number(frames),
        )
