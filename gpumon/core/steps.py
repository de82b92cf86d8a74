"""The steps of a training run, as the optimizer and the DataLoader of the process report them."""

from dataclasses import dataclass
from typing import Final

from gpumon.core.json_fields import Json, as_duration, as_list, required
from gpumon.core.stacks import StackSamples, parse_samples

MAX_STEPS: Final = 10_000
"""Limit on the steps of one answer."""


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a training run has come.

    Attributes:
        steps_count: Number of optimizer steps since the probe began to count.
        batches_count: Number of batches that DataLoaders returned since then.
        last_step_monotonic: When the last step ended, in seconds of the host's monotonic clock; None before the first.
        step_seconds: Median duration of the latest steps (at most 100); None before the second.
        data_seconds: Mean time per step that the main thread waited for a DataLoader, over the same steps.
        collection_seconds: Mean time per step of Python's garbage collection, over the same steps.
        waiting_for_data_since_monotonic: Since when the main thread waits for a DataLoader; None if it does not.
    """

    steps_count: int
    batches_count: int
    last_step_monotonic: float | None = None
    step_seconds: float | None = None
    data_seconds: float | None = None
    collection_seconds: float | None = None
    waiting_for_data_since_monotonic: float | None = None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step.

    Attributes:
        end_monotonic: When the optimizer step ended, in seconds of the host's monotonic clock.
        seconds: The time since the end of the step before.
        data_seconds: The part in which the main thread waited for a DataLoader.
        collection_seconds: The part in which Python collected garbage.
    """

    end_monotonic: float
    seconds: float
    data_seconds: float
    collection_seconds: float


@dataclass(frozen=True, slots=True)
class StepObservation:
    """What a probe has seen of the main thread and its steps over a time.

    Attributes:
        samples: The stacks of the main thread.
        steps: The complete steps in that time, in order.
        cpu_seconds: CPU time of the main thread in that time.
        process_cpu_seconds: CPU time of all threads of the process in that time.
    """

    samples: StackSamples
    steps: tuple[StepRecord, ...]
    cpu_seconds: float
    process_cpu_seconds: float


def parse_observation(raw: Json) -> StepObservation:
    """Parse the answer to the request ``observe``.

    Raises:
        TypeError: A field has the wrong type.
        ValueError: A number is out of range, or there are too many steps.
        KeyError: A field is missing.
    """
    steps = as_list(raw["steps"])
    if len(steps) > MAX_STEPS:
        raise ValueError(f"there are {len(steps)} steps")
    return StepObservation(
        samples=parse_samples(raw["samples"]),
        steps=tuple(StepRecord(*(required(as_duration(value)) for value in as_list(step))) for step in steps),
        cpu_seconds=required(as_duration(raw["cpu_seconds"])),
        process_cpu_seconds=required(as_duration(raw["process_cpu_seconds"])),
    )
