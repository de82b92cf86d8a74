"""The doctor's results as lines: in groups, each with its mark and detail, and the fix below a problem."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Final, NamedTuple

from gpumon.health.checks import Check, Status
from gpumon.health.doctor.rules import CHECK_IDS
from gpumon.present.paint.line import Line, Role, Span, line

NAME_WIDTH: Final = 16
_INDENT: Final = 2 + len("✓ warn  ")
_MIN_TEXT_WIDTH: Final = 20
_MARKS: Final = {
    Status.OK: Span("✓ ok    ", Role.PLAIN),
    Status.WARN: Span("! warn  ", Role.WARNING),
    Status.FAIL: Span("✗ FAIL  ", Role.ERROR),
    Status.SKIP: Span("- skip  ", Role.DIM),
}
_WAITING: Final = Span("· wait  ", Role.DIM)
_TITLES: Final = {
    "driver": "Driver",
    "gpu": "GPUs",
    "host": "Host",
    "environment": "Environment variables",
    "python": "Python",
}
_WORDS: Final = {Status.FAIL: "failed", Status.WARN: "with warnings", Status.OK: "ok", Status.SKIP: "skipped"}


class DoctorRow(NamedTuple):
    """A line of the report.

    Attributes:
        key: The check that it belongs to, and its number there.
        line: The line.
    """

    key: str
    line: Line


def summary(checks: Sequence[Check]) -> str:
    """The number of checks by result: ``1 failed, 2 with warnings, 20 ok, 8 skipped``."""
    counts = Counter(check.status for check in checks)
    return ", ".join(f"{counts[status]} {word}" for status, word in _WORDS.items() if counts[status])


def doctor_rows(checks: Sequence[Check], width: int, *, is_over: bool) -> list[DoctorRow]:
    """The results in their groups and, while the examination runs, the checks that are pending.

    Args:
        checks: The results in the order in which they are reported.
        width: Cells of a line.
        is_over: Whether all checks have arrived.
    """
    done = {check.id for check in checks}
    waiting = [] if is_over else [check_id for check_id in CHECK_IDS if check_id not in done]
    groups = list(dict.fromkeys(_group(check_id) for check_id in (*CHECK_IDS, *(check.id for check in checks))))
    rows: list[DoctorRow] = []
    for group in groups:
        done_checks = [check for check in checks if _group(check.id) == group]
        pending = [_name(check_id) for check_id in waiting if _group(check_id) == group]
        if done_checks or pending:
            rows.append(DoctorRow(group, line(Span(_title(group).ljust(width), Role.HEADING))))
            rows += _check_rows(done_checks, width)
            rows += _wrapped(f"{group}/waiting", _WAITING, ", ".join(pending), width) if pending else ()
    return rows


def _check_rows(checks: Iterable[Check], width: int) -> Iterator[DoctorRow]:
    """A row per check; adjacent checks that were skipped for the same reason share one row."""
    for (status, detail), alike in groupby(checks, lambda check: (check.status, check.detail)):
        first, *more = alike
        if status is Status.SKIP and more:
            names = ", ".join(_name(check.id) for check in (first, *more))
            yield from _wrapped(first.id, _MARKS[status], f"{names}: {detail}", width)
        else:
            for check in (first, *more):
                text = f"{_name(check.id):<{NAME_WIDTH}} {detail}"
                yield from _wrapped(check.id, _MARKS[status], text, width, NAME_WIDTH + 1)
                if check.fix:
                    indent = " " * (NAME_WIDTH + 1)
                    yield from _wrapped(f"{check.id}/fix", None, f"{indent}→ {check.fix}", width, NAME_WIDTH + 3)


def _wrapped(key: str, mark: Span | None, text: str, width: int, indent: int = 0) -> Iterator[DoctorRow]:
    """A text after its mark, wrapped; lines after the first are indented."""
    room = max(_MIN_TEXT_WIDTH + indent, width - _INDENT)
    role = Role.DIM if mark is not None and mark.role is Role.DIM else Role.PLAIN if mark is not None else Role.ACCENT
    pieces = wrap(text, room, subsequent_indent=" " * indent, break_on_hyphens=False, drop_whitespace=True)
    for number, piece in enumerate(pieces or [""]):
        before = mark if mark is not None and not number else Span(" " * (_INDENT - 2))
        yield DoctorRow(f"{key}/{number}", line("  ", before, Span(piece, role)))


def _group(check_id: str) -> str:
    return check_id.partition(".")[0]


def _name(check_id: str) -> str:
    return check_id.partition(".")[2].replace("_", " ")


def _title(group: str) -> str:
    """The heading of a group; each Python has its number."""
    number = group.removeprefix("python")
    return f" {_TITLES.get(group, f'Python {number}')}"
