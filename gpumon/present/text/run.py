"""The output of ``gpumon run``: the plan, progress, timings and errors of a workload, its result, and questions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpumon.core.metrics import Unit
from gpumon.core.text import aligned
from gpumon.core.units import age_text, bytes_text, power_text, short_time_text, value_text
from gpumon.core.workload_metrics import Measurement
from gpumon.operations.gpu_processes import OtherProcess
from gpumon.operations.workload import WorkloadRun
from gpumon.present.case_table import case_lines, without_cases
from gpumon.present.paint.bar import progress_bar
from gpumon.present.paint.line import plain
from gpumon.present.run_plots import plot_lines
from gpumon.present.workload_text import MAX_ERROR_LINES, change_text, resources_text, share_text
from gpumon.workload_runs.protocol import VerdictKind

_BAR_WIDTH: Final = 24
_MAX_LISTED: Final = 3
_HEADINGS: Final = ("metric", "value", "limit", "of limit", "times", "change")
_VERDICTS: Final = {
    VerdictKind.OK: "ok",
    VerdictKind.WARN: "warning",
    VerdictKind.FAIL: "FAILED",
    VerdictKind.CANCELLED: "cancelled",
}


def progress_text(run: WorkloadRun, now: float) -> str:
    """Progress, remaining time, and the latest metrics of the workload and its GPU in one line.

    Args:
        run: A run that has started its work.
        now: Unix time.
    """
    state = run.state
    parts = [run.request.device]
    if state.share_done is not None:
        parts.append(f"[{progress_bar(state.share_done, _BAR_WIDTH)}] {state.share_done:4.0%}")
        remaining = state.remaining_seconds(now)
        if remaining is not None:
            parts.append(f"{age_text(remaining)} left")
    for metric, samples in list(state.metrics.items())[-1:]:
        parts.append(f"{metric.name} {metric.text(samples[-1].value)}")
    if run.samples:
        sample = run.samples[-1]
        if sample.power_watts is not None:
            parts.append(power_text(sample.power_watts))
        if sample.clock_sm_hertz is not None:
            parts.append(value_text(sample.clock_sm_hertz, Unit.HERTZ))
    return "  ".join(parts)


def plan_text(run: WorkloadRun) -> str:
    """The device, the version of torch, and the maximum resources, before the work starts."""
    plan: Mapping[str, Any] = run.state.plan or {}
    chip = plan.get("chip") or {}
    device = chip.get("name") or "the CPU"
    return f"{run.request.workload.name} on {device}, torch {plan.get('torch')}. {_resources_sentence(run)}"


def timing_text(timing: Mapping[str, Any]) -> str:
    """When a timed call returned, and when the device completed its work.

    Args:
        timing: The fields of a timing event.
    """
    returned, done = short_time_text(timing["host_seconds"]), short_time_text(timing["device_seconds"])
    return f"{timing['name']}: call returned after {returned}, device done after {done}"


def explained_text(text: str) -> str:
    """The first lines of an error, and one sentence about it if the error is known."""
    from gpumon.present.explain import (
        known_error_in,  # few runs need the catalogue of errors, which takes time to import
    )

    error = known_error_in(text)
    lines = text.splitlines()
    if len(lines) > MAX_ERROR_LINES:
        text = "\n".join([*lines[:MAX_ERROR_LINES], f"({len(lines) - MAX_ERROR_LINES} more lines with --json)"])
    return text if error is None else f"{text}\n  {error.title}: {error.summary} (gpumon explain --id {error.id})"


def result_lines(run: WorkloadRun, plot_width: int = 0, table_width: int = 0) -> list[str]:
    """The tables of metrics, plots, and `outcome_lines`.

    Args:
        run: The run.
        plot_width: Cells of a line of the plots, which are left out where it is too narrow.
        table_width: Cells of a line of the table of cases, or 0 for as many as it needs.
    """
    result = run.state.result
    if result is None:
        return []
    lines = [""]
    cases = [plain(row).rstrip() for row in case_lines(result.measurements, run.changes, table_width)]
    lines += [*cases, ""] if cases else []
    single = without_cases(result.measurements)
    if single:
        changes = {change.key: change.share for change in run.changes}
        lines += aligned([_HEADINGS, *(_metric_row(item, changes.get(item.key)) for item in single)])
        lines.append("")
    plots = [plain(row).rstrip() for row in plot_lines(run, plot_width)[1:]]  # the first line is empty
    lines += [*plots, ""] if plots else []
    return lines + outcome_lines(run)


def outcome_lines(run: WorkloadRun) -> list[str]:
    """The verdict with its reason."""
    result = run.state.result
    return [] if result is None else [f"{run.request.workload.name}: {_VERDICTS[result.verdict]}. {result.why}"]


def refusal_text(run: WorkloadRun, others: Sequence[OtherProcess]) -> str:
    """Why a workload was not started, and how to start it."""
    remedy = "Choose another device, or add --yes to start anyway." if others else "Add --yes to start it."
    return f"{run.request.workload.name} was not started. {_reasons_text(run, others)} {remedy}"


def confirmation_text(run: WorkloadRun, others: Sequence[OtherProcess]) -> str:
    """The question before a workload starts that asks for confirmation, or whose GPU is in use."""
    return f"{_reasons_text(run, others)} {_resources_sentence(run)} Start anyway?"


def _reasons_text(run: WorkloadRun, others: Sequence[OtherProcess]) -> str:
    return " ".join(filter(None, [run.state.confirmation_reason, _others_text(others) if others else ""]))


def _others_text(others: Sequence[OtherProcess]) -> str:
    labels = list(dict.fromkeys(other.device.label for other in others))
    gpus = f"GPU {labels[0]} is" if len(labels) == 1 else f"GPUs {', '.join(labels)} are"
    listed = ", ".join(_other_text(other) for other in others[:_MAX_LISTED])
    more = f" and {len(others) - _MAX_LISTED} more" if len(others) > _MAX_LISTED else ""
    return f"{gpus} in use by other processes: {listed}{more}."


def _other_text(other: OtherProcess) -> str:
    held = bytes_text(other.memory_bytes)
    if other.process is None:
        return f"a process that is not visible from here ({held})"
    return f"PID {other.process.pid} ({other.process.user or 'unknown user'}, {held})"


def _resources_sentence(run: WorkloadRun) -> str:
    plan: Mapping[str, Any] = run.state.plan or {}
    free = plan.get("memory_free_bytes")
    free_text = "" if free is None else f"; {bytes_text(free)} of GPU memory is free"
    return f"Maximum use: {resources_text(plan)}{free_text}."


def _metric_row(item: Measurement, change: float | None) -> tuple[str, ...]:
    limit = item.limit
    return (
        item.metric.name,
        item.text,
        f"{item.metric.text(limit, has_unit=False)} ({item.limit_source})" if limit else "",
        share_text(item.share_of_limit) if limit else "",
        str(item.repetitions),
        change_text(change),
    )
