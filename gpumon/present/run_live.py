"""The live metrics of a run with those of its GPU on one time axis, and the memory that it uses."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from gpumon.core.metrics import Unit
from gpumon.core.units import MISSING, bytes_text, power_text, spaced_percent_text, value_text
from gpumon.insight.workload_verdict import DeviceSample
from gpumon.operations.workload import WorkloadRun
from gpumon.present.device_table import throttle_text
from gpumon.present.paint.bar import pointers, stacked_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, line, section_heading, width_of
from gpumon.present.paint.sparkline import sparkline
from gpumon.present.time_axis import RunAxis, column_means, run_axis
from gpumon.workload_runs.state import MemorySample, RunState

_LABEL_WIDTH: Final = 17
_VALUE_WIDTH: Final = 15
_MIN_BAR: Final = 10
_ALLOCATED: Final = "█"
_ACTIVE: Final = "▓"
_RESERVED: Final = "░"
_megahertz: Final = partial(value_text, unit=Unit.HERTZ)
_celsius: Final = partial(value_text, unit=Unit.CELSIUS)


class _Track(NamedTuple):
    """A row with a sparkline.

    Attributes:
        label: Its label.
        samples: Unix time and value, oldest first.
        scale: The top of the sparkline, or None for the largest value.
        text: Formats a value.
        role: Role of the sparkline.
    """

    label: str
    samples: list[tuple[float, float | None]]
    scale: float | None
    text: Callable[[float], str]
    role: Role = Role.GPU_HISTORY
    interval_seconds: float = 1.0


def live_lines(run: WorkloadRun, now: float, width: int) -> list[Line]:
    """The live metrics of the workload and of its GPU, each with its value now, its maximum and its history."""
    state = run.state
    tracks = [*_metric_tracks(run), *_device_tracks(run)]
    if state.began_seconds is None or not tracks:
        return []
    columns = max(_MIN_BAR, width - _LABEL_WIDTH - 2 * _VALUE_WIDTH - 4)
    uses = {} if state.plan is None else state.plan["uses"]
    expected = uses.get("seconds")
    axis = run_axis(
        state.began_seconds,
        now if run.ended_seconds is None else run.ended_seconds,
        float(expected) if isinstance(expected, (int, float)) and not run.ended else None,
        columns,
    )
    title = f"{'Live':<{_LABEL_WIDTH}} {'now':>{_VALUE_WIDTH}} {'max':>{_VALUE_WIDTH}} "
    lines = [section_heading(clipped(f"{title} {axis.bucket_seconds:g} s per column", width - 1), width)]
    lines += [_track_line(track, axis) for track in tracks]
    lines += _throttle_lines(run, width)
    return lines


def _track_line(track: _Track, axis: RunAxis) -> Line:
    values = [value for _, value in track.samples if value is not None]
    latest, highest = (track.text(values[-1]), track.text(max(values))) if values else (MISSING, MISSING)
    scale = track.scale or max((value for value in values if value > 0), default=None)
    label = clipped(track.label, _LABEL_WIDTH)
    return line(
        f" {label:<{_LABEL_WIDTH}} {clipped(latest, _VALUE_WIDTH):>{_VALUE_WIDTH}}"
        f" {clipped(highest, _VALUE_WIDTH):>{_VALUE_WIDTH}}  ",
        Span(sparkline(column_means(track.samples, axis, track.interval_seconds), scale), track.role),
    )


def _metric_tracks(run: WorkloadRun) -> Iterable[_Track]:
    for metric, samples in run.state.metrics.items():
        points: list[tuple[float, float | None]] = [(sample.time_seconds, sample.value) for sample in samples]
        yield _Track(metric.label, points, None, metric.text)


def _peer_tracks(run: WorkloadRun) -> list[_Track]:
    """Utilization and power of each GPU, one below the other: a rank that lags shows."""
    tracks = []
    for label, samples in run.peer_samples.items():
        busy = [(sample.time_seconds, sample.utilization_gpu_percent) for sample in samples]
        power = [(sample.time_seconds, sample.power_watts) for sample in samples]
        seconds = run.interval_seconds
        tracks.append(_Track(f"GPU {label} util", busy, 100, spaced_percent_text, interval_seconds=seconds))
        limit = samples[-1].power_limit_watts
        tracks.append(_Track(f"GPU {label} power", power, limit, power_text, Role.POWER, seconds))
    return tracks


def _device_tracks(run: WorkloadRun) -> list[_Track]:
    if len(run.peer_samples) > 1:
        return _peer_tracks(run)
    if not run.samples:
        return []
    latest = run.samples[-1]
    total = None if run.device is None else run.device.get("memory_total_bytes")

    def points(value_of: Callable[[DeviceSample], float | None]) -> list[tuple[float, float | None]]:
        return [(sample.time_seconds, value_of(sample)) for sample in run.samples]

    tracks = [
        _Track("GPU utilization", points(lambda sample: sample.utilization_gpu_percent), 100, spaced_percent_text),
        _Track("GPU power", points(lambda sample: sample.power_watts), latest.power_limit_watts, power_text),
        _Track("GPU SM clock", points(lambda sample: sample.clock_sm_hertz), latest.clock_sm_max_hertz, _megahertz),
        _Track("GPU temperature", points(lambda sample: sample.temperature_celsius), 100, _celsius),
        _Track("GPU memory", points(lambda sample: sample.memory_used_bytes), total, bytes_text, Role.MEMORY_HISTORY),
    ]
    return [track._replace(interval_seconds=run.interval_seconds) for track in tracks]


def _throttle_lines(run: WorkloadRun, width: int) -> list[Line]:
    """The throttle reasons, and the limits that the sparklines are scaled to."""
    if not run.samples:
        return []
    latest = run.samples[-1]
    reasons, is_fault = throttle_text(latest.throttle_reasons)
    limits = []
    if latest.power_limit_watts is not None:
        limits.append(f"power limit {power_text(latest.power_limit_watts)}")
    if latest.clock_sm_max_hertz is not None:
        limits.append(f"max clock {_megahertz(latest.clock_sm_max_hertz)}")
    scales = f"   scaled to {', '.join(limits)}" if limits else ""
    text = f"{'!' if is_fault else ''}{reasons}" if reasons else "not throttled"
    label = f" {'GPU clocks':<{_LABEL_WIDTH}} "
    room = max(0, width - len(label) - len(text))
    role = Role.WARNING if is_fault else Role.PLAIN
    return [line(label, Span(text, role), Span(clipped(scales, room), Role.DIM))]


def memory_lines(state: RunState, width: int) -> list[Line]:
    """The allocator as a stacked bar with its peaks; on the CPU, where there is no allocator, the process's memory."""
    if not state.memory:
        return []
    latest = state.memory[-1]
    heading = section_heading("Memory of the workload", width)
    if latest.reserved_bytes is None:
        if latest.resident_bytes is None:
            return []
        return [heading, line(f" {bytes_text(latest.resident_bytes)} of host memory, including torch itself")]
    return [heading, *_allocator_lines(latest, _planned_bytes(state), width)]


def _planned_bytes(state: RunState) -> float:
    uses = {} if state.plan is None else state.plan["uses"]
    planned = uses.get("memory_bytes")
    return float(planned) if isinstance(planned, (int, float)) else 0.0


def _allocator_lines(sample: MemorySample, planned: float, width: int) -> list[Line]:
    allocated = sample.allocated_bytes or 0
    active = max(sample.active_bytes or 0, allocated)
    reserved = max(sample.reserved_bytes or 0, active)
    peak_allocated = max(sample.peak_allocated_bytes or 0, allocated)
    peak_reserved = max(sample.peak_reserved_bytes or 0, reserved)
    scale, meaning = (planned, "planned") if planned >= peak_reserved else (peak_reserved, "the peak reserved")
    cells = max(1, width - 4)
    parts = [(allocated, _ALLOCATED), (active - allocated, _ACTIVE), (reserved - active, _RESERVED)]
    texts = [
        f"{_ALLOCATED} {bytes_text(allocated)} allocated",
        f"{_ACTIVE} {bytes_text(active - allocated)} freed, waiting for stream",
        f"{_RESERVED} {bytes_text(reserved - active)} reserved, not active",
        f"full width {bytes_text(scale)}, {meaning}",
    ]
    marks = [
        (peak_allocated, f"peak allocated {bytes_text(peak_allocated)}"),
        (peak_reserved, f"peak reserved {bytes_text(peak_reserved)}"),
    ]
    rows = [pointers(marks, scale, cells)]
    if not all(label in rows[0] for _, label in marks):
        rows = [pointers([mark], scale, cells) for mark in marks]
    peaks = [line(Span(f"  {row}", Role.DIM)) for row in rows]
    bar = line(" [", Span(stacked_bar(parts, scale, cells), Role.MEMORY_HISTORY), "]")
    return [bar, *peaks, *_flowed(texts, width)]


def _flowed(parts: Iterable[str], width: int) -> list[Line]:
    """Parts next to each other, as many per line as fit."""
    lines: list[str] = []
    for part in parts:
        if lines and width_of(lines[-1]) + 3 + width_of(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines.append(clipped(f" {part}", width))
    return [line(text) for text in lines]
