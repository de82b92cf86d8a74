"""The rows that accounts of a step share, whether they come from a trace or from samples: a class, a cause."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.step_classes import LABELS
from gpumon.core.text_table import table
from gpumon.core.units import short_time_text
from gpumon.insight.bottlenecks.slowness_verdict import SlownessVerdict
from gpumon.present.paint.bar import fine_bar
from gpumon.present.paint.line import Line, Role, Span, cut, line, wrapped

TIME_WIDTH: Final = 8
_LABEL_WIDTH: Final = max(map(len, LABELS.values()))
_MIN_BAR: Final = 8
_MAX_BAR: Final = 40
_ROLES: Final = {name: Role[role.upper()] for name, role in map(str.split, table("gpumon.present", "class_roles"))}


def class_role(name: str) -> Role:
    """The role that a class is drawn with, always next to its name."""
    return _ROLES.get(name, Role.MEMORY_HISTORY)


def class_row(name: str, seconds: float, step_seconds: float, note: str, width: int) -> Line:
    """A class: its name, its time, its share of the step, a bar, and a note.

    Args:
        name: The class.
        seconds: Its time.
        step_seconds: Duration of the step.
        note: What follows the bar; may be empty.
        width: Cells of the line.
    """
    share = seconds / step_seconds if step_seconds else 0.0
    head = f"{LABELS[name]:<{_LABEL_WIDTH}} {short_time_text(seconds):>{TIME_WIDTH}} {share:>6.1%} "
    bar = max(_MIN_BAR, min(_MAX_BAR, width - len(head) - len(note) - 1))
    role = class_role(name) if seconds else Role.DIM
    return cut(
        [Span(head, Role.PLAIN if seconds else Role.DIM), *fine_bar(share, bar, role), Span(note, Role.DIM)], width
    )


def verdict_lines(verdict: SlownessVerdict, width: int) -> Iterator[Line]:
    """The verdict in a sentence."""
    role = Role.ACCENT if verdict.is_decided else Role.WARNING
    yield from (line(Span(piece, role)) for piece in indented(verdict.summary, width))


def cause_lines(verdict: SlownessVerdict, width: int) -> Iterator[Line]:
    """Each cause with its label in the color of its class, its evidence, its bound, an experiment, and its line."""
    for number, cause in enumerate(verdict.causes, 1):
        head = f"{number}. {cause.label[0].upper()}{cause.label[1:]}"
        bound = f" Without it: {cause.bound_text}." if verdict.has_steps else ""
        text = f"{cause.evidence}{bound} {cause.experiment}"
        where = f" Line: {cause.line}" if cause.line and cause.line not in text else ""
        first, *rest = wrapped(f"{head}: {text}{where}", max(20, width - 4))
        yield cut([Span(f" {first[: len(head)]}", class_role(cause.name)), Span(first[len(head) :])], width)
        yield from (line(f"    {piece}") for piece in rest)
        if cause.try_line:
            yield from (
                line(Span(f"    {piece}", Role.ACCENT)) for piece in wrapped(cause.try_line, max(20, width - 4))
            )


def indented(text: str, width: int) -> list[str]:
    """A text in lines, the first one indented less than the others."""
    first, *rest = wrapped(text, max(20, width - 2))
    return [f" {first}", *(f"   {piece}" for piece in rest)]
