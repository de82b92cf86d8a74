"""The screens of training jobs as lines: a row per job, and the verdict in a sentence."""

from collections.abc import Sequence
from typing import Final

from gpumon.core.text import ELLIPSIS
from gpumon.core.text_table import table
from gpumon.core.units import MISSING, counted, duration_text, gibibytes_text, number_text, short_time_text
from gpumon.health.alerts import ranges_text
from gpumon.operations.training_jobs.report import TrainingJobReport, TrainingJobState
from gpumon.present.paint.columns import Cells, columns, names, numbers
from gpumon.present.paint.line import Line, Role, Span, clipped, dim_if_missing, line, width_of, wrapped
from gpumon.present.paint.table import Column
from gpumon.session.view_state import ViewState

_STATES: Final = [row.split(" ", 2) for row in table(__package__, "job_states")]
_STATE_TEXTS: Final = {TrainingJobState[state]: text for state, _, text in _STATES}
_STATE_ROLES: Final = {TrainingJobState[state]: Role[role] for state, role, _ in _STATES if role != "-"}
_ATTENTION: Final = (TrainingJobState.HANGING, TrainingJobState.UNDECIDED, TrainingJobState.SLOW)
"""States that the title counts first."""
_NO_JOBS: Final = "No training job: no process uses a GPU, has a probe, or is a rank of torchrun, Slurm or MPI."


def jobs_title(reports: Sequence[TrainingJobReport]) -> tuple[str, str]:
    """The title of the screen, and details for its right side."""
    ranks = sum(report.running_ranks for report in reports)
    states = dict.fromkeys((*_ATTENTION, *_STATE_TEXTS))
    counts = [(state, sum(report.state is state for report in reports)) for state in states]
    details = [f"{count} {_STATE_TEXTS[state].partition(' ')[2]}" for state, count in counts if count]
    return f"{counted(len(reports), 'job')}, {counted(ranks, 'rank')} on this host", ", ".join(details)


def no_jobs_text(view: ViewState) -> str:
    """What stands in the place of the rows if there are none."""
    return _NO_JOBS if view.jobs.is_read else "Searching for training jobs ..."


def headline_lines(report: TrainingJobReport | None, width: int, height: int) -> list[Line]:
    """The verdict on a job, or what it does, and why values are missing.

    Args:
        report: The job, or None.
        width: Cells of a line.
        height: Number of lines; what has no room is left out.
    """
    if report is None or height < 1:
        return []
    role = _STATE_ROLES.get(report.state, Role.PLAIN)
    texts = [(text, role) for text in wrapped(report.headline, max(20, width - 2))]
    for problem in report.problems:
        texts += [(text, Role.DIM) for text in wrapped(str(problem), max(20, width - 2))]
    if len(texts) > height:
        text, text_role = texts[height - 1]
        texts[height - 1] = (clipped(f"{text} {ELLIPSIS}", width - 2), text_role)
    return [line(Span(f" {text}", text_role)) for text, text_role in texts[:height]]


def evidence_lines(report: TrainingJobReport, width: int, height: int) -> list[Line]:
    """What speaks for the verdict on a job, one sentence each."""
    sentences = () if report.verdict is None else report.verdict.evidence
    texts = [text for sentence in sentences for text in wrapped(f"· {sentence}", max(20, width - 2))]
    return [line(Span(f" {text}", Role.DIM)) for text in texts[:height]]


def job_title(report: TrainingJobReport) -> tuple[str, str]:
    """The title of the screen of a job, and details for its right side."""
    launcher = f" {report.launcher}" if report.launcher else ""
    step = "" if report.step_seconds is None else f"step {short_time_text(report.step_seconds)}, "
    return (
        f"{report.name} of {report.user}:{launcher} {report.short_id}",
        f"{step}{_ranks_text(report)} {'rank' if _ranks_text(report) == '1' else 'ranks'}",
    )


def _ranks_text(report: TrainingJobReport) -> str:
    here = report.running_ranks
    total = report.world_size
    return str(here) if total in {None, here} else f"{here}/{total}"


def gpus_text(labels: Sequence[str], width: int = 1000) -> str:
    """Labels of GPUs, consecutive ones joined: ``0-3,6``; their number where the list has more cells."""
    if not labels:
        return MISSING
    unique = dict.fromkeys(labels)
    is_plain = all(label.isdecimal() for label in unique)
    text = ranges_text([int(label) for label in unique]) if is_plain else ", ".join(unique)
    short = text.replace(", ", ",")
    return short if width_of(short) <= width else counted(len(unique), "GPU")


def _rate_text(value: float | None) -> str:
    """A rate with about three significant digits."""
    decimals = 0 if value is None or value >= 99.5 else 1 if value >= 9.95 else 2
    return number_text(value, decimals)


JOB_COLUMNS: Final[tuple[Column[TrainingJobReport], ...]] = columns(
    "jobs",
    {
        "user": names(lambda report: report.user),
        "name": names(lambda report: report.name),
        "launcher": names(lambda report: report.launcher, missing=MISSING),
        "id": Cells(lambda report, _: Span(report.short_id), lambda report: report.id, lambda report: report.id),
        "ranks": Cells(lambda report, _: Span(_ranks_text(report)), lambda report: report.running_ranks),
        "gpus": Cells(
            lambda report, width: dim_if_missing(gpus_text([gpu.label for gpu in report.gpus], width)),
            lambda report: len(report.gpus),
        ),
        "step": numbers(lambda report: report.step_seconds, short_time_text),
        "rate": numbers(lambda report: report.steps_per_second, _rate_text),
        "sm": numbers(lambda report: report.sm_percent),
        "memory": numbers(lambda report: report.memory_bytes, gibibytes_text),
        "probe": names(lambda report: report.probe, missing=MISSING),
        "state": Cells(
            lambda report, _: Span(_STATE_TEXTS[report.state], _STATE_ROLES.get(report.state, Role.DIM)),
            lambda report: _STATE_TEXTS[report.state],
            lambda report: f"{_STATE_TEXTS[report.state]} {report.state.value}",
        ),
        "since": numbers(lambda report: report.since_seconds, duration_text),
    },
)
"""All columns of the table of jobs."""
