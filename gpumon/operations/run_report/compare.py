"""Compares two runs: what differs by more than chance and drift, and what in their environments could explain it."""

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple

from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.text import safe_text
from gpumon.operations.run_report.document import step_points
from gpumon.operations.run_report.statistics import difference

STEP_TIME: Final = "step_time"
_CONDITION: Final = re.compile(r"\s*(\w+)\s*([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%\s*", re.ASCII)
_VALUES: Final = {
    "peak_memory": "peak_memory_bytes",
    "energy": "energy_kwh",
    "gpu_hours": "gpu_hours",
    "useful_share": "useful_share",
}
"""What is compared in addition to the step time, and its name among the totals of a report."""
_FIRST: Final = ("driver_version", "torch_version", "command", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
"""Differences that explain most, the likeliest first."""


class ComparedValue(NamedTuple):
    """One value of two runs.

    Attributes:
        name: Such as ``step_time``.
        base: The value of the first run; None if unknown.
        new: That of the second run.
        change: The relative change; None if unknown.
        low: The lower end of its interval: of step times, that of the confidence asked for; of energy, of its error.
        high: The upper end.
    """

    name: str
    base: float | None
    new: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def is_shown(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0.0 <= self.high

    @property
    def verdict(self) -> str:
        """What the interval shows, in a clause."""
        if self.low is None or self.change is None:
            return "unknown"
        return ("more" if self.change > 0 else "less") if self.is_shown else "no difference can be shown"


class FailCondition(NamedTuple):
    """A condition of ``--fail-if``: a name, ``>`` or ``<``, and a relative change."""

    name: str
    is_above: bool
    change: float

    def state(self, comparisons: Sequence[ComparedValue]) -> bool | None:
        """Whether the condition is shown to hold (True) or not to hold (False); None if neither is."""
        value = next((item for item in comparisons if item.name == self.name), None)
        if value is None or value.low is None or value.high is None:
            return None
        if self.is_above:
            return True if value.low > self.change else False if value.high <= self.change else None
        return True if value.high < self.change else False if value.low >= self.change else None


def parse_condition(text: str) -> FailCondition:
    """Parse ``step_time > +5%``.

    Raises:
        CommandError: The text is no condition, or names an unknown value.
    """
    match = _CONDITION.fullmatch(text)
    names = (STEP_TIME, *_VALUES)
    if match is None or match[1] not in names:
        reason = f"{safe_text(text, 60)!r} is not a condition such as 'step_time > +5%'."
        raise CommandError.usage(ProblemCode.INVALID_VALUE, reason, f"Values: {', '.join(names)}.")
    return FailCondition(match[1], match[2] == ">", float(match[3]) / 100)


def compare_reports(base: Mapping[str, Any], new: Mapping[str, Any], confidence: float) -> list[ComparedValue]:
    """Compare the values of two reports; a value that one of them lacks is unknown."""
    steps = [report["totals"]["step_seconds"] for report in (base, new)]
    change = difference(step_points(base["steps"]), step_points(new["steps"]), confidence)
    shown = (None, None, None) if change is None else (change.change, change.low, change.high)
    return [ComparedValue(STEP_TIME, *steps, *shown), *(_value(name, base, new) for name in _VALUES)]


def _value(name: str, base: Mapping[str, Any], new: Mapping[str, Any]) -> ComparedValue:
    """A value that was counted once in each run: its interval is that of its measurement, not of another run."""
    values = [report["totals"].get(_VALUES[name]) for report in (base, new)]
    if not values[0] or values[1] is None:
        return ComparedValue(name, values[0], values[1])
    errors = [report["totals"].get("energy_error_kwh") or 0.0 if name == "energy" else 0.0 for report in (base, new)]
    low = max(0.0, values[1] - errors[1]) / (values[0] + errors[0]) - 1
    high = (values[1] + errors[1]) / (values[0] - errors[0]) - 1 if values[0] > errors[0] else float("inf")
    return ComparedValue(name, values[0], values[1], values[1] / values[0] - 1, low, high if isfinite(high) else None)


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, str]]:
    """What differs in the environments, what explains most first, and how the account of a step has changed."""
    sides = [
        {
            "command": " ".join(report["command"] or ()),
            **{name: str(value) for name, value in {**report["host"], **report["versions"]}.items() if value},
            **report["environment"],
            "gpus": ", ".join(sorted({str(gpu["name"]) for gpu in report["gpus"]})),
            **_account(report),
        }
        for report in (base, new)
    ]
    names = [name for name in {**sides[0], **sides[1]} if sides[0].get(name, "") != sides[1].get(name, "")]
    names.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return [{"name": name, "base": sides[0].get(name, ""), "new": sides[1].get(name, "")} for name in names]


def _account(report: Mapping[str, Any]) -> dict[str, str]:
    """The latest account of a step, in whole percent."""
    shares = report["accounts"][-1]["shares"] if report["accounts"] else {}
    return {f"step: {name}": f"{share:.0%}" for name, share in shares.items() if share and share >= 0.01}
