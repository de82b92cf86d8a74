"""Reads a pickle as data only: the opcodes that import names, build objects or call functions are not implemented.

A snapshot holds dicts, lists, tuples, texts and numbers, so this reader implements the opcodes for those and rejects
every other one. It reads the file in chunks and never holds all of it; every size that the file declares is compared
with a limit before memory is allocated for it.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

from gpumon.core.source_file import UnreadableError

_CHUNK_BYTES: Final = 1 << 22
GUARD_BYTES: Final = 1 << 16
"""This many bytes are in memory before each opcode, except at the end of the file."""
_MAX_TEXT_BYTES: Final = 1 << 20
_MAX_STACK: Final = 100_000
_MAX_MARKS: Final = 64
_LAST_PROTOCOL: Final = 5
_PROTO: Final = 0x80
_STOP: Final = ord(".")
_EMPTY_DICT: Final = ord("}")
_CALLING: Final = frozenset(b"cRbioPQ\x81\x82\x83\x84\x92\x93")
"""Opcodes that import a name, build an object or call a function in the reading program."""
_KEYS: Final = frozenset((str, int))
"""Types of dict keys. Hashing a deeply nested tuple as a key would overflow the C stack."""

PickleValue = Any
"""A dict, list, tuple, text, number, bool or None."""


class ByteSource(Protocol):
    """A file, which may be decompressed while it is read."""

    def read(self, size: int, /) -> bytes:
        """Read the next bytes; empty at the end."""


class PickleReader:
    """Executes the opcodes of a pickle.

    ``on_chunk`` is called after each chunk with the number of bytes read so far.
    """

    def __init__(self, source: ByteSource, on_chunk: Callable[[int], None] = lambda _: None) -> None:
        self.stack: list[PickleValue] = []
        self.marks: list[int] = []
        self.memo: list[PickleValue] = []
        self.data = b""
        self.at = 0
        self.is_at_end = False
        """Whether ``data`` contains the rest of the file."""
        self._source = source
        self._on_chunk = on_chunk
        self._read_bytes = 0
        self._opcodes = self._implementations()

    def run(self) -> PickleValue:
        """Read the pickle and return its value.

        Raises:
            UnreadableError: The file is not a pickle, is truncated or damaged, exceeds a limit, or tries to call a
                function.
        """
        try:
            return self._run()
        except (IndexError, KeyError, TypeError, struct.error):
            if self.is_at_end and self.at >= len(self.data):
                raise UnreadableError(f"is truncated after {self.offset} bytes") from None
            raise UnreadableError(f"is damaged near byte {self.offset}") from None

    @property
    def offset(self) -> int:
        """The current position in the decompressed file, in bytes."""
        return self._read_bytes - len(self.data) + min(self.at, len(self.data))

    def begin_dict(self) -> bool:
        """Called at the start of a dict; return whether a subclass has consumed it in another way."""
        return False

    def end_dict(self) -> None:
        """Called when the dict on top of the stack has been filled."""

    def refill(self) -> None:
        """Read the next chunk."""
        more = self._source.read(_CHUNK_BYTES)
        self.is_at_end = not more
        self._read_bytes += len(more)
        self.data = self.data[self.at :] + more
        self.at = 0
        self._on_chunk(self._read_bytes)

    def _run(self) -> PickleValue:
        self.refill()
        if not self.data:
            raise UnreadableError("is empty")
        if self.data[0] != _PROTO or self._take(2)[1] > _LAST_PROTOCOL:
            raise UnreadableError("is not a memory snapshot: it does not start like a pickle")
        opcodes = self._opcodes
        while True:
            if not self.is_at_end and self.at + GUARD_BYTES > len(self.data):
                self.refill()
                continue
            code = self.data[self.at]
            if code == _EMPTY_DICT and self.begin_dict():
                continue
            self.at += 1
            if code == _STOP:
                return self.stack.pop()
            execute = opcodes.get(code)
            if execute is None:
                raise self._rejection(code)
            execute()

    def _rejection(self, code: int) -> UnreadableError:
        if code in _CALLING:
            return UnreadableError(
                "tries to call functions when it is read, which no snapshot does; no function was called"
            )
        return UnreadableError(f"is damaged near byte {self.offset}: it has an opcode that snapshots do not contain")

    def _take(self, size: int) -> bytes:
        """Consume a number of bytes."""
        while self.at + size > len(self.data) and not self.is_at_end:
            self.refill()
        taken = self.data[self.at : self.at + size]
        self.at += size
        if len(taken) < size:
            raise UnreadableError(f"is truncated after {self._read_bytes} bytes")
        return taken

    def _push(self, value: PickleValue) -> None:
        if len(self.stack) >= _MAX_STACK:
            raise UnreadableError("is nested more deeply than any snapshot")
        self.stack.append(value)

    def _push_mark(self) -> None:
        if len(self.marks) >= _MAX_MARKS:
            raise UnreadableError("is nested more deeply than any snapshot")
        self.marks.append(len(self.stack))

    def _pop_items(self) -> list[PickleValue]:
        """Pop the items above the last mark."""
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def _number(self, layout: str) -> Callable[[], None]:
        size = struct.calcsize(layout)
        unpack = struct.Struct(layout).unpack
        return lambda: self._push(unpack(self._take(size))[0])

    def _size(self, layout: str) -> Callable[[], int]:
        """Read the size of a text and compare it with the limit."""
        size = struct.calcsize(layout)
        unpack = struct.Struct(layout).unpack

        def read() -> int:
            declared: int = unpack(self._take(size))[0]
            if not 0 <= declared <= _MAX_TEXT_BYTES:
                raise UnreadableError(f"declares a text of {declared} bytes near byte {self.offset}, which is too long")
            return declared

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
            index = unpack(self._take(size))[0]
            if index != len(self.memo):
                raise IndexError(index)  # a pickler numbers its memo entries without gaps and never replaces one
            self.memo.append(self.stack[-1])

        return put

    def _skip(self, size: int) -> Callable[[], None]:
        def skip() -> None:
            self._take(size)

        return skip

    def _drop(self) -> None:
        self.stack.pop()

    def _constant(self, value: PickleValue) -> Callable[[], None]:
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

    def _fill(self, items: list[PickleValue]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2 or not _KEYS.issuperset(map(type, items[::2])):
            raise TypeError
        target.update(zip(items[::2], items[1::2], strict=True))
        self.end_dict()

    def _extend(self, items: list[PickleValue]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise TypeError
        target += items

    def _implementations(self) -> dict[int, Callable[[], None]]:
        """The implemented opcodes."""
        opcodes: dict[bytes, Callable[[], None]] = {
            b"\x95": self._skip(8),  # FRAME; its size is not needed
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
        return {code[0]: execute for code, execute in opcodes.items()}
