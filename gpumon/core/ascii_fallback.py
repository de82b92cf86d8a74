"""Replacements, of equal width, for characters that an output cannot show: ASCII, or the blocks of a Linux console.

ASCII is an error handler of Python's codecs, so it applies to everything that is written, including the drawing of the
screen, and changes nothing where the encoding has the character. The console of Linux takes UTF-8, but its fonts have
neither braille nor eighths of blocks.
"""

import codecs
import io
import unicodedata
from collections.abc import Mapping
from enum import Enum
from typing import Final

UNKNOWN: Final = "?"

_ERRORS: Final = "gpumon_ascii_errors"
_ASCII: Final = "gpumon_ascii"
"""ASCII under another name: click considers a plain ASCII stream misconfigured and writes UTF-8 to it."""

_CONSOLE: Final = "gpumon_console"

_REPLACEMENTS: Final = {
    **dict(zip("▁▂▃▄▅▆▇█", ".-~=+*%#", strict=True)),  # heights of a history, each distinct from the next
    **dict.fromkeys("│┃┆▌▐▎▏▕▍▊▉▋", "|"),
    **dict.fromkeys("─▔┄┈╺", "-"),
    **dict.fromkeys("┤├┴┬┼└┘┌┐╭╮╰╯", "+"),
    **dict(zip("▀░▒▓■□▚▞", "'.:%#o\\/", strict=True)),
    **dict(zip("▸▶◂◀←→↑↓▲▼▾⏎", ">><<<>^v^vv<", strict=True)),
    **dict(zip("·•…–—µ✓✔✗✘×‖", ":*~--u++xxx!", strict=True)),
    **dict(zip("●○◆◇△±", "*ooo^~", strict=True)),
    "°": "'",
    **dict.fromkeys("━╸", "="),  # a bar, whose rest is drawn with light lines
    "\u00a0": " ",
}
_BRAILLE: Final = range(0x2800, 0x2900)
_BRAILLE_ROWS: Final = (0x09, 0x12, 0x24, 0xC0)
"""Bits of the rows of dots in a braille cell, from the top."""
_DOTS: Final = {"": " ", "0": "'", "1": "-", "2": "-", "3": ".", "01": "'", "12": "-", "23": ".", "03": ":"}
"""By the rows that contain dots; other combinations are drawn as an upright line."""


_BLOCKS: Final = {
    **dict(zip("▁▂▃▅▆▇", "▄▄▄███", strict=True)),
    **dict.fromkeys("▏▎▍", "▌"),
    **dict.fromkeys("▊▉▋", "█"),
    **dict(zip("▚▞", "▒▒", strict=True)),
    **dict(zip("━▔╸╺┄┈┆┃", "=─=─··││", strict=True)),  # the rest of a bar is drawn with light lines
    **dict(zip("▸▶◂◀⏎✓✔✗✘‖╭╮╰╯", ">><<<++xx║┌┐└┘", strict=True)),
}
"""What the fonts of consoles lack, and what stands for it there."""


class Symbols(Enum):
    """The characters that an output can show."""

    UNICODE = "unicode"
    BLOCKS = "blocks"
    ASCII = "ascii"


def symbols_for(environment: Mapping[str, str]) -> Symbols:
    """What a terminal shows, by its name and the locale: a locale that is not UTF-8 shows ASCII."""
    locale = next(filter(None, map(environment.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    if locale not in {"", "C", "POSIX"} and "utf" not in locale.lower():  # Python itself treats C as UTF-8
        return Symbols.ASCII
    return Symbols.BLOCKS if environment.get("TERM") == "linux" else Symbols.UNICODE


def block_replacement(character: str) -> str:
    """Return what a console draws in place of a character: of braille, the halves of a block that have dots."""
    if ord(character) not in _BRAILLE:
        return _BLOCKS.get(character, character)
    dots = ord(character) - _BRAILLE.start
    halves = bool(dots & (_BRAILLE_ROWS[0] | _BRAILLE_ROWS[1])), bool(dots & (_BRAILLE_ROWS[2] | _BRAILLE_ROWS[3]))
    return {(True, True): "█", (True, False): "▀", (False, True): "▄"}.get(halves, " ")


def ascii_replacement(character: str) -> str:
    """Return the ASCII text that replaces a character, as many cells wide as the character."""
    if ord(character) in _BRAILLE:
        rows = "".join(str(row) for row, bits in enumerate(_BRAILLE_ROWS) if ord(character) & bits)
        return _DOTS.get(rows, "|")
    if unicodedata.combining(character):
        return ""
    cells = 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
    return _REPLACEMENTS.get(character, UNKNOWN * cells)


def enable_ascii_fallback(stream: io.TextIOWrapper, symbols: Symbols = Symbols.UNICODE) -> None:
    """Make a stream write replacements for characters that its encoding, or its terminal, lacks."""
    if symbols is Symbols.BLOCKS:
        stream.reconfigure(encoding=_CONSOLE)
        return
    is_ascii = symbols is Symbols.ASCII or codecs.lookup(stream.encoding).name == "ascii"
    stream.reconfigure(encoding=_ASCII if is_ascii else None, errors=_ERRORS)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(ascii_replacement, error.object[error.start : error.end])), error.end


class _ConsoleEncoder(codecs.IncrementalEncoder):
    """UTF-8 without the characters that fonts of consoles lack."""

    def encode(self, input: str, final: bool = False) -> bytes:  # noqa: A002, ARG002 - the name of the base class
        """The bytes of a text."""
        return "".join(map(block_replacement, input)).encode("utf-8", "replace")


def _lookup(name: str) -> codecs.CodecInfo | None:
    if name == _CONSOLE:
        utf8 = codecs.lookup("utf-8")
        return codecs.CodecInfo(
            utf8.encode,
            utf8.decode,
            utf8.streamreader,
            utf8.streamwriter,
            _ConsoleEncoder,
            utf8.incrementaldecoder,
            name,
        )
    if name != _ASCII:
        return None
    ascii_codec = codecs.lookup("ascii")
    return codecs.CodecInfo(
        ascii_codec.encode,
        ascii_codec.decode,
        ascii_codec.streamreader,
        ascii_codec.streamwriter,
        ascii_codec.incrementalencoder,
        ascii_codec.incrementaldecoder,
        _ASCII,
    )


codecs.register_error(_ERRORS, _replace)
codecs.register(_lookup)
