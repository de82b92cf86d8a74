"""The alerts screen as lines: one row per alert, the details of the selected one, and the skipped rules."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.core.model import DeviceState
from gpumon.core.units import MISSING, age_text, counted, duration_text, number_text, time_of_day_text
from gpumon.health.alerts import (
    ALERT_RULES,
    OUT_OF_MEMORY,
    Alert,
    Severity,
    SkippedRule,
    ranges_text,
    rule_label,
    skipped_rules,
)
from gpumon.present.paint.columns import Cells, columns
from gpumon.present.paint.line import Line, Role, Span, clipped, line, wrapped
from gpumon.present.paint.table import Column
from gpumon.session.view_state import OomNotice, ViewState

_MARKS: Final = {Severity.CRITICAL: "x", Severity.WARNING: "!", Severity.INFO: "i"}
_ROLES: Final = {Severity.CRITICAL: Role.ERROR, Severity.WARNING: Role.WARNING, Severity.INFO: Role.PLAIN}
_LABEL_WIDTH: Final = 10
_MIN_PANE_FOR_DETAIL: Final = 5
"""Lower panes show what is wrong in one line, so that there is room for what to do."""


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


def oom_of(alert: Alert, notices: Sequence[OomNotice]) -> OomNotice | None:
    """The notice of the out-of-memory error that an alert reports; None for another alert."""
    if alert.id != OUT_OF_MEMORY:
        return None
    same = (notice for notice in reversed(notices) if notice.subject == alert.subject)
    return next((notice for notice in same if notice.device_key == alert.device_key), None)


def row_key(row: AlertRow) -> str:
    """What identifies a row over time."""
    ended = "" if row.ended_ago_seconds is None else f"/{row.alert.since_seconds}"
    return f"{row.alert.device_key or ''}/{row.alert.id}/{row.alert.subject}{ended}"


def _seconds_between(begin: float, end: float) -> float | None:
    """The seconds between two Unix times; None where the first is unknown, which is 0."""
    return max(0.0, end - begin) if begin else None


def headline(alerts: Sequence[Alert]) -> Line:
    """The number of alerts of each severity in one line, and how many of them are acknowledged."""
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
    acknowledged = sum(alert.is_acknowledged for alert in alerts)
    role = _ROLES[worst] if any(alert.needs_attention for alert in alerts) else Role.PLAIN
    return line(
        Span(f" {', '.join(texts[severity] for severity, count in counts.items() if count)}", role),
        f"  {acknowledged} acknowledged" if acknowledged else "",
    )


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
    acknowledged = ", acknowledged" if alert.is_acknowledged else ""
    lines = [line(Span(clipped(f" {alert.title}{where}{acknowledged}", width).ljust(width), Role.HEADING))]
    is_low = height < _MIN_PANE_FOR_DETAIL
    lines += _labeled("What", clipped(alert.detail, width - _LABEL_WIDTH - 1) if is_low else alert.detail, width)
    lines += _labeled("To do", alert.action or MISSING, width)
    lines += _labeled("When", _period_text(row), width)
    evidence = "   ".join(f"{item.label} {item.text}" for item in alert.evidence)
    lines += _labeled("Evidence", evidence, width) if evidence else []
    lines += _labeled("More", alert_section(alert), width)
    return [*lines[:height], *[line("")] * max(0, height - len(lines))]


def _period_text(row: AlertRow) -> str:
    """Since when an alert stands, or from when to when it stood, and how long that is."""
    if row.lasted_seconds is None:
        return MISSING
    begin = row.alert.since_seconds
    lasted = age_text(row.lasted_seconds)
    if row.ended_ago_seconds is None:
        return f"since {time_of_day_text(begin)} ({lasted})"
    return f"{time_of_day_text(begin)} to {time_of_day_text(begin + row.lasted_seconds)} ({lasted})"


def _labeled(label: str, text: str, width: int) -> list[Line]:
    """A text of several lines to the right of its label."""
    first, *rest = wrapped(text, width - _LABEL_WIDTH - 1) or [""]
    lines = [line(Span(f" {label:<{_LABEL_WIDTH - 1}}", Role.ACCENT), first)]
    return lines + [line(" " * _LABEL_WIDTH, piece) for piece in rest]


def _severity(row: AlertRow, _: int) -> Span:
    if row.ended_ago_seconds is not None:
        return Span("- ended", Role.DIM)
    severity = row.alert.severity
    if row.alert.is_acknowledged:
        return Span(f"✓ {severity.value}", Role.DIM)
    return Span(f"{_MARKS[severity]} {severity.value}", _ROLES[severity])


def _shaded(text: Callable[[AlertRow], str]) -> Callable[[AlertRow, int], Span]:
    """A cell that is dim for what needs no attention anymore."""

    def cell(row: AlertRow, _: int) -> Span:
        is_past = row.ended_ago_seconds is not None or row.alert.is_acknowledged
        return Span(text(row), Role.DIM if is_past else Role.PLAIN)

    return cell


def _ended(row: AlertRow, _: int) -> Span:
    seconds = row.ended_ago_seconds
    return Span("" if seconds is None else f"{duration_text(seconds)} ago", Role.DIM)


ALERT_COLUMNS: Final[tuple[Column[AlertRow], ...]] = columns(
    "alerts",
    {
        # The worst first, and alerts that have ended last.
        "severity": Cells(
            _severity, lambda row: row.alert.severity.rank if row.ended_ago_seconds is None else len(Severity)
        ),
        "gpu": Cells(_shaded(lambda row: number_text(row.alert.device_index)), lambda row: row.alert.device_index),
        "since": Cells(
            _shaded(lambda row: time_of_day_text(row.alert.since_seconds) if row.alert.since_seconds else MISSING),
            lambda row: row.alert.since_seconds or None,
        ),
        "duration": Cells(_shaded(lambda row: age_text(row.lasted_seconds)), lambda row: row.lasted_seconds),
        "ended": Cells(_ended, lambda row: row.ended_ago_seconds),
        "what": Cells(
            _shaded(lambda row: row.alert.detail),
            lambda row: row.alert.title,
            lambda row: f"{row.alert.title} {row.alert.detail}",
        ),
    },
)


def alert_section(alert: Alert) -> str:
    """The page of an alert and its section; alerts of the host, the driver or the collector have a separate page.

    The palette opens pages; help opens that of alerts.
    """
    label = rule_label(alert.id)
    return "Docs: Faults (ctrl+p)" if label is None else f"Docs: Alerts, '{label}' (?, enter)"
