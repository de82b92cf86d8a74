"""Reads a pickle as data. What a pickle may do besides holding data, calling functions, does not exist here.

A snapshot holds dicts, lists, tuples, texts and numbers only, so this machine knows the instructions for those and
refuses every other one. It reads the file in pieces and never holds it whole; every size that the file claims is
compared with a limit before anything is made of it.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

_CHUNK_BYTES: Final = 1 << 22
GUARD_BYTES: Final = 1 << 16
"""So many bytes are at hand before each instruction, except at the end of the file."""
_MOST_TEXT_BYTES: Final = 1 << 20
_MOST_STACK: Final = 100_000
_MOST_MARKS: Final = 64
_LAST_PROTOCOL: Final = 5
_PROTO: Final = 0x80
_STOP: Final = ord(".")
_EMPTY_DICT: Final = ord("}")
_CALLING: Final = frozenset(b"cRbioPQ\x81\x82\x83\x84\x92\x93")
"""Instructions that name, build or call something of the program that reads."""
_KEYS: Final = frozenset((str, int))
"""Types of keys. A tuple of tuples of tuples as a key would be looked into more deeply than the C stack is."""

Plain = Any
"""A dict, list, tuple, text, number, truth value or None."""


class UnreadableError(Exception):
    """The file is no snapshot that can be read; says why in a clause that follows the file's name."""


class Source(Protocol):
    """A file, or one that is decompressed while it is read."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, empty at the end."""


class Machine:
    """Follows the instructions of a pickle.

    Args:
        source: The file.
        on_chunk: Is called with the number of bytes read so far whenever more were read.
    """

    def __init__(self, source: Source, on_chunk: Callable[[int], None] = lambda _: None) -> None:
        self.stack: list[Plain] = []
        self.marks: list[int] = []
        self.memo: list[Plain] = []
        self.data = b""
        self.at = 0
        self.is_whole = False
        """Whether the rest of the file is in ``data``."""
        self._source = source
        self._on_chunk = on_chunk
        self._read_bytes = 0
        self._steps = self._instructions()

    def run(self) -> Plain:
        """What the pickle holds.

        Raises:
            UnreadableError: It is no pickle, is cut off, damaged or too large in some part, or wants to call something.
        """
        try:
            return self._run()
        except (IndexError, KeyError, TypeError, struct.error):
            if self.is_whole and self.at >= len(self.data):
                raise UnreadableError(f"is cut off after {self.offset} bytes") from None
            raise UnreadableError(f"is damaged near byte {self.offset}") from None

    @property
    def offset(self) -> int:
        """Where in the file it is, in bytes after decompression."""
        return self._read_bytes - len(self.data) + min(self.at, len(self.data))

    def dict_begins(self) -> bool:
        """Whether the dict that begins here was taken in another way, and nothing is left to do for it."""
        return False

    def dict_ends(self) -> None:
        """A dict on top of the stack has been filled."""

    def refill(self) -> None:
        """Reads more."""
        more = self._source.read(_CHUNK_BYTES)
        self.is_whole = not more
        self._read_bytes += len(more)
        self.data = self.data[self.at :] + more
        self.at = 0
        self._on_chunk(self._read_bytes)

    def _run(self) -> Plain:
        self.refill()
        if not self.data:
            raise UnreadableError("is empty")
        if self.data[0] != _PROTO or self._take(2)[1] > _LAST_PROTOCOL:
            raise UnreadableError("is no memory snapshot: it does not begin as a pickle does")
        steps = self._steps
        while True:
            if not self.is_whole and self.at + GUARD_BYTES > len(self.data):
                self.refill()
                continue
            code = self.data[self.at]
            if code == _EMPTY_DICT and self.dict_begins():
                continue
            self.at += 1
            if code == _STOP:
                return self.stack.pop()
            step = steps.get(code)
            if step is None:
                raise self._refusal(code)
            step()

    def _refusal(self, code: int) -> UnreadableError:
        if code in _CALLING:
            return UnreadableError(
                "wants to call functions when it is read, which no snapshot does; nothing was called"
            )
        return UnreadableError(f"is damaged near byte {self.offset}: it has an instruction that snapshots do not have")

    def _take(self, size: int) -> bytes:
        """So many bytes."""
        while self.at + size > len(self.data) and not self.is_whole:
            self.refill()
        taken = self.data[self.at : self.at + size]
        self.at += size
        if len(taken) < size:
            raise UnreadableError(f"is cut off after {self._read_bytes} bytes")
        return taken

    def _push(self, value: Plain) -> None:
        if len(self.stack) >= _MOST_STACK:
            raise UnreadableError("is nested deeper than any snapshot")
        self.stack.append(value)

    def _push_mark(self) -> None:
        if len(self.marks) >= _MOST_MARKS:
            raise UnreadableError("is nested deeper than any snapshot")
        self.marks.append(len(self.stack))

    def _pop_items(self) -> list[Plain]:
        """What stands above the last mark."""
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def _number(self, layout: str) -> Callable[[], None]:
        size = struct.calcsize(layout)
        unpack = struct.Struct(layout).unpack
        return lambda: self._push(unpack(self._take(size))[0])

    def _size(self, layout: str) -> Callable[[], int]:
        """Reads a size that the file claims, which is compared with what texts may have."""
        size = struct.calcsize(layout)
        unpack = struct.Struct(layout).unpack

        def read() -> int:
            claimed: int = unpack(self._take(size))[0]
            if not 0 <= claimed <= _MOST_TEXT_BYTES:
                raise UnreadableError(
                    f"claims to hold a text of {claimed} bytes near byte {self.offset}, which none has"
                )
            return claimed

        return read

    def _text(self, layout: str) -> Callable[[], None]:
        size = self._size(layout)
        return lambda: self._push(self._take(size()).decode("utf-8", "replace"))

    def _raw(self, layout: str) -> Callable[[], None]:
        size = self._size(layout)
        return lambda: self._push(self._take(size()))

    def _long(self, layout: str) -> Callable[[], None]:
        size = self._size(layout)
        return lambda: self._push(int.from_bytes(self._take(size()), "little", signed=True))

    def _get(self, layout: str) -> Callable[[], None]:
        size = struct.calcsize(layout)
        unpack = struct.Struct(layout).unpack
        return lambda: self._push(self.memo[unpack(self._take(size))[0]])

    def _put(self, layout: str) -> Callable[[], None]:
        size = struct.calcsize(layout)
        unpack = struct.Struct(layout).unpack

        def put() -> None:
            place = unpack(self._take(size))[0]
            if place != len(self.memo):
                raise IndexError(place)  # they are counted without a gap, and what is kept is never another thing later
            self.memo.append(self.stack[-1])

        return put

    def _skip(self, size: int) -> Callable[[], None]:
        def skip() -> None:
            self._take(size)

        return skip

    def _drop(self) -> None:
        self.stack.pop()

    def _constant(self, value: Plain) -> Callable[[], None]:
        return lambda: self._push(value)

    def _tuple_of(self, count: int) -> Callable[[], None]:
        def make() -> None:
            if len(self.stack) < count:
                raise IndexError(count)
            items = tuple(self.stack[-count:])
            del self.stack[-count:]
            self.stack.append(items)

        return make

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def _fill(self, items: list[Plain]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2 or not _KEYS.issuperset(map(type, items[::2])):
            raise TypeError
        target.update(zip(items[::2], items[1::2], strict=True))
        self.dict_ends()

    def _extend(self, items: list[Plain]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise TypeError
        target += items

    def _instructions(self) -> dict[int, Callable[[], None]]:
        """What it can do, by the code of the instruction."""
        named: dict[bytes, Callable[[], None]] = {
            b"\x95": self._skip(8),  # a frame begins; its size is of no use
            b"(": self._push_mark,
            b"0": self._drop,
            b"N": self._constant(None),
            b"\x88": self._constant(True),
            b"\x89": self._constant(False),
            b"K": self._number("<B"),
            b"M": self._number("<H"),
            b"J": self._number("<i"),
            b"G": self._number(">d"),
            b"\x8a": self._long("<B"),
            b"\x8b": self._long("<i"),
            b"\x8c": self._text("<B"),
            b"X": self._text("<I"),
            b"\x8d": self._text("<Q"),
            b"C": self._raw("<B"),
            b"B": self._raw("<I"),
            b"\x8e": self._raw("<Q"),
            b"}": lambda: self._push({}),
            b"]": lambda: self._push([]),
            b")": self._constant(()),
            b"t": lambda: self._push(tuple(self._pop_items())),
            b"\x85": self._tuple_of(1),
            b"\x86": self._tuple_of(2),
            b"\x87": self._tuple_of(3),
            b"s": self._set_item,
            b"u": lambda: self._fill(self._pop_items()),
            b"a": lambda: self._extend([self.stack.pop()]),
            b"e": lambda: self._extend(self._pop_items()),
            b"h": self._get("<B"),
            b"j": self._get("<I"),
            b"q": self._put("<B"),
            b"r": self._put("<I"),
            b"\x94": lambda: self.memo.append(self.stack[-1]),
        }
        return {code[0]: step for code, step in named.items()}
