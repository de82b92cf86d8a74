"""Waits until something is true of GPUs, or a process has ended."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.core.device_use import FreeCheck
from gpumon.core.model import Device, Frame
from gpumon.core.problems import CommandError, ExitCode
from gpumon.core.units import age_text
from gpumon.operations.device_selection import select_devices, with_instances
from gpumon.operations.pick_reservations import ProcessStart

_POLL_SECONDS: Final = 0.2


class Condition(NamedTuple):
    """A condition of one GPU.

    Attributes:
        holds: Whether a GPU meets it; False if that is unknown.
        text: What is then true, as the rest of a sentence about the GPU.
    """

    holds: Callable[[Device], bool]
    text: Callable[[Device], str]


def is_free() -> Condition:
    """The GPU is free."""
    checks: dict[str, FreeCheck] = {}
    return Condition(lambda device: checks.setdefault(device.key, FreeCheck()).add(device), lambda _: "is free")


def memory_above(percent: float) -> Condition:
    """More than a share of the memory is in use."""

    def used(device: Device) -> float | None:
        total, free = device.get("memory_total_bytes"), device.get("memory_free_bytes")
        return None if not total or free is None else 100 * (1 - free / total)

    return Condition(
        lambda device: (used(device) or 0.0) > percent, lambda device: f"uses {used(device) or 0:.0f} % of its memory"
    )


def utilization_below(percent: float) -> Condition:
    """The utilization is low."""

    def holds(device: Device) -> bool:
        value = device.get("utilization_gpu_percent")
        return value is not None and not device.is_stale("utilization_gpu_percent") and value < percent

    return Condition(holds, lambda device: f"is utilized to {device.get('utilization_gpu_percent'):.0f} %")


class GpuWatch:
    """Whether every condition holds for every named GPU, or each of its MIG instances, and since when."""

    def __init__(self, text: str, conditions: Sequence[Condition], seconds: float) -> None:
        self._text = text
        self._conditions = conditions
        self._seconds = seconds
        self._since: float | None = None

    def add(self, frame: Frame) -> str | None:
        """Add a frame; returns the sentence once everything has held for long enough.

        Raises:
            CommandError: A named GPU does not exist.
        """
        if not frame.devices and frame.problems:
            self._since = None
            raise CommandError(next(iter(frame.problems.values())), ExitCode.MISSING_PREREQUISITE)
        devices = with_instances(select_devices(self._text, frame.devices), frame.devices)
        if not all(self._is_true(frame, device) for device in devices):
            self._since = None
            return None
        if self._since is None:
            self._since = frame.monotonic_seconds
        held = frame.monotonic_seconds - self._since
        if held < self._seconds:
            return None
        texts = (" and ".join(condition.text(device) for condition in self._conditions) for device in devices)
        facts = "; ".join(f"GPU {device.label} {text}" for device, text in zip(devices, texts, strict=True))
        return f"{facts}, for {age_text(held)}." if self._seconds else f"{facts}."

    def _is_true(self, frame: Frame, device: Device) -> bool:
        return frame.is_fresh(device) and all(condition.holds(device) for condition in self._conditions)


def wait_for_gpus(frames: Iterator[Frame], watch: GpuWatch) -> str | None:
    """The sentence of the first frame in which the watch is over; None if the frames end before."""
    return next((sentence for sentence in map(watch.add, frames) if sentence is not None), None)


def wait_for_process(pid: int, deadline: float | None, *, poll_seconds: float = _POLL_SECONDS) -> str | None:
    """The sentence once a process has ended; None at the deadline (monotonic seconds)."""
    process = ProcessStart.of(pid)
    if process is None:
        return f"PID {pid} has already ended."
    while process.is_alive:
        left = poll_seconds if deadline is None else min(poll_seconds, deadline - time.monotonic())
        if left <= 0:
            return None
        time.sleep(left)
    return f"PID {pid} has ended."
