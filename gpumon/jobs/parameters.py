"""A workload's parameters as it describes them, and texts checked against them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import isnan
from sys import float_info
from typing import Any, Final

from gpumon.core.text import safe_text

Value = int | float | str | bool
_LARGEST: Final = float_info.max
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class ParameterKind(str, Enum):
    """What a value is."""

    INTEGER = "integer"
    NUMBER = "number"
    CHOICE = "choice"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing that a user may choose.

    Attributes:
        name: As in ``--set NAME=VALUE``.
        kind: What a value is.
        default: Value on a GPU.
        default_cpu: Value on the CPU.
        help: One sentence.
        unit: Unit of the value, or empty.
        minimum: Lowest value of a number, or None.
        maximum: Highest value of a number, or None.
        choices: All values of a choice.
    """

    name: str
    kind: ParameterKind
    default: Value
    default_cpu: Value
    help: str = ""
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    def default_on(self, device: str) -> Value:
        """The value that holds on ``cpu`` or on a GPU if the user chooses none."""
        return self.default_cpu if device == "cpu" else self.default

    def parse(self, text: str) -> Value:
        """The value that a text means.

        Raises:
            ValueError: It means none; the text says what would.
        """
        text = text.strip()
        if self.kind is ParameterKind.FLAG:
            return self._flag(text)
        if self.kind is ParameterKind.CHOICE:
            if text not in self.choices:
                raise ValueError(f"{self.name}: {safe_text(text, 40)!r} is none of {', '.join(self.choices)}.")
            return text
        return self._number(text)

    def _flag(self, text: str) -> bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ValueError(f"{self.name}: {safe_text(text, 40)!r} is neither yes nor no.")

    def _number(self, text: str) -> int | float:
        what = "a whole number" if self.kind is ParameterKind.INTEGER else "a number"
        try:
            value = int(text) if self.kind is ParameterKind.INTEGER else float(text)
        except ValueError:
            raise ValueError(f"{self.name}: {safe_text(text, 40)!r} is not {what}.") from None
        low, high = self.minimum, self.maximum
        if (
            not -_LARGEST <= value <= _LARGEST
            or (low is not None and value < low)
            or (high is not None and value > high)
        ):
            raise ValueError(f"{self.name}: {safe_text(text, 40)} is not {self.range_text}.")
        return value

    @property
    def range_text(self) -> str:
        """What may be chosen, in words."""
        if self.kind is ParameterKind.CHOICE:
            return ", ".join(self.choices)
        if self.kind is ParameterKind.FLAG:
            return "yes or no"
        unit = f" {self.unit}" if self.unit else ""
        if self.minimum is None or self.maximum is None:
            return f"a number{unit}"
        return f"{self.minimum:g} to {self.maximum:g}{unit}"


def parameter_from(said: Mapping[str, Any]) -> Parameter:
    """A parameter as ``--describe`` tells it.

    Raises:
        ValueError, TypeError, KeyError, OverflowError: It is none.
    """
    kind = ParameterKind(said["kind"])
    bounds = [None if said.get(each) is None else float(said[each]) for each in ("minimum", "maximum")]
    if any(each is not None and isnan(each) for each in bounds):
        raise ValueError("a bound is no number")
    parameter = Parameter(
        name=safe_text(str(said["name"]), 40),
        kind=kind,
        default=said["default"],
        default_cpu=said["default_cpu"],
        help=safe_text(str(said.get("help", "")), 300),
        unit=safe_text(str(said.get("unit", "")), 20),
        minimum=bounds[0],
        maximum=bounds[1],
        choices=tuple(safe_text(str(each), 40) for each in said.get("choices", ())),
    )
    default, default_cpu = (parameter.parse(str(each)) for each in (parameter.default, parameter.default_cpu))
    return replace(parameter, default=default, default_cpu=default_cpu)


def chosen_values(parameters: Sequence[Parameter], device: str, texts: Mapping[str, str]) -> dict[str, Value]:
    """The value of every parameter on a device.

    Args:
        parameters: All that there are.
        device: ``cpu`` or a GPU.
        texts: What the user chose, by name.

    Raises:
        ValueError: A name or a value that makes no sense; the text says what would.
    """
    known = {each.name: each for each in parameters}
    for name in texts:
        if name not in known:
            names = ", ".join(known) or "none at all"
            raise ValueError(f"There is no parameter {safe_text(name, 40)!r}; there is {names}.")
    return {
        name: parameter.parse(texts[name]) if name in texts else parameter.default_on(device)
        for name, parameter in known.items()
    }
