"""Pictures of the screen without glyphs that a font can lack or misplace: braille, blocks and lines become paths."""

import re
from collections.abc import Iterator
from html import unescape
from itertools import groupby
from typing import Final
from xml.sax.saxutils import escape

from rich.cells import cell_len

Rect = tuple[float, float, float, float]
"""Left, top, width and height in a cell whose sides are 1."""

_WIDTH: Final = 12.2
_HEIGHT: Final = 24.4
_ASCENT: Final = 18.5
"""Sizes of Rich's pictures: a cell, and the part of it above the baseline."""
_TEXT: Final = re.compile(r'<text ([^>]*?)x="([\d.]+)" y="([\d.]+)" textLength="[\d.]+"([^>]*)>([^<]+)</text>')
_BRAILLE_COLUMNS: Final = ((0, (0x01, 0x02, 0x04, 0x40)), (0.5, (0x08, 0x10, 0x20, 0x80)))
_ARMS: Final = {"left": (0, 0.47, 0.53, 0.06), "right": (0.47, 0.47, 0.53, 0.06), "up": (0.45, 0, 0.1, 0.53)}
_DOWN: Final = (0.45, 0.47, 0.1, 0.53)
_LINES: Final = dict(zip("┤├┴┬┼└┘┌┐", ("lud", "rud", "lru", "lrd", "lrud", "ru", "lu", "rd", "ld"), strict=True))
_RECTS: Final[dict[str, tuple[Rect, ...]]] = {
    **{glyph: ((0, 1 - size / 8, 1, size / 8),) for size, glyph in enumerate("▁▂▃▄▅▆▇█", 1)},
    **{glyph: ((0, 0, size / 8, 1),) for size, glyph in enumerate("▏▎▍▌▋▊▉", 1)},
    **dict.fromkeys("░▒▓", ((0, 0, 1, 1),)),
    "▀": ((0, 0, 1, 0.5),),
    "▐": ((0.5, 0, 0.5, 1),),
    "▚": ((0, 0, 0.5, 0.5), (0.5, 0.5, 0.5, 0.5)),
    "▞": ((0.5, 0, 0.5, 0.5), (0, 0.5, 0.5, 0.5)),
    "■": ((0.1, 0.3, 0.8, 0.4),),
    "─": ((0, 0.47, 1, 0.06),),
    "━": ((0, 0.43, 1, 0.14),),
    "╸": ((0, 0.43, 0.5, 0.14),),
    "┈": tuple((part / 4 + 0.05, 0.47, 0.15, 0.06) for part in range(4)),
    "│": ((0.45, 0, 0.1, 1),),
    **{
        glyph: tuple(_DOWN if arm == "d" else next(_ARMS[name] for name in _ARMS if name[0] == arm) for arm in arms)
        for glyph, arms in _LINES.items()
    },
}
_SHADES: Final = {"░": 0.25, "▒": 0.5, "▓": 0.75}


def with_drawn_glyphs(svg: str) -> str:
    """A picture of Rich in which no text but words and signs remains, each placed at its own cell."""
    return _TEXT.sub(lambda match: "".join(_parts(match)), svg)


def _parts(match: re.Match[str]) -> Iterator[str]:
    """The paths and the texts of a span."""
    before, after, left, baseline = match[1], match[4], float(match[2]), float(match[3])
    text = unescape(match[5])
    for glyph, run in groupby(re.findall(r"[^\u2500-\u25a0\u2800-\u28ff]+|.", text), key=lambda part: part):
        count = len(list(run))
        rects = _rects(glyph)
        if rects:
            path = "".join(
                _rectangle(rect, left + index * _WIDTH, baseline - _ASCENT, count if _spans(rect) else 1)
                for rect in rects
                for index in range(1 if _spans(rect) else count)
            )
            shade = f' fill-opacity="{_SHADES[glyph]}"' if glyph in _SHADES else ""
            yield f'<path shape-rendering="crispEdges" {before}d="{path}"{shade}/>'
        else:
            start = left
            for words in re.findall(r"\s{2,}|(?:\S|\s(?!\s))+", glyph * count):
                if words.strip():
                    content = escape(words).replace("\xa0", "&#160;")
                    yield f'<text {before}x="{start:g}" y="{baseline:g}"{after}>{content}</text>'
                start = round(start + cell_len(words) * _WIDTH, 1)
        left = round(left + cell_len(glyph) * count * _WIDTH, 1)


def _spans(rect: Rect) -> bool:
    """Whether a rectangle is as wide as its cell, so that those of neighboring cells are one."""
    return rect[0] == 0 and rect[2] == 1


def _rects(glyph: str) -> tuple[Rect, ...]:
    if glyph == "\u28ff":
        return _RECTS["█"]
    if "\u2800" <= glyph < "\u28ff" and len(glyph) == 1:
        dots = ord(glyph) - 0x2800
        return tuple(
            (x, rows[0] / 4, 0.5, len(rows) / 4)
            for x, bits in _BRAILLE_COLUMNS
            for is_set, group in groupby(range(4), key=lambda row, bits=bits: bool(dots & bits[row]))  # type: ignore[misc]
            if is_set and (rows := list(group))
        )
    return _RECTS.get(glyph, ())


def _rectangle(rect: Rect, left: float, top: float, cells: int) -> str:
    x, y, width, height = rect
    wide = f"{round(width * cells * _WIDTH, 1):g}"
    start = f"M{round(left + x * _WIDTH, 1):g} {round(top + y * _HEIGHT, 1):g}"
    return f"{start}h{wide}v{round(height * _HEIGHT, 1):g}h-{wide}z"
