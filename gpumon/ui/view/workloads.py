"""The tables of the workloads screen: what can be run, what was run by this gpumon, and what was kept from before."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpumon.core.text import safe_text
from gpumon.core.units import MISSING, age_text
from gpumon.jobs.catalogue import BrokenWorkload, Catalogue, WorkloadInfo
from gpumon.jobs.protocol import VerdictKind
from gpumon.ui.jobs import BoardRun
from gpumon.ui.paint.bar import progress_bar
from gpumon.ui.paint.columns import Align, Column
from gpumon.ui.paint.line import Role, Span
from gpumon.ui.view.figures import change_text, figure_text, words

_VERDICT_WORDS: Final = {
    VerdictKind.OK: ("OK", Role.ACCENT),
    VerdictKind.WARN: ("!WARN", Role.WARNING),
    VerdictKind.FAIL: ("!FAIL", Role.ERROR),
    VerdictKind.CANCELLED: ("CANCELLED", Role.DIM),
}
_MOST_SHOWN_PERCENT: Final = 100


def state_span(entry: BoardRun) -> Span:
    """How a run stands, in a word or two."""
    state = entry.run.state
    if state.result is not None and entry.run.ended:
        return Span(*_VERDICT_WORDS[state.result.verdict])
    if entry.run.ended:
        return Span("!NOT HERE", Role.WARNING)
    if entry.stopping:
        return Span("STOPPING", Role.WARNING)
    if state.plan is None:
        return Span("STARTING", Role.DIM)
    return Span("WAITING", Role.WARNING) if state.waits_for_leave else Span("RUNNING", Role.ACCENT)


def why(entry: BoardRun) -> str:
    """Why it ended as it did."""
    state = entry.run.state
    return state.result.why if state.result is not None else state.not_here or ""


def elapsed_seconds(entry: BoardRun, now: float) -> float | None:
    """How long it has worked, or None before it began."""
    began = entry.run.state.began_seconds
    if began is None:
        return None
    return max(0.0, (now if entry.ended_seconds is None else entry.ended_seconds) - began)


def main_figure(entry: BoardRun) -> str:
    """The figure that says most: the first of the result, before that the latest of the first live one."""
    state = entry.run.state
    if state.result is not None and state.result.figures:
        first = state.result.figures[0]
        return figure_text(first["value"], first["unit"])
    for name, samples in state.metrics.items():
        return figure_text(samples[-1].value, state.units[name])
    return MISSING


def main_change(entry: BoardRun) -> str:
    """By how much that figure differs from the last run like this one."""
    state = entry.run.state
    if state.result is None or not state.result.figures:
        return ""
    name = state.result.figures[0]["name"]
    return next((change_text(each.share) for each in entry.run.changes if each.name == name), "")


# What can be run

WorkloadRow = WorkloadInfo | BrokenWorkload


def workload_rows(catalogue: Catalogue) -> list[WorkloadRow]:
    """Workloads, then the files that are none."""
    return [*catalogue.workloads, *catalogue.broken]


def workload_key(row: WorkloadRow) -> str:
    """What identifies a row."""
    return row.name if isinstance(row, WorkloadInfo) else str(row.file)


def workload_note(row: WorkloadRow) -> str:
    """All that is said of a row."""
    if isinstance(row, BrokenWorkload):
        return f"{safe_text(str(row.file))} is no workload. {row.reason}"
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


def _needs(row: WorkloadRow, _: int) -> Span:
    return Span("" if isinstance(row, BrokenWorkload) else row.needs, Role.DIM)


WORKLOAD_COLUMNS: Final[tuple[Column[WorkloadRow], ...]] = (
    Column("Workload", 14, _workload_name, rank=0, align=Align.LEFT),
    Column("Runs on", 8, _runs_on, rank=2, align=Align.LEFT),
    Column("Purpose", 30, _purpose, rank=1, align=Align.LEFT, stretches=True),
    Column("Needs", 30, _needs, rank=3, align=Align.LEFT, stretches=True, least_table_width=130),
)


# What was run


class RunRow(NamedTuple):
    """A run at a moment (Unix time)."""

    entry: BoardRun
    now: float


def _run_name(row: RunRow, _: int) -> Span:
    return Span(row.entry.run.request.workload.name, Role.ACCENT)


def _run_place(row: RunRow, _: int) -> Span:
    return Span(row.entry.place.words)


def _run_state(row: RunRow, _: int) -> Span:
    return state_span(row.entry)


def _run_time(row: RunRow, _: int) -> Span:
    """What remains, marked as such; the whole time of one that has ended."""
    remaining = row.entry.run.state.remaining_seconds(row.now)
    if remaining is not None:
        return Span(f"{age_text(remaining)} left")
    return Span(age_text(elapsed_seconds(row.entry, row.now)))


def _run_course(row: RunRow, width: int) -> Span:
    """How far it has come, or why it ended so."""
    if row.entry.run.ended:
        return Span(why(row.entry))
    state = row.entry.run.state
    if state.began_seconds is None:
        return Span("waits for your answer" if state.plan is not None else "loads torch", Role.DIM)
    share = state.share_done
    percent = f" {(share or 0.0) * _MOST_SHOWN_PERCENT:3.0f} %"
    return Span(progress_bar(share, max(0, width - len(percent))) + percent, Role.GPU_HISTORY)


def _run_figure(row: RunRow, _: int) -> Span:
    return Span(main_figure(row.entry))


def _run_change(row: RunRow, _: int) -> Span:
    return Span(main_change(row.entry))


RUN_COLUMNS: Final[tuple[Column[RunRow], ...]] = (
    Column("Run", 13, _run_name, rank=0, align=Align.LEFT),
    Column("Device", 6, _run_place, rank=1, align=Align.LEFT),
    Column("State", 9, _run_state, rank=0, align=Align.LEFT),
    Column("Time", 9, _run_time, rank=2),
    Column("Figure", 15, _run_figure, rank=3),
    Column("Change", 8, _run_change, rank=5),
    Column("Progress, or why it ended so", 14, _run_course, rank=4, align=Align.LEFT, stretches=True),
)


# What was kept

EarlierRow = Mapping[str, Any]


def earlier_rows(results: Iterable[EarlierRow], most: int) -> list[EarlierRow]:
    """The newest kept results, as many as there is room for."""
    return [result for result, _ in zip(results, range(most), strict=False)]


def _text(row: EarlierRow, name: str) -> str:
    value = row.get(name)
    return MISSING if value is None else safe_text(str(value), 300)


def _earlier_name(row: EarlierRow, _: int) -> Span:
    return Span(_text(row, "workload"), Role.DIM)


def _earlier_when(row: EarlierRow, _: int) -> Span:
    seconds = row.get("time_seconds")
    try:
        moment = datetime.fromtimestamp(float(str(seconds))).astimezone()
    except (ValueError, OverflowError, OSError):
        return Span(MISSING, Role.DIM)
    return Span(moment.strftime("%Y-%m-%d %H:%M"), Role.DIM)


def _earlier_device(row: EarlierRow, _: int) -> Span:
    name = row.get("device_name") or row.get("device") or MISSING
    return Span(safe_text(str(name), 60).removeprefix("NVIDIA "), Role.DIM)


def _earlier_verdict(row: EarlierRow, _: int) -> Span:
    return Span(_text(row, "verdict").upper(), Role.DIM)


def _earlier_figure(row: EarlierRow, _: int) -> Span:
    figures: Sequence[Any] = row.get("figures") or ()
    first = figures[0] if figures and isinstance(figures[0], dict) else {}
    return Span(safe_text(figure_text(first.get("value"), str(first.get("unit", ""))), 40), Role.DIM)


def _earlier_what(row: EarlierRow, _: int) -> Span:
    parameters = row.get("parameters")
    if not isinstance(parameters, dict):
        return Span("")
    text = " ".join(f"{words(str(name))}={value}" for name, value in parameters.items())
    return Span(safe_text(text, 200), Role.DIM)


EARLIER_COLUMNS: Final[tuple[Column[EarlierRow], ...]] = (
    Column("Earlier", 13, _earlier_name, rank=0, align=Align.LEFT),
    Column("When", 16, _earlier_when, rank=2, align=Align.LEFT),
    Column("Device", 12, _earlier_device, rank=3, align=Align.LEFT),
    Column("Verdict", 9, _earlier_verdict, rank=1, align=Align.LEFT),
    Column("Figure", 15, _earlier_figure, rank=1),
    Column("Parameters", 14, _earlier_what, rank=4, align=Align.LEFT, stretches=True),
)
