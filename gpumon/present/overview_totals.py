"""The lines above the device table: sums over all GPUs and the load of the host as bars, and what to know now."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.core.model import Device, Frame, Host, short_product_name
from gpumon.core.units import (
    MISSING,
    compact_gibibytes_text,
    compact_rate_text,
    counted,
    duration_text,
    number_text,
    percent_of,
)
from gpumon.health.alerts import ranges_text
from gpumon.present.device_table import DeviceRow
from gpumon.present.metric_style import NEARLY_FULL_PERCENT, load_role, temperature_role
from gpumon.present.paint.bar import fine_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line, plain, width_of
from gpumon.session.view_state import ViewState

_GAP: Final = 3
_MIN_BAR: Final = 5
_MAX_BAR: Final = 24
_MAX_NAME: Final = 18
_VERSIONS_PLACE: Final = 3
"""Which part the versions of driver and CUDA are."""
_NOW: Final = " now    "
_FACT_GAP: Final = " · "
_RECENT_SECONDS: Final = 600.0
"""An out-of-memory death is news for this long."""
_MAX_INDICES: Final = 12
"""Cells of a list of GPUs."""


class Gauge(NamedTuple):
    """A labeled bar.

    Attributes:
        label: What it shows.
        percent: Its length, or None without a value; then it has no bar.
        text: The value.
        role: Role of the bar.
    """

    label: str
    percent: float | None
    text: str
    role: Role


Part = Gauge | Line
"""A part of a line: a bar that takes the width it gets, or spans of a fixed width."""


def totals_lines(view: ViewState, rows: Sequence[DeviceRow], width: int, max_lines: int) -> list[Line]:
    """Sums over all GPUs and the host, their parts below each other as far as there is room; then what to know now.

    Args:
        view: The state that is shown.
        rows: The rows of the device table, which know the owners.
        width: Cells of a line.
        max_lines: How many lines are shown: the host is left out first, then what to know now.
    """
    if max_lines < 1:
        return []
    verdict = [verdict_line(view, rows, width)] if max_lines > 1 else []
    return [*_bars(view, width, max_lines - len(verdict)), *verdict]


def _bars(view: ViewState, width: int, max_lines: int) -> list[Line]:
    frame = view.frame
    gpus, versions = _gpu_parts(view), line(Span(_versions(frame), Role.DIM))
    names = (_gpus_name(frame.gpus), "host")[:max_lines]
    has_host = len(names) > 1
    columns: list[tuple[Part, Part]] = [(part, ()) for part in (*gpus[:2], versions, *gpus[2:])]
    if has_host:
        columns = list(zip(gpus, _host_parts(frame, versions), strict=True))
    prefix = max(map(width_of, names))
    room = width - prefix - 2
    while columns and sum(map(_min_width, columns)) + _GAP * len(columns) > room:
        columns.pop()
    if versions and 0 < len(columns) < _VERSIONS_PLACE:  # they have priority over the last part that has room
        columns[-1] = (columns[-1][0], versions) if has_host else (versions, ())
    bars = sum(any(isinstance(part, Gauge) for part in pair) for pair in columns)
    spare = room - sum(map(_min_width, columns)) - _GAP * len(columns)
    bar = min(_MAX_BAR, _MIN_BAR + (spare // bars if bars else 0))
    lines = []
    for number, name in enumerate(names):
        spans: list[Span] = [Span(f" {name}{' ' * (prefix - width_of(name))} ", Role.ACCENT)]
        for pair in columns:
            spans += [Span(" " * (_GAP - 1 if len(spans) == 1 else _GAP)), *_drawn(pair, number, bar)]
        lines.append(cut(line(*spans), width))
    return lines


@lru_cache(maxsize=16)
def _min_width(pair: tuple[Part, Part]) -> int:
    label, text = _label_width(pair), _text_width(pair)
    fixed = max((width_of(plain(part)) for part in pair if not isinstance(part, Gauge)), default=0)
    gauge = label + 1 + _MIN_BAR + 1 + text if any(isinstance(part, Gauge) for part in pair) else 0
    return max(fixed, gauge)


def _label_width(pair: tuple[Part, Part]) -> int:
    return max((width_of(part.label) for part in pair if isinstance(part, Gauge)), default=0)


def _text_width(pair: tuple[Part, Part]) -> int:
    return max((width_of(part.text) for part in pair if isinstance(part, Gauge)), default=0)


def _drawn(pair: tuple[Part, Part], number: int, bar: int) -> Line:
    """One part, as wide as the wider one of the two below each other."""
    part, label, text = pair[number], _label_width(pair), _text_width(pair)
    width = max(_min_width(pair), label + text + 2 + bar if text else 0)
    if not isinstance(part, Gauge):
        return line(*part, " " * (width - width_of(plain(part))))
    cells = width - label - text - 2
    drawn = fine_bar(part.percent / 100, cells, part.role) if part.percent is not None else (Span(" " * cells),)
    return line(Span(f"{part.label:<{label}} ", Role.DIM), *drawn, f" {part.text}{' ' * (text - width_of(part.text))}")


def _gpu_parts(view: ViewState) -> list[Part]:
    frame = view.frame
    fresh = [device for device in frame.gpus if frame.is_fresh(device)]
    utilization = _mean(_values(fresh, "utilization_gpu_percent"))
    used, total = _sums(fresh, "memory_used_bytes", "memory_total_bytes")
    power, limit = _sums(fresh, "power_watts", "power_limit_watts")
    memory = percent_of(used, total)
    return [
        Gauge("util", utilization, f"{number_text(utilization)}%", load_role(utilization)),
        Gauge(
            "mem", memory, f"{compact_gibibytes_text(used)}/{compact_gibibytes_text(total)} GiB", _memory_role(memory)
        ),
        Gauge("power", percent_of(power, limit), _power(power, limit), Role.POWER),
        _hottest(view, fresh),
        (),
    ]


def _memory_role(percent: float | None) -> Role:
    return Role.WARNING if percent is not None and percent > NEARLY_FULL_PERCENT else Role.MEMORY_HISTORY


def _host_parts(frame: Frame, versions: Line) -> list[Part]:
    host = frame.host
    total, available = host.memory_total_bytes, host.memory_available_bytes
    used = None if total is None or available is None else total - available
    memory = percent_of(used, total)
    return [
        Gauge("cpu", host.cpu_percent, f"{number_text(host.cpu_percent)}%", load_role(host.cpu_percent)),
        Gauge(
            "ram", memory, f"{compact_gibibytes_text(used)}/{compact_gibibytes_text(total)} GiB", _memory_role(memory)
        ),
        versions,
        _rates("net", ("↓", host.network_receive_bytes_per_second), ("↑", host.network_transmit_bytes_per_second)),
        _disk_and_cpus(host),
    ]


def _gpus_name(gpus: Sequence[Device]) -> str:
    """The number of GPUs, with the product name if it is the same for all of them."""
    names = {device.name for device in gpus if device.name is not None}
    if len(names) != 1:
        return counted(len(gpus), "GPU")
    return clipped(f"{len(gpus)}×{short_product_name(names.pop())}", _MAX_NAME)


def _power(power: float | None, limit: float | None) -> str:
    if power is None:
        return f"{MISSING} W"
    if (limit or power) < 1000:
        return f"{power:.0f}/{number_text(limit)} W"
    return f"{power / 1e3:.1f}/{MISSING if limit is None else f'{limit / 1e3:.1f}'} kW"


def _hottest(view: ViewState, fresh: Sequence[Device]) -> Line:
    """How many GPUs do not respond, or else the hottest one."""
    silent = len(view.frame.gpus) - len(fresh)
    if silent and not view.silence_seconds:
        return line(Span(f"! {len(fresh)} of {len(view.frame.gpus)} respond", Role.ERROR))
    known = [device for device in fresh if device.get("temperature_celsius") is not None]
    if not known:
        return ()
    device = max(known, key=lambda device: device.get("temperature_celsius") or 0)
    role = temperature_role(device, view.thresholds)
    mark = "" if role is Role.PLAIN else "!"
    return line(
        Span("hottest ", Role.DIM), f"{device.label}: ", Span(f"{mark}{device.get('temperature_celsius'):.0f}°", role)
    )


def _versions(frame: Frame) -> str:
    cuda = f"CUDA {frame.cuda_driver_version}" if frame.cuda_driver_version else ""
    return " ".join(filter(None, (frame.driver_version, cuda)))


class _Fact(NamedTuple):
    """One thing to know now, and how much it matters: 0 is the last to be left out."""

    rank: int
    text: str
    role: Role


def verdict_line(view: ViewState, rows: Sequence[DeviceRow], width: int) -> Line:
    """What to know now, each thing with its key: free GPUs, those that are held but idle, hangs, and failures."""
    facts = [*_gpu_facts(rows), *_failures(view)]
    spare = width - len(_NOW)
    while len(facts) > 1 and sum(width_of(fact.text) + len(_FACT_GAP) for fact in facts) > spare:
        facts.remove(max(facts, key=lambda fact: fact.rank))
    spans = [Span(_NOW, Role.ACCENT)]
    for number, fact in enumerate(facts):
        spans += [Span(_FACT_GAP if number else "", Role.DIM), Span(fact.text, fact.role)]
    return cut(line(*spans), width)


def _gpu_facts(rows: Sequence[DeviceRow]) -> Iterator[_Fact]:
    """Which GPUs no program uses, and which programs hold without using them."""
    gpus = [row for row in rows if row.device.instance is None]
    free = [row.device.index for row in gpus if row.owner.is_free]
    if all(row.device.processes is None for row in gpus):
        return
    yield _Fact(2, f"free {_indices_text(free)}" if free else "no GPU is free", Role.ACCENT if free else Role.PLAIN)
    held = [row for row in gpus if row.owner.idle.is_idle and not row.owner.is_free and row.owner.user]
    if held:
        owners = {row.owner.user for row in held}
        shortest = min((row.owner.idle for row in held), key=lambda idle: idle.seconds)
        memory = sum(row.owner.held_bytes or 0.0 for row in held)
        who = held[0].owner.user if len(owners) == 1 else counted(len(owners), "user")
        details = f"{who}, {shortest.text}, {compact_gibibytes_text(memory)} GiB"
        yield _Fact(3, f"held but idle {_indices_text([row.device.index for row in held])} ({details})", Role.PLAIN)


def _failures(view: ViewState) -> Iterator[_Fact]:
    for report in view.jobs.reports:
        verdict = report.verdict
        if verdict is not None and verdict.is_hang:
            rank = "" if verdict.rank is None else f" rank {verdict.rank}"
            yield _Fact(0, f"{report.name}:{rank} hangs {duration_text(verdict.since_seconds)} (4)", Role.ERROR)
            break
    age = view.frame.time_seconds - view.probes.ooms[-1].time_seconds if view.probes.ooms else math.inf
    if age <= _RECENT_SECONDS:
        yield _Fact(1, f"OOM {duration_text(max(0.0, age))} ago (6)", Role.WARNING)


def _indices_text(indices: Sequence[int]) -> str:
    """The GPUs, or how many there are if the list is long."""
    text = ranges_text(indices) or "none"
    return text if width_of(text) <= _MAX_INDICES else counted(len(indices), "GPU")


def _disk_and_cpus(host: Host) -> Line:
    rates = (("r", host.disk_read_bytes_per_second), ("w", host.disk_write_bytes_per_second))
    cpus = "" if host.cpu_count is None else f"   {host.cpu_count} CPUs"
    load = "" if host.load is None else f"  load {host.load[0]:.1f}"
    return line(*_rates("disk", *rates), Span(f"{cpus}{load}", Role.DIM))


def _rates(label: str, *rates: tuple[str, float | None]) -> Line:
    texts = " ".join(f"{mark}{compact_rate_text(rate):<4}" for mark, rate in rates)
    return line(Span(f"{label} ", Role.DIM), f"{texts.rstrip()} B/s")


def _values(devices: Iterable[Device], metric: str) -> list[float]:
    return [value for device in devices if (value := device.get(metric)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _sums(devices: Iterable[Device], metric: str, limit_metric: str) -> tuple[float | None, float | None]:
    """The sum of a metric, and that of its limit over the same devices; None without any value."""
    known = [device for device in devices if device.get(metric) is not None]
    limits = _values(known, limit_metric)
    total = sum(_values(known, metric)) if known else None
    return total, sum(limits) if limits else None
