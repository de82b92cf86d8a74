"""The result of a run: its verdict, a table of its metrics with their limits and changes, and its timings."""

from collections.abc import Mapping
from textwrap import wrap
from typing import Final, NamedTuple

from gpumon.core.units import MISSING, short_time_text
from gpumon.core.workload_metrics import Measurement
from gpumon.operations.workload import MetricChange, WorkloadRun
from gpumon.present.case_table import case_lines, without_cases
from gpumon.present.paint.columns import columns, names
from gpumon.present.paint.line import Line, Role, Span, line, plain, section_heading, width_of
from gpumon.present.paint.table import Column, fit_columns, headings, row_line
from gpumon.present.workload_text import change_text, share_text
from gpumon.present.workloads import outcome_text, state_span

_STATE_WIDTH: Final = 9
_MIN_TEXT: Final = 20


class ResultRow(NamedTuple):
    """A measurement of a result, and its change since the last comparable run."""

    item: Measurement
    change: MetricChange | None


def result_lines(run: WorkloadRun, width: int) -> list[Line]:
    """The verdict, the reason and every metric; nothing before the end."""
    if not run.ended:
        return []
    state = state_span(run)
    head_width = width - max(_STATE_WIDTH, len(state.text)) - 3
    if run.state.result is None and width_of(outcome_text(run)) <= head_width:
        return []  # the head shows all of it: why the workload is not supported here
    first, *following = wrap(outcome_text(run), max(_MIN_TEXT, width - len(state.text) - 4)) or [""]
    lines = [section_heading("Result", width), line(Span(f" {state.text}  ", state.role), first)]
    lines += [line(" " * (len(state.text) + 3) + text) for text in following]
    if run.problem is not None:
        texts = wrap(str(run.problem), max(_MIN_TEXT, width - 4))
        lines += [line(Span(f" ! {text}", Role.WARNING)) for text in texts]
    result = run.state.result
    if result is None or not result.measurements:
        return lines
    cases = case_lines(result.measurements, run.changes, width - 2)
    lines += [()] if cases else []
    lines += [line(" ", *row) for row in cases]
    single = without_cases(result.measurements)
    if single:
        changes = {change.key: change for change in run.changes}
        columns = fit_columns(RESULT_COLUMNS, width - 2)
        rows = [ResultRow(item, changes.get(item.key)) for item in single]
        lines += [(), line(Span(" " + plain(headings(columns)), Role.ACCENT))]
        lines += [line(" ", *row_line(columns, row)) for row in rows]
    if run.changes:
        note = " Change: since the last run with these parameters on this device."
        lines.append(line(Span(note, Role.DIM)))
    return lines


def _share_text(row: ResultRow) -> str:
    share = row.item.share_of_limit
    return "" if share is None else share_text(share)


RESULT_COLUMNS: Final[tuple[Column[ResultRow], ...]] = columns(
    "results",
    {
        "metric": names(lambda row: row.item.metric.label),
        "value": names(lambda row: row.item.text),
        "limit": names(lambda row: "" if row.item.limit is None else row.item.metric.text(row.item.limit)),
        "of-limit": names(_share_text),
        "repeats": names(lambda row: str(row.item.repetitions)),
        "change": names(lambda row: "" if row.change is None else change_text(row.change.share)),
        "source": names(lambda row: row.item.limit_source, Role.DIM),
    },
)


class TimingRow(NamedTuple):
    """A timed call: when the call had returned, and when the device had finished the work, in seconds."""

    name: str
    host_seconds: float
    device_seconds: float


def timing_lines(timings: Mapping[str, tuple[float, float]], width: int) -> list[Line]:
    """How much faster the work looks when only the call is timed, without a synchronization."""
    if not timings:
        return []
    columns = fit_columns(TIMING_COLUMNS, width - 2)
    rows = [TimingRow(name, *seconds) for name, seconds in timings.items()]
    return [section_heading(plain(headings(columns)), width), *(line(" ", *row_line(columns, row)) for row in rows)]


TIMING_COLUMNS: Final[tuple[Column[TimingRow], ...]] = columns(
    "timings",
    {
        "timed": names(lambda row: row.name),
        "call-returned": names(lambda row: short_time_text(row.host_seconds)),
        "device-done": names(lambda row: short_time_text(row.device_seconds)),
        "looks-faster-by": names(
            lambda row: MISSING if row.host_seconds <= 0 else f"{row.device_seconds / row.host_seconds:.3g} x"
        ),
    },
)
