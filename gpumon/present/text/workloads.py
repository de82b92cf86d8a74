"""The output of ``gpumon workloads``: every workload with its parameters, and the files that are not workloads."""

from textwrap import wrap
from typing import Final

from gpumon.core.text import safe_text
from gpumon.present.workload_text import parameter_text
from gpumon.workload_runs.catalogue import Catalogue
from gpumon.workload_runs.parameters import WorkloadParameter

_WIDTH: Final = 110


def workload_list_lines(catalogue: Catalogue) -> list[str]:
    """Return a block per workload, then a line per broken file with its reason."""
    lines: list[str] = []
    for workload in catalogue.workloads:
        origin = "" if workload.origin == "gpumon" else f"  ({workload.origin})"
        lines += [f"{workload.name}{origin}", *_paragraph(workload.purpose), *_paragraph(f"Needs: {workload.needs}")]
        lines += [line for parameter in workload.parameters for line in _parameter_lines(parameter)]
        lines.append("")
    lines += [f"! {safe_text(str(broken.file))}: {broken.reason}" for broken in catalogue.broken]
    return lines if catalogue.broken else lines[:-1]


def _parameter_lines(parameter: WorkloadParameter) -> list[str]:
    default, default_cpu = parameter_text(parameter.default), parameter_text(parameter.default_cpu)
    on_cpu = "" if default_cpu == default else f", on the CPU {default_cpu}"
    return wrap(
        f"{parameter.name}={default}{on_cpu}  {parameter.help} ({parameter.range_text})",
        _WIDTH,
        initial_indent="    --set ",
        subsequent_indent="          ",
    )


def _paragraph(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")
