"""Workloads run headless: each on its device, beside live frames, until all have ended."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.jobs.protocol import JobEvent, VerdictKind
from gpumon.operations.neighbours import Neighbour
from gpumon.operations.workload import WorkloadRun
from gpumon.streams.base import Stream

ALL_GPUS: Final = "cuda:all"
FRAME_SECONDS: Final = 0.5
_FIRST_FRAME_SECONDS: Final = 5.0
_TICK_SECONDS: Final = 0.25
_END_SECONDS: Final = 5.0


class Narrator(Protocol):
    """Who is told what happens, and who is asked."""

    def told(self, run: WorkloadRun, event: JobEvent) -> None:
        """A workload said something."""

    def moment(self, runs: Sequence[WorkloadRun]) -> None:
        """Time has passed; live figures may have changed."""

    def may_begin(self, run: WorkloadRun, neighbours: Sequence[Neighbour]) -> bool:
        """Whether a workload may begin that asks for leave, or that meets others on its GPU."""


class Headless:
    """Runs workloads to their end.

    Args:
        runs: What to run, each on a device of its own.
        stream: Live frames of this machine; closed at the end.
        narrator: Who is told.
    """

    def __init__(self, runs: Sequence[WorkloadRun], stream: Stream, narrator: Narrator) -> None:
        self.runs = runs
        self._stream = stream
        self._narrator = narrator
        self._news = threading.Event()
        self._frame: Frame | None = None
        self._stopping = False
        self._asked: set[int] = set()
        self._refused = False

    def stop(self) -> None:
        """Asks all that run to stop; may be called from a signal handler."""
        self._stopping = True
        for run in self.runs:
            run.cancel()
        self._news.set()

    def run(self) -> ExitCode:
        """Runs them all; returns the exit code that the worst of them deserves."""
        try:
            for run in self.runs:
                run.job.inbox.on_arrival(self._news.set)
                run.start()
            self._stream.inbox.on_arrival(self._news.set)
            asked_at = time.monotonic()
            while not all(run.ended for run in self.runs):
                self._news.wait(_TICK_SECONDS)
                self._news.clear()
                self._take(patient=time.monotonic() - asked_at < _FIRST_FRAME_SECONDS)
                self._narrator.moment(self.runs)
        finally:
            self._end()
        return ExitCode.NOT_THERE if self._refused else exit_code(self.runs)

    def _take(self, *, patient: bool) -> None:
        for arrival in self._stream.inbox.drain():
            if isinstance(arrival, Frame):
                self._frame = arrival
                for run in self.runs:
                    run.watch(arrival)
        for run in self.runs:
            for event in run.take():
                self._narrator.told(run, event)
            waits = run.state.waits_for_leave and id(run) not in self._asked and not self._stopping
            if waits and (self._frame is not None or not patient):
                self._asked.add(id(run))
                self._give_leave(run)

    def _give_leave(self, run: WorkloadRun) -> None:
        """Lets it begin; asks first where others work, or where the workload wants it."""
        neighbours = [] if self._frame is None else run.neighbours(self._frame)
        own = {each.job.pid for each in self.runs}
        neighbours = [each for each in neighbours if each.process is None or each.process.pid not in own]
        if (neighbours or run.state.asks) and not self._narrator.may_begin(run, neighbours):
            self._refused = True
            run.cancel()
        else:
            run.allow()

    def _end(self) -> None:
        """Leaves nothing behind, whatever ended the loop."""
        self._stream.close()
        for run in self.runs:
            run.cancel()
        for run in self.runs:
            run.job.wait(_END_SECONDS)


def exit_code(runs: Sequence[WorkloadRun]) -> ExitCode:
    """What the runs deserve together: the worst of them counts."""
    if any(run.state.not_here is not None for run in runs):
        return ExitCode.NOT_THERE
    verdicts = {None if run.state.result is None else run.state.result.verdict for run in runs}
    return ExitCode.OK if verdicts <= {VerdictKind.OK, VerdictKind.WARN} else ExitCode.BAD_VERDICT


def expand_devices(asked: Sequence[str], gpu_count: Callable[[], int]) -> list[str]:
    """The devices that are meant, each once.

    Args:
        asked: ``cpu``, ``cuda``, ``cuda:N`` or ``cuda:all``.
        gpu_count: How many GPUs CUDA will show; asked only where it matters.

    Raises:
        CommandError: One that makes no sense, or all of none.
    """
    found: list[str] = []
    for device in asked:
        for name in _meant(device, gpu_count):
            if name not in found:
                found.append(name)
    return found


def _meant(device: str, gpu_count: Callable[[], int]) -> Iterator[str]:
    if device == ALL_GPUS:
        count = gpu_count()
        if not count:
            raise CommandError(
                Problem(ProblemCode.NO_DEVICES, "There is no GPU here.", "Use --device cpu, or see gpumon status."),
                ExitCode.NOT_THERE,
            )
        yield from (f"cuda:{ordinal}" for ordinal in range(count))
    elif device in {"cpu", "cuda"}:
        yield "cuda:0" if device == "cuda" else device
    else:
        kind, _, ordinal = device.partition(":")
        if kind != "cuda" or not ordinal.isascii() or not ordinal.isdecimal() or len(ordinal) > 4:
            reason = f"{device!r} is no device."
            remedy = "There are cpu, cuda:0 and so on, and cuda:all."
            raise CommandError(Problem(ProblemCode.NOT_FOUND, reason, remedy), ExitCode.USAGE)
        yield f"cuda:{int(ordinal)}"


def visible_gpus(installed: int, environment: Mapping[str, str] = os.environ) -> int:
    """How many of the installed GPUs CUDA shows: the entries of CUDA_VISIBLE_DEVICES before one that names none."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return installed
    count = 0
    for entry in visible.split(","):
        name = entry.strip()
        if not (name.startswith(("GPU-", "MIG-")) or (name.isdecimal() and int(name) < installed)):
            break
        count += 1
    return min(count, installed)
