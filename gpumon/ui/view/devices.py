"""The device table: one row a GPU."""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from gpumon.core.metrics import METRICS
from gpumon.core.metrics_activity import BUSY_PERCENT, NO_WORK_PERCENT
from gpumon.core.model import Device, DeviceState
from gpumon.core.problems import ProblemCode
from gpumon.core.store import BUCKET_SECONDS
from gpumon.core.units import MISSING, age_text, gibibytes_text, megahertz_text, number_text
from gpumon.ui.paint.columns import Align, Column
from gpumon.ui.paint.history import strip
from gpumon.ui.paint.line import Role, Span
from gpumon.ui.scene import Scene
from gpumon.ui.view.missing import missing_text

THROTTLE_WORDS: Final = {
    "hw_thermal_slowdown": "too hot",
    "hw_power_brake_slowdown": "power brake",
    "hw_slowdown": "hw slowdown",
    "sw_thermal_slowdown": "sw too hot",
    "sw_power_cap": "power cap",
    "sync_boost": "sync boost",
    "applications_clocks_setting": "clocks set",
    "display_clock_setting": "display clock",
    "gpu_idle": "idle",
}
SLOWED_BY_FAULT: Final = frozenset(
    {"hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown", "sw_thermal_slowdown"}
)
_MEMORY_NEARLY_FULL: Final = 0.95
_MARKED_STALE: Final = (
    "utilization_gpu_percent",
    "memory_used_bytes",
    "power_watts",
    "temperature_celsius",
    "throttle_reasons",
    "processes",
)
"""One of these that is stale makes the row so."""


class DeviceRow(NamedTuple):
    """A row of the table.

    Attributes:
        device: The device.
        age_seconds: How old its readings are, or None while they belong to the moment that is shown.
        history: The newest buckets of a metric.
        marks: In which of the newest buckets a workload began or ended.
    """

    device: Device
    age_seconds: float | None
    history: Callable[[str, int], Sequence[float | None]]
    marks: Callable[[int], Collection[int]]


def device_rows(scene: Scene) -> list[DeviceRow]:
    """One row a device, in NVML's order, instances under their GPU."""

    def row(device: Device) -> DeviceRow:
        return DeviceRow(
            device,
            _age(device, scene),
            lambda metric, buckets: scene.store.history(device.key, metric, buckets),
            lambda buckets: scene.store.marks(device.key, buckets),
        )

    return [row(device) for device in scene.frame.devices]


def _age(device: Device, scene: Scene) -> float | None:
    if device.age_seconds is None or (scene.frame.is_fresh(device) and not scene.silence_seconds):
        return None
    return device.age_seconds + scene.silence_seconds


def _index(row: DeviceRow, _: int) -> Span:
    return Span(row.device.label, Role.ACCENT)


def _name(row: DeviceRow, _: int) -> Span:
    return Span(short_name(row.device), _faded(row))


def short_name(device: Device) -> str:
    """The name without what all of them have in common; of an instance its profile alone, as under its GPU."""
    name = (device.name or MISSING).removeprefix("NVIDIA ")
    return name if device.instance is None else f"└ {name.rpartition('MIG ')[2]}"


def _percent(metric: str) -> Callable[[DeviceRow, int], Span]:
    def cell(row: DeviceRow, _: int) -> Span:
        return Span(_figure(row, metric, lambda value: f"{value:.0f}%"), _faded(row, metric))

    return cell


def _memory(row: DeviceRow, _: int) -> Span:
    used, total = row.device.get("memory_used_bytes"), row.device.get("memory_total_bytes")
    figure = _figure(row, "memory_used_bytes", gibibytes_text)
    if used is None and total is None:
        return Span(figure, _faded(row))
    text = f"{'~' if shares_memory(row.device) else ''}{figure}/{gibibytes_text(total, 0)}"
    full = used is not None and total is not None and used > _MEMORY_NEARLY_FULL * total
    return Span(f"!{text}" if full else text, Role.WARNING if full else _faded(row, "memory_used_bytes"))


def _temperature(row: DeviceRow, _: int) -> Span:
    value = row.device.get("temperature_celsius")
    metric = METRICS["temperature_celsius"]
    critical = row.device.get("temperature_slowdown_celsius") or metric.critical
    if value is None:
        return Span(missing_text(row.device, "temperature_celsius"), _faded(row))
    if critical is not None and value >= critical:
        return Span(f"!{value:.0f}°", Role.ERROR)
    if metric.warning is not None and value >= metric.warning:
        return Span(f"!{value:.0f}°", Role.WARNING)
    return Span(f"{value:.0f}°", _faded(row, "temperature_celsius"))


def _power(row: DeviceRow, _: int) -> Span:
    return _of_most(row, "power_watts", "power_limit_watts", number_text)


def _sm_clock(row: DeviceRow, _: int) -> Span:
    return _of_most(row, "clock_sm_hertz", "clock_sm_max_hertz", megahertz_text)


def _memory_clock(row: DeviceRow, _: int) -> Span:
    metric = "clock_memory_hertz"
    return Span(_figure(row, metric, megahertz_text), _faded(row, metric))


def _performance_state(row: DeviceRow, _: int) -> Span:
    state = row.device.get("performance_state")
    return Span(MISSING if state is None else f"P{state:.0f}", _faded(row))


def _pcie(row: DeviceRow, _: int) -> Span:
    generation, width = row.device.get("pcie_generation"), row.device.get("pcie_width")
    if generation is None and width is None:
        return Span(MISSING, _faded(row))
    widest = row.device.get("pcie_width_max")
    narrow = width is not None and widest is not None and width < widest
    text = f"{number_text(generation)}x{number_text(width)}"
    return Span(f"!{text}" if narrow else text, Role.WARNING if narrow else _faded(row))


def _state(row: DeviceRow, _: int) -> Span:
    device = row.device
    age = "" if row.age_seconds is None else f" {age_text(row.age_seconds)}"
    if device.state is not DeviceState.OK:
        return Span(f"{device.state.value.upper()}{age}", Role.ERROR)
    if age:
        return Span(f"STALE{age}", Role.WARNING)
    reasons = device.throttle_reasons
    text, slowed = throttle_text(reasons or ())
    if slowed:
        return Span(f"!{text}", Role.WARNING)
    if any(map(device.is_stale, _MARKED_STALE)):
        return Span("STALE", Role.WARNING)
    if _nothing_computes(device):
        return Span("no SM work", Role.DIM)
    return Span(MISSING if reasons is None else text, Role.DIM)


def shares_memory(device: Device) -> bool:
    """Whether the memory that is shown for it is the host's."""
    reserve = device.problems.get("memory_reserved_bytes")
    return reserve is not None and reserve.code is ProblemCode.MEMORY_SHARED


def _nothing_computes(device: Device) -> bool:
    """Whether what keeps a device busy is no work of its multiprocessors, as with copies alone."""
    utilization, activity = device.get("utilization_gpu_percent"), device.get("sm_activity_percent")
    busy = utilization is not None and utilization >= BUSY_PERCENT
    return busy and activity is not None and activity < NO_WORK_PERCENT


def throttle_text(reasons: Collection[str]) -> tuple[str, bool]:
    """The first reason why clocks are lowered and the number of others, and whether one of them is a fault."""
    words = [word for reason, word in THROTTLE_WORDS.items() if reason in reasons]
    text = "" if not words else words[0] if len(words) == 1 else f"{words[0]} +{len(words) - 1}"
    return text, not SLOWED_BY_FAULT.isdisjoint(reasons)


def _gpu_history(row: DeviceRow, width: int) -> Span:
    return Span(strip(row.history("utilization_gpu_percent", width), 100, row.marks(width)), Role.GPU_HISTORY)


def _memory_history(row: DeviceRow, width: int) -> Span:
    total = row.device.get("memory_total_bytes")
    return Span(strip(row.history("memory_used_bytes", width), total, row.marks(width)), Role.MEMORY_HISTORY)


def _history_heading(name: str) -> Callable[[int], str]:
    """Names a history and the time that it spans."""
    return lambda width: f"{name} {age_text(width * BUCKET_SECONDS)}"


def _figure(row: DeviceRow, metric: str, text: Callable[[float], str]) -> str:
    """A figure as text, or what stands in its place."""
    value = row.device.get(metric)
    return missing_text(row.device, metric) if value is None else text(value)


def _of_most(row: DeviceRow, metric: str, most: str, text: Callable[[float | None], str]) -> Span:
    """A figure and the most that it can be."""
    figure, limit = _figure(row, metric, text), row.device.get(most)
    is_alone = limit is None and row.device.get(metric) is None
    return Span(figure if is_alone else f"{figure}/{text(limit)}", _faded(row, metric))


def _faded(row: DeviceRow, metric: str = "") -> Role:
    """How a figure is shown: what is not of this moment is dim."""
    is_new = row.device.state is DeviceState.OK and row.age_seconds is None and not row.device.is_stale(metric)
    return Role.PLAIN if is_new else Role.DIM


DEVICE_COLUMNS: Final[tuple[Column[DeviceRow], ...]] = (
    Column("GPU", 3, _index, rank=0),
    Column("Name", 16, _name, rank=6, align=Align.LEFT, least_table_width=100),
    Column("Util", 4, _percent("utilization_gpu_percent"), rank=0),
    Column("Memory GiB", 10, _memory, rank=1),
    Column("Temp", 4, _temperature, rank=2),
    Column("Power W", 8, _power, rank=2),
    Column("SM MHz", 9, _sm_clock, rank=7, least_table_width=100),
    Column("MemCtl", 6, _percent("utilization_memory_percent"), rank=8, least_table_width=118),
    Column("MemMHz", 6, _memory_clock, rank=10, least_table_width=132),
    Column("Perf", 4, _performance_state, rank=9, least_table_width=118),
    Column("PCIe", 5, _pcie, rank=9, least_table_width=118),
    Column("State", 16, _state, rank=3, align=Align.LEFT),
    Column(_history_heading("Util"), 12, _gpu_history, rank=4, stretches=True),
    Column(_history_heading("Memory"), 12, _memory_history, rank=5, stretches=True),
)
"""What changes at every frame stands at the left; the histories move on seldom and stand at the right."""
