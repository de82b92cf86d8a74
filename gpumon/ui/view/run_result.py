"""What a run found: its verdict and figures, when calls returned, and the errors that it met."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Final, NamedTuple

from gpumon.core.units import MISSING
from gpumon.jobs.protocol import VerdictKind
from gpumon.jobs.state import NOT_HERE, JobError
from gpumon.operations.workload import Change
from gpumon.ui.jobs import BoardRun
from gpumon.ui.paint.columns import Align, Column, headings, place, row_line
from gpumon.ui.paint.line import Line, Role, Span, line, plain
from gpumon.ui.paint.text import wrapped
from gpumon.ui.view.figures import change_text, figure_text, share_of_limit, share_text, words
from gpumon.ui.view.workloads import state_span, why

_MOST_ERROR_LINES: Final = 12


class FigureRow(NamedTuple):
    """A figure of a result, and its change against the last run like it."""

    figure: Mapping[str, Any]
    change: Change | None


def result_lines(entry: BoardRun, width: int) -> list[Line]:
    """The verdict, why, and every figure; nothing before the end."""
    if not entry.run.ended:
        return []
    state = state_span(entry)
    lines = [line(Span(" Result".ljust(width), Role.HEADING))]
    first, *rest = wrap(why(entry), max(20, width - len(state.text) - 4)) or [""]
    lines.append(line(Span(f" {state.text}  ", state.role), first))
    lines += [line(" " * (len(state.text) + 3) + more) for more in rest]
    if entry.run.problem is not None:
        lines += [line(Span(f" ! {each}", Role.WARNING)) for each in wrap(str(entry.run.problem), max(20, width - 4))]
    result = entry.run.state.result
    if result is None or not result.figures:
        return lines
    changes = {each.name: each for each in entry.run.changes}
    rows = [FigureRow(figure, changes.get(figure["name"])) for figure in result.figures]
    columns = place(FIGURE_COLUMNS, width - 2)
    lines += [(), line(Span(" " + plain(headings(columns)), Role.ACCENT))]
    lines += [line(" ", *row_line(columns, row)) for row in rows]
    if entry.run.changes:
        lines.append(line(Span(" Change: against the last run like this one on this device.", Role.DIM)))
    return lines


def _name(row: FigureRow, _: int) -> Span:
    return Span(words(row.figure["name"]))


def _value(row: FigureRow, _: int) -> Span:
    return Span(figure_text(row.figure["value"], row.figure["unit"]))


def _limit(row: FigureRow, _: int) -> Span:
    limit = row.figure.get("limit")
    return Span("" if limit is None else figure_text(limit, row.figure["unit"]))


def _share(row: FigureRow, _: int) -> Span:
    share = share_of_limit(row.figure)
    return Span("" if share is None else share_text(share))


def _repetitions(row: FigureRow, _: int) -> Span:
    return Span(str(row.figure["repetitions"]))


def _change(row: FigureRow, _: int) -> Span:
    return Span("" if row.change is None else change_text(row.change.share))


def _source(row: FigureRow, _: int) -> Span:
    return Span(str(row.figure.get("limit_source") or ""), Role.DIM)


FIGURE_COLUMNS: Final[tuple[Column[FigureRow], ...]] = (
    Column("Figure", 24, _name, rank=0, align=Align.LEFT),
    Column("Value", 15, _value, rank=0),
    Column("Limit", 15, _limit, rank=2),
    Column("of limit", 8, _share, rank=1),
    Column("Times", 6, _repetitions, rank=4),
    Column("Change", 8, _change, rank=3),
    Column("Where the limit comes from", 26, _source, rank=5, align=Align.LEFT, stretches=True),
)


# When calls returned


class TimingRow(NamedTuple):
    """What was timed: when the call had returned, and when the device had done the work, in seconds."""

    name: str
    host_seconds: float
    device_seconds: float


def timing_lines(timings: Mapping[str, tuple[float, float]], width: int) -> list[Line]:
    """How much too fast a clock around the call alone would have found the work."""
    if not timings:
        return []
    columns = place(TIMING_COLUMNS, width - 2)
    heading = (" " + plain(headings(columns))).ljust(width)
    lines = [line(Span(heading, Role.HEADING))]
    rows = [TimingRow(name, *seconds) for name, seconds in timings.items()]
    return lines + [line(" ", *row_line(columns, row)) for row in rows]


def duration(seconds: float) -> str:
    """A short time with three significant digits: ``4.10 µs``, ``12.0 ms``."""
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
    factor, unit = next((each for each in units if seconds >= each[0] * 0.9995), units[-1])
    scaled = seconds / factor
    decimals = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{decimals}f} {unit}"


def _timed(row: TimingRow, _: int) -> Span:
    return Span(row.name)


def _returned(row: TimingRow, _: int) -> Span:
    return Span(duration(row.host_seconds))


def _done(row: TimingRow, _: int) -> Span:
    return Span(duration(row.device_seconds))


def _too_fast(row: TimingRow, _: int) -> Span:
    if row.host_seconds <= 0:
        return Span(MISSING)
    return Span(f"{row.device_seconds / row.host_seconds:.3g} x")


TIMING_COLUMNS: Final[tuple[Column[TimingRow], ...]] = (
    Column("Timed", 26, _timed, rank=0, align=Align.LEFT),
    Column("Call returned", 14, _returned, rank=1),
    Column("Device done", 12, _done, rank=1),
    Column("Looks too fast", 14, _too_fast, rank=2),
)


# Errors


def error_lines(errors: Sequence[JobError], width: int) -> list[Line]:
    """Each error that it met, with its class, what is known of it in a sentence, and its text."""
    if not errors:
        return []
    from gpumon.ui.view.explain import recognised  # it brings the catalogue of errors, which few runs need

    lines = [line(Span(" Errors   e explains them".ljust(width), Role.HEADING))]
    for error in errors:
        role, mark = (Role.ACCENT, "") if error.expected else (Role.ERROR, "! ")
        belongs = " (belongs to what is shown)" if error.expected else ""
        lines.append(line(Span(f" {mark}{error.kind}", role), Span(belongs, Role.DIM)))
        known = recognised(error_text(error))
        meaning = [] if known is None else wrapped(f"{known.title}: {known.summary}", width - 5)
        lines += [line(Span(f"   {each}", Role.ACCENT)) for each in meaning]
        lines += [line(f"   {each}") for each in wrapped(error.text, width - 5)[:_MOST_ERROR_LINES]]
    return lines


def error_text(error: JobError) -> str:
    """An error as Python prints it."""
    return f"{error.kind}: {error.text}"


def troubles(entry: BoardRun) -> str:
    """All that there is to explain of a run: its errors, or what it printed if it failed without telling one."""
    run = entry.run
    errors = [error_text(each) for each in run.state.errors if each.kind != NOT_HERE]
    if errors:
        return "\n\n".join(errors)
    failed = run.state.result is not None and run.state.result.verdict is VerdictKind.FAIL
    return "\n".join(each.text for each in list(run.job.log)) if failed else ""
