"""What a workload is given to run with: its device, its parameters, and the words in which it reports."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, Optional

from _kit.chip import Chip
from _kit.events import Figure, Reporter, Verdict, VerdictKind
from _kit.fresh import run_part
from _kit.memory import memory_of, resident_bytes, summary_of

_LEAST_SECONDS_BETWEEN = 0.1
"""Metrics and progress of one name are not told more often; the last one always is, by the next event."""

_ERROR_CHARACTERS = 16_000
"""Told of an error: enough for a traceback, or for a message with what the driver printed beside it."""


class Context:
    """One run.

    Args:
        reporter: Where events go.
        torch: The module.
        device: Such as ``cuda:0`` or ``cpu``.
        parameters: Every parameter's value.
        chip: Facts of the GPU, or None on the CPU.
        file: The workload's file, for parts that run in a process of their own.
    """

    def __init__(
        self,
        reporter: Reporter,
        torch: Any,
        device: str,
        parameters: Mapping[str, Any],
        chip: Optional[Chip],
        file: str,
    ) -> None:
        self.torch = torch
        self.device = torch.device(device)
        self.device_text = device
        self.parameters = SimpleNamespace(**parameters)
        self.chip = chip
        self.figures: list[Figure] = []
        self.checked = 0
        self.deadline: Optional[float] = None
        self.is_elsewhere = False
        """Whether the work is done in a fresh process just now, whose memory is told in place of this one's."""
        self._reporter = reporter
        self._file = file
        self._parameters = dict(parameters)
        self._stop = threading.Event()
        self._told: dict[str, float] = {}

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return bool(self.device.type == "cuda")

    # What it reports

    def step(self, text: str) -> None:
        """Says what is being done or shown now, in words."""
        self._reporter.send("step", text=text)

    def progress(self, done: float, total: float) -> None:
        """Says how far the run has come, in any unit; told ten times a second at most."""
        if done >= total or self._is_due("progress"):
            self._reporter.send("progress", done=round(min(done, total), 4), total=round(total, 4))

    def metric(self, name: str, value: float, unit: str) -> None:
        """A live figure; told ten times a second at most."""
        if self._is_due(f"metric {name}"):
            self._reporter.send("metric", name=name, value=value, unit=unit)

    def timing(self, name: str, host_seconds: float, device_seconds: float) -> None:
        """When a call had returned to the host, and when the device had done the work, both from the same start."""
        self._reporter.send("timing", name=name, host_seconds=host_seconds, device_seconds=device_seconds)

    def error(self, error: BaseException) -> None:
        """An error that belongs to what is being shown; the run goes on."""
        self.tell_error(type(error).__name__, str(error))

    def tell_error(self, kind: str, text: str) -> None:
        """The same of an error that a process of its own has met, with the class of the exception."""
        self._reporter.send("error", **{"class": kind}, text=text[:_ERROR_CHARACTERS], expected=True)

    def figure(
        self,
        name: str,
        value: float,
        unit: str,
        repetitions: int,
        *,
        limit: Optional[float] = None,
        limit_source: str = "",
    ) -> Figure:
        """Adds a figure to the result.

        Raises:
            ValueError: Nothing was repeated even once, or what came out is no number.
        """
        if repetitions < 1:
            raise ValueError(f"{name} was never measured")
        if not math.isfinite(value):
            raise ValueError(f"{name} is not a finite number")
        found = Figure(name, value, unit, repetitions, limit, limit_source)
        self.figures.append(found)
        return found

    def ok(self, why: str) -> Verdict:
        """All is well."""
        return Verdict(VerdictKind.OK, why)

    def warn(self, why: str) -> Verdict:
        """It works, and something deserves attention."""
        return Verdict(VerdictKind.WARN, why)

    def fail(self, why: str) -> Verdict:
        """Something is wrong."""
        return Verdict(VerdictKind.FAIL, why)

    # Memory

    def free_memory(self) -> tuple[int, int]:
        """Free and installed memory of the GPU in bytes, as the driver sees it."""
        free, total = self.torch.cuda.mem_get_info(self.device)
        return int(free), int(total)

    def cap_memory(self, limit_bytes: int) -> None:
        """Lets this process's allocator hold no more than ``limit_bytes`` on the GPU; the CPU has no such cap."""
        if not self.on_gpu:
            return
        total = self.free_memory()[1]
        self.torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), self.device)

    def memory(self) -> dict[str, int]:
        """The allocator's state: ``allocated_bytes``, ``active_bytes``, ``reserved_bytes`` and their peaks.

        On the CPU, where torch keeps no such books, it is the process's ``resident_bytes``.
        """
        return memory_of(self.torch, self.device) if self.on_gpu else {"resident_bytes": resident_bytes()}

    def report_memory(self) -> None:
        """Tells the allocator's state now, beside the twice a second at which it is told anyway."""
        summary = {"summary": summary_of(self.torch, self.device)} if self.on_gpu else {}
        self._reporter.send("memory", **self.memory(), **summary)

    # Time

    @property
    def stopping(self) -> bool:
        """Whether the run should come to an end: it was cancelled, or its time is over."""
        return self.cancelled or (self.deadline is not None and time.monotonic() >= self.deadline)

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants it to stop."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Asks it to stop."""
        self._stop.set()

    def synchronize(self) -> None:
        """Waits until the device has done all that it was given."""
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    def fresh(self, part: str, environment: Mapping[str, str], **changed: Any) -> dict[str, Any]:
        """Runs one of the workload's parts in a fresh process and returns what it found.

        Args:
            part: A key of ``Workload.parts``.
            environment: Variables that are set there, such as the allocator's.
            **changed: Parameters that differ there.

        Raises:
            RuntimeError: It ended without an answer; the text says how.
        """
        arguments = {**self._parameters, **changed}
        self.is_elsewhere = True
        try:
            return run_part(
                self._file, part, self.device_text, arguments, {**os.environ, **environment}, self._reporter
            )
        finally:
            self.is_elsewhere = False

    def _is_due(self, name: str) -> bool:
        now = time.monotonic()
        if now - self._told.get(name, -1.0) < _LEAST_SECONDS_BETWEEN:
            return False
        self._told[name] = now
        return True


def result_fields(verdict: Verdict, figures: list[Figure]) -> dict[str, Any]:
    """Verdict and figures as a result event holds them."""
    return {"verdict": verdict.kind.value, "why": verdict.why, "figures": [asdict(each) for each in figures]}


def judged(verdict: Verdict, context: Context) -> Verdict:
    """The verdict that counts: a run that measured nothing, checked nothing or was cut short is not fine."""
    if context.cancelled:
        return Verdict(VerdictKind.CANCELLED, f"It was stopped before its end. {verdict.why}".strip())
    if verdict.kind in (VerdictKind.OK, VerdictKind.WARN):
        if not context.figures:
            return Verdict(VerdictKind.FAIL, "Nothing was measured, so nothing is known to be fine.")
        if not context.checked:
            return Verdict(VerdictKind.FAIL, "No result was checked, so nothing is known to be right.")
    return verdict
