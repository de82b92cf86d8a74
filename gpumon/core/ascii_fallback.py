"""ASCII replacements, of equal width, for characters that the encoding of an output lacks, as in the C locale.

The replacement is an error handler of Python's codecs, so it applies to everything that is written, including the
drawing of the screen, and changes nothing where the encoding has the character.
"""

import codecs
import io
import unicodedata
from typing import Final

UNKNOWN: Final = "?"

_ERRORS: Final = "gpumon_ascii_errors"
_ASCII: Final = "gpumon_ascii"
"""ASCII under another name: click considers a plain ASCII stream misconfigured and writes UTF-8 to it."""

_REPLACEMENTS: Final = {
    **dict(zip("▁▂▃▄▅▆▇█", ".-~=+*%#", strict=True)),  # heights of a history, each distinct from the next
    **dict.fromkeys("│┃┆▌▐▎▏▕▍▊▉▋", "|"),
    **dict.fromkeys("─━▔┄┈", "-"),
    **dict.fromkeys("┤├┴┬┼└┘┌┐╭╮╰╯", "+"),
    **dict(zip("▀░▒▓■□▚▞", "'.:%#o\\/", strict=True)),
    **dict(zip("▸▶◂◀←→↑↓▲▼▾⏎", ">><<<>^v^vv<", strict=True)),
    **dict(zip("·•…–—µ✓✔✗✘×‖", ":*~--u++xxx!", strict=True)),
    **dict(zip("●○◆◇△", "*ooo^", strict=True)),
    "°": "'",
    **dict.fromkeys("━╸", "="),  # a bar, whose rest is drawn with light lines
    "\u00a0": " ",
}
_BRAILLE: Final = range(0x2800, 0x2900)
_BRAILLE_ROWS: Final = (0x09, 0x12, 0x24, 0xC0)
"""Bits of the rows of dots in a braille cell, from the top."""
_DOTS: Final = {"": " ", "0": "'", "1": "-", "2": "-", "3": ".", "01": "'", "12": "-", "23": ".", "03": ":"}
"""By the rows that contain dots; other combinations are drawn as an upright line."""


def ascii_replacement(character: str) -> str:
    """Return the ASCII text that replaces a character, as many cells wide as the character."""
    if ord(character) in _BRAILLE:
        rows = "".join(str(row) for row, bits in enumerate(_BRAILLE_ROWS) if ord(character) & bits)
        return _DOTS.get(rows, "|")
    if unicodedata.combining(character):
        return ""
    cells = 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
    return _REPLACEMENTS.get(character, UNKNOWN * cells)


def enable_ascii_fallback(stream: io.TextIOWrapper) -> None:
    """Make a stream write replacements for characters that its encoding lacks."""
    is_ascii = codecs.lookup(stream.encoding).name == "ascii"
    stream.reconfigure(encoding=_ASCII if is_ascii else None, errors=_ERRORS)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(ascii_replacement, error.object[error.start : error.end])), error.end


def _lookup(name: str) -> codecs.CodecInfo | None:
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
