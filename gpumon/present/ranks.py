"""The ranks of a training job as the rows of a table."""

from typing import Final

from gpumon.core.collectives import RecordedCollective
from gpumon.core.text import ELLIPSIS
from gpumon.core.units import MISSING, bytes_text, count_text, duration_text, number_text, short_time_text
from gpumon.operations.training_jobs.report import EXITED, RUNNING, SLOWS, WAITS, RankReport
from gpumon.present.jobs import gpus_text
from gpumon.present.paint.columns import number_column, text_column
from gpumon.present.paint.line import Role, Span, dim_if_missing
from gpumon.present.paint.table import Align, Column

_SIZES: Final = {
    "float64": 8, "double": 8, "int64": 8, "long": 8, "float32": 4, "float": 4, "int32": 4, "int": 4, "float16": 2,
    "half": 2, "bfloat16": 2, "int16": 2, "short": 2, "int8": 1, "uint8": 1, "bool": 1, "byte": 1, "char": 1,
}  # fmt: skip
"""Bytes of an element by PyTorch's name of its type, as the flight recorder writes it."""


def rank_key(rank: RankReport) -> str:
    """Identifies a rank of a job over time."""
    return rank.key


def _size_text(collective: RecordedCollective) -> str:
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


def _rank_state_span(rank: RankReport) -> Span:
    if rank.is_culprit and rank.state != SLOWS:
        return Span(f"x {rank.state}", Role.ERROR)
    marks = {SLOWS: "! ", RUNNING: "● ", WAITS: "… ", EXITED: "■ ", "stopped": "! "}
    roles = {RUNNING: Role.ACCENT, SLOWS: Role.WARNING, "stopped": Role.WARNING, "no progress": Role.WARNING}
    return Span(f"{marks.get(rank.state, '')}{rank.state or MISSING}", roles.get(rank.state, Role.DIM))


def _state(rank: RankReport) -> str | None:
    return rank.state or None


def _group_text(rank: RankReport) -> str:
    """The process group by its description, without the number that PyTorch gives it."""
    if rank.collective is None:
        return ""
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
    return MISSING if rank.collective is None else _size_text(rank.collective) or MISSING


RANK_COLUMNS: Final[tuple[Column[RankReport], ...]] = (
    number_column("Rank", 5, "rank", lambda rank: rank.rank, number_text, descending_first=False),
    Column(
        "Host",
        10,
        lambda rank, _: Span(rank.host or "this host"),
        7,
        Align.LEFT,
        id="host",
        sort_key=lambda rank: rank.host,
        min_table_width=100,
    ),
    Column(
        "GPU",
        5,
        lambda rank, _: dim_if_missing(gpus_text([gpu.label for gpu in rank.gpus])),
        2,
        id="gpu",
        sort_key=lambda rank: rank.gpus[0].label if rank.gpus else None,
    ),
    number_column("PID", 7, "pid", lambda rank: rank.pid, number_text, rank=3, descending_first=False),
    number_column("Steps", 8, "steps", lambda rank: rank.steps_count, count_text, rank=4),
    number_column("Step", 8, "step", lambda rank: rank.step_seconds, short_time_text, rank=6, min_table_width=100),
    number_column("Late", 7, "late", lambda rank: rank.late_seconds, short_time_text, rank=6, min_table_width=100),
    Column(
        "Last collective",
        16,
        lambda rank, _: dim_if_missing(_collective_text(rank)),
        1,
        Align.LEFT,
        stretches=True,
        max_width=30,
        id="collective",
        sort_key=lambda rank: None if rank.collective is None else rank.collective.sequence,
    ),
    Column("Size", 9, lambda rank, _: dim_if_missing(_collective_size(rank)), 5, id="size", min_table_width=90),
    text_column("Group", 10, "group", _group_text, rank=8, missing=MISSING, min_table_width=130),
    Column("State", 15, lambda rank, _: _rank_state_span(rank), 0, Align.LEFT, id="state", sort_key=_state),
    number_column("Since", 6, "since", lambda rank: rank.since_seconds, duration_text, rank=3),
    Column(
        "Stands at",
        14,
        lambda rank, width: dim_if_missing(_place_text(rank, width)),
        2,
        Align.LEFT,
        stretches=True,
        max_width=40,
        id="line",
        text=lambda rank: rank.line,
        sort_key=lambda rank: rank.line or None,
    ),
    number_column("GPU mem", 8, "memory", lambda rank: rank.memory_bytes, bytes_text, rank=6),
)
"""All columns of the table of ranks."""
