"""What is wrong, what was, and what is good to know: a row each, and under them all that is said about one."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.model import DeviceState
from gpumon.core.units import MISSING, duration_text
from gpumon.diagnosis.health import RULES, Alert, Severity, Unchecked, ranges_text, unchecked
from gpumon.ui.paint.columns import Align, Column
from gpumon.ui.paint.line import Line, Role, Span, clipped, line
from gpumon.ui.paint.text import wrapped
from gpumon.ui.scene import Scene

_WORDS: Final = {Severity.CRITICAL: "x critical", Severity.WARNING: "! warning", Severity.INFO: "i note"}
_ROLES: Final = {Severity.CRITICAL: Role.ERROR, Severity.WARNING: Role.WARNING, Severity.INFO: Role.PLAIN}
_LABEL_WIDTH: Final = 10


class AlertRow(NamedTuple):
    """A row of the table.

    Attributes:
        alert: The alert.
        stood_seconds: How long it has stood, or did.
        ended_ago_seconds: How long ago it ended; None while it stands.
    """

    alert: Alert
    stood_seconds: float | None
    ended_ago_seconds: float | None = None


def alert_rows(scene: Scene) -> list[AlertRow]:
    """What stands, worst first, and then what is over, the newest first."""
    now = scene.frame.time_seconds
    rows = [AlertRow(alert, _between(alert.since_seconds, now)) for alert in scene.alerts]
    for alert, ended in reversed(scene.alerts_over):
        rows.append(AlertRow(alert, _between(alert.since_seconds, ended), max(0.0, now - ended)))
    return rows


def row_key(row: AlertRow) -> str:
    """What identifies a row over time."""
    ended = "" if row.ended_ago_seconds is None else f"/{row.alert.since_seconds}"
    return f"{row.alert.device_key or ''}/{row.alert.id}/{row.alert.subject}{ended}"


def _between(begin: float, end: float) -> float | None:
    """The time between two moments, if the first of them is known."""
    return max(0.0, end - begin) if begin else None


def headline(alerts: Sequence[Alert]) -> Line:
    """How much of what there is, in one line."""
    counts = {severity: sum(alert.severity is severity for alert in alerts) for severity in reversed(Severity)}
    if not counts[Severity.CRITICAL] and not counts[Severity.WARNING]:
        notes = counts[Severity.INFO]
        said = "" if not notes else f" {notes} note{'s' if notes > 1 else ''}: good to know, nothing to mend."
        return line(" Nothing is wrong.", said)
    words = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: "note"}
    told = (
        f"{count} {words[severity]}{'s' if count > 1 and severity is not Severity.CRITICAL else ''}"
        for severity, count in counts.items()
        if count
    )
    worst = Severity.CRITICAL if counts[Severity.CRITICAL] else Severity.WARNING
    return line(Span(f" {', '.join(told)}", _ROLES[worst]))


def coverage_lines(scene: Scene, width: int, most: int) -> list[Line]:
    """How many rules there are, and which of them cannot tell, because what they need cannot be read.

    Args:
        scene: The moment.
        width: Cells of a line.
        most: Lines at most.
    """
    answering = sum(device.state is DeviceState.OK for device in scene.frame.gpus)
    if not answering:
        return []
    lacking = [_lacking_text(each, answering) for each in unchecked(scene.frame, scene.thresholds)]
    said = f" {len(RULES)} rules watch {answering} GPU{'s' if answering > 1 else ''}"
    if not lacking:
        said += ", and all of them can tell."
    else:
        said += f"; {len(lacking)} of them cannot tell everywhere, because a figure is missing:"
    lines = [said, *(f"   {each}" for each in lacking)]
    if len(lines) > most:
        lines[most - 1] += f"  (+{len(lines) - most} more)" if most > 1 else ""
    return [line(Span(clipped(text, width), Role.DIM)) for text in lines[:most]]


def _lacking_text(each: Unchecked, answering: int) -> str:
    one = len(each.indices) == 1
    where = "" if len(each.indices) == answering else f" on GPU{'' if one else 's'} {ranges_text(each.indices)}"
    return f"{each.rule.label}{where}: {each.why}"


def pane_lines(row: AlertRow, width: int, height: int) -> list[Line]:
    """All that is said about an alert, in exactly so many lines."""
    alert = row.alert
    where = "" if alert.device_index is None else f" on GPU {alert.device_index}"
    lines = [line(Span(clipped(f" {alert.title}{where}", width).ljust(width), Role.HEADING))]
    lines += _labelled("What", alert.detail, width)
    lines += _labelled("To do", alert.action or MISSING, width)
    seen = "   ".join(f"{each.label} {each.text}" for each in alert.evidence)
    lines += _labelled("Seen at", seen, width) if seen else []
    return [*lines[:height], *[line("")] * max(0, height - len(lines))]


def _labelled(label: str, text: str, width: int) -> list[Line]:
    """A text of several lines beside its label."""
    first, *rest = wrapped(text, width - _LABEL_WIDTH - 1) or [""]
    lines = [line(Span(f" {label:<{_LABEL_WIDTH - 1}}", Role.ACCENT), first)]
    return lines + [line(" " * _LABEL_WIDTH, each) for each in rest]


def _severity(row: AlertRow, _: int) -> Span:
    if row.ended_ago_seconds is not None:
        return Span("- over", Role.DIM)
    return Span(_WORDS[row.alert.severity], _ROLES[row.alert.severity])


def _index(row: AlertRow, _: int) -> Span:
    return Span(MISSING if row.alert.device_index is None else str(row.alert.device_index), _shade(row))


def _stood(row: AlertRow, _: int) -> Span:
    return Span(duration_text(row.stood_seconds), _shade(row))


def _ended(row: AlertRow, _: int) -> Span:
    ended = row.ended_ago_seconds
    return Span("" if ended is None else f"{duration_text(ended)} ago", Role.DIM)


def _detail(row: AlertRow, _: int) -> Span:
    return Span(row.alert.detail, _shade(row))


def _shade(row: AlertRow) -> Role:
    return Role.PLAIN if row.ended_ago_seconds is None else Role.DIM


ALERT_COLUMNS: Final[tuple[Column[AlertRow], ...]] = (
    Column("Severity", 10, _severity, rank=0, align=Align.LEFT),
    Column("GPU", 3, _index, rank=0),
    Column("For", 6, _stood, rank=1),
    Column("Ended", 9, _ended, rank=2),
    Column("What", 20, _detail, rank=0, align=Align.LEFT, stretches=True),
)
