"""The output of ``gpumon jobs``: the jobs in a table, then for each job the verdict and its ranks."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpumon.core.problems import Problem
from gpumon.core.ranks import HangKind
from gpumon.operations.training_jobs.report import TrainingJobReport
from gpumon.present.jobs import JOB_COLUMNS, job_title
from gpumon.present.paint.line import plain, wrapped
from gpumon.present.paint.table import Column, fit_columns, headings, row_line
from gpumon.present.ranks import RANK_COLUMNS

_NO_JOBS: Final = "No training job: no process uses a GPU, has a probe, or is a rank of torchrun, Slurm or MPI."


def jobs_lines(reports: Sequence[TrainingJobReport], problems: Sequence[Problem], width: int) -> list[str]:
    """The lines of all jobs.

    Args:
        reports: The jobs.
        problems: Why something is missing.
        width: Cells of a line.
    """
    lines = _table(JOB_COLUMNS, reports, width) if reports else [_NO_JOBS]
    for report in reports:
        lines += ["", job_title(report)[0], *_sentences(report, width)]
        if len(report.ranks) > 1 or (report.verdict is not None and report.verdict.is_hang):
            lines += _table(RANK_COLUMNS, report.ranks, width)
    notes = [str(problem) for problem in problems]
    return [*lines, *([""] if notes else []), *(text for note in notes for text in wrapped(note, width))]


def _sentences(report: TrainingJobReport, width: int) -> Iterator[str]:
    yield from wrapped(report.headline, width)
    if report.verdict is not None and report.verdict.kind is not HangKind.RUNNING:
        for sentence in report.verdict.evidence:
            yield from wrapped(f"  - {sentence}", width)
    for problem in report.problems:
        yield from wrapped(str(problem), width)


def _table(columns: Sequence[Column[Any]], rows: Sequence[Any], width: int) -> list[str]:
    placed = fit_columns(columns, width)
    return [plain(headings(placed)).rstrip(), *(plain(row_line(placed, row)).rstrip() for row in rows)]
