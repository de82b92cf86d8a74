"""The alerts screen as lines: one row per alert, the details of the selected one, and the skipped rules."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.model import DeviceState
from gpumon.core.units import MISSING, age_text, counted, duration_text
from gpumon.diagnosis.alerts import ALERT_RULES, Alert, Severity, SkippedRule, ranges_text, skipped_rules
from gpumon.present.paint.line import Line, Role, Span, clipped, line, wrapped
from gpumon.present.paint.table import Align, Column
from gpumon.session.view_state import ViewState

_MARKS: Final = {Severity.CRITICAL: "x", Severity.WARNING: "!", Severity.INFO: "i"}
_ROLES: Final = {Severity.CRITICAL: Role.ERROR, Severity.WARNING: Role.WARNING, Severity.INFO: Role.PLAIN}
_LABEL_WIDTH: Final = 10


class AlertRow(NamedTuple):
    """A row of the table.

    Attributes:
        alert: The alert.
        lasted_seconds: How long it has stood, or stood until it ended; None if its beginning is unknown.
        ended_ago_seconds: How long ago it ended; None while it stands.
    """

    alert: Alert
    lasted_seconds: float | None
    ended_ago_seconds: float | None = None


def alert_rows(view: ViewState) -> list[AlertRow]:
    """The alerts that stand, worst first, then those that have ended, newest first."""
    now = view.frame.time_seconds
    rows = [AlertRow(alert, _seconds_between(alert.since_seconds, now)) for alert in view.alerts]
    for alert, ended in reversed(view.alerts_over):
        rows.append(AlertRow(alert, _seconds_between(alert.since_seconds, ended), max(0.0, now - ended)))
    return rows


def row_key(row: AlertRow) -> str:
    """What identifies a row over time."""
    ended = "" if row.ended_ago_seconds is None else f"/{row.alert.since_seconds}"
    return f"{row.alert.device_key or ''}/{row.alert.id}/{row.alert.subject}{ended}"


def _seconds_between(begin: float, end: float) -> float | None:
    """The seconds between two Unix times; None where the first is unknown, which is 0."""
    return max(0.0, end - begin) if begin else None


def headline(alerts: Sequence[Alert]) -> Line:
    """The number of alerts of each severity in one line."""
    counts = {severity: sum(alert.severity is severity for alert in alerts) for severity in reversed(Severity)}
    if not counts[Severity.CRITICAL] and not counts[Severity.WARNING]:
        infos = counts[Severity.INFO]
        return line(" No problems.", f" {infos} info: normal behavior, nothing to fix." if infos else "")
    texts = {
        Severity.CRITICAL: f"{counts[Severity.CRITICAL]} critical",
        Severity.WARNING: counted(counts[Severity.WARNING], "warning"),
        Severity.INFO: f"{counts[Severity.INFO]} info",
    }
    worst = Severity.CRITICAL if counts[Severity.CRITICAL] else Severity.WARNING
    return line(Span(f" {', '.join(texts[severity] for severity, count in counts.items() if count)}", _ROLES[worst]))


def coverage_lines(view: ViewState, width: int, max_lines: int) -> list[Line]:
    """The number of rules, and the rules that cannot be checked because something that they need is missing.

    Args:
        view: What is shown.
        width: Cells of a line.
        max_lines: Maximum number of lines.
    """
    responding = sum(device.state is DeviceState.OK for device in view.frame.gpus)
    if not responding:
        return []
    skipped = [_skipped_text(rule, responding) for rule in skipped_rules(view.frame, view.thresholds)]
    summary = f" {len(ALERT_RULES)} rules checked on {counted(responding, 'GPU')}."
    if skipped:
        summary += f" {len(skipped)} of them lack a metric on at least one GPU:"
    lines = [summary, *(f"   {text}" for text in skipped)]
    if len(lines) > max_lines:
        lines[max_lines - 1] += f"  (+{len(lines) - max_lines} more)" if max_lines > 1 else ""
    return [line(Span(clipped(text, width), Role.DIM)) for text in lines[:max_lines]]


def _skipped_text(skipped: SkippedRule, responding: int) -> str:
    gpus = f"GPU{'s' if len(skipped.indices) > 1 else ''} {ranges_text(skipped.indices)}"
    where = "" if len(skipped.indices) == responding else f" on {gpus}"
    return f"{skipped.rule.label}{where}: {skipped.reason}"


def pane_lines(row: AlertRow, width: int, height: int) -> list[Line]:
    """The details of an alert, in exactly ``height`` lines."""
    alert = row.alert
    where = "" if alert.device_index is None else f" on GPU {alert.device_index}"
    lines = [line(Span(clipped(f" {alert.title}{where}", width).ljust(width), Role.HEADING))]
    lines += _labeled("What", alert.detail, width)
    lines += _labeled("To do", alert.action or MISSING, width)
    evidence = "   ".join(f"{item.label} {item.text}" for item in alert.evidence)
    lines += _labeled("Evidence", evidence, width) if evidence else []
    return [*lines[:height], *[line("")] * max(0, height - len(lines))]


def _labeled(label: str, text: str, width: int) -> list[Line]:
    """A text of several lines to the right of its label."""
    first, *rest = wrapped(text, width - _LABEL_WIDTH - 1) or [""]
    lines = [line(Span(f" {label:<{_LABEL_WIDTH - 1}}", Role.ACCENT), first)]
    return lines + [line(" " * _LABEL_WIDTH, piece) for piece in rest]


def _severity(row: AlertRow, _: int) -> Span:
    if row.ended_ago_seconds is not None:
        return Span("- ended", Role.DIM)
    severity = row.alert.severity
    return Span(f"{_MARKS[severity]} {severity.value}", _ROLES[severity])


def _index(row: AlertRow, _: int) -> Span:
    return Span(MISSING if row.alert.device_index is None else str(row.alert.device_index), _shade(row))


def _lasted(row: AlertRow, _: int) -> Span:
    return Span(age_text(row.lasted_seconds), _shade(row))


def _ended(row: AlertRow, _: int) -> Span:
    seconds = row.ended_ago_seconds
    return Span("" if seconds is None else f"{duration_text(seconds)} ago", Role.DIM)


def _detail(row: AlertRow, _: int) -> Span:
    return Span(row.alert.detail, _shade(row))


def _shade(row: AlertRow) -> Role:
    return Role.PLAIN if row.ended_ago_seconds is None else Role.DIM


ALERT_COLUMNS: Final[tuple[Column[AlertRow], ...]] = (
    Column("Severity", 10, _severity, rank=0, align=Align.LEFT),
    Column("GPU", 3, _index, rank=0),
    Column("For", 6, _lasted, rank=1),
    Column("Ended", 9, _ended, rank=2),
    Column("What", 20, _detail, rank=0, align=Align.LEFT, stretches=True),
)
