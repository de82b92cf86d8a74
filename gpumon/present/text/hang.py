"""The output of ``gpumon hang``: the answer in a few lines, and a table of the ranks."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.collectives import CollectiveState
from gpumon.core.groups import grouped
from gpumon.core.ranks import RankEvidence
from gpumon.core.units import MISSING, counted, local_time_text
from gpumon.health.alerts import ranges_text
from gpumon.insight.hangs import line_of
from gpumon.operations.hang_files.report import HangReport
from gpumon.operations.training_jobs.host_report import last_collective
from gpumon.present.paint.cell_table import CellColumn, cell_table, fitting_columns
from gpumon.present.paint.line import plain

_MAX_PROBLEMS: Final = 3
_MAX_ROWS: Final = 40
_MAX_RANKS_CELLS: Final = 48
_LABELS: Final = {"recorder": "flight recorder", "log": "log", "stacks": "stack file", "ras": "RAS report"}


def hang_lines(report: HangReport, width: int) -> list[str]:
    """The lines of a report.

    Args:
        report: The report.
        width: Cells of a line of the table, or 0 for as many as it needs.
    """
    return [*_answer(report), *_table(report, width)]


def _answer(report: HangReport) -> Iterator[str]:
    verdict = report.verdict
    yield verdict.summary[:1].upper() + verdict.summary[1:]
    culprit = next((rank for rank in report.ranks if rank.rank == verdict.rank), None)
    if culprit is not None and verdict.is_hang:
        last = last_collective(culprit.recording)
        if last is not None:
            at = next((frame for frame in last.frames if "/torch/" not in frame.file), None)
            place = "" if at is None else f" in {at.file.rpartition('/')[2]}:{at.line}"
            yield f"Its last collective: {last.name} #{last.sequence}{place} ({last.state.value})."
    if verdict.waiting_ranks and verdict.is_hang:
        first = next((rank for rank in report.ranks if rank.rank in verdict.waiting_ranks), None)
        line = "" if first is None else line_of(first)
        yield f"Waiting: ranks {_short(ranges_text(verdict.waiting_ranks))}{f', in {line}' if line else ''}."
    if report.last_progress_seconds is not None and verdict.is_hang:
        yield f"Since {local_time_text(report.last_progress_seconds, '%Y-%m-%d %H:%M:%S')}, by the clock of the ranks."
    if verdict.is_hang and report.last_progress_seconds is None and verdict.since_seconds is None:
        yield "The files are of one moment: whether it has passed, only a second set of them shows."
    if report.missing:
        yield f"No file shows {counted(len(report.missing), 'rank')}: {_short(ranges_text(report.missing))}."
    yield f"Read: {', '.join(counted(count, _LABELS[kind]) for kind, count in report.counts.items())}."
    yield from report.problems[:_MAX_PROBLEMS]
    if len(report.problems) > _MAX_PROBLEMS:
        yield f"{counted(len(report.problems) - _MAX_PROBLEMS, 'more file')} could not be read."


def _table(report: HangReport, width: int) -> Iterator[str]:
    """Ranks that are alike share a row; the rank that is the reason comes first."""
    ordered = sorted(report.ranks, key=lambda rank: (rank.rank != report.verdict.rank, rank.rank))
    rows = grouped((_cells(rank, report), rank.rank) for rank in ordered)
    if not rows:
        return
    shown = list(rows.items())[:_MAX_ROWS]
    names = ("State", "Collective", "Progress", "Line", "Entered")
    columns = [CellColumn(["Rank"], [_short(ranges_text(ranks)) for _, ranks in shown], 0)]
    columns += [CellColumn([name], [cells[place] for cells, _ in shown], place) for place, name in enumerate(names)]
    yield ""
    yield from (plain(row).rstrip() for row in cell_table(fitting_columns(columns, width)))
    if len(rows) > _MAX_ROWS:
        yield f"{len(rows) - _MAX_ROWS} more rows: --json has all ranks."


def _cells(rank: RankEvidence, report: HangReport) -> tuple[str, ...]:
    verdict = report.verdict
    state = "waits" if rank.rank in verdict.waiting_ranks else "ended" if rank.exited else ""
    if rank.rank == verdict.rank and verdict.is_hang:
        state = verdict.kind.value.replace("_", " ")
    pending = () if rank.recording is None else rank.recording.collectives
    oldest = next((entry for entry in pending if entry.state is not CollectiveState.COMPLETED), None)
    entry = oldest or last_collective(rank.recording)
    name, progress = (MISSING, MISSING) if entry is None else (f"{entry.name} #{entry.sequence}", entry.state.value)
    groups = () if rank.recording is None else rank.recording.groups
    entered = max((group.last_enqueued or 0 for group in groups), default=0)
    return state, name, progress, line_of(rank) or MISSING, str(entered or MISSING)


def _short(text: str) -> str:
    """Ranges of ranks that are not longer than a cell."""
    return text if len(text) <= _MAX_RANKS_CELLS else f"{text[:_MAX_RANKS_CELLS].rpartition(',')[0]}, …"
