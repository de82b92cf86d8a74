"""Asks every Python that gpumon can find about its torch, all at once."""

import threading
from collections.abc import Sequence
from typing import Final

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem
from gpumon.diagnosis.doctor.facts import Python, Pythons
from gpumon.jobs.interpreter import Interpreter
from gpumon.operations.doctor.asking import Children

_CONTEXT_BYTES: Final = 2 << 30
"""A GPU with less free memory is left out: a CUDA context takes half a gigabyte, which others may be about to need."""


def ask_pythons(
    children: Children,
    found: Sequence[Interpreter],
    frame: Frame | Problem,
    seconds: float,
    *,
    was_named: bool,
    tries_gpus: bool = True,
) -> Pythons:
    """What each Python's torch answers; two names of one environment count as one.

    Args:
        children: Where they are asked.
        found: The interpreters.
        frame: The GPUs, of which full ones and those that do not answer are left out.
        seconds: How long each may take.
        was_named: Whether the user has named the one.
        tries_gpus: Whether anything may run on a GPU.
    """
    words = ["torch"]
    left_out = [] if isinstance(frame, Problem) else sorted(_left_out(frame))
    if not tries_gpus:
        left_out = ["all"]
    if left_out:
        words += ["--leave-out", ",".join(left_out)]
    answers: dict[int, Python] = {}

    def ask(place: int, interpreter: Interpreter) -> None:
        steps = children.ask(interpreter.path, words, seconds)
        answers[place] = Python(str(interpreter.path), interpreter.found_in, steps)

    threads = [threading.Thread(target=ask, args=each, name="gpumon-python", daemon=True) for each in enumerate(found)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    distinct: dict[object, Python] = {}
    for place in sorted(answers):
        python = answers[place]
        prefix = python.steps.value("python", "prefix")
        distinct.setdefault((prefix, python.steps.value("python", "version")) if prefix else place, python)
    return Pythons(tuple(distinct.values()), was_named)


def _left_out(frame: Frame) -> set[str]:
    """UUIDs of the GPUs that nothing is to be tried on."""
    return {device.uuid for device in frame.devices if device.uuid is not None and not _has_room(device)}


def _has_room(device: Device) -> bool:
    free = device.get("memory_free_bytes")
    return device.state is DeviceState.OK and (free is None or free >= _CONTEXT_BYTES)
