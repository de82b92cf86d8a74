"""The columns of the usage: GPU-hours by user and job, and their energy."""

from typing import Final

from gpumon.core.units import MISSING, bill_energy_text
from gpumon.operations.fleet.usage import UsageRow
from gpumon.present.fleet_tables import no_text, number_column, text_column
from gpumon.present.paint.line import Line, Role, Span, merged
from gpumon.present.paint.table import Align, Column


def _hours_text(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.1f}"


def _split_bar(row: UsageRow, width: int) -> Line:
    """Active, low and idle hours as parts of a bar."""
    total = row.hours
    active = round(row.active_hours / total * width) if total else 0
    low = round((row.active_hours + row.low_hours) / total * width) - active if total else 0
    idle = width - active - low
    return merged((Span("█" * active, Role.LOAD_HIGH), Span("▒" * low, Role.LOAD_LOW), Span("░" * idle, Role.GRID)))


FLEET_USAGE_COLUMNS: Final[tuple[Column[UsageRow], ...]] = (
    text_column("User", 8, "user", lambda row: row.user, rank=1, max_width=20),
    text_column("Job", 14, "job", lambda row: row.job or "no job", max_width=40),
    number_column("GPU-hours", 10, "hours", lambda row: row.hours, _hours_text),
    number_column("Active", 9, "active", lambda row: row.active_hours, _hours_text, rank=2),
    number_column("Low", 9, "low", lambda row: row.low_hours, _hours_text, rank=4),
    number_column("Idle", 9, "idle", lambda row: row.idle_hours, _hours_text, rank=1),
    Column(
        "█ active ▒ low ░ idle",
        21,
        _split_bar,
        5,
        Align.LEFT,
        stretches=True,
        max_width=50,
        id="split",
        text=no_text,
    ),
    number_column("Energy", 9, "energy", lambda row: row.energy_joules, bill_energy_text, rank=3),
)
