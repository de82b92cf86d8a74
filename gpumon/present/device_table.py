"""The device table: one row per GPU or MIG instance."""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from gpumon.core.model import Device, DeviceState, short_product_name
from gpumon.core.problems import ProblemCode
from gpumon.core.store import BUCKET_SECONDS
from gpumon.core.throttle_reasons import FAULT_REASONS, THROTTLE_LABELS
from gpumon.core.units import MISSING, age_text, gibibytes_text, megahertz_text, number_text
from gpumon.diagnosis.alerts import Thresholds, has_no_sm_work
from gpumon.present.metric_style import link_role, memory_role, missing_text, temperature_role
from gpumon.present.paint.line import Role, Span
from gpumon.present.paint.sparkline import sparkline
from gpumon.present.paint.table import Align, Column
from gpumon.session.view_state import ViewState

_MARKED_STALE: Final = (
    "utilization_gpu_percent",
    "memory_used_bytes",
    "power_watts",
    "temperature_celsius",
    "throttle_reasons",
    "processes",
)
"""The row is marked STALE when one of these is."""


class DeviceRow(NamedTuple):
    """A row of the table.

    Attributes:
        device: The device.
        age_seconds: Age of its values, or None while they belong to the moment that is shown.
        history: Returns the newest buckets of a metric, for a metric id and a number of buckets.
        marks: Returns the indices of the newest buckets in which a workload started or ended.
        thresholds: The user's alert thresholds.
    """

    device: Device
    age_seconds: float | None
    history: Callable[[str, int], Sequence[float | None]]
    marks: Callable[[int], Collection[int]]
    thresholds: Thresholds


def device_rows(view: ViewState) -> list[DeviceRow]:
    """One row per device, in NVML's order, with MIG instances after their GPU."""

    def row(device: Device) -> DeviceRow:
        return DeviceRow(
            device,
            _age(device, view),
            lambda metric, buckets: view.store.history(device.key, metric, buckets),
            lambda buckets: view.store.marks(device.key, buckets),
            view.thresholds,
        )

    return [row(device) for device in view.frame.devices]


def _age(device: Device, view: ViewState) -> float | None:
    if device.age_seconds is None or (view.frame.is_fresh(device) and not view.silence_seconds):
        return None
    return device.age_seconds + view.silence_seconds


def short_name(device: Device) -> str:
    """The product name without the vendor; for a MIG instance only its profile, since it stands below its GPU."""
    name = short_product_name(device.name) or MISSING
    return name if device.instance is None else f"└ {name.rpartition('MIG ')[2]}"


def shares_memory(device: Device) -> bool:
    """Whether the memory values of a device are those of the host."""
    problem = device.problems.get("memory_reserved_bytes")
    return problem is not None and problem.code is ProblemCode.MEMORY_SHARED


def throttle_text(reasons: Collection[str]) -> tuple[str, bool]:
    """The most important throttle reason and the number of other ones, and whether one of them is a fault."""
    labels = [label for reason, label in THROTTLE_LABELS.items() if reason in reasons]
    text = "" if not labels else labels[0] if len(labels) == 1 else f"{labels[0]} +{len(labels) - 1}"
    return text, not FAULT_REASONS.isdisjoint(reasons)


def _index(row: DeviceRow, _: int) -> Span:
    return Span(row.device.label, Role.ACCENT)


def _name(row: DeviceRow, _: int) -> Span:
    return Span(short_name(row.device), _faded(row))


def _percent(metric: str) -> Callable[[DeviceRow, int], Span]:
    def cell(row: DeviceRow, _: int) -> Span:
        return Span(_value(row, metric, lambda value: f"{value:.0f}%"), _faded(row, metric))

    return cell


def _memory(row: DeviceRow, _: int) -> Span:
    used, total = row.device.get("memory_used_bytes"), row.device.get("memory_total_bytes")
    used_text = _value(row, "memory_used_bytes", gibibytes_text)
    if used is None and total is None:
        return Span(used_text, _faded(row))
    text = f"{'~' if shares_memory(row.device) else ''}{used_text}/{gibibytes_text(total, 0)}"
    return _marked(text, memory_role(row.device), _faded(row, "memory_used_bytes"))


def _temperature(row: DeviceRow, _: int) -> Span:
    metric = "temperature_celsius"
    text = _value(row, metric, lambda value: f"{value:.0f}°")
    return _marked(text, temperature_role(row.device, row.thresholds), _faded(row, metric))


def _power(row: DeviceRow, _: int) -> Span:
    return _with_limit(row, "power_watts", "power_limit_watts", number_text)


def _sm_clock(row: DeviceRow, _: int) -> Span:
    return _with_limit(row, "clock_sm_hertz", "clock_sm_max_hertz", megahertz_text)


def _memory_clock(row: DeviceRow, _: int) -> Span:
    metric = "clock_memory_hertz"
    return Span(_value(row, metric, megahertz_text), _faded(row, metric))


def _performance_state(row: DeviceRow, _: int) -> Span:
    state = row.device.get("performance_state")
    return Span(MISSING if state is None else f"P{state:.0f}", _faded(row))


def _pcie(row: DeviceRow, _: int) -> Span:
    generation, width = row.device.get("pcie_generation"), row.device.get("pcie_width")
    if generation is None and width is None:
        return Span(MISSING, _faded(row))
    return _marked(
        f"{number_text(generation)}x{number_text(width)}", link_role(row.device, row.thresholds), _faded(row)
    )


def _state(row: DeviceRow, _: int) -> Span:
    device = row.device
    age = "" if row.age_seconds is None else f" {age_text(row.age_seconds)}"
    if device.state is not DeviceState.OK:
        return Span(f"{device.state.value.upper()}{age}", Role.ERROR)
    if age:
        return Span(f"STALE{age}", Role.WARNING)
    reasons = device.throttle_reasons
    text, is_fault = throttle_text(reasons or ())
    if is_fault:
        return Span(f"!{text}", Role.WARNING)
    if any(map(device.is_stale, _MARKED_STALE)):
        return Span("STALE", Role.WARNING)
    if has_no_sm_work(device, row.thresholds):
        return Span("no SM work", Role.DIM)
    return Span(MISSING if reasons is None else text, Role.DIM)


def _utilization_history(row: DeviceRow, width: int) -> Span:
    return Span(sparkline(row.history("utilization_gpu_percent", width), 100, row.marks(width)), Role.GPU_HISTORY)


def _memory_history(row: DeviceRow, width: int) -> Span:
    total = row.device.get("memory_total_bytes")
    return Span(sparkline(row.history("memory_used_bytes", width), total, row.marks(width)), Role.MEMORY_HISTORY)


def _history_heading(name: str) -> Callable[[int], str]:
    """The name of a history and the time that it spans."""
    return lambda width: f"{name} {age_text(width * BUCKET_SECONDS)}"


def _value(row: DeviceRow, metric: str, text: Callable[[float], str]) -> str:
    """A value as text, or what stands in its place while it is missing."""
    value = row.device.get(metric)
    return missing_text(row.device, metric) if value is None else text(value)


def _with_limit(row: DeviceRow, metric: str, limit_metric: str, text: Callable[[float | None], str]) -> Span:
    """A value and its limit."""
    value, limit = _value(row, metric, text), row.device.get(limit_metric)
    is_alone = limit is None and row.device.get(metric) is None
    return Span(value if is_alone else f"{value}/{text(limit)}", _faded(row, metric))


def _marked(text: str, role: Role, normal: Role) -> Span:
    """A value near or beyond a limit is marked with an exclamation mark; any other has its normal role."""
    return Span(text, normal) if role is Role.PLAIN else Span(f"!{text}", role)


def _faded(row: DeviceRow, metric: str = "") -> Role:
    """The role of a value: dim when it does not belong to this moment."""
    is_new = row.device.state is DeviceState.OK and row.age_seconds is None and not row.device.is_stale(metric)
    return Role.PLAIN if is_new else Role.DIM


DEVICE_COLUMNS: Final[tuple[Column[DeviceRow], ...]] = (
    Column("GPU", 3, _index, rank=0),
    Column("Name", 16, _name, rank=6, align=Align.LEFT, min_table_width=100),
    Column("Util", 4, _percent("utilization_gpu_percent"), rank=0),
    Column("Memory GiB", 10, _memory, rank=1),
    Column("Temp", 4, _temperature, rank=2),
    Column("Power W", 8, _power, rank=2),
    Column("SM MHz", 9, _sm_clock, rank=7, min_table_width=100),
    Column("MemCtl", 6, _percent("utilization_memory_percent"), rank=8, min_table_width=118),
    Column("MemMHz", 6, _memory_clock, rank=10, min_table_width=132),
    Column("Perf", 4, _performance_state, rank=9, min_table_width=118),
    Column("PCIe", 5, _pcie, rank=9, min_table_width=118),
    Column("State", 16, _state, rank=3, align=Align.LEFT),
    Column(_history_heading("Util"), 12, _utilization_history, rank=4, stretches=True),
    Column(_history_heading("Memory"), 12, _memory_history, rank=5, stretches=True),
)
"""Values that change with every frame stand at the left; the histories change rarely and stand at the right."""
