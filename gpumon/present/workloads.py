"""The tables of the workloads screen: the catalogue, the runs of this gpumon, and the results saved before."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from gpumon.core.model import short_product_name
from gpumon.core.text import safe_text
from gpumon.core.units import MISSING, age_text
from gpumon.core.workload_metrics import label_text
from gpumon.operations.workload import WorkloadRun, measurements_of
from gpumon.present.paint.bar import progress_bar
from gpumon.present.paint.columns import Cells, columns, names
from gpumon.present.paint.line import Role, Span
from gpumon.present.paint.table import Column
from gpumon.present.workload_text import change_text
from gpumon.workload_runs.catalogue import BrokenWorkload, Catalogue, WorkloadInfo
from gpumon.workload_runs.protocol import VerdictKind

_VERDICTS: Final = {
    VerdictKind.OK: Span("OK", Role.ACCENT),
    VerdictKind.WARN: Span("!WARN", Role.WARNING),
    VerdictKind.FAIL: Span("!FAIL", Role.ERROR),
    VerdictKind.CANCELLED: Span("CANCELLED", Role.DIM),
}


def state_span(run: WorkloadRun) -> Span:
    """The state of a run in one word."""
    state = run.state
    if state.result is not None and run.ended:
        return _VERDICTS[state.result.verdict]
    if run.ended:
        return Span("!UNSUPPORTED", Role.WARNING)
    if run.is_stopping:
        return Span("STOPPING", Role.WARNING)
    if state.plan is None:
        return Span("STARTING", Role.DIM)
    return Span("WAITING", Role.WARNING) if state.awaits_confirmation else Span("RUNNING", Role.ACCENT)


def outcome_text(run: WorkloadRun) -> str:
    """Why a run ended as it did."""
    return run.state.result.why if run.state.result is not None else run.state.unsupported_reason or ""


def elapsed_seconds(run: WorkloadRun, now: float) -> float | None:
    """How long a run has worked, or None before it started its work."""
    began = run.state.began_seconds
    if began is None:
        return None
    return max(0.0, (now if run.ended_seconds is None else run.ended_seconds) - began)


def share_done(run: WorkloadRun) -> float | None:
    """How much of its work a run has done, 0 to 1, or None if unknown.

    A run that was cancelled may report its last step as complete; that is not the share of the work.
    """
    share, result = run.state.share_done, run.state.result
    is_cancelled = result is not None and result.verdict is VerdictKind.CANCELLED
    return None if is_cancelled and share == 1 else share


def main_result(run: WorkloadRun) -> str:
    """The first metric of the result, or before the end the latest value of the first live metric."""
    state = run.state
    if state.result is not None and state.result.measurements:
        return state.result.measurements[0].text
    for metric, samples in state.metrics.items():
        return metric.text(samples[-1].value)
    return MISSING


def main_change(run: WorkloadRun) -> str:
    """The change of the first metric since the last comparable run."""
    if run.state.result is None or not run.state.result.measurements:
        return ""
    main = run.state.result.measurements[0].key
    return next((change_text(change.share) for change in run.changes if change.key == main), "")


# The catalogue

WorkloadRow = WorkloadInfo | BrokenWorkload


def workload_rows(catalogue: Catalogue) -> list[WorkloadRow]:
    """The workloads, then the files that cannot be used as one."""
    return [*catalogue.workloads, *catalogue.broken]


def workload_key(row: WorkloadRow) -> str:
    """Identifies a row."""
    return row.name if isinstance(row, WorkloadInfo) else str(row.file)


def workload_note(row: WorkloadRow, *, has_gpu: bool = True) -> str:
    """The complete description of a row, and that it cannot run on a host without a GPU."""
    if isinstance(row, BrokenWorkload):
        return f"{safe_text(str(row.file))} is not a workload. {row.reason}"
    if row.why_not_cpu and not has_gpu:
        return f"This host has no GPU to run it on: {row.why_not_cpu} {row.purpose}"
    origin = "" if row.origin == "gpumon" else f" From {row.origin}: {safe_text(str(row.file))}."
    return f"{row.purpose} Needs: {row.needs}{origin} {row.why_not_cpu}".strip()


def _workload_name(row: WorkloadRow, _: int) -> Span:
    if isinstance(row, BrokenWorkload):
        return Span(f"!{safe_text(row.file.stem, 40)}", Role.WARNING)
    return Span(row.name, Role.ACCENT)


def _purpose(row: WorkloadRow, _: int) -> Span:
    if isinstance(row, BrokenWorkload):
        return Span(f"Cannot be used: {row.reason}", Role.WARNING)
    return Span(row.purpose)


def _runs_on(row: WorkloadRow, _: int) -> Span:
    if isinstance(row, BrokenWorkload):
        return Span(MISSING, Role.DIM)
    return Span("GPU" if row.why_not_cpu else "GPU, CPU")


def _runs_here(row: WorkloadRow, index: int) -> Span:
    """The same on a host without a GPU: workloads that need one are marked."""
    is_missing = isinstance(row, WorkloadInfo) and row.why_not_cpu
    return Span("!no GPU", Role.WARNING) if is_missing else _runs_on(row, index)


WORKLOAD_COLUMNS: Final[tuple[Column[WorkloadRow], ...]] = columns(
    "workloads",
    {
        "workload": Cells(_workload_name, workload_key),
        "runs-on": Cells(_runs_on, lambda row: _runs_on(row, 0).text),
        "purpose": Cells(_purpose),
        "needs": Cells(lambda row, _: Span("" if isinstance(row, BrokenWorkload) else row.needs, Role.DIM)),
    },
)
WORKLOAD_COLUMNS_WITHOUT_GPU: Final = tuple(
    replace(column, cell=_runs_here) if column.id == "runs-on" else column for column in WORKLOAD_COLUMNS
)

# The runs


class RunRow(NamedTuple):
    """A run at a moment (Unix time)."""

    run: WorkloadRun
    now: float


def _run_time(row: RunRow, _: int) -> Span:
    """The remaining time, marked as such, or the elapsed time."""
    remaining = row.run.state.remaining_seconds(row.now)
    if remaining is not None:
        return Span(f"{age_text(remaining)} left")
    return Span(age_text(elapsed_seconds(row.run, row.now)))


def _run_progress(row: RunRow, width: int) -> Span:
    """The progress of a run, or why it ended as it did."""
    if row.run.ended:
        return Span(outcome_text(row.run))
    if row.run.state.began_seconds is None:
        return Span("waiting for confirmation" if row.run.state.plan is not None else "importing torch", Role.DIM)
    share = row.run.state.share_done
    percent = f" {(share or 0.0) * 100:3.0f} %"
    return Span(progress_bar(share, max(0, width - len(percent))) + percent, Role.GPU_HISTORY)


RUN_COLUMNS: Final[tuple[Column[RunRow], ...]] = columns(
    "runs",
    {
        "run": names(lambda row: row.run.request.workload.name, Role.ACCENT),
        "device": names(lambda row: row.run.target.label),
        "state": Cells(lambda row, _: state_span(row.run), lambda row: state_span(row.run).text),
        "time": Cells(_run_time, lambda row: elapsed_seconds(row.run, row.now)),
        "result": Cells(lambda row, _: Span(main_result(row.run))),
        "change": Cells(lambda row, _: Span(main_change(row.run))),
        "outcome": Cells(_run_progress),
    },
)


# The saved results

EarlierRow = Mapping[str, Any]


def earlier_rows(results: Iterable[EarlierRow], max_rows: int) -> list[EarlierRow]:
    """The newest saved results."""
    return list(islice(results, max_rows))


def _text(row: EarlierRow, name: str) -> str:
    value = row.get(name)
    return MISSING if value is None else safe_text(str(value), 300)


def _earlier_time(row: EarlierRow) -> str:
    seconds = row.get("time_seconds")
    try:
        moment = datetime.fromtimestamp(float(str(seconds))).astimezone()
    except (ValueError, OverflowError, OSError):
        return MISSING
    return moment.strftime("%Y-%m-%d %H:%M")


def _earlier_device(row: EarlierRow) -> str:
    name = row.get("device_name") or row.get("device") or MISSING
    return short_product_name(safe_text(str(name), 60))


def _earlier_result(row: EarlierRow) -> str:
    first = next(iter(measurements_of(row)), None)
    return MISSING if first is None else safe_text(first.text, 40)


def _earlier_parameters(row: EarlierRow) -> str:
    parameters = row.get("parameters")
    if not isinstance(parameters, dict):
        return ""
    return safe_text(" ".join(f"{label_text(str(name))}={value}" for name, value in parameters.items()), 200)


EARLIER_COLUMNS: Final[tuple[Column[EarlierRow], ...]] = columns(
    "earlier",
    {
        "earlier": names(lambda row: _text(row, "workload"), Role.DIM),
        "time": names(_earlier_time, Role.DIM),
        "device": names(_earlier_device, Role.DIM),
        "verdict": names(lambda row: _text(row, "verdict").upper(), Role.DIM),
        "result": names(_earlier_result, Role.DIM),
        "parameters": names(_earlier_parameters, Role.DIM),
    },
)
