"""A paired experiment: two commands in turns on this host, for a number of steps each, and which of them is faster."""

import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import log
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from gpumon.core.model import Device, Frame
from gpumon.core.paired import RelativeChange, paired_change
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.text import safe_bytes, safe_text
from gpumon.core.units import counted, duration_text, signal_name
from gpumon.distributed.environment import read_raw_environment
from gpumon.operations.gpu_processes import is_unseen
from gpumon.operations.run_report.gpu_use import GpuUse
from gpumon.operations.run_report.journal import explain_output
from gpumon.probe.client import ProbeWatcher
from gpumon.streams.live import LiveStream

ORDER: Final = "ABBA"
"""A drift that is linear over the four runs changes both commands by the same factor."""
MIN_RUNS: Final = len(ORDER)
_MARK: Final = "GPUMON_TRY"
"""The variable of the environment by which every process of a run is recognized, also in another session."""
_READING_SECONDS: Final = 0.2
_FIRST_STEP_SECONDS: Final = 300.0
_WARM_UP: Final = 0.2
_MIN_WARM_UP: Final = 10
"""Steps that are left out: they compile, fill caches, and use batches that workers have prepared in advance."""
_TERM_SECONDS: Final = 5.0
_KILL_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.1
_TAIL_BYTES: Final = 4096
_GPU_VALUES: Final = ("index", "name", "mean_clock_sm_hertz", "peak_temperature_celsius", "throttled_seconds")


class TriedRun(NamedTuple):
    """One run of a command.

    Attributes:
        side: ``A`` or ``B``.
        steps_count: Number of steps that were measured.
        step_seconds: Their mean duration.
        gpus: The GPUs that it used: clocks, temperatures and throttling in the time of these steps.
        others: Programs of others on these GPUs in that time.
    """

    side: str
    steps_count: int
    step_seconds: float
    gpus: Sequence[Mapping[str, Any]]
    others: Sequence[str]


class Plan(NamedTuple):
    """What to run.

    Attributes:
        commands: The commands of ``A`` and ``B``, for a shell.
        steps: Number of steps to measure in each run.
        rounds: How often to run A B B A.
        max_seconds: After this time no other run is waited for.
        environment: The environment of both, with the probe.
    """

    commands: tuple[str, str]
    steps: int
    rounds: int
    max_seconds: float
    environment: Mapping[str, str]


def run_experiment(plan: Plan, on_run: Callable[[TriedRun], None]) -> list[TriedRun]:
    """Run both commands in turns.

    Args:
        plan: What to run.
        on_run: Called after each run.

    Returns:
        The runs, in complete rounds, in order.

    Raises:
        CommandError: A command failed, reported no steps, or the time was too short for one round.
    """
    deadline = time.monotonic() + plan.max_seconds
    runs: list[TriedRun] = []
    stream, probes = LiveStream(1.0), ProbeWatcher(pace=_READING_SECONDS)
    with tempfile.TemporaryDirectory(prefix="gpumon-try-") as folder, _interrupted_by_signals():
        stream.start()
        probes.start()
        try:
            for side in ORDER * plan.rounds:
                run = _ActiveRun(plan, side, Path(folder) / f"{side}.log")
                tried = run.measure(probes, stream, deadline)
                if tried is None:
                    break
                runs.append(tried)
                on_run(tried)
        finally:
            probes.close()
            stream.close()
    if len(runs) < MIN_RUNS:
        reason = f"Only {counted(len(runs), 'run')} of {MIN_RUNS} ended within {duration_text(plan.max_seconds)}."
        remedy = "Use fewer --steps, or a longer --max-seconds."
        raise CommandError(Problem(ProblemCode.NOT_READ, reason, remedy), ExitCode.UNDECIDED)
    return runs[: len(runs) - len(runs) % MIN_RUNS]


def change_of(runs: Sequence[TriedRun]) -> RelativeChange:
    """The relative change of the step time from A to B, with its interval of 95 %."""
    return paired_change([log(run.step_seconds) for run in runs], [run.side == "B" for run in runs])


def experiment_document(plan: Plan, runs: Sequence[TriedRun]) -> dict[str, Any]:
    """The result as a JSON document."""
    change = change_of(runs)
    return {
        "schema": 1,
        "kind": "gpumon_try",
        "commands": dict(zip("AB", plan.commands, strict=True)),
        "steps": plan.steps,
        "step_time": {**change._asdict(), "is_shown": change.is_shown},
        "runs": [run._asdict() for run in runs],
    }


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Have a signal that would end gpumon end the command first, as an interrupt of the keyboard does."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _ActiveRun:
    """One run of a command, from its start until no process of it is left."""

    def __init__(self, plan: Plan, side: str, output: Path) -> None:
        self._plan = plan
        self._side = side
        self._output = output
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        self._is_own: dict[int, bool] = {}
        self._gpus: dict[str, GpuUse] = {}
        self._others: dict[str, None] = {}
        self._warm_up = max(_MIN_WARM_UP, int(_WARM_UP * plan.steps))

    def measure(self, probes: ProbeWatcher, stream: LiveStream, deadline: float) -> TriedRun | None:
        """Run the command until it has done its steps, and end it; None if the time is up first.

        Raises:
            CommandError: The command failed, or did not do the steps.
        """
        name, _, value = self._mark.partition("=")
        with self._output.open("wb") as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._plan.commands["AB".index(self._side)]],
                env={**self._plan.environment, name: value},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            return self._watch(process, probes, stream, deadline)
        finally:
            self._end(process)

    def _watch(
        self, process: "subprocess.Popen[bytes]", probes: ProbeWatcher, stream: LiveStream, deadline: float
    ) -> TriedRun | None:
        started, first, last = time.monotonic(), None, None
        while time.monotonic() < deadline:
            has_ended = process.poll() is not None
            probes.inbox.arrived.wait(_READING_SECONDS)
            probes.inbox.drain()
            last = self._progress(probes) or last
            if first is None and last is not None and last[0] >= self._warm_up:
                first = last
                stream.inbox.drain()
            elif first is not None:
                self._add_frames(stream)
            if first is not None and last is not None and last[0] - first[0] >= self._plan.steps:
                count = last[0] - first[0]
                used = [use.document(last[1]) for use in self._gpus.values()]
                gpus = [{value: gpu[value] for value in _GPU_VALUES} for gpu in used]
                return TriedRun(self._side, count, (last[1] - first[1]) / count, gpus, tuple(self._others))
            if has_ended:
                raise self._ended_early(process.returncode, 0 if last is None else last[0])
            if last is None and time.monotonic() - started > _FIRST_STEP_SECONDS:
                raise self._without_steps(f"has completed no step in {duration_text(_FIRST_STEP_SECONDS)}")
        if last is None:
            raise self._without_steps(f"has completed no step in {duration_text(time.monotonic() - started)}")
        return None

    def _progress(self, probes: ProbeWatcher) -> tuple[int, float] | None:
        """The steps of the lowest rank, and when the last one ended, in monotonic seconds."""
        known = []
        for probe in probes.probes.values():
            training = None if probe.reading is None else probe.reading.training
            if training is None or training.last_step_monotonic is None or not self._has_mark(probe.pid):
                continue
            known.append((probe.process.rank or 0, probe.pid, training.steps_count, training.last_step_monotonic))
        return min(known)[2:] if known else None

    def _has_mark(self, pid: int) -> bool:
        if pid not in self._is_own:
            self._is_own[pid] = self._mark.encode() in read_raw_environment(Path(f"/proc/{pid}"))[0].split(b"\0")
        return self._is_own[pid]

    def _add_frames(self, stream: LiveStream) -> None:
        """Take the state of the GPUs on which the command has a process, and who else is on them."""
        for frame in stream.inbox.drain():
            if isinstance(frame, Frame):
                for device in frame.gpus:
                    pids = {process.pid for process in device.processes or () if self._has_mark(process.pid)}
                    if pids:
                        self._gpus.setdefault(device.key, GpuUse()).add(frame, device)
                        self._add_others(device, pids)

    def _add_others(self, device: Device, own: set[int]) -> None:
        for process in device.processes or ():
            if process.pid not in own and process.computes and not is_unseen(process):
                name = safe_text(process.command or "", 60)
                self._others[f"GPU {device.index}: {name} (PID {process.pid})"] = None

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """End every process of the run: its group, and what has left the group; a second interrupt kills at once."""
        try:
            self._signal(process, signal.SIGTERM)
            give_up = time.monotonic() + _TERM_SECONDS
            while self._left(process) and time.monotonic() < give_up:
                time.sleep(_POLL_SECONDS)
        finally:
            give_up = time.monotonic() + _KILL_SECONDS
            self._signal(process, signal.SIGKILL)
            while self._left(process) and time.monotonic() < give_up:
                time.sleep(_POLL_SECONDS)
                self._signal(process, signal.SIGKILL)
        if left := self._left(process):
            reason = f"PID {left[0]} cannot be ended: blocked in an uninterruptible call."
            raise CommandError.failure(ProblemCode.UNRESPONSIVE, reason)

    def _signal(self, process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        for pid in self._left(process):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _left(self, process: "subprocess.Popen[bytes]") -> list[int]:
        """The processes of the run that exist."""
        own = [process.pid] if process.poll() is None else []
        self._is_own.clear()  # a PID may be that of another process by now
        pids = (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())
        return [*own, *(pid for pid in pids if self._has_mark(pid))]

    def _ended_early(self, status: int, steps: int) -> CommandError:
        if status == 0:
            if not steps:
                return self._without_steps("succeeded without a step")
            needed = counted(self._warm_up + self._plan.steps, "step")
            reason = f"{self._side} succeeded after {counted(steps, 'step')}; {needed} are needed."
            return CommandError.missing(ProblemCode.NOT_READ, reason, "Let it run longer, or use fewer --steps.")
        how = f"was ended by {signal_name(-status)}" if status < 0 else f"ended with exit code {status}"
        explanation = explain_output(self._output)
        with self._output.open("rb") as file:
            file.seek(max(0, self._output.stat().st_size - _TAIL_BYTES))
            lines = file.read().strip().splitlines()
        why = explanation["headline"] if explanation else safe_bytes(lines[-1], 200) if lines else ""
        fix = explanation["do"].partition("\n")[0] if explanation else ""
        text = f"{self._side} {how}: {why.rstrip('.')}." if why else f"{self._side} {how}."
        return CommandError.failure(ProblemCode.UNKNOWN, text, fix)

    def _without_steps(self, how: str) -> CommandError:
        remedy = "Steps are those of optimizers in a PyTorch process with the probe; python -I and -E disable it."
        return CommandError.missing(ProblemCode.NOT_FOUND, f"{self._side} {how}.", remedy)
