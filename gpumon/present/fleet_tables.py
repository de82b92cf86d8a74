"""The columns of the tables of the fleet. A cell is made when its row becomes visible."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.model import short_product_name
from gpumon.core.units import age_text, bytes_text, count_text, megahertz_text, number_text, percent_text, power_text
from gpumon.fleet.model import AGE, FleetGpu
from gpumon.operations.fleet.findings import CLOCK, POWER, TOTAL, USED, UTILIZATION, FindingKind, FleetFinding
from gpumon.operations.fleet.report import FleetGroup, FleetReport, job_of
from gpumon.present.metric_style import load_role
from gpumon.present.paint.bar import fine_bar
from gpumon.present.paint.columns import Cells, columns, names, numbers
from gpumon.present.paint.line import Line, Role, Span, merged
from gpumon.present.paint.table import Column, RowT

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


def _utilization(value: Callable[[RowT], float | None]) -> Cells[RowT]:
    """The utilization as a number, with a bar where there is room."""
    return Cells(lambda row, width: _percent_line(value(row), width), value)


def _percent_line(percent: float | None, width: int) -> Line:
    text = f"{percent_text(percent):>4}"
    if width < _BAR + 5:
        return (Span(text, load_role(percent)),)
    share = None if percent is None else percent / 100
    return merged((Span(f"{text} "), *fine_bar(share, width - 5, load_role(percent))))


def _group_role(role: Role) -> Callable[[FleetGroup], Role]:
    """The role of a text about a group; one without GPUs is silent."""
    return lambda row: role if row.positions else Role.ERROR


_GROUP_NAME: Final = names(lambda row: row.name, _group_role(Role.PLAIN))
_REQUESTED: Final[Cells[FleetGroup]] = numbers(lambda row: row.requested, count_text, Span)
_GROUP_CELLS: Final[Mapping[str, Cells[FleetGroup]]] = {
    "host": _GROUP_NAME,
    "job": _GROUP_NAME,
    "user": _GROUP_NAME,
    "name": names(lambda row: row.title),
    "gpus": numbers(lambda row: len(row.positions), count_text, Span),
    "alloc": _REQUESTED,
    "req": _REQUESTED,
    "used": numbers(lambda row: row.used, count_text, Span),
    "busy": numbers(lambda row: row.totals.busy, count_text, Span),
    "util": _utilization(lambda row: row.totals.utilization_percent),
    "mem": numbers(lambda row: row.totals.used_bytes, bytes_text, Span),
    "power": numbers(lambda row: row.totals.power_watts, power_text, Span),
    "hosts": numbers(lambda row: row.hosts, count_text, Span),
    "jobs": names(lambda row: " ".join(row.jobs)),
    "users": names(lambda row: " ".join(row.users)),
    "model": names(lambda row: short_product_name(row.model)),
    "age": numbers(lambda row: row.age_seconds, age_text, Span),
    "found": names(
        lambda row: "! silent" if not row.positions else f"! {row.findings}" if row.findings else "",
        _group_role(Role.WARNING),
    ),
}
"""Columns of hosts, jobs and users."""
FLEET_HOST_COLUMNS: Final = columns("fleet-hosts", _GROUP_CELLS)
FLEET_JOB_COLUMNS: Final = columns("fleet-jobs", _GROUP_CELLS)
FLEET_USER_COLUMNS: Final = columns("fleet-users", _GROUP_CELLS)


def without_slurm(shown: Sequence[Column[FleetGroup]]) -> Sequence[Column[FleetGroup]]:
    """The columns that have values without Slurm."""
    return tuple(column for column in shown if column.id not in _OF_SLURM)


def _values(metric_id: str, text: Callable[[float | None], str] = number_text) -> Cells[GpuRow]:
    return numbers(lambda row: row.value(metric_id), text, Span)


def _label_number(label: str) -> float | str:
    number = label.partition(":")[0]
    return float(number) if number.isascii() and number.isdecimal() and len(number) < 9 else label


FLEET_GPU_COLUMNS: Final[tuple[Column[GpuRow], ...]] = columns(
    "fleet-gpus",
    {
        "host": names(lambda row: row.gpu.host),
        "gpu": Cells(
            lambda row, _: Span(row.gpu.label), lambda row: _label_number(row.gpu.label), lambda row: row.gpu.label
        ),
        "util": _utilization(lambda row: row.value(UTILIZATION)),
        "mem": _values(USED, bytes_text),
        "total": _values(TOTAL, bytes_text),
        "power": _values(POWER, power_text),
        "temp": _values("temperature_celsius"),
        "clock": _values(CLOCK, megahertz_text),
        "sm": _values("sm_activity_percent"),
        "tensor": _values("tensor_activity_percent"),
        "dram": _values("dram_activity_percent"),
        "user": names(lambda row: row.gpu.user),
        "job": names(lambda row: job_of(row.gpu)),
        "model": names(lambda row: short_product_name(row.gpu.model)),
        "age": _values(AGE, age_text),
        "found": names(lambda row: row.finding, Role.WARNING),
    },
)


def _finding_role(row: FindingRow) -> Role:
    is_severe = row.finding.kind in {FindingKind.SILENT, FindingKind.LOST, FindingKind.XID}
    return Role.ERROR if is_severe else Role.WARNING


def _of_gpu(text: Callable[[FleetGpu], str]) -> Cells[FindingRow]:
    return names(lambda row: "" if row.gpu is None else text(row.gpu))


FLEET_FINDING_COLUMNS: Final[tuple[Column[FindingRow], ...]] = columns(
    "fleet-findings",
    {
        "finding": names(lambda row: f"! {row.finding.kind.value}", _finding_role),
        "host": names(lambda row: row.finding.host),
        "gpu": _of_gpu(lambda gpu: gpu.label),
        "evidence": names(lambda row: row.finding.text),
        "user": _of_gpu(lambda gpu: gpu.user),
        "job": _of_gpu(job_of),
    },
)
