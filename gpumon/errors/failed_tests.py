"""Reads failed tests as pytest shows them."""

from itertools import takewhile
from typing import Final

from gpumon.core.text import safe_text
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.raised import (
    EXCEPTION,
    LINES_ABOVE,
    MAX_MESSAGE_LINES,
    MAX_TEXT,
    MAX_TRACEBACK_LINES,
    Raised,
    TracebackFrame,
    frame_at,
)
from gpumon.errors.scan import RankLines
from gpumon.errors.signs import has_sign

_PLACE_OF_TEST: Final = lazy_pattern(r"(\S.{0,200}?\.py):(\d{1,7}): (\w+)$")
_TEST_LINE: Final = lazy_pattern(r"(?:\S.{0,60} )?E(?: |$)")
_TEST_HEADS: Final = ("=====", "_____")


def failed_test(rows: RankLines, row: int) -> Raised | None:
    """An exception as pytest shows it, or None: its lines begin with E, and its place stands below them."""
    rank = rows.of_rank(row)
    end = next((other for other in range(row, rank.stop) if not _TEST_LINE.match(rows.lines[other])), rank.stop)
    below = takewhile(
        lambda text: not text.startswith(_TEST_HEADS), rows.texts[end : min(end + LINES_ABOVE, rank.stop)]
    )
    first_row = row
    place = next(filter(None, map(_PLACE_OF_TEST.match, below)), None)
    is_own = place is not None and not has_sign("library", place[1])
    files = [] if place is None else [TracebackFrame(place[1], int(place[2]), "", "", is_own)]
    for other in range(row - 1, max(rank.start, row - MAX_TRACEBACK_LINES) - 1, -1):
        text = rows.texts[other]
        if text.startswith(_TEST_HEADS) or _TEST_LINE.match(rows.lines[other]):
            break
        first_row = other
        if text.startswith("> ") and files and not files[-1].code:
            files[-1] = files[-1]._replace(code=safe_text(text[1:].strip(), MAX_TEXT))
        frame = frame_at(text.strip(), rows, other, 0)
        files += [] if frame is None else [frame]
    shown = (line.partition("E ")[2].strip() for line in rows.lines[row : min(end, row + MAX_MESSAGE_LINES)])
    first, *more = (safe_text(line, MAX_TEXT) for line in shown)
    named = EXCEPTION.match(first)
    if named is None and not files:  # such as a row of a table
        return None
    name = named[1] if named is not None else place[3] if place is not None else "AssertionError"
    lines = (first.removeprefix(name).removeprefix(":").strip(), *(more if first.endswith(":") else ()))
    message = "\n".join(lines)[: MAX_TEXT * 8]  # what follows are mostly the values that were compared
    own = next((frame for frame in files if frame.is_own), None)
    raising = files[0] if files else None
    return Raised(safe_text(name, MAX_TEXT), message, row, first_row, end, own, raising, is_of_test=True)
