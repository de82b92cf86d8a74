"""The lines around the tables of the fleet: totals, what is wrong, the lists and their PromQL; and its usage."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from gpumon.core.metrics import METRICS
from gpumon.core.text import safe_text
from gpumon.core.units import MISSING, age_text, bill_energy_text, bytes_text, counted, power_text, range_text
from gpumon.fleet.model import FleetSnapshot
from gpumon.fleet.settings import FleetSource, HostsSettings
from gpumon.operations.fleet.queries import FleetList, UsageRow
from gpumon.operations.fleet.report import FleetReport
from gpumon.present.paint.columns import Cells, columns, names, numbers
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line, merged, width_of
from gpumon.present.paint.table import Column
from gpumon.session.fleet_registry import FleetState

_LATE_FACTOR: Final = 2.5
_GAP: Final = "   "
_NO_METRICS: Final = "Prometheus has no GPU metrics of dcgm-exporter, gpumon, nvidia_gpu_exporter or all-smi."
_EMPTY: Final = {
    FleetList.FINDINGS: "Nothing stands out.",
    FleetList.USERS: "No exporter names users here; gpumon exporter does.",
    FleetList.JOBS: "No exporter names jobs here. dcgm-exporter needs its mapping of HPC jobs or Kubernetes for that.",
}
_EMPTY_OF_HOSTS: Final = {
    FleetList.FINDINGS: "Nothing stands out.",
    FleetList.USERS: "No process uses a GPU, or its user is not visible.",
    FleetList.JOBS: "Slurm on this host has no job with one of these GPUs, or is not installed.",
    FleetList.USAGE: "The usage needs the history of a Prometheus: gpumon fleet --prometheus URL.",
}
NO_PROMQL: Final = "Without Prometheus there is no PromQL: these hosts are read through ssh."
_NO_FRAMES: Final = "No host has sent a frame yet. Findings has the reasons."


def totals_text(report: FleetReport, width: int = 0) -> str:
    """The totals in one line.

    Args:
        report: The fleet.
        width: Cells for it, in which the last totals may be left out; 0 for no limit.
    """
    totals, snapshot = report.totals, report.snapshot
    parts = [f"{counted(totals.gpus, 'GPU')} on {counted(len(report.by_host), 'host')}"]
    if snapshot.silent_hosts:
        parts.append(f"{counted(len(snapshot.silent_hosts), 'host')} silent")
    parts.append(f"{MISSING if totals.busy is None else f'{totals.busy:,}'} busy")
    if totals.utilization_percent is not None:
        parts.append(f"util {totals.utilization_percent:.0f}%")
    parts += [power_text(totals.power_watts), f"mem {bytes_text(totals.used_bytes)}/{bytes_text(totals.total_bytes)}"]
    while width and len(parts) > 1 and width_of(_GAP.join(parts)) > width:
        del parts[-1]
    return _GAP.join(parts)


def fleet_header(state: FleetState, width: int) -> list[Line]:
    """The totals with the age of the values, and why there are no newer ones."""
    report, problem = state.report, state.problem
    lines: list[Line] = []
    if report is None:
        waiting = f"Waiting for {_source_text(state.settings)}"
        text = " No values yet." if problem is not None else f" {waiting}: the first answer may take some seconds."
        lines.append(line(Span(clipped(text, width), Role.DIM)))
    else:
        is_late = problem is not None or state.age_seconds > _LATE_FACTOR * state.settings.interval_seconds + 5
        age = f"{'old values: ' if is_late else ''}{age_text(state.age_seconds)} "
        room = max(0, width - width_of(age) - 1)
        left = clipped(f" {totals_text(report, max(1, room - 1))}", room)
        space = " " * (width - width_of(left) - width_of(age))
        lines.append(line(left, space, Span(age, Role.WARNING if is_late else Role.DIM)))
    if problem is not None:
        lines.append(line(Span(clipped(f" ! {problem}", width), Role.WARNING)))
    return lines


def _source_text(settings: FleetSource) -> str:
    if isinstance(settings, HostsSettings):
        return f"{counted(len(settings.hosts), 'host')} through ssh"
    return safe_text(settings.address.url, 80)


def list_line(state: FleetState, front: FleetList, usage_seconds: float, width: int) -> Line:
    """The lists, with that in front highlighted."""
    findings = 0 if state.report is None else len(state.report.findings)
    spans = [Span(" ")]
    for kind in FleetList:
        count = f" {findings:,}" if kind is FleetList.FINDINGS and findings else ""
        text = f"{kind.value} {range_text(usage_seconds)}" if kind is FleetList.USAGE else kind.value
        spans.append(Span(f" {text}{count} ", Role.BRAND if kind is front else Role.PLAIN))
    used = sum(width_of(span.text) for span in spans)
    hint = "v: next list "
    if used + width_of(hint) < width:
        spans.append(Span(f"{hint:>{width - used}}", Role.DIM))
    return cut(spans, width)


def query_line(query: str, width: int) -> Line:
    """The PromQL of the list, which a key copies, or why there is none."""
    if not query:
        return line(Span(clipped(f" {NO_PROMQL}", width), Role.DIM))
    return line(Span(" y ", Role.ACCENT), Span(clipped(f"PromQL: {query}", max(0, width - 3)), Role.DIM))


def lacks_line(report: FleetReport, width: int) -> Line:
    """What Slurm and the exporters report, and what they do not."""
    text = _GAP.join((*slurm_texts(report), *lacks(report.snapshot)))
    return line(Span(clipped(f" {text}", width), Role.DIM)) if text else ()


def slurm_texts(report: FleetReport) -> Iterator[str]:
    """How many GPUs jobs of Slurm have, and why jobs are unknown; nothing where there is no Slurm."""
    if report.slurm is None:
        return
    if report.slurm_jobs:
        count = sum(len(report.by_job[name]) for name in report.slurm_jobs)
        verb = "has" if len(report.slurm_jobs) == 1 else "have"
        jobs = counted(len(report.slurm_jobs), "job")
        yield f"Slurm: {jobs} {verb} {count:,} of {counted(report.totals.gpus, 'GPU')}."
    if report.slurm.queue.problem is not None:
        yield report.slurm.queue.problem.reason


def lacks(snapshot: FleetSnapshot) -> Iterator[str]:
    """For each exporter, what it does not report here."""
    for name, metric_ids in snapshot.missing.items():
        if metric_ids:
            labels = ", ".join(METRICS[metric_id].label for metric_id in metric_ids)
            yield f"{name} does not report: {labels}."


def empty_text(state: FleetState, kind: FleetList) -> str:
    """What a list says that has no rows."""
    if isinstance(state.settings, HostsSettings):
        return _EMPTY_OF_HOSTS.get(kind, "" if state.report is None else _NO_FRAMES)
    if state.report is None or kind is FleetList.USAGE:
        if state.report is None or not state.is_reading_usage:
            problem = None if state.usage is None else state.usage.problem
            return "" if state.report is None else str(problem or "No usage in this time range.")
        return "Prometheus adds up the usage; that takes some seconds."
    return _EMPTY.get(kind, _NO_METRICS)


def summary_lines(report: FleetReport, max_findings: int = 5) -> Sequence[str]:
    """The fleet in a few lines of text.

    Args:
        report: The fleet.
        max_findings: How many findings of each kind are listed.
    """
    snapshot = report.snapshot
    lines = [totals_text(report)]
    lines += [f"{name}: {counted(count, 'GPU')}" for name, count in snapshot.exporters.items()]
    lines += slurm_texts(report)
    lines += lacks(snapshot)
    if not snapshot.gpus:
        lines.append(_NO_FRAMES if snapshot.host_problems else _NO_METRICS)
    for kind, group in groupby(report.findings, key=lambda finding: finding.kind):
        findings = list(group)
        lines += ["", f"{kind.value}: {len(findings):,}"]
        for finding in findings[:max_findings]:
            gpu = "" if finding.position is None else f" GPU {snapshot.gpus[finding.position].label}"
            lines.append(f"  {finding.host}{gpu}: {finding.text}")
        if len(findings) > max_findings:
            lines.append(f"  and {len(findings) - max_findings:,} more; --json lists all of them")
    return lines


def _hours_text(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.1f}"


def _split_bar(row: UsageRow, width: int) -> Line:
    """Active, low and idle hours as parts of a bar."""
    total = row.hours
    active = round(row.active_hours / total * width) if total else 0
    low = round((row.active_hours + row.low_hours) / total * width) - active if total else 0
    idle = width - active - low
    return merged((Span("█" * active, Role.LOAD_HIGH), Span("▒" * low, Role.LOAD_LOW), Span("░" * idle, Role.GRID)))


FLEET_USAGE_COLUMNS: Final[tuple[Column[UsageRow], ...]] = columns(
    "fleet-usage",
    {
        "user": names(lambda row: row.user),
        "job": names(lambda row: row.job or "no job"),
        "hours": numbers(lambda row: row.hours, _hours_text, Span),
        "active": numbers(lambda row: row.active_hours, _hours_text, Span),
        "low": numbers(lambda row: row.low_hours, _hours_text, Span),
        "idle": numbers(lambda row: row.idle_hours, _hours_text, Span),
        "split": Cells(_split_bar),
        "energy": numbers(lambda row: row.energy_joules, bill_energy_text, Span),
    },
)
