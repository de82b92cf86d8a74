"""Reads the events of a Chrome trace one by one, without ever holding more than a piece of the file."""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from json.scanner import c_make_scanner, py_make_scanner  # type: ignore[attr-defined] # the scanner of json, without its type
from typing import Any, Final, Protocol

from gpumon.core.source_file import ExpansionError, UnreadableError

_CHUNK_BYTES: Final = 1 << 22
_MAX_VALUE_CHARACTERS: Final = 1 << 25
"""A larger event or header is refused; those of Kineto have a few hundred bytes."""
_SPACE: Final = re.compile(r"\s*")
_SEPARATOR: Final = re.compile(r"[\s,]*")
_MAX_KEY: Final = 64
_NUMBER_END: Final = 64
"""A number that ends with the piece may continue in the next one."""

_make_scanner: Final = c_make_scanner or py_make_scanner


class TextSource(Protocol):
    """A file, which may be decompressed while it is read."""

    def read(self, size: int, /) -> bytes:
        """Read the next bytes; empty at the end."""


class EventStream:
    """The events of one file.

    Attributes:
        header: The other keys of the document, as far as they were read.
        damage: Why the events end early, as a clause that follows the name of the file; empty if they are complete.
    """

    def __init__(self, source: TextSource, on_chunk: Callable[[], None] = lambda: None) -> None:
        self.header: dict[str, Any] = {}
        self.damage = ""
        self._source = source
        self._on_chunk = on_chunk
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._scan: Callable[[str, int], tuple[Any, int]] = _make_scanner(json.JSONDecoder(strict=False))
        self._text = ""
        self._at = 0
        self._is_at_end = False

    def events(self) -> Iterator[Any]:
        """The values in the list of events, of whatever type they are.

        Raises:
            UnreadableError: The file is not a trace.
        """
        first = self._next(_SPACE)
        if first == "":
            raise UnreadableError("is empty")
        if first == "[":
            self._at += 1
            yield from self._list()
            return
        if first != "{":
            raise UnreadableError("is not a trace: it does not begin as JSON does")
        self._at += 1
        has_events, unsupported = False, ""
        try:
            while key := self._key():
                if key == "traceEvents" and self._next(_SPACE) == "[":
                    has_events = True
                    self._at += 1
                    yield from self._list()
                    if self.damage:
                        return
                else:
                    self._next(_SPACE)
                    self.header[key] = self._value()
        except (ValueError, StopIteration, RecursionError) as error:
            unsupported = _unsupported(error)
            self._report_damage(unsupported)
        if not has_events:
            raise UnreadableError(unsupported or "is not a trace: it has no traceEvents")

    def _list(self) -> Iterator[Any]:
        """The values up to the end of the list."""
        scan, separator = self._scan, _SEPARATOR.match
        while True:
            text, at, unsupported = self._text, self._at, ""
            try:
                while True:
                    at = separator(text, at).end()  # type: ignore[union-attr] # it matches everywhere
                    value, end = scan(text, at)
                    if end >= len(text):  # a number could continue
                        break
                    at = end
                    yield value
            except (ValueError, StopIteration, RecursionError) as error:
                unsupported = _unsupported(error)
            self._at = at
            if text[at : at + 1] == "]":
                self._at += 1
                return
            if unsupported or not self._read_more():
                self._report_damage(unsupported)
                return

    def _key(self) -> str:
        """The next key of the document, before its value; empty at the end of the document."""
        if self._next(_SEPARATOR) == "}":
            return ""
        key = str(self._value())[:_MAX_KEY]
        if self._next(_SPACE) != ":":
            raise ValueError("no colon")  # caught where the events end
        self._at += 1
        return key or " "

    def _value(self) -> Any:  # noqa: ANN401 - any JSON
        """The value at the position."""
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except (ValueError, StopIteration, RecursionError) as error:
                if _unsupported(error) or not self._read_more():
                    raise
                continue
            if end + _NUMBER_END < len(self._text) or self._is_at_end:
                self._at = end
                return value
            self._read_more()

    def _next(self, skipped: re.Pattern[str]) -> str:
        """The next character that is not skipped; empty at the end of the file."""
        while True:
            match = skipped.match(self._text, self._at)
            self._at = self._at if match is None else match.end()
            if self._at < len(self._text) or not self._read_more():
                return self._text[self._at : self._at + 1]

    def _read_more(self) -> bool:
        """Replace what was read by the next piece; whether there is more."""
        if self._is_at_end:
            return False
        rest = self._text[self._at :]
        if len(rest) > _MAX_VALUE_CHARACTERS:
            self.damage = "is damaged, or contains an event that is larger than any of a trace"
            return False
        try:
            data = self._source.read(max(_CHUNK_BYTES, len(rest)))  # doubling keeps the cost of a long value linear
        except UnreadableError as error:
            if not self._text or isinstance(error, ExpansionError):
                raise
            self.damage, data = str(error), b""
        self._is_at_end = not data
        more = self._decoder.decode(data, final=not data)
        self._text = rest + more
        self._at = 0
        self._on_chunk()
        return bool(data)

    def _report_damage(self, unsupported: str) -> None:
        if not self.damage:
            self.damage = unsupported or "is truncated or damaged: its list of events has no end"


def _unsupported(error: Exception) -> str:
    """What JSON may contain and gpumon does not read, as a clause; empty if the text is incomplete or damaged."""
    if isinstance(error, RecursionError):
        return "contains values that are nested too deeply: gpumon reads the events before them"
    if isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError):  # Python converts 4,300 digits
        return "contains a number with too many digits: gpumon reads the events before it"
    return ""
