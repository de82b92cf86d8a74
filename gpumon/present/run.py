"""One run as lines: its state, result and errors, its live metrics, and what it was started with."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from gpumon.core.model import short_product_name
from gpumon.core.units import age_text
from gpumon.operations.workload import WorkloadRun
from gpumon.present.paint.bar import progress_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, line, section_heading, width_of, wrapped
from gpumon.present.run_live import live_lines, memory_lines
from gpumon.present.run_plots import plot_lines
from gpumon.present.run_results import result_lines, timing_lines
from gpumon.present.workload_text import MAX_ERROR_LINES, parameter_text, resources_text
from gpumon.present.workloads import elapsed_seconds, outcome_text, share_done, state_span
from gpumon.workload_runs.protocol import VerdictKind
from gpumon.workload_runs.state import UNSUPPORTED_ERROR, RunError

_STATE_WIDTH: Final = 9
_MIN_BAR: Final = 10
_MIN_TEXT: Final = 20
_MAX_STEPS: Final = 6


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
        plot_lines(run, width)[1:],  # sections are separated below
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


def error_lines(errors: Sequence[RunError], width: int) -> list[Line]:
    """Each error with its class, a sentence from the error catalogue where it is known, and its text."""
    if not errors:
        return []
    from gpumon.present.explain import known_error_in  # late: it loads the error catalogue, which few runs need

    lines = [section_heading("Errors   e: explain", width)]
    for error in errors:
        role, mark = (Role.ACCENT, "") if error.expected else (Role.ERROR, "! ")
        expected = " (expected: the workload demonstrates it)" if error.expected else ""
        lines.append(line(Span(f" {mark}{error.kind}", role), Span(expected, Role.DIM)))
        known = known_error_in(error_text(error))
        meaning = [] if known is None else wrapped(f"{known.title}: {known.summary}", width - 5)
        lines += [line(Span(f"   {text}", Role.ACCENT)) for text in meaning]
        lines += [line(f"   {text}") for text in wrapped(error.text, width - 5)[:MAX_ERROR_LINES]]
    return lines


def error_text(error: RunError) -> str:
    """An error as Python prints it."""
    return f"{error.kind}: {error.text}"


def explainable_text(run: WorkloadRun) -> str:
    """Everything of a run that can be explained: its errors, or its output if it failed without reporting an error."""
    errors = [error_text(error) for error in run.state.errors if error.kind != UNSUPPORTED_ERROR]
    if errors:
        return "\n\n".join(errors)
    is_failed = run.state.result is not None and run.state.result.verdict is VerdictKind.FAIL
    return "\n".join(entry.text for entry in list(run.child.log)) if is_failed else ""


def _step_lines(run: WorkloadRun, width: int) -> list[Line]:
    """The last steps, the newest one at the end."""
    state = run.state
    steps = list(state.steps)[-_MAX_STEPS:]
    if not steps:
        return []
    start = steps[0][0] if state.began_seconds is None else state.began_seconds
    lines = [section_heading("Steps", width)]
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
    lines = [section_heading("Run", width)]
    return lines + [line(Span(f" {text}", Role.DIM)) for text in wrap(" ".join(facts), max(_MIN_TEXT, width - 2))]
