"""The columns of the tables of the fleet. A cell is made when its row becomes visible."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gpumon.core.model import short_product_name
from gpumon.core.units import (
    age_text,
    bytes_text,
    count_text,
    megahertz_text,
    number_text,
    percent_text,
    power_text,
)
from gpumon.fleet.model import AGE, FleetGpu
from gpumon.operations.fleet.findings import CLOCK, POWER, TOTAL, USED, UTILIZATION, FindingKind, FleetFinding
from gpumon.operations.fleet.report import FleetGroup, FleetReport, job_of
from gpumon.present.metric_style import load_role
from gpumon.present.paint.bar import fine_bar
from gpumon.present.paint.columns import number_column, text_column
from gpumon.present.paint.line import Line, Role, Span, merged
from gpumon.present.paint.table import Align, Column, RowT

_BAR: Final = 6
_OF_SLURM: Final = frozenset({"name", "alloc", "req", "used"})
"""Columns whose values come from Slurm, or are compared with them."""


class GpuRow(NamedTuple):
    """A GPU of the fleet."""

    report: FleetReport
    position: int

    @property
    def gpu(self) -> FleetGpu:
        """Its identity."""
        return self.report.snapshot.gpus[self.position]

    def value(self, metric_id: str) -> float | None:
        """A value, or None."""
        return self.report.snapshot.value(metric_id, self.position)

    @property
    def finding(self) -> str:
        """What stands out."""
        return ", ".join(finding.kind.value for finding in self.report.findings_by_gpu.get(self.position, ()))


class FindingRow(NamedTuple):
    """A finding, and its GPU."""

    report: FleetReport
    finding: FleetFinding

    @property
    def gpu(self) -> FleetGpu | None:
        """The GPU, or None for a host."""
        position = self.finding.position
        return None if position is None else self.report.snapshot.gpus[position]


def unsearched_column(
    heading: str,
    width: int,
    column_id: str,
    value: Callable[[RowT], float | None],
    text: Callable[[float | None], str],
    *,
    rank: int = 0,
) -> Column[RowT]:
    """A column of numbers that filters find by expressions: their texts, for thousands of rows, would take time."""
    return replace(number_column(heading, width, column_id, value, text, rank=rank, span=Span), text=no_text)


def percent_column(value: Callable[[RowT], float | None], rank: int) -> Column[RowT]:
    """The utilization as a number, with a bar where there is room."""
    return Column(
        "Util",
        5,
        lambda row, width: _percent_line(value(row), width),
        rank,
        Align.LEFT,
        stretches=True,
        max_width=_BAR + 6,
        id="util",
        sort_key=value,
        descending_first=True,
        text=no_text,
    )


def no_text(_: object) -> str:
    """The text of a column that words of a filter do not search."""
    return ""


def _percent_line(percent: float | None, width: int) -> Line:
    text = f"{percent_text(percent):>4}"
    if width < _BAR + 5:
        return (Span(text, load_role(percent)),)
    share = None if percent is None else percent / 100
    return merged((Span(f"{text} "), *fine_bar(share, width - 5, load_role(percent))))


def _group_columns(heading: str, first: str) -> tuple[Column[FleetGroup], ...]:
    """The columns of hosts, jobs and users."""

    def findings_text(row: FleetGroup) -> str:
        return (f"! {row.findings}" if row.findings else "") if row.positions else "! silent"

    def name_role(row: FleetGroup) -> Role:
        return Role.PLAIN if row.positions else Role.ERROR

    def findings_role(row: FleetGroup) -> Role:
        return Role.WARNING if row.positions else Role.ERROR

    requested = "Alloc" if first == "host" else "Req"
    is_job = first == "job"
    columns: tuple[Column[FleetGroup], ...] = (
        text_column(heading, 14, first, lambda row: row.name, max_width=40 if is_job else 28, role=name_role),
        text_column("Name", 10, "name", lambda row: row.title, rank=6, max_width=30),
        unsearched_column("GPUs", 5, "gpus", lambda row: len(row.positions), count_text, rank=1),
        unsearched_column(requested, 5, requested.lower(), lambda row: row.requested, count_text, rank=2),
        unsearched_column("Used", 5, "used", lambda row: row.used, count_text, rank=2),
        unsearched_column("Busy", 5, "busy", lambda row: row.totals.busy, count_text, rank=5 if first == "host" else 7),
        percent_column(lambda row: row.totals.utilization_percent, 2),
        unsearched_column("Memory", 9, "mem", lambda row: row.totals.used_bytes, bytes_text, rank=3),
        unsearched_column("Power", 8, "power", lambda row: row.totals.power_watts, power_text, rank=4),
        unsearched_column("Hosts", 5, "hosts", lambda row: row.hosts, count_text, rank=6),
        text_column("Jobs", 10, "jobs", lambda row: " ".join(row.jobs), rank=8, max_width=40, aliases=("job",)),
        text_column(
            "Users",
            8,
            "users",
            lambda row: " ".join(row.users),
            rank=2 if is_job else 9,
            max_width=20,
            aliases=("user",),
        ),
        text_column("Model", 14, "model", lambda row: short_product_name(row.model), rank=10, min_table_width=100),
        unsearched_column("Age", 4, "age", lambda row: row.age_seconds, age_text, rank=7),
        text_column("Found", 8, "found", findings_text, rank=4, role=findings_role),
    )
    hidden = {f"{first}s"} | ({"name"} if first != "job" else set()) | ({"used"} if first == "host" else set())
    return tuple(column for column in columns if column.id not in hidden)


def without_slurm(columns: Sequence[Column[FleetGroup]]) -> Sequence[Column[FleetGroup]]:
    """The columns that have values without Slurm."""
    return tuple(column for column in columns if column.id not in _OF_SLURM)


FLEET_HOST_COLUMNS: Final = _group_columns("Host", "host")
FLEET_JOB_COLUMNS: Final = _group_columns("Job", "job")
FLEET_USER_COLUMNS: Final = _group_columns("User", "user")


def _gpu_column(
    heading: str, width: int, column_id: str, metric_id: str, text: Callable[[float | None], str], *, rank: int
) -> Column[GpuRow]:
    return unsearched_column(heading, width, column_id, lambda row: row.value(metric_id), text, rank=rank)


def _label_number(label: str) -> float | str:
    number = label.partition(":")[0]
    return float(number) if number.isascii() and number.isdecimal() and len(number) < 9 else label


FLEET_GPU_COLUMNS: Final[tuple[Column[GpuRow], ...]] = (
    text_column("Host", 12, "host", lambda row: row.gpu.host, max_width=28),
    Column(
        "GPU",
        4,
        lambda row, _: Span(row.gpu.label),
        id="gpu",
        sort_key=lambda row: _label_number(row.gpu.label),
        text=lambda row: row.gpu.label,
    ),
    percent_column(lambda row: row.value(UTILIZATION), 1),
    _gpu_column("Memory", 8, "mem", USED, bytes_text, rank=2),
    _gpu_column("Total", 8, "total", TOTAL, bytes_text, rank=9),
    _gpu_column("Power", 6, "power", POWER, power_text, rank=3),
    _gpu_column("Temp", 4, "temp", "temperature_celsius", number_text, rank=5),
    _gpu_column("MHz", 5, "clock", CLOCK, megahertz_text, rank=6),
    _gpu_column("SM%", 4, "sm", "sm_activity_percent", number_text, rank=11),
    _gpu_column("Tens%", 5, "tensor", "tensor_activity_percent", number_text, rank=10),
    _gpu_column("DRAM%", 5, "dram", "dram_activity_percent", number_text, rank=12),
    text_column("User", 8, "user", lambda row: row.gpu.user, rank=4),
    text_column("Job", 8, "job", lambda row: job_of(row.gpu), rank=4, max_width=30, aliases=("pod", "namespace")),
    text_column("Model", 14, "model", lambda row: short_product_name(row.gpu.model), rank=13, min_table_width=130),
    _gpu_column("Age", 4, "age", AGE, age_text, rank=5),
    text_column("Found", 8, "found", lambda row: row.finding, rank=4, max_width=24, role=lambda _: Role.WARNING),
)


def _finding_role(row: FindingRow) -> Role:
    is_severe = row.finding.kind in {FindingKind.SILENT, FindingKind.LOST, FindingKind.XID}
    return Role.ERROR if is_severe else Role.WARNING


def _of_gpu(text: Callable[[FleetGpu], str]) -> Callable[[FindingRow], str]:
    return lambda row: "" if row.gpu is None else text(row.gpu)


FLEET_FINDING_COLUMNS: Final[tuple[Column[FindingRow], ...]] = (
    text_column("Finding", 17, "finding", lambda row: f"! {row.finding.kind.value}", role=_finding_role),
    text_column("Host", 12, "host", lambda row: row.finding.host, rank=1, max_width=16),
    text_column("GPU", 4, "gpu", _of_gpu(lambda gpu: gpu.label), rank=1),
    text_column("Evidence", 18, "evidence", lambda row: row.finding.text, rank=1, max_width=90),
    text_column("User", 8, "user", _of_gpu(lambda gpu: gpu.user), rank=4, min_table_width=100),
    text_column("Job", 10, "job", _of_gpu(job_of), rank=3, max_width=14, min_table_width=100),
)
