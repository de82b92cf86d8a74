"""One run as lines: how it stands, and its live figures with its GPU's on one time axis."""

from collections.abc import Callable, Iterable
from textwrap import wrap
from typing import Final, NamedTuple

from gpumon.core.units import MISSING, age_text, bytes_text
from gpumon.diagnosis.verdict import DeviceSample
from gpumon.ui.jobs import BoardRun
from gpumon.ui.paint.bar import progress_bar
from gpumon.ui.paint.history import strip
from gpumon.ui.paint.line import Line, Role, Span, clipped, line
from gpumon.ui.paint.text import wrapped
from gpumon.ui.view.axis import Axis, axis_over, on_axis
from gpumon.ui.view.devices import throttle_text
from gpumon.ui.view.figures import figure_text, parameter_text, uses_text, words
from gpumon.ui.view.run_memory import memory_lines
from gpumon.ui.view.run_result import error_lines, result_lines, timing_lines
from gpumon.ui.view.workloads import elapsed_seconds, state_span, why

_LABEL_WIDTH: Final = 17
_VALUE_WIDTH: Final = 15
_LEAST_BAR: Final = 10
_MOST_STEPS: Final = 6
_STATE_WIDTH: Final = 10


def title_text(entry: BoardRun) -> str:
    """The workload and its device."""
    plan = entry.run.state.plan or {}
    chip = plan.get("chip") or {}
    name = str(chip.get("name") or "").removeprefix("NVIDIA ")
    return f"{entry.run.request.workload.name} on {entry.place.words}" + (f", {name}" if name else "")


def head_lines(entry: BoardRun, now: float, width: int) -> list[Line]:
    """How it stands in a word, what it does now, and how far it has come."""
    state = state_span(entry)
    word = Span(f" {state.text:<{_STATE_WIDTH}}", state.role)
    lines = [line(word, clipped(_doing(entry), max(0, width - _STATE_WIDTH - 2)))]
    elapsed = elapsed_seconds(entry, now)
    if elapsed is None:
        return lines
    remaining = entry.run.state.remaining_seconds(now)
    left = "" if remaining is None else f", {age_text(remaining)} left"
    share = entry.run.state.share_done
    done = "" if share is None else f"{share * 100:.0f} % done, "
    text = f" {done}{age_text(elapsed)} elapsed{left}"
    bar = progress_bar(share, max(_LEAST_BAR, width - len(text) - 3))
    lines.append(line(Span(f" {bar}", Role.GPU_HISTORY), clipped(text, width)))
    return lines


def _doing(entry: BoardRun) -> str:
    state = entry.run.state
    if entry.run.ended:
        return why(entry)
    if state.plan is None:
        return "The interpreter starts and loads torch." if state.hello is None else "It loads torch."
    if state.began_seconds is None:
        return f"It waits for leave to use {uses_text(state.plan)}."
    return state.steps[-1][1].partition("\n")[0] if state.steps else f"It uses {uses_text(state.plan)}."


def body_lines(entry: BoardRun, now: float, width: int) -> list[Line]:
    """Everything else, in sections; those without anything to tell are left out."""
    sections = [
        result_lines(entry, width),
        error_lines(entry.run.state.errors, width),
        live_lines(entry, now, width),
        memory_lines(entry.run.state, width),
        timing_lines(entry.run.state.timings, width),
        _step_lines(entry, width),
        _plan_lines(entry, width),
    ]
    lines: list[Line] = []
    for section in sections:
        if section and lines:
            lines.append(())
        lines += section
    return lines


class _Track(NamedTuple):
    """A strip: its name, samples, scale (None for the largest value), unit and how a value is written."""

    name: str
    samples: list[tuple[float, float | None]]
    scale: float | None
    text: Callable[[float], str]
    role: Role = Role.GPU_HISTORY


def live_lines(entry: BoardRun, now: float, width: int) -> list[Line]:
    """The workload's live figures and its GPU's, each with its value now, its largest, and its course."""
    state = entry.run.state
    tracks = [*_metric_tracks(entry), *_device_tracks(entry)]
    if state.began_seconds is None or not tracks:
        return []
    columns = max(_LEAST_BAR, width - _LABEL_WIDTH - 2 * _VALUE_WIDTH - 4)
    uses = {} if state.plan is None else state.plan["uses"]
    expected = uses.get("seconds")
    axis = axis_over(
        state.began_seconds,
        now if entry.ended_seconds is None else entry.ended_seconds,
        float(expected) if isinstance(expected, (int, float)) and not entry.run.ended else None,
        columns,
    )
    title = f" {'Live':<{_LABEL_WIDTH}} {'now':>{_VALUE_WIDTH}} {'largest':>{_VALUE_WIDTH}} "
    heading = clipped(f"{title} a column is {axis.bucket_seconds:g} s".ljust(width), width)
    lines = [line(Span(heading, Role.HEADING))]
    lines += [_track_line(track, axis) for track in tracks]
    lines += _throttle_lines(entry, width)
    return lines


def _track_line(track: _Track, axis: Axis) -> Line:
    values = [value for _, value in track.samples if value is not None]
    latest, largest = (track.text(values[-1]), track.text(max(values))) if values else (MISSING, MISSING)
    scale = track.scale or max((value for value in values if value > 0), default=None)
    drawn = strip(on_axis(track.samples, axis), scale)
    label = clipped(track.name, _LABEL_WIDTH)
    return line(
        f" {label:<{_LABEL_WIDTH}} {clipped(latest, _VALUE_WIDTH):>{_VALUE_WIDTH}}"
        f" {clipped(largest, _VALUE_WIDTH):>{_VALUE_WIDTH}}  ",
        Span(drawn, track.role),
    )


def _metric_tracks(entry: BoardRun) -> Iterable[_Track]:
    state = entry.run.state
    for name, samples in state.metrics.items():
        unit = state.units[name]
        yield _Track(words(name), [(each.time_seconds, each.value) for each in samples], None, _writer(unit))


def _writer(unit: str) -> Callable[[float], str]:
    return lambda value: figure_text(value, unit)


def _device_tracks(entry: BoardRun) -> list[_Track]:
    samples = entry.run.samples
    if not samples:
        return []
    latest = samples[-1]
    total = None if entry.run.device is None else entry.run.device.get("memory_total_bytes")

    def course(value_of: Callable[[DeviceSample], float | None]) -> list[tuple[float, float | None]]:
        return [(each.time_seconds, value_of(each)) for each in samples]

    return [
        _Track("GPU utilization", course(lambda each: each.utilization_percent), 100, _percent),
        _Track("GPU power", course(lambda each: each.power_watts), latest.power_limit_watts, _watts),
        _Track("GPU SM clock", course(lambda each: each.clock_hertz), latest.clock_max_hertz, _megahertz),
        _Track("GPU temperature", course(lambda each: each.temperature_celsius), 100, _celsius),
        _Track("GPU memory", course(lambda each: each.memory_used_bytes), total, bytes_text, Role.MEMORY_HISTORY),
    ]


def _percent(value: float) -> str:
    return f"{value:.0f} %"


def _watts(value: float) -> str:
    return f"{value:.0f} W"


def _megahertz(value: float) -> str:
    return f"{value / 1e6:.0f} MHz"


def _celsius(value: float) -> str:
    return f"{value:.0f} °C"


def _throttle_lines(entry: BoardRun, width: int) -> list[Line]:
    """What the strips are scaled to, and why the clocks are lowered."""
    if not entry.run.samples:
        return []
    latest = entry.run.samples[-1]
    reasons, is_fault = throttle_text(latest.throttle_reasons)
    scales = []
    if latest.power_limit_watts is not None:
        scales.append(f"power to its limit of {_watts(latest.power_limit_watts)}")
    if latest.clock_max_hertz is not None:
        scales.append(f"clock to {_megahertz(latest.clock_max_hertz)}")
    scaled = f"   {', '.join(scales)}" if scales else ""
    said = f"{'!' if is_fault else ''}{reasons}" if reasons else "not lowered"
    label = f" {'GPU clocks':<{_LABEL_WIDTH}} "
    role = Role.WARNING if is_fault else Role.PLAIN
    rest = max(0, width - len(label) - len(said))
    return [line(label, Span(said, role), Span(clipped(f"{scaled}", rest), Role.DIM))]


def _step_lines(entry: BoardRun, width: int) -> list[Line]:
    """What it has done so far, the newest last."""
    state = entry.run.state
    steps = list(state.steps)[-_MOST_STEPS:]
    if not steps:
        return []
    start = steps[0][0] if state.began_seconds is None else state.began_seconds
    lines = [line(Span(" Steps".ljust(width), Role.HEADING))]
    for seconds, text in steps:
        first, *rest = wrapped(text, width - 10) or [""]
        lines.append(line(Span(f" {age_text(max(0.0, seconds - start)):>6}  ", Role.DIM), first))
        lines += [line(f"         {more}") for more in rest]
    return lines


def _plan_lines(entry: BoardRun, width: int) -> list[Line]:
    """What was asked for, and with what."""
    state = entry.run.state
    chosen = ", ".join(f"{name} {parameter_text(value)}" for name, value in entry.run.request.parameters.items())
    facts = [f"Parameters: {chosen or 'none'}.", f"Python: {entry.run.request.python}."]
    if state.plan is not None:
        cuda = state.plan.get("cuda")
        facts.append(f"torch {state.plan['torch']}, " + (f"CUDA {cuda}." if cuda else "no CUDA."))
        facts.append(f"It may use {uses_text(state.plan)}.")
    lines = [line(Span(" Run".ljust(width), Role.HEADING))]
    lines += [line(Span(f" {each}", Role.DIM)) for each in wrap(" ".join(facts), max(20, width - 2))]
    return lines
