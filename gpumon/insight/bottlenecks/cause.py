"""A cause of slow steps: its test on the evidence, its experiment, and how short a step can become without it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpumon.core.notebook import NotebookTable
from gpumon.core.step_classes import COMPUTE, GPU_CLASSES, GPU_WORK
from gpumon.core.units import short_time_text
from gpumon.insight.bottlenecks.slowness_evidence import SlownessEvidence, StepShare
from gpumon.insight.bottlenecks.try_line import try_line
from gpumon.traces.model import MAX_WORK
from gpumon.traces.what_if import LEAST

NO_LINE: Final = ""
_MIN_PAUSE: Final = 0.02
_NOISE: Final = 0.1
"""Two runs of a program differ by this part of a step on either side; up to 15 % between two were measured on H200."""
_POWER_CAP: Final = 0.2
"""Kernels take longer by this part where an idle GPU becomes a busy one: on H200, products ran at 785 TFLOP/s in short
measurements, and at 665 at the power cap."""
_MIN_AGREEMENT: Final = 0.5
_MAX_HALF: Final = 0.2
_MAX_RATIO: Final = (1 + _MAX_HALF) / (1 - _MAX_HALF)
"""A range is at most 20 % to either side of its middle; what cannot be said better is only a limit."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a cause costs in one training run.

    Attributes:
        seconds: What it costs per step on average.
        text: What was measured, as a clause without a full stop.
        line: The line of the program; empty if unknown.
        experiment: What would prove it, in a sentence, where that differs from the experiment of the cause.
        bound_seconds: The shortest possible median step without it; None: the median step without ``seconds``.
        base_seconds: The step that the cost is a part of; None: the median step, or the mean step if only some steps
            have the cost.
        value: The value that the experiment sets, for `gpumon.insight.bottlenecks.try_line`; empty if it sets none.
    """

    seconds: float
    text: str
    line: str = NO_LINE
    experiment: str = ""
    bound_seconds: float | None = None
    base_seconds: float | None = None
    value: str = ""


@dataclass(frozen=True, slots=True)
class CauseRule:
    """A cause that is looked for, a row of `causes/causes.txt`.

    Attributes:
        kind: Its name, such as ``few_workers``; part of the JSON document.
        label: Its name for people.
        class_name: The class that the time belongs to, one of `gpumon.core.step_classes.LABELS`.
        min_share: From which part of the step on it is a cause.
        find: Tests the evidence.
        change: Without the cause, the longest path of a trace is that with this change of `gpumon.traces.what_if`;
            empty if the median step without its time is the prediction.
        is_removable: Whether a cure removes its time; otherwise the prediction is only a limit.
        experiment: What would prove it, in a sentence.
    """

    kind: str
    label: str
    class_name: str
    min_share: float
    find: Callable[[SlownessEvidence], Finding | None]
    change: str
    is_removable: bool
    experiment: str


@dataclass(frozen=True, slots=True)
class Bottleneck(NotebookTable):
    """A cause that costs time which can be saved.

    Attributes:
        name: The class that the time belongs to.
        kind: The cause.
        label: The cause for people.
        seconds: What it costs per step on average.
        share: Its part of the step.
        bound_seconds: How long the step takes without it: the middle of the range, or without one, at best.
        bound_range: The least and the most that it takes without it; None if only a limit can be said.
        base_seconds: How long the step is with it.
        evidence: What was measured, in a sentence.
        line: The line of the program; empty if unknown.
        experiment: What would prove it, in a sentence.
        try_line: The experiment as a command line; empty if no command expresses it.
    """

    shown = ("label", "seconds", "share", "line", "evidence", "experiment")

    name: str
    kind: str
    label: str
    seconds: float
    share: float
    bound_seconds: float
    bound_range: tuple[float, float] | None
    base_seconds: float
    evidence: str
    line: str
    experiment: str
    try_line: str = ""

    @property
    def bound_text(self) -> str:
        """How long a step takes without it."""
        if self.bound_range is None:
            return f"{short_time_text(self.bound_seconds)} at best"
        return " to ".join(map(short_time_text, self.bound_range))


def main_kind(share: StepShare) -> str:
    """The finer class with the most time."""
    seconds: dict[str, float] = {}
    for part in share.top:
        seconds[part.kind] = seconds.get(part.kind, 0.0) + part.seconds
    return max(seconds, key=seconds.__getitem__, default="")


def main_line(share: StepShare) -> str:
    """The line of the program with the most time."""
    return next((part.line for part in share.top if part.line), NO_LINE)


def where_text(share: StepShare) -> str:
    """A clause with the largest part and its source line, after a comma; empty without parts."""
    named = [part for part in share.top if part.name]
    part = next((part for part in named if part.line), next(iter(named), None))
    return "" if part is None else f", mostly {f'at {part.line}: ' if part.line else ''}{part.name[:80]}"


def judged(rule: CauseRule, evidence: SlownessEvidence) -> Bottleneck | None:
    """The cause with its cost, if it costs enough to be one."""
    finding = rule.find(evidence)
    if finding is None:
        return None
    account = evidence.account
    share = account.share_of(rule.class_name)
    in_median = min(finding.seconds, share.median_seconds) if share.cost_seconds else finding.seconds
    base = finding.base_seconds
    if base is None:
        is_pause = finding.seconds - in_median > _MIN_PAUSE * account.step_seconds
        base = max(account.step_seconds, account.mean_seconds) if is_pause else account.step_seconds
    bound = finding.bound_seconds
    if bound is None:
        bound = max(account.step_seconds - in_median, _least_on_gpu(rule, evidence))
    part = finding.seconds / base if base else 0.0
    if part < rule.min_share:
        return None
    bound, bound_range = _predicted(rule, evidence, max(0.0, bound), base)
    text = f"{short_time_text(finding.seconds)} of {short_time_text(base)} ({part:.0%}): {finding.text}."
    return Bottleneck(
        rule.class_name,
        rule.kind,
        rule.label,
        finding.seconds,
        part,
        bound,
        bound_range,
        base,
        text,
        finding.line,
        finding.experiment or rule.experiment,
        try_line(rule.kind, finding.value, evidence.start, evidence.host.settings),
    )


def _least_on_gpu(rule: CauseRule, evidence: SlownessEvidence) -> float:
    """The time of the work that the GPU keeps without a cause, which a host that ran ahead does not show."""
    if evidence.trace is None or rule.class_name in (GPU_WORK, *COMPUTE):
        return 0.0
    return evidence.trace.compute_seconds


def _predicted(
    rule: CauseRule, evidence: SlownessEvidence, bound: float, base: float
) -> tuple[float, tuple[float, float] | None]:
    """How long a step takes without a cause, and its range; without one, the first is the least that can be said.

    ``base`` is how long it takes with the cause.
    """
    step = evidence.account.step_seconds
    without = {} if evidence.trace is None or not rule.change else evidence.trace.without
    least = without.get(rule.change, bound)
    most = without.get(LEAST + rule.change, least)
    if step - least < _MIN_AGREEMENT * (step - bound):  # the time is saved only if nothing else keeps the step as long
        least = bound
    most *= 1 + _POWER_CAP * _power_saved(evidence, base)
    if not rule.is_removable or not least or most > _MAX_RATIO * least or least >= base:
        return least, None
    middle = (least + most) / 2
    half = min((most - least) / 2 + _NOISE * middle, _MAX_HALF * middle)
    return middle, (middle - half, min(middle + half, base))


def _power_saved(evidence: SlownessEvidence, base: float) -> float:
    """The part of the power that the GPU saves, from 0 to 1: it is idle meanwhile, and would use all SMs otherwise."""
    work = sum(evidence.account.share_of(name).seconds for name in (GPU_WORK, *GPU_CLASSES[: MAX_WORK + 1]))
    if evidence.gpu is None or not base or not work:
        return 0.0
    busy = min(1.0, work / base)
    active = evidence.gpu.sm_share
    return (1.0 - busy) * (1.0 if active is None else min(1.0, active / busy))
