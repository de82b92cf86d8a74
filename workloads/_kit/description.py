"""What a workload says of itself before it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _kit.context import Context
    from _kit.events import Verdict


@dataclass(frozen=True)
class Parameter:
    """One thing that a user may choose.

    Attributes:
        name: As in ``--set NAME=VALUE``.
        kind: ``integer``, ``number``, ``choice`` or ``flag``.
        default: Value on a GPU.
        help: One sentence.
        unit: Unit of the value, or empty.
        minimum: Lowest value, of numbers.
        maximum: Highest value, of numbers.
        choices: All values, of a choice.
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
        """The value that holds on a device if the user chooses none."""
        return self.default_cpu if device == "cpu" and self.default_cpu is not None else self.default


def integer(
    name: str,
    default: int,
    minimum: int,
    maximum: int,
    help: str,  # noqa: A002 - the word that describes it
    *,
    unit: str = "",
    default_cpu: int | None = None,
) -> Parameter:
    """A whole number."""
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
    """A number."""
    return Parameter(name, "number", default, help, unit, minimum, maximum, default_cpu=default_cpu)


def choice(
    name: str,
    default: str,
    choices: Sequence[str],
    help: str,  # noqa: A002
    *,
    default_cpu: str | None = None,
) -> Parameter:
    """One of several words."""
    return Parameter(name, "choice", default, help, choices=tuple(choices), default_cpu=default_cpu)


def flag(name: str, default: bool, help: str) -> Parameter:  # noqa: A002
    """Yes or no."""
    return Parameter(name, "flag", default, help)


@dataclass(frozen=True)
class Uses:
    """What a run will use at most; it is shown, and capped, before anything is taken.

    Attributes:
        memory_bytes: Device memory, the CUDA context apart.
        seconds: How long it takes, about.
        host_memory_bytes: Host memory that matters, such as pinned buffers.
        peers: Whether it also works on the other GPUs that it can see.
        asks: Why leave must be asked for even where nobody else works, in sentences; empty if it need not.
    """

    memory_bytes: int
    seconds: float
    host_memory_bytes: int = 0
    peers: bool = False
    asks: str = ""


@dataclass(frozen=True)
class Workload:
    """A workload as data.

    Attributes:
        name: Short name, that of its file.
        purpose: One line: what it finds out.
        needs: What it takes, in words, for the list.
        uses: What this run will use, asked when torch is loaded and the device is known.
        run: The work. It returns a `Verdict`, by way of ``context.ok``, ``context.warn`` or ``context.fail``.
        parameters: What can be chosen.
        parts: Functions that a run may start in a fresh process, by name; see ``Context.fresh``.
        why_not_cpu: Why it cannot run on the CPU, in one sentence; empty if it can.
    """

    name: str
    purpose: str
    needs: str
    uses: Callable[[Context], Uses]
    run: Callable[[Context], Verdict]
    parameters: tuple[Parameter, ...] = ()
    parts: dict[str, Callable[[Context], dict[str, Any]]] = field(default_factory=dict)
    why_not_cpu: str = ""

    def document(self) -> dict[str, Any]:
        """The description as ``--describe`` prints it."""
        return {
            "schema": 1,
            "name": self.name,
            "purpose": self.purpose,
            "needs": self.needs,
            "why_not_cpu": self.why_not_cpu,
            "parameters": [
                {
                    "name": each.name,
                    "kind": each.kind,
                    "default": each.default,
                    "default_cpu": each.default_on("cpu"),
                    "help": each.help,
                    "unit": each.unit,
                    "minimum": each.minimum,
                    "maximum": each.maximum,
                    "choices": list(each.choices),
                }
                for each in self.parameters
            ],
        }
