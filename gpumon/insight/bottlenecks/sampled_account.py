"""The account of the median step from what a probe has seen: exact times, and the samples of the main thread.

The times that the main thread waited for data and collected garbage are measured. The rest of a step is divided as
the samples are. Time that only some steps have, such as a checkpoint, is not part of the median step: it becomes the
pause of its class.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from gpumon.core.step_classes import (
    BACKWARD,
    CHECKPOINT,
    COLLECTION,
    COMPILATION,
    DATA,
    EVALUATION,
    FORWARD,
    IDLE,
    LOGGING,
    OPTIMIZER,
    PREPARATION,
    PROGRAMS,
    SAMPLED_CLASSES,
    SLEEP,
)
from gpumon.core.steps import StepObservation, StepRecord
from gpumon.insight.bottlenecks.slowness_evidence import StepAccount, StepPart, StepShare
from gpumon.stacks.classify import OVERHEAD, SampleClass, SourceOf, classify

_MAX_TOP: Final = 5
_MIN_EXCESS: Final = 0.03
_MEASURED_KINDS: Final = frozenset({"few_workers", "main_process", "loader"})
"""Samples in a DataLoader whose time the probe measures."""
_MIN_MEASURED: Final = 0.3
"""If less of the sampled time was measured, the probe did not see the DataLoader, and the samples count."""
_INTERMITTENT: Final = (CHECKPOINT, EVALUATION, COMPILATION, LOGGING, PROGRAMS, SLEEP, DATA, PREPARATION)
"""Classes that may take their time in few steps only."""


@dataclass
class _Class:
    """The time of a class while the account is made: in the mean step, and its part beyond the median step."""

    seconds: float = 0.0
    pause: float = 0.0
    parts: Counter[SampleClass] = field(default_factory=Counter)


def sampled_account(observation: StepObservation, source_of: SourceOf, *, has_gpu: bool) -> StepAccount:
    """The account of the median step, as the main thread spends it; the times add up to it exactly.

    Without any step, as from outside, it is the account of a second.
    """
    steps = observation.steps
    median_seconds = median(step.seconds for step in steps) if steps else 1.0
    mean_seconds = _mean(steps, "seconds") if steps else 1.0
    classes = {name: _Class() for name in SAMPLED_CLASSES}
    measured: Counter[str] = Counter()
    sampled: Counter[str] = Counter()
    overhead = 0
    for stack in observation.samples.stacks:
        sample = classify(stack.frames, source_of, has_gpu=has_gpu)
        classes[sample.name].parts[sample] += stack.count
        overhead += stack.count if sample.kind == OVERHEAD else 0
        is_measured = sample.name == COLLECTION or (sample.name == DATA and sample.kind in _MEASURED_KINDS)
        (measured if is_measured else sampled)[sample.name] += stack.count
    total = sum(measured.values()) + sum(sampled.values())
    typical = _typical(steps)
    for name, mean_part, typical_part in (
        (DATA, _mean(steps, "data_seconds"), _share(typical, "data_seconds")),
        (COLLECTION, _mean(steps, "collection_seconds"), _share(typical, "collection_seconds")),
    ):
        sampled_part = mean_seconds * measured[name] / total if total else 0.0
        if not steps or mean_part < _MIN_MEASURED * sampled_part:
            sampled[name] += measured[name]
        else:
            room = median_seconds - sum(item.seconds for item in classes.values())
            classes[name].seconds = max(0.0, min(typical_part * median_seconds, room))
            classes[name].pause = max(0.0, mean_part - classes[name].seconds)
    _divide_rest(classes, sampled, median_seconds, mean_seconds)
    shares = tuple(_share_of(name, item) for name, item in classes.items() if item.seconds or item.pause)
    operators = sum(sampled[name] for name in (FORWARD, BACKWARD, OPTIMIZER))
    return StepAccount(
        median_seconds,
        mean_seconds,
        len(steps),
        observation.samples.samples_count,
        shares,
        overhead_share=overhead / operators if operators else 0.0,
    )


def _mean(steps: tuple[StepRecord, ...], part: str) -> float:
    return sum(getattr(step, part) for step in steps) / len(steps) if steps else 0.0


def _typical(steps: tuple[StepRecord, ...]) -> list[StepRecord]:
    """The half of the steps whose durations are closest to the median."""
    ordered = sorted(steps, key=lambda step: step.seconds)
    quarter = len(ordered) // 4
    return ordered[quarter : len(ordered) - quarter] or ordered


def _share(steps: list[StepRecord], part: str) -> float:
    total = sum(step.seconds for step in steps)
    return sum(getattr(step, part) for step in steps) / total if total else 0.0


def _divide_rest(
    classes: Mapping[str, _Class], sampled: Mapping[str, int], median_seconds: float, mean_seconds: float
) -> None:
    """Divide what was not measured by the samples, and move what only some steps have to the pauses."""
    rest = median_seconds - sum(item.seconds for item in classes.values())
    mean_rest = max(0.0, mean_seconds - sum(item.seconds + item.pause for item in classes.values()))
    count = sum(sampled.values())
    if not count:
        classes[IDLE].seconds += rest
        return
    parts = {name: mean_rest * number / count for name, number in sampled.items()}
    excess = mean_rest - rest
    pauses: dict[str, float] = {}
    if excess > _MIN_EXCESS * mean_seconds:
        for name in sorted(parts, key=lambda name: -parts[name]):
            if name in _INTERMITTENT and excess > 0:
                pauses[name] = min(parts[name], excess)
                parts[name] -= pauses[name]
                excess -= pauses[name]
    remaining = sum(parts.values())
    for name, seconds in parts.items():
        classes[name].seconds += seconds * rest / remaining if remaining else 0.0
        classes[name].pause += pauses.get(name, 0.0)
    if not remaining:
        classes[IDLE].seconds += rest


def _share_of(name: str, item: _Class) -> StepShare:
    """The class with its parts; the parts of a class that was measured are scaled to its time."""
    count = sum(item.parts.values())
    scale = (item.seconds + item.pause) / count if count else 0.0
    lines: Counter[tuple[str, str, str]] = Counter()
    for sample, number in item.parts.items():
        lines[sample.text, sample.line, sample.kind] += number
    top = tuple(
        StepPart(text, number * scale, line, kind) for (text, line, kind), number in lines.most_common(_MAX_TOP)
    )
    if not top and name == IDLE:
        top = (StepPart("not sampled", item.seconds),)
    return StepShare(name, item.seconds, item.pause, top)
