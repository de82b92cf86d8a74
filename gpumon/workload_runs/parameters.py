"""The parameters of a workload, and the validation of values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import isnan
from sys import float_info
from typing import Any, Final

from gpumon.core.text import safe_text

Value = int | float | str | bool
_MAX_NUMBER: Final = float_info.max
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class ParameterKind(str, Enum):
    """The type of a value."""

    INTEGER = "integer"
    NUMBER = "number"
    CHOICE = "choice"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class WorkloadParameter:
    """One parameter of a workload.

    Attributes:
        name: As in ``--set NAME=VALUE``.
        kind: Type of the value.
        default: Default on a GPU.
        default_cpu: Default on the CPU.
        help: One sentence.
        unit: Unit of the value, or empty.
        minimum: Lowest value of a number, or None.
        maximum: Highest value of a number, or None.
        choices: All allowed values of a choice.
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
        """The default on ``cpu`` or on a GPU."""
        return self.default_cpu if device == "cpu" else self.default

    def parse(self, text: str) -> Value:
        """Parse a value.

        Raises:
            ValueError: The text is not a valid value; the message contains the valid values.
        """
        text = text.strip()
        if self.kind is ParameterKind.FLAG:
            return self._flag(text)
        if self.kind is ParameterKind.CHOICE:
            if text not in self.choices:
                raise ValueError(f"{self.name}: {safe_text(text, 40)!r} is not one of {', '.join(self.choices)}.")
            return text
        return self._number(text)

    def _flag(self, text: str) -> bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ValueError(f"{self.name}: {safe_text(text, 40)!r} is neither yes nor no.")

    def _number(self, text: str) -> int | float:
        expected = "an integer" if self.kind is ParameterKind.INTEGER else "a number"
        try:
            value = int(text) if self.kind is ParameterKind.INTEGER else float(text)
        except ValueError:
            raise ValueError(f"{self.name}: {safe_text(text, 40)!r} is not {expected}.") from None
        low, high = self.minimum, self.maximum
        if (
            not -_MAX_NUMBER <= value <= _MAX_NUMBER
            or (low is not None and value < low)
            or (high is not None and value > high)
        ):
            raise ValueError(f"{self.name}: {safe_text(text, 40)} is not {self.range_text}.")
        return value

    @property
    def range_text(self) -> str:
        """The valid values, as text."""
        if self.kind is ParameterKind.CHOICE:
            return ", ".join(self.choices)
        if self.kind is ParameterKind.FLAG:
            return "yes or no"
        unit = f" {self.unit}" if self.unit else ""
        if self.minimum is None or self.maximum is None:
            return f"a number{unit}"
        return f"{self.minimum:.9g} to {self.maximum:.9g}{unit}"


def parse_parameter(raw: Mapping[str, Any]) -> WorkloadParameter:
    """Parse a parameter from the output of ``--describe``.

    Raises:
        ValueError, TypeError, KeyError, OverflowError: The description is invalid.
    """
    kind = ParameterKind(raw["kind"])
    bounds = [None if raw.get(name) is None else float(raw[name]) for name in ("minimum", "maximum")]
    if any(bound is not None and isnan(bound) for bound in bounds):
        raise ValueError("a bound is not a number")
    parameter = WorkloadParameter(
        name=safe_text(str(raw["name"]), 40),
        kind=kind,
        default=raw["default"],
        default_cpu=raw["default_cpu"],
        help=safe_text(str(raw.get("help", "")), 300),
        unit=safe_text(str(raw.get("unit", "")), 20),
        minimum=bounds[0],
        maximum=bounds[1],
        choices=tuple(safe_text(str(choice), 40) for choice in raw.get("choices", ())),
    )
    default, default_cpu = (parameter.parse(str(value)) for value in (parameter.default, parameter.default_cpu))
    return replace(parameter, default=default, default_cpu=default_cpu)


def chosen_values(parameters: Sequence[WorkloadParameter], device: str, texts: Mapping[str, str]) -> dict[str, Value]:
    """Parse the user's choices, and return the value of every parameter on a device.

    Args:
        parameters: All parameters of the workload.
        device: ``cpu`` or a GPU.
        texts: The user's choices, by name.

    Raises:
        ValueError: A name or a value is invalid; the message contains the valid ones.
    """
    known = {parameter.name: parameter for parameter in parameters}
    for name in texts:
        if name not in known:
            names = ", ".join(known) or "none"
            raise ValueError(f"There is no parameter {safe_text(name, 40)!r}. Parameters: {names}.")
    return {
        name: parameter.parse(texts[name]) if name in texts else parameter.default_on(device)
        for name, parameter in known.items()
    }
