"""One run as lines: its state, result and errors, and its live metrics with those of its GPU on one time axis."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final, NamedTuple

from gpumon.core.model import short_product_name
from gpumon.core.units import MISSING, age_text, bytes_text, short_time_text
from gpumon.diagnosis.verdict import DeviceSample
from gpumon.jobs.protocol import VerdictKind
from gpumon.jobs.state import UNSUPPORTED_ERROR, JobError, JobState, MemorySample
from gpumon.operations.workload import MetricChange, WorkloadRun
from gpumon.present.device_table import throttle_text
from gpumon.present.paint.bar import pointers, progress_bar, stacked_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, line, plain, width_of, wrapped
from gpumon.present.paint.sparkline import sparkline
from gpumon.present.paint.table import Align, Column, fit_columns, headings, row_line
from gpumon.present.time_axis import RunAxis, column_means, run_axis
from gpumon.present.workload_text import (
    change_text,
    label_text,
    measurement_text,
    parameter_text,
    resources_text,
    share_of_limit,
    share_text,
)
from gpumon.present.workloads import elapsed_seconds, outcome_text, share_done, state_span

_LABEL_WIDTH: Final = 17
_VALUE_WIDTH: Final = 15
_STATE_WIDTH: Final = 9
_MIN_BAR: Final = 10
_MIN_TEXT: Final = 20
_MAX_STEPS: Final = 6
_MAX_ERROR_LINES: Final = 12
_ALLOCATED: Final = "█"
_ACTIVE: Final = "▓"
_RESERVED: Final = "░"


def title_text(run: WorkloadRun) -> str:
    """The workload and its device."""
    plan = run.state.plan or {}
    chip = plan.get("chip") or {}
    name = short_product_name(str(chip.get("name") or ""))
    return f"{run.request.workload.name} on {run.target.label}" + (f", {name}" if name else "")


def head_lines(run: WorkloadRun, now: float, width: int) -> list[Line]:
    """The state in one word, the current step or the outcome, and the progress."""
    state = state_span(run)
    word = Span(f" {state.text:<{_STATE_WIDTH}} ", state.role)
    lines = [line(word, clipped(_activity_text(run), max(0, width - width_of(word.text) - 1)))]
    elapsed = elapsed_seconds(run, now)
    if elapsed is None:
        return lines
    remaining = run.state.remaining_seconds(now)
    left = "" if remaining is None else f", {age_text(remaining)} left"
    share = share_done(run)
    done = "" if share is None else f"{share * 100:.0f} % done, "
    text = f" {done}{age_text(elapsed)} elapsed{left}"
    if share is None and run.ended:
        return [*lines, line(clipped(text, width))]
    bar = progress_bar(share, max(_MIN_BAR, width - len(text) - 3))
    return [*lines, line(Span(f" {bar}", Role.GPU_HISTORY), clipped(text, width))]


def _activity_text(run: WorkloadRun) -> str:
    state = run.state
    if run.ended:
        return outcome_text(run)
    if state.plan is None:
        return "Starting the interpreter and importing torch." if state.hello is None else "Importing torch."
    if state.began_seconds is None:
        return f"Waiting for confirmation to use {resources_text(state.plan)}."
    return state.steps[-1][1].partition("\n")[0] if state.steps else f"Using {resources_text(state.plan)}."


def body_lines(run: WorkloadRun, now: float, width: int) -> list[Line]:
    """Everything else, in sections; empty sections are left out."""
    sections = [
        result_lines(run, width),
        error_lines([error for error in run.state.errors if error.text != run.state.unsupported_reason], width),
        live_lines(run, now, width),
        memory_lines(run.state, width),
        timing_lines(run.state.timings, width),
        _step_lines(run, width),
        _plan_lines(run, width),
    ]
    lines: list[Line] = []
    for section in sections:
        if section and lines:
            lines.append(())
        lines += section
    return lines


def _heading(text: str, width: int) -> Line:
    return line(Span(f" {text}".ljust(width), Role.HEADING))


# Result


class ResultRow(NamedTuple):
    """A metric of a result, and its change since the last comparable run."""

    metric: Mapping[str, Any]
    change: MetricChange | None


def result_lines(run: WorkloadRun, width: int) -> list[Line]:
    """The verdict, the reason and every metric; nothing before the end."""
    if not run.ended:
        return []
    state = state_span(run)
    head_width = width - max(_STATE_WIDTH, len(state.text)) - 3
    if run.state.result is None and width_of(outcome_text(run)) <= head_width:
        return []  # the head shows all of it: why the workload is not supported here
    first, *following = wrap(outcome_text(run), max(_MIN_TEXT, width - len(state.text) - 4)) or [""]
    lines = [_heading("Result", width), line(Span(f" {state.text}  ", state.role), first)]
    lines += [line(" " * (len(state.text) + 3) + text) for text in following]
    if run.problem is not None:
        texts = wrap(str(run.problem), max(_MIN_TEXT, width - 4))
        lines += [line(Span(f" ! {text}", Role.WARNING)) for text in texts]
    result = run.state.result
    if result is None or not result.measurements:
        return lines
    changes = {change.name: change for change in run.changes}
    columns = fit_columns(RESULT_COLUMNS, width - 2)
    lines += [(), line(Span(" " + plain(headings(columns)), Role.ACCENT))]
    lines += [
        line(" ", *row_line(columns, ResultRow(metric, changes.get(metric["name"])))) for metric in result.measurements
    ]
    if run.changes:
        note = " Change: since the last run with these parameters on this device."
        lines.append(line(Span(note, Role.DIM)))
    return lines


def _name(row: ResultRow, _: int) -> Span:
    return Span(label_text(row.metric["name"]))


def _value(row: ResultRow, _: int) -> Span:
    return Span(measurement_text(row.metric["value"], row.metric["unit"]))


def _limit(row: ResultRow, _: int) -> Span:
    limit = row.metric.get("limit")
    return Span("" if limit is None else measurement_text(limit, row.metric["unit"]))


def _share(row: ResultRow, _: int) -> Span:
    share = share_of_limit(row.metric)
    return Span("" if share is None else share_text(share))


def _repetitions(row: ResultRow, _: int) -> Span:
    return Span(str(row.metric["repetitions"]))


def _change(row: ResultRow, _: int) -> Span:
    return Span("" if row.change is None else change_text(row.change.share))


def _source(row: ResultRow, _: int) -> Span:
    return Span(str(row.metric.get("limit_source") or ""), Role.DIM)


RESULT_COLUMNS: Final[tuple[Column[ResultRow], ...]] = (
    Column("Metric", 24, _name, rank=0, align=Align.LEFT),
    Column("Value", 15, _value, rank=0),
    Column("Limit", 15, _limit, rank=2),
    Column("Of limit", 8, _share, rank=1),
    Column("Repeats", 7, _repetitions, rank=4),
    Column("Change", 8, _change, rank=3),
    Column("Source of the limit", 26, _source, rank=5, align=Align.LEFT, stretches=True),
)


# Errors


def error_lines(errors: Sequence[JobError], width: int) -> list[Line]:
    """Each error with its class, a sentence from the error catalogue where it is known, and its text."""
    if not errors:
        return []
    from gpumon.present.explain import known_error_in  # late: it loads the error catalogue, which few runs need

    lines = [_heading("Errors   e: explain", width)]
    for error in errors:
        role, mark = (Role.ACCENT, "") if error.expected else (Role.ERROR, "! ")
        expected = " (expected: the workload demonstrates it)" if error.expected else ""
        lines.append(line(Span(f" {mark}{error.kind}", role), Span(expected, Role.DIM)))
        known = known_error_in(error_text(error))
        meaning = [] if known is None else wrapped(f"{known.title}: {known.summary}", width - 5)
        lines += [line(Span(f"   {text}", Role.ACCENT)) for text in meaning]
        lines += [line(f"   {text}") for text in wrapped(error.text, width - 5)[:_MAX_ERROR_LINES]]
    return lines


def error_text(error: JobError) -> str:
    """An error as Python prints it."""
    return f"{error.kind}: {error.text}"


def explainable_text(run: WorkloadRun) -> str:
    """Everything of a run that can be explained: its errors, or its output if it failed without reporting an error."""
    errors = [error_text(error) for error in run.state.errors if error.kind != UNSUPPORTED_ERROR]
    if errors:
        return "\n\n".join(errors)
    is_failed = run.state.result is not None and run.state.result.verdict is VerdictKind.FAIL
    return "\n".join(entry.text for entry in list(run.job.log)) if is_failed else ""


# Live metrics


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
    lines = [_heading(clipped(f"{title} {axis.bucket_seconds:g} s per column", width - 1), width)]
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
    for name, samples in run.state.metrics.items():
        points: list[tuple[float, float | None]] = [(sample.time_seconds, sample.value) for sample in samples]
        yield _Track(label_text(name), points, None, _formatter(run.state.units[name]))


def _formatter(unit: str) -> Callable[[float], str]:
    return lambda value: measurement_text(value, unit)


def _device_tracks(run: WorkloadRun) -> list[_Track]:
    if not run.samples:
        return []
    latest = run.samples[-1]
    total = None if run.device is None else run.device.get("memory_total_bytes")

    def points(value_of: Callable[[DeviceSample], float | None]) -> list[tuple[float, float | None]]:
        return [(sample.time_seconds, value_of(sample)) for sample in run.samples]

    tracks = [
        _Track("GPU utilization", points(lambda sample: sample.utilization_percent), 100, _percent),
        _Track("GPU power", points(lambda sample: sample.power_watts), latest.power_limit_watts, _watts),
        _Track("GPU SM clock", points(lambda sample: sample.clock_hertz), latest.clock_max_hertz, _megahertz),
        _Track("GPU temperature", points(lambda sample: sample.temperature_celsius), 100, _celsius),
        _Track("GPU memory", points(lambda sample: sample.memory_used_bytes), total, bytes_text, Role.MEMORY_HISTORY),
    ]
    return [track._replace(interval_seconds=run.interval_seconds) for track in tracks]


def _percent(value: float) -> str:
    return f"{value:.0f} %"


def _watts(value: float) -> str:
    return f"{value:.0f} W"


def _megahertz(value: float) -> str:
    return f"{value / 1e6:.0f} MHz"


def _celsius(value: float) -> str:
    return f"{value:.0f} °C"


def _throttle_lines(run: WorkloadRun, width: int) -> list[Line]:
    """The throttle reasons, and the limits that the sparklines are scaled to."""
    if not run.samples:
        return []
    latest = run.samples[-1]
    reasons, is_fault = throttle_text(latest.throttle_reasons)
    limits = []
    if latest.power_limit_watts is not None:
        limits.append(f"power limit {_watts(latest.power_limit_watts)}")
    if latest.clock_max_hertz is not None:
        limits.append(f"max clock {_megahertz(latest.clock_max_hertz)}")
    scales = f"   scaled to {', '.join(limits)}" if limits else ""
    text = f"{'!' if is_fault else ''}{reasons}" if reasons else "not throttled"
    label = f" {'GPU clocks':<{_LABEL_WIDTH}} "
    room = max(0, width - len(label) - len(text))
    role = Role.WARNING if is_fault else Role.PLAIN
    return [line(label, Span(text, role), Span(clipped(scales, room), Role.DIM))]


# Memory


def memory_lines(state: JobState, width: int) -> list[Line]:
    """The allocator as a stacked bar with its peaks; on the CPU, where there is no allocator, the process's memory."""
    if not state.memory:
        return []
    latest = state.memory[-1]
    heading = _heading("Memory of the workload", width)
    if latest.reserved_bytes is None:
        if latest.resident_bytes is None:
            return []
        return [heading, line(f" {bytes_text(latest.resident_bytes)} of host memory, including torch itself")]
    return [heading, *_allocator_lines(latest, _planned_bytes(state), width)]


def _planned_bytes(state: JobState) -> float:
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


# Timings


class TimingRow(NamedTuple):
    """A timed call: when the call had returned, and when the device had finished the work, in seconds."""

    name: str
    host_seconds: float
    device_seconds: float


def timing_lines(timings: Mapping[str, tuple[float, float]], width: int) -> list[Line]:
    """How much faster the work looks when only the call is timed, without a synchronization."""
    if not timings:
        return []
    columns = fit_columns(TIMING_COLUMNS, width - 2)
    rows = [TimingRow(name, *seconds) for name, seconds in timings.items()]
    return [_heading(plain(headings(columns)), width), *(line(" ", *row_line(columns, row)) for row in rows)]


def _timed(row: TimingRow, _: int) -> Span:
    return Span(row.name)


def _returned(row: TimingRow, _: int) -> Span:
    return Span(short_time_text(row.host_seconds))


def _finished(row: TimingRow, _: int) -> Span:
    return Span(short_time_text(row.device_seconds))


def _speedup(row: TimingRow, _: int) -> Span:
    if row.host_seconds <= 0:
        return Span(MISSING)
    return Span(f"{row.device_seconds / row.host_seconds:.3g} x")


TIMING_COLUMNS: Final[tuple[Column[TimingRow], ...]] = (
    Column("Timed", 26, _timed, rank=0, align=Align.LEFT),
    Column("Call returned", 14, _returned, rank=1),
    Column("Device done", 12, _finished, rank=1),
    Column("Looks faster by", 15, _speedup, rank=2),
)


# Steps and plan


def _step_lines(run: WorkloadRun, width: int) -> list[Line]:
    """The last steps, the newest one at the end."""
    state = run.state
    steps = list(state.steps)[-_MAX_STEPS:]
    if not steps:
        return []
    start = steps[0][0] if state.began_seconds is None else state.began_seconds
    lines = [_heading("Steps", width)]
    for seconds, text in steps:
        first, *following = wrapped(text, width - 10) or [""]
        lines.append(line(Span(f" {age_text(max(0.0, seconds - start)):>6}  ", Role.DIM), first))
        lines += [line(f"         {part}") for part in following]
    return lines


def _plan_lines(run: WorkloadRun, width: int) -> list[Line]:
    """The request: parameters, interpreter, torch and planned resources."""
    state = run.state
    parameters = ", ".join(f"{name} {parameter_text(value)}" for name, value in run.request.parameters.items())
    facts = [f"Parameters: {parameters or 'none'}.", f"Python: {run.request.python}."]
    if state.plan is not None:
        cuda = state.plan.get("cuda")
        facts.append(f"torch {state.plan['torch']}, " + (f"CUDA {cuda}." if cuda else "no CUDA."))
        facts.append(f"Planned use: {resources_text(state.plan)}.")
    lines = [_heading("Run", width)]
    return lines + [line(Span(f" {text}", Role.DIM)) for text in wrap(" ".join(facts), max(_MIN_TEXT, width - 2))]
