"""Watches one rank of a job: notices progress, and gathers evidence when there is none."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpumon.core.collectives import FlightRecording
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import read_stat, read_thread_times
from gpumon.core.ranks import GpuSignature, RankEvidence
from gpumon.core.stacks import StackFrame, ThreadStack
from gpumon.distributed.environment import JobRank
from gpumon.insight.hangs import is_working
from gpumon.operations.rank_state import RankState, read_state
from gpumon.probe.messages import Answer, Probe, RequestKind
from gpumon.probe.stack_file import read_stack
from gpumon.stacks.classify import collective_function, is_in_backward
from gpumon.stacks.outside import OutsideError, read_threads
from gpumon.stacks.tables import is_program

Ask = Callable[..., int]
"""`gpumon.probe.client.ProbeWatcher.ask`."""

QUIET_SECONDS: Final = 3.0
"""Stacks are sampled, and flight recorders read, when there was no progress for this long and three usual steps."""
_QUIET_STEPS: Final = 3.0
_RARE_FACTOR: Final = 4.0
"""A rank whose answers cannot change the verdict soon is asked this many times more rarely."""
_RANKS_AT_ONCE: Final = 16
"""Ranks of an open job whose recorders are read at the full rate; more of them share it."""
_MIN_USUAL_STEPS: Final = 20
"""The median of fewer steps is not a usual one."""
_BRIEF_SECONDS: Final = 2.0
_RECORDING_SECONDS: Final = 1.0
"""A complete recording pauses the program for some ms, so that it is read once, and again only when a count changes."""
_STACK_SECONDS: Final = 0.9
_SILENT_SECONDS: Final = 3.0
"""A probe that has not answered for this long cannot run."""
_SURELY_SILENT_SECONDS: Final = 6.0
"""Likewise where nothing else shows why."""
_STATE_SECONDS: Final = 4.0
"""Time between two reads of /proc while there is progress: a read costs 0.1 ms."""
_FUNCTIONS_SECONDS: Final = 8.0
"""Age of the samples by which the functions are counted."""
_REFUSED_SECONDS: Final = 30.0
"""Time between two attempts to read stacks from outside where that is not possible now."""
_REFUSALS: Final = frozenset({ProblemCode.NO_PERMISSION, ProblemCode.LIBRARY_NOT_FOUND})
_MIN_MOVING_SHARE: Final = 0.001
"""A main thread that uses less of a core at most looks now and then whether something has come."""
_MIN_MOVING_PROCESS_SHARE: Final = 0.02
"""Likewise a process, where the stack of the main thread does not show that the other threads do not matter."""
_HELD_SECONDS: Final = 6.0
"""C code holds the GIL if the thread that holds it stands at the same line for this long."""


class RankWatch:
    """The watch over one process.

    Attributes:
        progressed: When it was last seen to make progress, in monotonic seconds; None while no source shows progress.
        typical_seconds: Its typical step time, or the typical time between two collectives; None if unknown.
        moved: When its main thread was last seen to run, in monotonic seconds; the start of the watch before that.
    """

    def __init__(self, rank: JobRank, now: float, proc: Path) -> None:
        self.job_rank = rank
        self.progressed: float | None = None
        self.typical_seconds: float | None = None
        self.moved = now
        self._shortest_seconds: float | None = None
        self._latest_seconds: float | None = None
        self._started = now
        self._proc = proc
        self._probe: Probe | None = None
        self._steps: tuple[int, int] | None = None
        self._counts: tuple[int, int] | None = None
        self._ras_counts: Mapping[str, int] | None = None
        self._counted_at = now
        self._has_seen_change = False
        self._is_recording_current = False
        self._recorded_at = now
        self._recording: FlightRecording | None = None
        self._threads: tuple[ThreadStack, ...] = ()
        self._stack: tuple[StackFrame, ...] = ()
        self._is_stack_stale = False
        self._is_gil_held = False
        self._held_since: float | None = None
        self._outside_problem: Problem | None = None
        self._outside_at = 0.0
        self._cpu_seconds: tuple[float, float] | None = None
        self._run_at = now
        self._functions: deque[tuple[float, str]] = deque()
        self._worked: float | None = None
        self._state = RankState()
        self._state_at = now
        self._cpu_share: float | None = None
        self._core_wait_share: float | None = None
        self._io_rate: float | None = None
        self._asked: dict[RequestKind, tuple[int, float]] = {}
        self._asked_at: dict[RequestKind, float] = {}

    def observe(self, probe: Probe | None, ras_counts: Mapping[str, int] | None, now: float) -> None:
        """Take the latest reading of the probe and the counts of NCCL's RAS, and notice progress."""
        self._probe = probe
        if ras_counts is not None:
            if self._ras_counts is not None and dict(ras_counts) != dict(self._ras_counts):
                self._note_progress(now)
            elif self._ras_counts is None:
                self._note_first(now)
            self._ras_counts = ras_counts
        training = None if probe is None or probe.reading is None else probe.reading.training
        if training is None:
            return
        steps = training.steps_count, training.batches_count
        last = training.last_step_monotonic or now
        if self._steps is None:
            self._note_first(last)
        elif steps != self._steps:
            if steps[0] > self._steps[0] and self.progressed is not None and training.last_step_monotonic:
                self._latest_seconds = max(0.0, last - self.progressed) / (steps[0] - self._steps[0])
            self._note_progress(last if steps[0] > self._steps[0] else now)
        self._steps = steps
        self.typical_seconds = training.step_seconds or self.typical_seconds
        if training.step_seconds and training.steps_count >= _MIN_USUAL_STEPS:
            self._shortest_seconds = min(self._shortest_seconds or training.step_seconds, training.step_seconds)

    @property
    def has_source(self) -> bool:
        """Whether a probe or NCCL shows its progress."""
        return self._probe is not None or self._ras_counts is not None

    @property
    def is_in_collective(self) -> bool | None:
        """Whether its main thread may wait in a collective, by its stack; None if the stack is unknown."""
        return bool(collective_function(self._stack)) or is_in_backward(self._stack) if self._stack else None

    def note_run(self, now: float) -> None:
        """Notice whether the main thread has run since the last call; /proc shows that to everybody."""
        folder = f"{self._proc}/{self.job_rank.pid}"
        with suppress(OSError):
            used = read_thread_times(f"{folder}/task/{self.job_rank.pid}").cpu_seconds, read_stat(folder).cpu_seconds
            seconds, before = now - self._run_at, self._cpu_seconds
            self._cpu_seconds, self._run_at = used, now
            if before is None or seconds <= 0:
                return
            thread, process = ((new - old) / seconds for new, old in zip(used, before, strict=True))
            is_alone = self._stack and not is_in_backward(self._stack)  # otherwise, other threads may work for it
            if thread >= _MIN_MOVING_SHARE or (not is_alone and process >= _MIN_MOVING_PROCESS_SHARE):
                self.moved = now

    def quiet_seconds(self, now: float) -> float:
        """How long there was no progress, since the start of the watch at most."""
        return now - (self._started if self.progressed is None else self.progressed)

    def look(self, now: float) -> None:
        """Read the state of a process that has ended: its exit status, as long as its parent has not read it."""
        self._read_state(now)

    def gather(self, ask: Ask, now: float, *, is_job_quiet: bool, is_open: bool = False, ranks_count: int = 1) -> None:
        """Send the requests that are due, and read /proc.

        ``is_open`` says whether a screen shows the rank with its last collective.
        """
        pause = self._pause_factor
        due = _STATE_SECONDS if not is_job_quiet else 0.0 if pause == 1.0 else _STACK_SECONDS * pause
        if not self._state.state_code or now - self._state_at >= due:
            self._read_state(now)
        probe = self._probe
        if probe is None or not probe.connected:
            if is_open or (is_job_quiet and self.progressed is not None):  # without progress, nothing is judged by it
                self._read_outside(now, _STACK_SECONDS * max(1.0, ranks_count / _RANKS_AT_ONCE))
            return
        has_steps = self._steps is not None and self.quiet_seconds(now) < _BRIEF_SECONDS
        if is_job_quiet:
            if self._is_recording_current:
                self._request(ask, RequestKind.FLIGHT_RECORDER, _BRIEF_SECONDS, now, brief=1)
            else:
                self._request(ask, RequestKind.FLIGHT_RECORDER, _RECORDING_SECONDS, now)
            self._request(ask, RequestKind.STACKS, _STACK_SECONDS * pause, now)
            self._read_stack_file(probe, now)
        elif is_open:
            seconds = _RECORDING_SECONDS * max(1.0, ranks_count / _RANKS_AT_ONCE)
            self._request(ask, RequestKind.FLIGHT_RECORDER, seconds, now)
        elif not has_steps:
            self._request(ask, RequestKind.FLIGHT_RECORDER, _BRIEF_SECONDS, now, brief=1)

    @property
    def _pause_factor(self) -> float:
        """How much more rarely it is asked: it waits for others, or nothing that it reports shows progress."""
        if self._silent_since is not None:
            return 1.0
        has_source = self._has_seen_change or self._steps is not None or self._recording is not None
        return 1.0 if has_source and not collective_function(self._stack) else _RARE_FACTOR

    def is_quiet(self, now: float) -> bool:
        """Whether there was no progress for long enough to sample stacks."""
        return self.quiet_seconds(now) >= max(QUIET_SECONDS, _QUIET_STEPS * (self.typical_seconds or 0.0))

    def receive(self, answer: Answer, now: float) -> None:
        """Take an answer of the probe."""
        number, _ = self._asked.get(answer.ask, (None, 0.0))
        if number != answer.id:
            return
        del self._asked[answer.ask]
        if answer.problem is not None:  # a probe limits how often it answers
            self._asked_at.pop(answer.ask, None)
        if isinstance(answer.result, FlightRecording):
            self._take_recording(answer.result, now)
        elif answer.ask is RequestKind.STACKS and isinstance(answer.result, tuple):
            self._take_stacks(answer.result, now)

    def evidence(self, now: float, gpu: GpuSignature, *, has_exited: bool) -> RankEvidence:
        """What is known of the rank now."""
        state, probe = self._state, self._probe
        silent = self._silent_seconds(now)
        age = None if probe is None else probe.age_seconds(now)
        is_gone = has_exited or state.state_code in {"", "Z"}
        evidence = RankEvidence(
            rank=self.job_rank.rank if self.job_rank.rank is not None else self.job_rank.local_rank or 0,
            pid=self.job_rank.pid,
            exited=is_gone,
            exit_status=state.exit_status,
            has_probe=probe is not None,
            is_reachable=None if probe is None else probe.connected and silent < _SILENT_SECONDS,
            state_code=state.state_code,
            kernel_function=state.kernel_function,
            system_call=state.system_call,
            system_call_target=state.target,
            stack=self._stack,
            stack_is_stale=self._is_stack_stale,
            stack_problem=self._outside_problem,
            gil_is_held=self._is_gil_held or (silent >= _SURELY_SILENT_SECONDS and state.state_code in {"R", "S"}),
            threads=self._threads,
            progress=None if probe is None or probe.reading is None else probe.reading.training,
            recording=self._recording,
            recording_age_seconds=now - self._recorded_at,
            progressed_monotonic=self.progressed,
            has_progressed=self._has_seen_change,
            typical_step_seconds=self.typical_seconds,
            shortest_step_seconds=self._shortest_seconds,
            latest_step_seconds=self._latest_seconds,
            cpu_share=self._cpu_share,
            io_bytes_per_second=self._io_rate,
            functions_count=len({function for _, function in self._functions}) or None,
            core_wait_share=self._core_wait_share,
            cpu_hertz=state.cpu_hertz,
            gpu=gpu,
            ras_counts=self._ras_counts,
            evidence_age_seconds=age,
        )
        if not is_gone and is_working(evidence):
            self._worked = now
        return replace(evidence, worked_monotonic=self._worked)

    def _note_first(self, at: float) -> None:
        if self.progressed is None:
            self.progressed = at

    def _note_progress(self, at: float) -> None:
        self.progressed = max(at, self.progressed or at)
        self._is_recording_current = False
        self._has_seen_change = True
        self._functions.clear()
        self._threads, self._stack = (), ()
        self._is_gil_held = self._is_stack_stale = False

    def _request(self, ask: Ask, kind: RequestKind, interval: float, now: float, **arguments: int) -> None:
        """Send a request if it is due and no other is open: a probe refuses one right after another."""
        if self._asked or now - self._asked_at.get(kind, 0.0) < interval or self._probe is None:
            return
        self._asked_at[kind] = now
        self._asked[kind] = ask(self._probe.pid, kind, **arguments), now

    @property
    def _silent_since(self) -> float | None:
        """Since when the oldest open request is open; None if there is none."""
        return min((at for _, at in self._asked.values()), default=None)

    def _silent_seconds(self, now: float) -> float:
        """How long the oldest open request is open."""
        return 0.0 if self._silent_since is None else now - self._silent_since

    def _take_recording(self, recording: FlightRecording, now: float) -> None:
        entered = sum(group.last_enqueued or 0 for group in recording.groups)
        counts = entered, sum(group.last_completed or 0 for group in recording.groups)
        if self._counts is None:
            self._note_first(now)
        elif counts != self._counts and self._counted_at < (self.progressed or now) and self._steps is not None:
            self._is_recording_current = False  # they changed before the latest step
        elif counts != self._counts:
            before, done = self.progressed, entered - self._counts[0]
            self._note_progress(now)
            if self._steps is None and before is not None and done > 0:
                self.typical_seconds = (now - before) / done
        self._counts, self._counted_at = counts, now
        if recording.collectives:
            self._recording, self._is_recording_current, self._recorded_at = recording, True, now
            # date the last progress by the recorder, if it was before the watch began
            items = () if self._recording is None else self._recording.collectives
            created = [item.created_seconds for item in items if item.created_seconds]
            if created and not self._has_seen_change and self._steps is None:
                self.progressed = min(now, now - (time.time() - max(created)))

    def _read_outside(self, now: float, interval: float) -> None:
        """Read the stacks without a probe, if that is due."""
        is_refused = self._outside_problem is not None and self._outside_problem.code in _REFUSALS
        if now - self._outside_at < (_REFUSED_SECONDS if is_refused else interval):
            return
        self._outside_at, before = now, self._stack
        try:
            threads = read_threads(self.job_rank.pid)
            self._outside_problem = None
        except OutsideError as error:
            self._outside_problem = error.problem
            return
        self._take_stacks(threads, now)
        main = next((thread for thread in self._threads if thread.is_main), None)
        has_changed = before != self._stack
        if has_changed:
            self.moved = now
        if main is None or not main.owns_gil or has_changed:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = now
        is_held = self._held_since is not None and now - self._held_since >= _HELD_SECONDS
        leaf = self._stack[0].file if self._stack else ""
        self._is_gil_held = is_held and (self._state.state_code == "S" or not is_program(leaf))  # or a loop in Python

    def _take_stacks(self, threads: tuple[object, ...], now: float) -> None:
        self._threads = tuple(thread for thread in threads if isinstance(thread, ThreadStack))
        main = next((thread for thread in self._threads if thread.is_main), None)
        if main is not None:
            self._stack, self._is_stack_stale, self._is_gil_held = main.frames, False, False
            self._functions.extend((now, f"{frame.file}:{frame.function}") for frame in main.frames[:1])
            while self._functions and self._functions[0][0] < now - _FUNCTIONS_SECONDS:
                self._functions.popleft()

    def _read_stack_file(self, probe: Probe, now: float) -> None:
        """Read the stacks that were written because no Python thread of the process can run."""
        if self._silent_seconds(now) < _SILENT_SECONDS:
            return
        self._is_stack_stale = True
        stack = read_stack(probe.process, self._proc)
        if stack and self._state.state_code not in {"T", "t"}:
            self._stack, self._is_gil_held = stack, True

    def _read_state(self, now: float) -> None:
        main = next((thread for thread in self._threads if thread.is_main), None)
        call = "" if main is None else main.system_call
        state = read_state(self.job_rank.pid, self.job_rank.start_ticks, call, self._proc)
        seconds = now - self._state_at
        if seconds > 0 and self._state.state_code and state.state_code not in {"", "Z"}:
            self._cpu_share = max(0.0, state.cpu_seconds - self._state.cpu_seconds) / seconds
            if state.core_wait_seconds is not None and self._state.core_wait_seconds is not None:
                self._core_wait_share = max(0.0, state.core_wait_seconds - self._state.core_wait_seconds) / seconds
            if state.io_bytes is not None and self._state.io_bytes is not None:
                self._io_rate = max(0, state.io_bytes - self._state.io_bytes) / seconds
        self._state, self._state_at = state, now
