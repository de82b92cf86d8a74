"""What each driver call costs, as a table: the calls that take most of the time come first."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpumon.core.model import CallCost
from gpumon.core.units import MISSING
from gpumon.ui.costs import CallsAt
from gpumon.ui.paint.line import Line, Role, Span, clipped, line

_COLUMNS: Final = (("a second", 9), ("mean", 9), ("longest", 9), ("of the time", 12))
_FIGURES_WIDTH: Final = sum(width for _, width in _COLUMNS)
_LEAST_SHARE: Final = 0.00001
_LONGEST_NAME: Final = 40
_PREFIX: Final = "nvml"


class CallRow(NamedTuple):
    """One call: what it cost lately, and ever.

    Attributes:
        ever: Since the collector started.
        a_second: How often it was made a second lately; None while that is not known.
        mean_seconds: How long it took lately, or ever where it was not made lately.
        share: Its share of the time lately; None while that is not known.
    """

    ever: CallCost
    a_second: float | None
    mean_seconds: float
    share: float | None


def call_rows(now: CallsAt, before: CallsAt) -> list[CallRow]:
    """A row a call, from its tallies now and a moment before, in the order of the time that they took lately."""
    earlier = {cost.call: cost for cost in before.calls}
    elapsed = now.seconds - before.seconds
    rows = [_row(cost, earlier.get(cost.call), elapsed) for cost in now.calls]
    return sorted(rows, key=lambda row: (row.share or 0.0, row.ever.seconds), reverse=True)


def _row(cost: CallCost, before: CallCost | None, elapsed: float) -> CallRow:
    ever = cost.seconds / cost.count if cost.count else 0.0
    if elapsed <= 0 or (before is not None and before.count > cost.count):  # a collector that has just been replaced
        return CallRow(cost, None, ever, None)
    count = cost.count - (before.count if before else 0)
    seconds = max(0.0, cost.seconds - (before.seconds if before else 0.0))
    return CallRow(cost, count / elapsed, seconds / count if count else ever, seconds / elapsed)


def heading(width: int) -> Line:
    """The line above the rows."""
    titles = "".join(f"{title:>{room}}" for title, room in _COLUMNS)
    room = _name_room(width)
    return line(Span(f"{clipped('Driver call', room):<{room}}{titles}".ljust(width - 2), Role.HEADING))


def call_line(row: CallRow, width: int) -> Line:
    """A row as a line; the name takes what the figures leave."""
    room = _name_room(width)
    name = clipped(row.ever.call.removeprefix(_PREFIX), room)
    texts = (
        _rate_text(row.a_second),
        _time_text(row.mean_seconds),
        _time_text(row.ever.longest_seconds),
        _share_text(row.share),
    )
    cells = "".join(f"{text:>{size}}" for text, (_, size) in zip(texts, _COLUMNS, strict=True))
    return line(Span(f"{name:<{room}}", Role.ACCENT), cells)


def call_note(row: CallRow) -> str:
    """What else is known of a call."""
    cost = row.ever
    failed = f" ({cost.errors} failed)" if cost.errors else ""
    calls = "1 call" if cost.count == 1 else f"{cost.count} calls"
    return f"{cost.call}: {calls} since the collector started{failed}, {_time_text(cost.seconds)} in all."


def missing_note(*, has_collector: bool) -> Iterator[tuple[str, str, str]]:
    """The entry in place of the table while there is none."""
    why = "They are counted from now on." if has_collector else "No collector tells them here."
    yield "Driver calls", MISSING, why


def _name_room(width: int) -> int:
    return min(_LONGEST_NAME, max(8, width - _FIGURES_WIDTH - 3))


def _rate_text(rate: float | None) -> str:
    if rate is None:
        return MISSING
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"


def _time_text(seconds: float) -> str:
    """A short time with its unit."""
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{_digits(seconds * scale)} {unit}"
    return f"{_digits(seconds)} s"


def _digits(value: float) -> str:
    """About three of them."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _share_text(share: float | None) -> str:
    if share is None:
        return MISSING
    if 0 < share < _LEAST_SHARE:
        return f"<{_LEAST_SHARE:.3%}"
    return f"{share:.1%}" if share >= 0.01 else f"{share:.3%}"
