"""What stands in for a character that an output cannot carry, such as a terminal in the C locale: ASCII of equal width.

It is an error handler of Python's codecs, so that everything that is written passes it, the screen's drawing as well,
and nothing changes where the encoding has the character.
"""

import codecs
import io
import unicodedata
from typing import Final

UNKNOWN: Final = "?"

_ERRORS: Final = "gpumon_ascii_errors"
_ASCII: Final = "gpumon_ascii"
"""ASCII under another name: click takes a stream in plain ASCII for a mistake, and writes UTF-8 to it."""

_STAND_INS: Final = {
    **dict(zip("▁▂▃▄▅▆▇█", ".-~=+*%#", strict=True)),  # heights of a history, each told from the next
    **dict.fromkeys("│┃┆▌▐▎▏▕▍▊▉▋", "|"),
    **dict.fromkeys("─━▔┄", "-"),
    **dict.fromkeys("┤├┴┬┼└┘┌┐╭╮╰╯", "+"),
    **dict(zip("▀░▒▓■□▚▞", "'.:%#o\\/", strict=True)),
    **dict(zip("▸▶◂◀←→↑↓▲▼⏎", ">><<<>^v^v<", strict=True)),
    **dict(zip("·•…–—µ✓✔✗✘", ":*~--u++xx", strict=True)),
    "°": "'",
    "\u00a0": " ",
}
_BRAILLE: Final = range(0x2800, 0x2900)
_ROWS: Final = (0x09, 0x12, 0x24, 0xC0)
"""Bits of a braille cell's rows of dots, from the top."""
_DOTS: Final = {"": " ", "0": "'", "1": "-", "2": "-", "3": ".", "01": "'", "12": "-", "23": ".", "03": ":"}
"""By the rows that have dots; more of them are an upright line, or one that climbs."""


def stand_in(character: str) -> str:
    """What is drawn instead, in as many cells."""
    if ord(character) in _BRAILLE:
        rows = "".join(str(place) for place, bits in enumerate(_ROWS) if ord(character) & bits)
        return _DOTS.get(rows, "|")
    if unicodedata.combining(character):
        return ""
    cells = 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
    return _STAND_INS.get(character, UNKNOWN * cells)


def adapt(stream: io.TextIOWrapper) -> None:
    """Lets a stream write stand-ins for what its encoding lacks."""
    is_ascii = codecs.lookup(stream.encoding).name == "ascii"
    stream.reconfigure(encoding=_ASCII if is_ascii else None, errors=_ERRORS)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(stand_in, error.object[error.start : error.end])), error.end


def _find(name: str) -> codecs.CodecInfo | None:
    if name != _ASCII:
        return None
    known = codecs.lookup("ascii")
    return codecs.CodecInfo(
        known.encode,
        known.decode,
        known.streamreader,
        known.streamwriter,
        known.incrementalencoder,
        known.incrementaldecoder,
        _ASCII,
    )


codecs.register_error(_ERRORS, _replace)
codecs.register(_find)
