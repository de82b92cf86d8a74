"""The object that a workload runs with: its device, its parameters, and methods that report events and results."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, Optional

from _kit.chip import Chip
from _kit.description import DeclaredMetric, declared_metric
from _kit.events import Outcome, Reporter, Result, Verdict
from _kit.fresh import run_part
from _kit.memory import memory_of, resident_bytes, summary_of
from _kit.ranks import RankJob, run_ranks

_MIN_SECONDS_BETWEEN = 0.1
"""Shortest time between two events of one metric, or two progress events."""

_MAX_ERROR_CHARACTERS = 16_000
"""Enough for a traceback, or for a message together with the output of the driver."""


class Context:
    """One run.

    Args:
        reporter: Writes the events.
        torch: The torch module.
        device: Such as ``cuda:0`` or ``cpu``.
        parameters: The value of every parameter.
        chip: Properties of the GPU, or None on the CPU.
        file: The workload's file, for parts that run in a separate process.
        metrics: What the workload declares that it measures.
    """

    def __init__(
        self,
        reporter: Reporter,
        torch: Any,
        device: str,
        parameters: Mapping[str, Any],
        chip: Optional[Chip],
        file: str,
        metrics: Sequence[DeclaredMetric] = (),
    ) -> None:
        self.torch = torch
        self.device = torch.device(device)
        self.device_text = device
        self.parameters = SimpleNamespace(**parameters)
        self.chip = chip
        self.results: list[Result] = []
        self.checked = 0
        self.deadline: Optional[float] = None
        self.is_elsewhere = False
        """Whether a part runs in a separate process now, which reports its memory instead of this one."""
        self._reporter = reporter
        self._file = file
        self._metrics = metrics
        self._parameters = dict(parameters)
        self._stop = threading.Event()
        self._sent_at: dict[str, float] = {}

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return bool(self.device.type == "cuda")

    # Events and results

    def step(self, text: str) -> None:
        """Reports in a sentence what the workload does or shows now."""
        self._reporter.send("step", text=text)

    def position(self, text: str) -> None:
        """Reports what this rank starts now, in case it hangs or dies there; only in a part run by `ranks`."""
        self._reporter.send("position", text=text)

    def progress(self, done: float, total: float) -> None:
        """Reports progress, in any unit; sent at most ten times per second."""
        if done >= total or self._is_due("progress"):
            self._reporter.send("progress", done=round(min(done, total), 4), total=round(total, 4))

    def metric(self, name: str, value: float, unit: Optional[str] = None) -> None:
        """Reports a live value; sent at most ten times per second. The unit is that of `result`."""
        if self._is_due(f"metric {name}"):
            unit = declared_metric(self._metrics, name, unit).unit
            self._reporter.send("metric", name=name, value=value, unit=unit)

    def timing(self, name: str, host_seconds: float, device_seconds: float) -> None:
        """Reports when a call returned to the host and when the device finished, in seconds from the same start."""
        self._reporter.send("timing", name=name, host_seconds=host_seconds, device_seconds=device_seconds)

    def error(self, error: BaseException) -> None:
        """Reports an expected error that is part of the demonstration; the run continues."""
        self.error_text(type(error).__name__, str(error))

    def error_text(self, kind: str, text: str) -> None:
        """Reports an expected error of another process, with the class name of its exception."""
        self._reporter.send("error", **{"class": kind}, text=text[:_MAX_ERROR_CHARACTERS], expected=True)

    def result(
        self,
        name: str,
        value: float,
        unit: Optional[str] = None,
        repetitions: int = 0,
        *,
        limit: Optional[float] = None,
        limit_source: str = "",
        case: str = "",
        position: Optional[float] = None,
    ) -> Result:
        """Adds a measured value to the results.

        Args:
            name: Name of the result.
            value: The value, in ``unit``.
            unit: Its unit, such as ``GB/s``; not needed for a metric that `Workload.metrics` declares.
            repetitions: Number of measurements behind the value.
            limit: The limit that the value is compared with, in the same unit, or None.
            limit_source: Where the limit comes from; see `Result`.
            case: What the value was measured for; see `Result`.
            position: The case as a number, in a sweep; see `Result`.

        Raises:
            ValueError: Nothing was measured, the value is not finite, or the unit is not known.
        """
        if repetitions < 1:
            raise ValueError(f"{name} was never measured")
        if not math.isfinite(value):
            raise ValueError(f"{name} is not a finite number")
        unit = declared_metric(self._metrics, name, unit).unit
        result = Result(name, value, unit, repetitions, limit, limit_source, case, position)
        self.results.append(result)
        return result

    figure = result
    """Earlier name of `result`, for workloads that users have written."""

    def ok(self, why: str) -> Verdict:
        """Returns the verdict that everything is correct."""
        return Verdict(Outcome.OK, why)

    def warn(self, why: str) -> Verdict:
        """Returns the verdict that it works, with a finding that needs attention."""
        return Verdict(Outcome.WARN, why)

    def fail(self, why: str) -> Verdict:
        """Returns the verdict that something is wrong."""
        return Verdict(Outcome.FAIL, why)

    # Memory

    def free_memory(self) -> tuple[int, int]:
        """Returns free and total memory of the GPU in bytes, as the driver reports them."""
        free, total = self.torch.cuda.mem_get_info(self.device)
        return int(free), int(total)

    def cap_memory(self, limit_bytes: int) -> None:
        """Limits the CUDA allocator of this process to ``limit_bytes``; does nothing on the CPU."""
        if not self.on_gpu:
            return
        total = self.free_memory()[1]
        self.torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), self.device)

    def memory(self) -> dict[str, int]:
        """Returns the allocator's ``allocated_bytes``, ``active_bytes``, ``reserved_bytes`` and their peaks.

        On the CPU, where torch has no such statistics, returns ``resident_bytes`` of the process.
        """
        return memory_of(self.torch, self.device) if self.on_gpu else {"resident_bytes": resident_bytes()}

    def report_memory(self) -> None:
        """Reports the state of the allocator now, in addition to the periodic reports twice per second."""
        summary = {"summary": summary_of(self.torch, self.device)} if self.on_gpu else {}
        self._reporter.send("memory", **self.memory(), **summary)

    # Time

    @property
    def stopping(self) -> bool:
        """Whether the run should end: it was cancelled, or its time is over."""
        return self.cancelled or (self.deadline is not None and time.monotonic() >= self.deadline)

    @property
    def cancelled(self) -> bool:
        """Whether a stop was requested."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Requests a stop."""
        self._stop.set()

    def synchronize(self) -> None:
        """Waits until the device has finished all queued work."""
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    def fresh(self, part: str, environment: Mapping[str, str], **changed: Any) -> dict[str, Any]:
        """Runs one of the workload's parts in a new process and returns its answer.

        Args:
            part: A key of ``Workload.parts``.
            environment: Environment variables to set, such as those of the allocator.
            **changed: Parameters with other values.

        Raises:
            RuntimeError: The process ended without an answer.
        """
        arguments = {**self._parameters, **changed}
        self.is_elsewhere = True
        try:
            return run_part(
                self._file, part, self.device_text, arguments, {**os.environ, **environment}, self._reporter
            )
        finally:
            self.is_elsewhere = False

    def ranks(self, part: str, devices: Sequence[str], hosts: int = 1, **changed: Any) -> list[dict[str, Any]]:
        """Runs one of the workload's parts in one process per device, started by torchrun, and returns their answers.

        The parameter ``timeout_seconds`` of the workload is the timeout of the process group.

        Args:
            part: A key of ``Workload.parts``.
            devices: The device of each rank, such as ``cuda:0`` or ``cpu``.
            hosts: Number of hosts that start this many ranks each.
            **changed: Parameters with other values.

        Raises:
            RanksError: A rank failed, ended or did not respond; its error has been reported.
            UnsupportedError: A rank reported that it cannot run here.
        """
        arguments = {**self._parameters, **changed}
        job = RankJob(self._file, part, devices, arguments, float(arguments["timeout_seconds"]), hosts)
        try:
            return run_ranks(job, self._reporter, self._stop.is_set, self._leave_memory)
        finally:
            self.is_elsewhere = False

    def _leave_memory(self) -> None:
        """Stops the memory events of this process; those of the first rank replace them."""
        self.is_elsewhere = True

    def _is_due(self, name: str) -> bool:
        now = time.monotonic()
        if now - self._sent_at.get(name, -1.0) < _MIN_SECONDS_BETWEEN:
            return False
        self._sent_at[name] = now
        return True


def result_fields(verdict: Verdict, results: list[Result]) -> dict[str, Any]:
    """Returns verdict and results as the fields of a result event."""
    return {"verdict": verdict.kind.value, "why": verdict.why, "figures": [asdict(result) for result in results]}


def judged(verdict: Verdict, context: Context, notes: Sequence[str]) -> Verdict:
    """Returns the final verdict: a run that measured nothing, checked nothing or was cut short is never OK.

    Args:
        verdict: The verdict of the workload.
        context: The run.
        notes: What may have slowed the run down, for a verdict on what was measured.
    """
    if context.cancelled:
        return Verdict(Outcome.CANCELLED, f"The workload was stopped before its end. {verdict.why}".strip())
    if verdict.kind in (Outcome.OK, Outcome.WARN):
        if not context.results:
            return Verdict(Outcome.FAIL, "Nothing was measured.")
        if not context.checked:
            return Verdict(Outcome.FAIL, "No result was checked.")
        return Verdict(verdict.kind, " ".join([verdict.why, *notes]))
    return verdict
