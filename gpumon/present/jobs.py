"""The screens of training jobs as lines: a row per job, a row per rank, and the verdict in a sentence."""

from collections.abc import Sequence
from typing import Final

from gpumon.core.collectives import RecordedCollective
from gpumon.core.text import ELLIPSIS
from gpumon.core.units import MISSING, bytes_text, counted, duration_text, number_text, short_time_text
from gpumon.diagnosis.alerts import ranges_text
from gpumon.operations.jobs.report import EXITED, RUNNING, SLOWS, WAITS, RankReport, TrainingJobReport, TrainingJobState
from gpumon.present.paint.line import Line, Role, Span, clipped, line, wrapped
from gpumon.present.paint.table import Align, Column, Quantity
from gpumon.session.view_state import ViewState

_STATE_TEXTS: Final = {
    TrainingJobState.RUNNING: "● running",
    TrainingJobState.SLOW: "! slow",
    TrainingJobState.WAITING_FOR_DATA: "… waits for data",
    TrainingJobState.HANGING: "x hangs",
    TrainingJobState.UNDECIDED: "? no progress",
    TrainingJobState.FINISHED: "■ finished",
    TrainingJobState.STARTING: "○ starting",
    TrainingJobState.UNKNOWN: "– unknown",
}
_STATE_ROLES: Final = {
    TrainingJobState.RUNNING: Role.ACCENT,
    TrainingJobState.SLOW: Role.WARNING,
    TrainingJobState.WAITING_FOR_DATA: Role.WARNING,
    TrainingJobState.HANGING: Role.ERROR,
    TrainingJobState.UNDECIDED: Role.WARNING,
}
_ATTENTION: Final = (
    TrainingJobState.HANGING,
    TrainingJobState.UNDECIDED,
    TrainingJobState.SLOW,
    TrainingJobState.WAITING_FOR_DATA,
    TrainingJobState.RUNNING,
)
_NOT_READ: Final = "Searching for training jobs ..."
_NO_JOBS: Final = "No training job: no process uses a GPU, has a probe, or is a rank of torchrun, Slurm or MPI."
_SIZES: Final = {
    "float64": 8, "double": 8, "int64": 8, "long": 8, "float32": 4, "float": 4, "int32": 4, "int": 4, "float16": 2,
    "half": 2, "bfloat16": 2, "int16": 2, "short": 2, "int8": 1, "uint8": 1, "bool": 1, "byte": 1, "char": 1,
}  # fmt: skip
"""Bytes of an element by PyTorch's name of its type, as the flight recorder writes it."""


def jobs_title(reports: Sequence[TrainingJobReport]) -> tuple[str, str]:
    """The title of the screen, and details for its right side."""
    ranks = sum(report.running_ranks for report in reports)
    counts = [(state, sum(report.state is state for report in reports)) for state in _ATTENTION]
    details = [f"{count} {_words(state)}" for state, count in counts if count]
    return f"{counted(len(reports), 'job')}, {counted(ranks, 'rank')} on this host", ", ".join(details)


def no_jobs_text(view: ViewState) -> str:
    """What stands in the place of the rows if there are none."""
    return _NO_JOBS if view.jobs.is_read else _NOT_READ


def job_key(report: TrainingJobReport) -> str:
    """Identifies a job over time."""
    return report.key


def rank_key(rank: RankReport) -> str:
    """Identifies a rank of a job over time."""
    return rank.key


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
    """What speaks for the verdict on a job, one sentence each.

    Args:
        report: The job.
        width: Cells of a line.
        height: Number of lines.
    """
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


def size_text(collective: RecordedCollective) -> str:
    """The size of the input of a collective, in bytes where the type is known, else its shapes."""
    total = 0
    for position, shape in enumerate(collective.input_sizes):
        dtype = collective.dtypes[min(position, len(collective.dtypes) - 1)] if collective.dtypes else ""
        size = _SIZES.get(dtype.removeprefix("torch.").lower())
        if size is None:
            return " ".join("×".join(map(str, shape)) or "1" for shape in collective.input_sizes)
        count = 1
        for length in shape:
            count *= length
        total += count * size
    return bytes_text(total) if collective.input_sizes else ""


def _words(state: TrainingJobState) -> str:
    return _STATE_TEXTS[state].partition(" ")[2]


def _state_span(report: TrainingJobReport) -> Span:
    return Span(_STATE_TEXTS[report.state], _STATE_ROLES.get(report.state, Role.DIM))


def _ranks_text(report: TrainingJobReport) -> str:
    here = report.running_ranks
    total = report.world_size
    return str(here) if total in {None, here} else f"{here}/{total}"


def _gpus_text(labels: Sequence[str]) -> str:
    """Labels of GPUs, consecutive ones joined."""
    if not labels:
        return MISSING
    unique = dict.fromkeys(labels)
    if all(label.isdecimal() for label in unique):
        return ranges_text([int(label) for label in unique])
    return ", ".join(unique)


def _dim(text: str) -> Span:
    return Span(text, Role.DIM if text == MISSING else Role.PLAIN)


def _rate_text(value: float | None) -> str:
    """A rate with about three significant digits."""
    decimals = 0 if value is None or value >= 99.5 else 1 if value >= 9.95 else 2
    return number_text(value, decimals)


JOB_COLUMNS: Final[tuple[Column[TrainingJobReport], ...]] = (
    Column(
        "User",
        9,
        lambda report, _: Span(report.user),
        rank=3,
        align=Align.LEFT,
        id="user",
        sort_key=lambda report: report.user,
    ),
    Column(
        "What",
        12,
        lambda report, _: Span(report.name),
        rank=0,
        align=Align.LEFT,
        stretches=True,
        max_width=36,
        id="name",
        sort_key=lambda report: report.name,
    ),
    Column(
        "Started by",
        10,
        lambda report, _: _dim(report.launcher or MISSING),
        rank=6,
        align=Align.LEFT,
        id="launcher",
        sort_key=lambda report: report.launcher or None,
        min_table_width=90,
    ),
    Column(
        "Job",
        14,
        lambda report, _: Span(report.short_id),
        rank=8,
        align=Align.LEFT,
        stretches=True,
        max_width=40,
        id="id",
        text=lambda report: report.id,
        sort_key=lambda report: report.id,
        min_table_width=130,
    ),
    Column(
        "Ranks",
        7,
        lambda report, _: Span(_ranks_text(report)),
        rank=1,
        id="ranks",
        sort_key=lambda report: report.running_ranks,
        descending_first=True,
    ),
    Column(
        "GPUs",
        8,
        lambda report, _: _dim(_gpus_text([gpu.label for gpu in report.gpus])),
        rank=2,
        align=Align.LEFT,
        id="gpus",
        sort_key=lambda report: len(report.gpus),
        descending_first=True,
    ),
    Column(
        "Step",
        8,
        lambda report, _: _dim(short_time_text(report.step_seconds)),
        rank=3,
        id="step",
        sort_key=lambda report: report.step_seconds,
        descending_first=True,
        quantity=Quantity.SECONDS,
    ),
    Column(
        "Steps/s",
        7,
        lambda report, _: _dim(_rate_text(report.steps_per_second)),
        rank=5,
        id="rate",
        sort_key=lambda report: report.steps_per_second,
        descending_first=True,
    ),
    Column(
        "SM%",
        4,
        lambda report, _: _dim(number_text(report.sm_percent)),
        rank=4,
        id="sm",
        sort_key=lambda report: report.sm_percent,
        descending_first=True,
    ),
    Column(
        "GPU mem",
        8,
        lambda report, _: _dim(bytes_text(report.memory_bytes)),
        rank=4,
        id="memory",
        sort_key=lambda report: report.memory_bytes,
        descending_first=True,
        quantity=Quantity.BYTES,
    ),
    Column(
        "State",
        16,
        lambda report, _: _state_span(report),
        rank=0,
        align=Align.LEFT,
        id="state",
        sort_key=lambda report: _STATE_TEXTS[report.state],
        text=lambda report: f"{_STATE_TEXTS[report.state]} {report.state.value}",
    ),
    Column(
        "Since",
        6,
        lambda report, _: _dim(duration_text(report.since_seconds)),
        rank=2,
        id="since",
        sort_key=lambda report: report.since_seconds,
        descending_first=True,
        quantity=Quantity.SECONDS,
    ),
)
"""All columns of the table of jobs."""


def _rank_state_span(rank: RankReport) -> Span:
    if rank.is_culprit and rank.state != SLOWS:
        return Span(f"x {rank.state}", Role.ERROR)
    marks = {SLOWS: "! ", RUNNING: "● ", WAITS: "… ", EXITED: "■ ", "stopped": "! "}
    roles = {RUNNING: Role.ACCENT, SLOWS: Role.WARNING, "stopped": Role.WARNING, "no progress": Role.WARNING}
    return Span(f"{marks.get(rank.state, '')}{rank.state or MISSING}", roles.get(rank.state, Role.DIM))


def _group_text(rank: RankReport) -> str:
    """The process group by its description, without the number that PyTorch gives it."""
    if rank.collective is None:
        return MISSING
    number, _, rest = rank.collective.group.partition(" (")
    description = rest.rstrip(")")
    return "default" if description == "default_pg" else description or number


def _place_text(rank: RankReport, width: int) -> str:
    """The file and the line; where there is no room for both, the end, because the line is worth most."""
    line_text = rank.line or MISSING
    return line_text if len(line_text) <= width else ELLIPSIS + line_text[1 - width :]


def _collective_text(rank: RankReport) -> str:
    collective = rank.collective
    return MISSING if collective is None else f"{collective.name} #{collective.sequence}"


def _collective_size(rank: RankReport) -> str:
    return MISSING if rank.collective is None else size_text(rank.collective) or MISSING


RANK_COLUMNS: Final[tuple[Column[RankReport], ...]] = (
    Column(
        "Rank",
        5,
        lambda rank, _: _dim(MISSING if rank.rank is None else str(rank.rank)),
        rank=0,
        id="rank",
        sort_key=lambda rank: rank.rank,
    ),
    Column(
        "Host",
        10,
        lambda rank, _: Span(rank.host or "this host"),
        rank=7,
        align=Align.LEFT,
        id="host",
        sort_key=lambda rank: rank.host,
        min_table_width=100,
    ),
    Column(
        "GPU",
        5,
        lambda rank, _: _dim(_gpus_text([gpu.label for gpu in rank.gpus])),
        rank=2,
        id="gpu",
        sort_key=lambda rank: rank.gpus[0].label if rank.gpus else None,
    ),
    Column(
        "PID",
        7,
        lambda rank, _: _dim(MISSING if rank.pid is None else str(rank.pid)),
        rank=3,
        id="pid",
        sort_key=lambda rank: rank.pid,
    ),
    Column(
        "Steps",
        8,
        lambda rank, _: _dim(MISSING if rank.steps_count is None else f"{rank.steps_count:,}"),
        rank=4,
        id="steps",
        sort_key=lambda rank: rank.steps_count,
        descending_first=True,
    ),
    Column(
        "Step",
        8,
        lambda rank, _: _dim(short_time_text(rank.step_seconds)),
        rank=6,
        id="step",
        sort_key=lambda rank: rank.step_seconds,
        descending_first=True,
        quantity=Quantity.SECONDS,
        min_table_width=100,
    ),
    Column(
        "Late",
        7,
        lambda rank, _: _dim(short_time_text(rank.late_seconds)),
        rank=6,
        id="late",
        sort_key=lambda rank: rank.late_seconds,
        descending_first=True,
        quantity=Quantity.SECONDS,
        min_table_width=100,
    ),
    Column(
        "Last collective",
        16,
        lambda rank, _: _dim(_collective_text(rank)),
        rank=1,
        align=Align.LEFT,
        stretches=True,
        max_width=30,
        id="collective",
        sort_key=lambda rank: None if rank.collective is None else rank.collective.sequence,
    ),
    Column(
        "Size",
        9,
        lambda rank, _: _dim(_collective_size(rank)),
        rank=5,
        id="size",
        min_table_width=90,
    ),
    Column(
        "Group",
        10,
        lambda rank, _: _dim(_group_text(rank)),
        rank=8,
        align=Align.LEFT,
        id="group",
        sort_key=lambda rank: None if rank.collective is None else rank.collective.group,
        min_table_width=130,
    ),
    Column(
        "State",
        15,
        lambda rank, _: _rank_state_span(rank),
        rank=0,
        align=Align.LEFT,
        id="state",
        sort_key=lambda rank: rank.state or None,
    ),
    Column(
        "Since",
        6,
        lambda rank, _: _dim(duration_text(rank.since_seconds)),
        rank=3,
        id="since",
        sort_key=lambda rank: rank.since_seconds,
        descending_first=True,
        quantity=Quantity.SECONDS,
    ),
    Column(
        "Stands at",
        14,
        lambda rank, width: _dim(_place_text(rank, width)),
        rank=2,
        align=Align.LEFT,
        stretches=True,
        max_width=40,
        id="line",
        text=lambda rank: rank.line,
        sort_key=lambda rank: rank.line or None,
    ),
    Column(
        "GPU mem",
        8,
        lambda rank, _: _dim(bytes_text(rank.memory_bytes)),
        rank=6,
        id="memory",
        sort_key=lambda rank: rank.memory_bytes,
        descending_first=True,
        quantity=Quantity.BYTES,
    ),
)
"""All columns of the table of ranks."""
