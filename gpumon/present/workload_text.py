"""Text about workloads: shares of a limit, changes, parameters and planned resources; their list."""

from collections.abc import Mapping
from textwrap import wrap
from typing import Any, Final

from gpumon.core.text import safe_text
from gpumon.core.units import MISSING, bytes_text
from gpumon.core.workload_metrics import significant_text
from gpumon.workload_runs.catalogue import Catalogue, WorkloadInfo
from gpumon.workload_runs.parameters import Value, WorkloadParameter

_COMMENT_WIDTH: Final = 76
_LIST_WIDTH: Final = 110
MAX_ERROR_LINES: Final = 12
"""Lines of an error that are shown: that of a compiler has hundreds."""


def share_text(share: float | None) -> str:
    """A share of a limit, in percent."""
    return MISSING if share is None else f"{share * 100:.1f} %"


def change_text(share: float | None) -> str:
    """A relative change with its sign, in percent; empty if unknown."""
    return "" if share is None else f"{share * 100:+.1f} %"


def resources_text(plan: Mapping[str, Any] | None) -> str:
    """The most that a run will use according to its plan."""
    uses = {} if plan is None else plan.get("uses", {})
    parts = []
    for name, resource in (("memory_bytes", "GPU memory"), ("host_memory_bytes", "host memory")):
        value = uses.get(name)
        if isinstance(value, (int, float)) and value > 0:
            parts.append(f"{bytes_text(value)} of {resource}")
    seconds = uses.get("seconds")
    if isinstance(seconds, (int, float)):
        parts = parts or ["little memory"]
        parts.append(f"about {significant_text(float(seconds))} s")
    if uses.get("peers") is True:
        parts.append("the other GPUs too")
    return ", ".join(parts) or "unknown resources"


def parameter_text(value: Value) -> str:
    """A parameter's value as the user would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def code_text(workload: WorkloadInfo, values: Mapping[str, Value] | None = None) -> str:
    """A short program of a workload's steps, if it has one, and the code that it measures, with its parameters.

    Args:
        workload: The workload.
        values: The values of its parameters; None for the defaults.
    """
    head = [_comment(f"{workload.name}: {workload.purpose}"), "#", f"# File: {safe_text(str(workload.file))}"]
    if values is not None:
        head.append(_values_comment("Parameters", values))
    elif workload.parameters:
        if not workload.why_not_cpu:
            on_cpu = {parameter.name: parameter.default_cpu for parameter in workload.parameters}
            head.append(_values_comment("Parameters on the CPU", on_cpu))
        on_gpu = {parameter.name: parameter.default for parameter in workload.parameters}
        head.append(_values_comment("Parameters on a GPU", on_gpu))
    if workload.program:
        program = f"The same steps as a program: copy it to {workload.name}.py and run it with python."
        measures = "What gpumon run measures, with warm-up, repetitions and checks:"
        head += ["#", _comment(program), "", workload.program, "", "", _comment(measures)]
    return "\n".join([*head, "", workload.code])


def _values_comment(label: str, values: Mapping[str, Value]) -> str:
    pairs = [f"{name}={parameter_text(value)}" for name, value in values.items()]
    return _comment(f"{label}: {', '.join(pairs) or 'none'}")


def _comment(text: str) -> str:
    return "\n".join(wrap(text, _COMMENT_WIDTH, initial_indent="# ", subsequent_indent="#   "))


def workload_list_lines(catalogue: Catalogue, *, has_gpu: bool = True) -> list[str]:
    """The output of ``gpumon workloads``: a block per workload, then a line per broken file with its reason.

    Args:
        catalogue: The workloads.
        has_gpu: Whether this host has a GPU; without one, the workloads that need it are marked.
    """
    lines: list[str] = []
    for workload in catalogue.workloads:
        origin = "" if workload.origin == "gpumon" else f"  ({workload.origin})"
        missing = "" if has_gpu or not workload.why_not_cpu else "  ! needs a GPU, which this host does not have"
        lines += [f"{workload.name}{origin}{missing}", *_paragraph(workload.purpose)]
        lines += _paragraph(f"Needs: {workload.needs}")
        lines += [line for parameter in workload.parameters for line in _parameter_lines(parameter)]
        lines.append("")
    lines += [f"! {safe_text(str(broken.file))}: {broken.reason}" for broken in catalogue.broken]
    return lines if catalogue.broken else lines[:-1]


def _parameter_lines(parameter: WorkloadParameter) -> list[str]:
    default, default_cpu = parameter_text(parameter.default), parameter_text(parameter.default_cpu)
    on_cpu = "" if default_cpu == default else f", on the CPU {default_cpu}"
    return wrap(
        f"{parameter.name}={default}{on_cpu}  {parameter.help} ({parameter.range_text})",
        _LIST_WIDTH,
        initial_indent="    --set ",
        subsequent_indent="          ",
    )


def _paragraph(text: str) -> list[str]:
    return wrap(text, _LIST_WIDTH, initial_indent="    ", subsequent_indent="    ")
