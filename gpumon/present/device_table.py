"""Rows and cells of GPUs and MIG instances, and the plain device table of ``gpumon status``."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.model import Device, DeviceState, short_product_name
from gpumon.core.problems import ProblemCode
from gpumon.core.throttle_reasons import FAULT_REASONS, THROTTLE_LABELS
from gpumon.core.units import (
    MISSING,
    age_text,
    compact_gibibytes_text,
    gibibytes_text,
    megahertz_text,
    number_text,
    percent_text,
)
from gpumon.health.alerts import Thresholds, has_no_sm_work
from gpumon.present.device_owner import DeviceOwner, IdleDuration, idle_duration, jobs_of, owner_of
from gpumon.present.metric_style import link_role, memory_role, missing_text, temperature_role
from gpumon.present.paint.columns import Cells, columns
from gpumon.present.paint.line import Line, Role, Span, clipped, line, plain, width_of
from gpumon.session.view_state import ViewState

_MAX_USER: Final = 8
_UNLIMITED: Final = 1000
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
        owner: Who uses the device.
        user_width: Cells of the longest user name of the table, within limits.
    """

    device: Device
    age_seconds: float | None
    history: Callable[[str, int], Sequence[float | None]]
    marks: Callable[[int], Collection[int]]
    thresholds: Thresholds
    owner: DeviceOwner = DeviceOwner()
    user_width: int = 0


def device_rows(view: ViewState) -> list[DeviceRow]:
    """One row per device, in NVML's order, with MIG instances after their GPU."""
    devices = view.frame.devices
    jobs = jobs_of(devices)
    instances = Counter(device.instance.parent for device in devices if device.instance is not None)
    owners = {
        device.key: owner_of(
            device, jobs, device_idle_time(view, device), instances[device.key], is_free=view.store.is_free(device.key)
        )
        for device in devices
    }
    user_width = min(_MAX_USER, max((width_of(owner.user) for owner in owners.values()), default=0))

    def row(device: Device) -> DeviceRow:
        return DeviceRow(
            device,
            _age(device, view),
            lambda metric, buckets: view.store.history(device.key, metric, buckets),
            lambda buckets: view.store.marks(device.key, buckets),
            view.thresholds,
            owners[device.key],
            user_width,
        )

    return [row(device) for device in devices]


def device_idle_time(view: ViewState, device: Device) -> IdleDuration:
    """For how long a device has had no work; nothing for one whose values are old."""
    if not view.frame.is_fresh(device):
        return IdleDuration()
    return idle_duration(view.store.idle_since(device.key), view.frame.monotonic_seconds)


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


def state_span(row: DeviceRow) -> Span:
    """The state of a device: whether it responds, old values, faults, no SM work, and why its clock is low."""
    return notable_state(row) or Span(
        MISSING if row.device.throttle_reasons is None else throttle_text(row.device.throttle_reasons)[0], Role.DIM
    )


def notable_state(row: DeviceRow) -> Span | None:
    """The state of a device that a user must see, or None for a device that works as it should."""
    device = row.device
    age = "" if row.age_seconds is None else f" {age_text(row.age_seconds)}"
    if device.state is not DeviceState.OK:
        return Span(f"{device.state.value.upper()}{age}", Role.ERROR)
    if age:
        return Span(f"STALE{age}", Role.WARNING)
    text, is_fault = throttle_text(device.throttle_reasons or ())
    if is_fault:
        return Span(f"!{text}", Role.WARNING)
    if any(map(device.is_stale, _MARKED_STALE)):
        return Span("STALE", Role.WARNING)
    return Span("no SM work", Role.DIM) if has_no_sm_work(device, row.thresholds) else None


def index_cell(row: DeviceRow, _: int) -> Span:
    """NVML's index of the device."""
    return Span(row.device.label, Role.ACCENT)


def name_cell(row: DeviceRow, _: int) -> Span:
    """The product name without the vendor."""
    return Span(short_name(row.device), value_role(row))


def reading_cell(metric: str, text: Callable[[float], str]) -> Callable[[DeviceRow, int], Span]:
    """A function that returns the cell of a metric."""
    return lambda row, _: Span(value_or_mark(row, metric, text), value_role(row, metric))


def _memory(row: DeviceRow, _: int) -> Span:
    used, total = row.device.get("memory_used_bytes"), row.device.get("memory_total_bytes")
    used_text = value_or_mark(row, "memory_used_bytes", gibibytes_text)
    if used is None and total is None:
        return Span(used_text, value_role(row))
    text = f"{'~' if shares_memory(row.device) else ''}{used_text}/{gibibytes_text(total, 0)}"
    return _marked(text, memory_role(row.device), value_role(row, "memory_used_bytes"))


def temperature_cell(row: DeviceRow, _: int) -> Span:
    """The temperature, marked near the slowdown temperature."""
    metric = "temperature_celsius"
    text = value_or_mark(row, metric, lambda value: f"{value:.0f}°")
    return _marked(text, temperature_role(row.device, row.thresholds), value_role(row, metric))


def performance_state_cell(row: DeviceRow, _: int) -> Span:
    """The performance state, such as ``P0``."""
    state = row.device.get("performance_state")
    return Span(MISSING if state is None else f"P{state:.0f}", value_role(row))


def pcie_cell(row: DeviceRow, _: int) -> Span:
    """PCIe generation and lanes, marked while a busy GPU has a degraded link."""
    generation, width = row.device.get("pcie_generation"), row.device.get("pcie_width")
    if generation is None and width is None:
        return Span(MISSING, value_role(row))
    return _marked(
        f"{number_text(generation)}x{number_text(width)}", link_role(row.device, row.thresholds), value_role(row)
    )


def owner_spans(owner: DeviceOwner, user_width: int, width: int = _UNLIMITED) -> Line:
    """The owner of a device: user, program, ranks, memory, further programs and users, and the idle time.

    Args:
        owner: The owner.
        user_width: Cells of the user name, so that the programs of a table stand below each other.
        width: Cells of all of it; where they do not suffice, details are left out.
    """
    if owner.is_free and not owner.user:
        return line(Span(owner.program, Role.ACCENT), Span(f" {owner.idle.text}".rstrip(), Role.DIM))
    idle = owner.idle.text
    held = f", {compact_gibibytes_text(owner.held_bytes)}G held" if owner.held_bytes is not None else ""
    if owner.others:
        programs = ((owner.user, owner.program), *owner.others)
        text = f"{len(programs)} users: {', '.join(' '.join(program) for program in programs)}"
        tail = f" idle {idle}" if idle else ""
        return line(clipped(text, width - width_of(tail)), Span(tail, Role.DIM))
    user = clipped(owner.user, user_width)
    name = f"{user}{' ' * (user_width - width_of(user))} " if user else ""
    ranks, more = f" ×{owner.ranks}" if owner.ranks > 1 else "", f" +{owner.more}" if owner.more else ""
    memory = "" if owner.memory_bytes is None else f" {compact_gibibytes_text(owner.memory_bytes)}G"
    tails = (
        (f"{more} idle {idle}{held}", f"{more} idle {idle}", f"{more} {idle}") if idle else (f"{memory}{more}", more)
    )
    room = width - width_of(name + owner.program + ranks)
    tail = next((tail for tail in tails if width_of(tail) <= room), tails[-1])
    program = clipped(owner.program, width - width_of(name + ranks + tail))
    return line(Span(name, Role.DIM), program, Span(f"{ranks}{tail}", Role.DIM))


def copied_text(row: DeviceRow) -> str:
    """A device as plain text: ``GPU 3 H200 36 % 64/140 GiB 54 °C root train_1``."""
    device = row.device
    utilization, used = device.get("utilization_gpu_percent"), device.get("memory_used_bytes")
    celsius = device.get("temperature_celsius")
    state = notable_state(row)
    parts = (
        f"GPU {device.label} {short_product_name(device.name)}",
        "" if utilization is None else f"{utilization:.0f} %",
        "" if used is None else f"{gibibytes_text(used, 0)}/{gibibytes_text(device.get('memory_total_bytes'), 0)} GiB",
        "" if celsius is None else f"{celsius:.0f} °C",
        "" if state is None else state.text,
        " ".join(plain(owner_spans(row.owner, width_of(row.owner.user))).split()),
    )
    return " ".join(filter(None, parts))


def value_or_mark(row: DeviceRow, metric: str, text: Callable[[float], str]) -> str:
    """A value as text, or what stands in its place while it is missing."""
    value = row.device.get(metric)
    return missing_text(row.device, metric) if value is None else text(value)


def _with_limit(
    metric: str, limit_metric: str, text: Callable[[float | None], str]
) -> Callable[[DeviceRow, int], Span]:
    """A value and its limit."""

    def cell(row: DeviceRow, _: int) -> Span:
        value, limit = value_or_mark(row, metric, text), row.device.get(limit_metric)
        is_alone = limit is None and row.device.get(metric) is None
        return Span(value if is_alone else f"{value}/{text(limit)}", value_role(row, metric))

    return cell


def _marked(text: str, role: Role, normal: Role) -> Span:
    """A value near or beyond a limit is marked with an exclamation mark; any other has its normal role."""
    return Span(text, normal) if role is Role.PLAIN else Span(f"!{text}", role)


def value_role(row: DeviceRow, metric: str = "") -> Role:
    """The role of a value: dim when it does not belong to this moment."""
    is_new = row.device.state is DeviceState.OK and row.age_seconds is None and not row.device.is_stale(metric)
    return Role.PLAIN if is_new else Role.DIM


def device_position(device: Device) -> float:
    """The place of a device in NVML's order: each GPU, followed by its MIG instances."""
    return device.index + (0 if device.instance is None else (device.instance.position + 1) / 1000)


DEVICE_CELLS: Final[Mapping[str, Cells[DeviceRow]]] = {
    "gpu": Cells(index_cell),
    "name": Cells(name_cell),
    "util": Cells(reading_cell("utilization_gpu_percent", percent_text)),
    "memory": Cells(_memory),
    "temperature": Cells(temperature_cell),
    "power": Cells(_with_limit("power_watts", "power_limit_watts", number_text)),
    "sm-clock": Cells(_with_limit("clock_sm_hertz", "clock_sm_max_hertz", megahertz_text)),
    "memory-controller": Cells(reading_cell("utilization_memory_percent", percent_text)),
    "memory-clock": Cells(reading_cell("clock_memory_hertz", megahertz_text)),
    "performance-state": Cells(performance_state_cell),
    "pcie": Cells(pcie_cell),
    "state": Cells(lambda row, _: state_span(row)),
    "owner": Cells(lambda row, width: Span(clipped(plain(owner_spans(row.owner, row.user_width)), width))),
}
DEVICE_COLUMNS: Final = columns("status", DEVICE_CELLS)
"""The columns of ``gpumon status``; those of the overview are in `gpumon.present.overview_table`."""
