"""Events by the million: each looks like the one before, so that one pattern takes it whole.

A pickler writes a text once and refers to it afterwards, so the bytes of an event are those of the event before except
for its numbers. What does not fit is followed instruction by instruction, which takes ten times as long.
"""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from gpumon.snapshots.machine import Plain
from gpumon.snapshots.tables import NO_STACK, Events, StackRef, Stacks, action_of, whole

NEEDED: Final = ("action", "addr", "size", "time_us")
FRAMES: Final = "frames"
"""The last key of an event; one that was recorded without a stack has it not."""
_MOST_CACHED: Final = 1 << 18
_BEGIN: Final = rb"\}\x94\("
_REFERENCE: Final = rb"h.|j.{4}"
_NUMBER: Final = rb"(?:\x8a(?:\x06.{6}|\x07.{7}|\x05.{5}|\x08.{8})|J.{4}|M..|K.)"
_TEXT: Final = rb"\x8c(?:\x00|" + b"|".join(b"%b.{%d}" % (re.escape(bytes((n,))), n) for n in range(1, 33)) + rb")\x94"
_PAIR: Final = b"(?:%b){2}\x86\x94" % _NUMBER
_OWN: Final = b"(?:%b|%b)" % (_TEXT, _PAIR)
_TEXT_CODE: Final = 0x8C
_LIST: Final = rb"\]\x94(?:\((?:h.|j.{4})+e|h.a|j.{4}a)?"
_EMPTY_LIST: Final = ord("]")
_REFERENCES: Final = re.compile(_REFERENCE, re.DOTALL)
_NUMBERS: Final = re.compile(_NUMBER, re.DOTALL)

CachedT = TypeVar("CachedT")


def pattern(keys: Sequence[str], places: Mapping[str, int], own: Container[str]) -> "re.Pattern[bytes]":
    """What an event with these keys looks like; in groups by themselves are what is needed, and values of its own.

    Args:
        keys: Its keys, in their order.
        places: Where in the memo each of them is.
        own: The keys whose value is a text or a pair of numbers of the event's own.
    """
    kinds = {
        **dict.fromkeys(keys, b"(?:%b|%b|[N\x88\x89])" % (_REFERENCE, _NUMBER)),
        **{key: b"(%b)" % _OWN for key in keys if key in own},
        **dict.fromkeys(("addr", "size", "time_us"), b"(%b)" % _NUMBER),
        "action": b"(%b)" % _REFERENCE,
        FRAMES: b"(%b|%b)" % (_REFERENCE, _LIST),
    }
    parts = [_BEGIN]
    for key in keys:
        place = places[key]
        reference = b"h%c" % place if place < 256 else b"j" + place.to_bytes(4, "little")
        parts += [re.escape(reference), kinds[key]]
    return re.compile(b"".join((*parts, b"()" if FRAMES not in keys else b"", b"u")), re.DOTALL)


class Cache(dict[bytes, CachedT]):
    """What instructions mean: addresses, sizes, stacks and texts come again and again.

    Args:
        meaning: Finds what is not known yet.
    """

    def __init__(self, meaning: Callable[[bytes], CachedT]) -> None:
        super().__init__()
        self._meaning = meaning

    def __missing__(self, raw: bytes) -> CachedT:
        if len(self) >= _MOST_CACHED:
            self.clear()
        found = self[raw] = self._meaning(raw)
        return found


class Shape:
    """One kind of event: takes all that look like it.

    Args:
        keys: The keys of an event, in their order; all of `NEEDED` are among them, `FRAMES` is the last one or missing.
        own: Those of them whose value is a text or a pair of numbers of the event's own.
        places: Where in the memo each key is.
        memo: The machine's memo.
        stacks: Where its stacks belong.
    """

    def __init__(
        self,
        keys: Sequence[str],
        own: Sequence[str],
        places: Mapping[str, int],
        memo: list[Plain],
        stacks: Stacks,
    ) -> None:
        captured = [*(key for key in keys if key in NEEDED or key in own), FRAMES]
        self.match: Callable[[bytes, int], re.Match[bytes] | None] = pattern(keys, places, own).match
        self._groups = tuple(1 + captured.index(key) for key in (*NEEDED, FRAMES, *own))
        self._memo = memo
        self._stacks = stacks
        self._actions = Cache(lambda raw: action_of(memo[_place(raw)]))
        self._numbers = Cache(lambda raw: whole(number(raw)))
        self._lists = Cache(self._list)
        self._own = Cache(_own_value)

    def take(self, data: bytes, at: int, safe_end: int, events: Events, in_memo: Plain) -> tuple[int, int]:
        """Takes the events that follow each other; returns how many, and where the last one ends.

        Args:
            data: A piece of the file.
            at: Where in it the first event begins.
            safe_end: An event that begins before is in the piece as a whole.
            events: Where they belong.
            in_memo: What is kept of each in the memo.
        """
        rows = []
        match, groups = self.match, self._groups
        found = match(data, at)
        while found is not None:
            rows.append(found.group(*groups))
            at = found.end()
            found = match(data, at) if at < safe_end else None
        actions, addresses, sizes, times, frames, *own = zip(*rows, strict=True)
        numbers = self._numbers.__getitem__
        events.actions.extend(map(self._actions.__getitem__, actions))
        events.addresses.extend(map(numbers, addresses))
        events.sizes.extend(map(numbers, sizes))
        events.times.extend([whole(number(raw)) for raw in times])
        events.stacks.extend(self._remembered(frames, own, in_memo))
        return len(rows), at

    def _remembered(self, frames: Sequence[bytes], own: Sequence[Sequence[bytes]], in_memo: Plain) -> Iterator[int]:
        """The stacks of events; puts into the memo, event by event, what a later one may refer to."""
        memo, known = self._memo, self._stacks.number
        for place, raw in enumerate(frames):
            memo.append(in_memo)
            for each in own:
                memo.append(self._own[each[place]])
            if not raw:
                yield NO_STACK
            elif raw[0] == _EMPTY_LIST:  # a list of its own; equal lists have equal bytes
                ref = self._lists[raw]
                memo.append(ref)
                yield ref.number
            else:
                yield known(memo[_place(raw)])

    def _list(self, raw: bytes) -> StackRef:
        """The stack that a list is."""
        listed = [self._memo[_place(each)] for each in _REFERENCES.findall(raw[2:-1])]
        return self._stacks.refs[self._stacks.number(listed)]


def number(raw: bytes) -> int:
    """What an instruction for a number holds."""
    begin = 2 if raw[0] == 0x8A else 1
    return int.from_bytes(raw[begin:], "little", signed=raw[0] not in b"KM")


def _own_value(raw: bytes) -> Plain:
    """A text or a pair of numbers."""
    if raw[0] == _TEXT_CODE:
        return raw[2:-1].decode("utf-8", "replace")
    return tuple(map(number, _NUMBERS.findall(raw[:-2])))


def _place(raw: bytes) -> int:
    return int.from_bytes(raw[1:], "little")
