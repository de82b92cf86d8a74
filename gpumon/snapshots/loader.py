"""A snapshot from its pickle: events and blocks become columns and small tuples as soon as they are read."""

from collections.abc import Callable
from typing import Any, Final

from gpumon.snapshots.machine import GUARD_BYTES, Machine, Plain, Source
from gpumon.snapshots.shapes import FRAMES, NEEDED, Shape
from gpumon.snapshots.tables import Events, Stacks, action_of, whole

_MOST_LOOKS: Final = 16
_MOST_KEYS: Final = 64
_INSTEAD_OF_ADDRESS: Final = "device_free"
"""What an allocation that failed has."""

_Look = tuple[tuple[str, ...], tuple[str, ...]]


class Taken:
    """Stands in the place of an event that was taken into the columns."""


_TAKEN: Final = Taken()


class Loader(Machine):
    """Reads one file.

    Args:
        source: The file.
        on_chunk: Is called with the number of bytes read so far whenever more were read.
    """

    def __init__(self, source: Source, on_chunk: Callable[[int], None] = lambda _: None) -> None:
        super().__init__(source, on_chunk)
        self.stacks = Stacks()
        self.events: dict[int, Events] = {}
        """The events that belong into a list, by the list's identity; the lists themselves stay empty."""
        self._lists: list[Plain] = []
        self._shapes: list[Shape] = []
        self._looks: set[_Look] = set()

    def dict_begins(self) -> bool:
        """Takes events for as long as they look like one before."""
        for shape in self._shapes:
            if shape.match(self.data, self.at):
                self._take_alike(shape)
                return True
        return False

    def dict_ends(self) -> None:
        """Takes an event or a block that was followed instruction by instruction."""
        filled: dict[str, Any] = self.stack[-1]
        if "action" in filled:
            self._take_event(filled)
        elif "state" in filled and "size" in filled:
            self.stack[-1] = self._block(filled)
            filled.clear()  # the memo holds on to it

    def events_of(self, listed: Plain) -> Events | None:
        """The events of a device's list."""
        return self.events.get(id(listed))

    def _take_alike(self, shape: Shape) -> None:
        safe_end = len(self.data) if self.is_whole else len(self.data) - GUARD_BYTES
        count, self.at = shape.take(self.data, self.at, safe_end, self._events_here(self.stack), _TAKEN)
        self.stack += [_TAKEN] * count

    def _take_event(self, filled: dict[str, Any]) -> None:
        action = action_of(filled["action"])
        address = whole(filled.get(_INSTEAD_OF_ADDRESS, filled.get("addr")))
        size, time = whole(filled.get("size")), whole(filled.get("time_us"))
        stack = self.stacks.number(filled.get("frames"))
        self.stack.pop()
        self._events_here(self.stack).add(action, address, size, time, stack)
        self.stack.append(_TAKEN)
        self._learn(filled)
        filled.clear()

    def _learn(self, filled: dict[str, Any]) -> None:
        """Keeps in mind what an event looks like, if others may look like it."""
        look = self._look_of(filled)
        if look is None or look in self._looks or len(self._looks) >= _MOST_LOOKS:
            return
        self._looks.add(look)
        keys, own = look
        is_alike = set(NEEDED) <= set(keys) and not {*NEEDED, FRAMES} & set(own) and _INSTEAD_OF_ADDRESS not in keys
        if is_alike and FRAMES not in keys[:-1]:
            places = {each: place for place, each in enumerate(self.memo) if isinstance(each, str) and each in keys}
            if len(places) == len(keys):
                self._shapes.append(Shape(keys, own, places, self.memo, self.stacks))

    def _look_of(self, filled: dict[str, Any]) -> _Look | None:
        """The keys of an event, and those whose texts and tuples came with it: they follow the event in the memo."""
        begin = max(0, len(self.memo) - _MOST_KEYS)
        kept = next((place for place in range(begin, len(self.memo)) if self.memo[place] is filled), None)
        if kept is None:
            return None
        follows = iter(self.memo[kept + 1 :])
        expected = next(follows, None)
        own = []
        for key, value in filled.items():
            if isinstance(value, (str, tuple)) and value is expected:
                own.append(key)
                expected = next(follows, None)
        return tuple(filled), tuple(own)

    def _events_here(self, stack: list[Plain]) -> Events:
        """The events of the list that the next item goes to.

        The list is on top where the item comes alone, or is the first one above a mark; else it stands below the mark.
        """
        target = stack[-1] if isinstance(stack[-1], list) else stack[self.marks[-1] - 1]
        events = self.events.get(id(target))
        if events is None:
            if not isinstance(target, list):
                raise TypeError(target)
            self._lists.append(target)  # so that no other one takes its identity
            events = self.events[id(target)] = Events()
        return events

    def _extend(self, items: list[Plain]) -> None:
        super()._extend([item for item in items if item is not _TAKEN])

    def _block(self, told: dict[str, Any]) -> tuple[int, int, int, str, int]:
        """Address, size, size that was asked for, state and stack of a block."""
        size, state = whole(told.get("size")), told["state"]
        requested, frames = told.get("requested_size"), told.get("frames")
        history = told.get("history")  # of torch 2.0
        if isinstance(history, list) and history and isinstance(history[0], dict):
            frames = frames or history[0].get("frames")
            requested = history[0].get("real_size") if requested is None else requested
        return (
            whole(told.get("address", told.get("addr"))),
            size,
            size if requested is None else whole(requested),
            state if isinstance(state, str) else "",
            self.stacks.number(frames),
        )
