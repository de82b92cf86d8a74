"""Loads a snapshot from its pickle: events and blocks become columns and small tuples as soon as they are read."""

from collections.abc import Callable
from typing import Any, Final

from gpumon.snapshots.event_pattern import FRAMES, NEEDED, EventPattern
from gpumon.snapshots.pickle_reader import GUARD_BYTES, ByteSource, PickleReader, PickleValue
from gpumon.snapshots.trace_table import StackTable, TraceEvents, action_of, whole

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
