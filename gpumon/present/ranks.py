"""The ranks of a training job as the rows of a table."""

from typing import Final

from gpumon.core.collectives import RecordedCollective
from gpumon.core.text import ELLIPSIS
from gpumon.core.units import MISSING, bytes_text, count_text, duration_text, gibibytes_text, short_time_text
from gpumon.operations.training_jobs.report import EXITED, RUNNING, SLOWS, WAITS, RankReport
from gpumon.present.jobs import gpus_text
from gpumon.present.paint.columns import Cells, columns, names, numbers
from gpumon.present.paint.line import Role, Span, dim_if_missing
from gpumon.present.paint.table import Column

_SIZES: Final = {
    "float64": 8, "double": 8, "int64": 8, "long": 8, "float32": 4, "float": 4, "int32": 4, "int": 4, "float16": 2,
    "half": 2, "bfloat16": 2, "int16": 2, "short": 2, "int8": 1, "uint8": 1, "bool": 1, "byte": 1, "char": 1,
}  # fmt: skip
"""Bytes of an element by PyTorch's name of its type, as the flight recorder writes it."""


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


RANK_COLUMNS: Final[tuple[Column[RankReport], ...]] = columns(
    "ranks",
    {
        "rank": numbers(lambda rank: rank.rank),
        "host": Cells(lambda rank, _: Span(rank.host or "this host"), lambda rank: rank.host),
        "gpu": Cells(
            lambda rank, _: dim_if_missing(gpus_text([gpu.label for gpu in rank.gpus])),
            lambda rank: rank.gpus[0].label if rank.gpus else None,
        ),
        "pid": numbers(lambda rank: rank.pid),
        "steps": numbers(lambda rank: rank.steps_count, count_text),
        "step": numbers(lambda rank: rank.step_seconds, short_time_text),
        "late": numbers(lambda rank: rank.late_seconds, short_time_text),
        "collective": Cells(
            lambda rank, _: dim_if_missing(_collective_text(rank)),
            lambda rank: None if rank.collective is None else rank.collective.sequence,
        ),
        "size": names(lambda rank: None if rank.collective is None else _size_text(rank.collective), missing=MISSING),
        "group": names(_group_text, missing=MISSING),
        "state": Cells(lambda rank, _: _rank_state_span(rank), lambda rank: rank.state or None),
        "since": numbers(lambda rank: rank.since_seconds, duration_text),
        "line": Cells(
            lambda rank, width: dim_if_missing(_place_text(rank, width)),
            lambda rank: rank.line or None,
            lambda rank: rank.line,
        ),
        "memory": numbers(lambda rank: rank.memory_bytes, gibibytes_text),
    },
)
"""All columns of the table of ranks."""
