"""The description of a workload: its parameters, what it uses, and its functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from textwrap import dedent
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _kit.context import Context
    from _kit.events import Verdict


@dataclass(frozen=True)
class Parameter:
    """One parameter of a workload.

    Attributes:
        name: As in ``--set NAME=VALUE``.
        kind: ``integer``, ``number``, ``choice`` or ``flag``.
        default: Value on a GPU.
        help: One sentence.
        unit: Unit of the value, or empty.
        minimum: Lowest value of a number.
        maximum: Highest value of a number.
        choices: All values of a choice.
        default_cpu: Value on the CPU, or None for the same.
    """

    name: str
    kind: str
    default: Any
    help: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    default_cpu: Any = None

    def default_on(self, device: str) -> Any:
        """Returns the default value on a device."""
        return self.default_cpu if device == "cpu" and self.default_cpu is not None else self.default


def integer(
    name: str,
    default: int,
    minimum: int,
    maximum: int,
    help: str,  # noqa: A002 - argparse and click use this name too
    *,
    unit: str = "",
    default_cpu: int | None = None,
) -> Parameter:
    """Returns an integer parameter."""
    return Parameter(name, "integer", default, help, unit, minimum, maximum, default_cpu=default_cpu)


def number(
    name: str,
    default: float,
    minimum: float,
    maximum: float,
    help: str,  # noqa: A002
    *,
    unit: str = "",
    default_cpu: float | None = None,
) -> Parameter:
    """Returns a floating-point parameter."""
    return Parameter(name, "number", default, help, unit, minimum, maximum, default_cpu=default_cpu)


def choice(
    name: str,
    default: str,
    choices: Sequence[str],
    help: str,  # noqa: A002
    *,
    default_cpu: str | None = None,
) -> Parameter:
    """Returns a parameter with a fixed set of values."""
    return Parameter(name, "choice", default, help, choices=tuple(choices), default_cpu=default_cpu)


def flag(name: str, default: bool, help: str) -> Parameter:  # noqa: A002
    """Returns a Boolean parameter."""
    return Parameter(name, "flag", default, help)


HIGHER = "higher"
LOWER = "lower"


@dataclass(frozen=True)
class DeclaredMetric:
    """What a workload measures. gpumon reads it for its tables, charts, JSON and comparisons.

    Attributes:
        name: Its name, without the unit. In a declaration it may have ``*``, for names such as ``block_128``.
        unit: Its unit, such as ``GB/s``; empty for a number without one.
        better: `HIGHER`, `LOWER`, or empty where neither is better.
        format: ``number``: four significant digits. ``count``: an integer. ``bytes``: written as KiB, MiB and so on.
    """

    name: str
    unit: str = ""
    better: str = ""
    format: str = "number"


def declared_metric(metrics: Sequence[DeclaredMetric], name: str, unit: str | None = None) -> DeclaredMetric:
    """Returns the metric with a name; the first declaration that fits counts.

    Args:
        metrics: What the workload declares.
        name: Name of the metric.
        unit: Its unit, if it is another one than the declared one, or the metric is not declared; empty for a count.

    Raises:
        ValueError: It is not declared, and has no unit.
    """
    for metric in metrics:
        if fnmatchcase(name, metric.name):
            return replace(metric, name=name, unit=metric.unit if unit is None else unit)
    if unit is None:
        raise ValueError(f"{name} is not one of the metrics of the workload, and no unit is given")
    return DeclaredMetric(name, unit)


@dataclass(frozen=True)
class Uses:
    """The maximum resources of a run, shown before it starts.

    Attributes:
        memory_bytes: Device memory without the CUDA context.
        seconds: Approximate duration.
        host_memory_bytes: Host memory, such as pinned buffers.
        peers: Whether the run also uses the other visible GPUs.
        asks: Why the start needs a confirmation even if no other process uses the GPU, in sentences; usually empty.
    """

    memory_bytes: int
    seconds: float
    host_memory_bytes: int = 0
    peers: bool = False
    asks: str = ""


@dataclass(frozen=True)
class Workload:
    """The description of a workload.

    Attributes:
        name: Short name, equal to that of its file.
        purpose: One line: what the workload measures.
        needs: Requirements in words, for the list.
        uses: Returns the resources of this run; called when torch is imported and the device is known.
        run: Runs the workload and returns ``context.ok(why)``, ``context.warn(why)`` or ``context.fail(why)``.
        parameters: Parameters that a user can set.
        parts: Functions that a run may start in a new process, by name; see ``Context.fresh``.
        why_not_cpu: Why the workload cannot run on the CPU, in one sentence; empty if it can.
        code: Functions and classes that do the measured work; their source is what gpumon shows as the code of the
            workload.
        metrics: What it measures; the first declaration whose name fits counts.
        main_metric: Name of the metric that stands for the run in lists; empty for the first one.
    """

    name: str
    purpose: str
    needs: str
    uses: Callable[[Context], Uses]
    run: Callable[[Context], Verdict]
    parameters: tuple[Parameter, ...] = ()
    parts: dict[str, Callable[[Context], dict[str, Any]]] = field(default_factory=dict)
    why_not_cpu: str = ""
    code: tuple[Callable[..., object], ...] = ()
    metrics: tuple[DeclaredMetric, ...] = ()
    main_metric: str = ""

    def document(self) -> dict[str, Any]:
        """Returns the description as ``--describe`` prints it."""
        return {
            "schema": 1,
            "name": self.name,
            "purpose": self.purpose,
            "needs": self.needs,
            "why_not_cpu": self.why_not_cpu,
            "code": "\n\n\n".join(dedent(inspect.getsource(function)).rstrip() for function in self.code),
            "metrics": [asdict(metric) for metric in self.metrics],
            "parameters": [
                {
                    "name": parameter.name,
                    "kind": parameter.kind,
                    "default": parameter.default,
                    "default_cpu": parameter.default_on("cpu"),
                    "help": parameter.help,
                    "unit": parameter.unit,
                    "minimum": parameter.minimum,
                    "maximum": parameter.maximum,
                    "choices": list(parameter.choices),
                }
                for parameter in self.parameters
            ],
        }
