"""Examines why a training run is slow: observes it through its probe, together with its GPU and the host."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from gpumon.core.inbox import Inbox
from gpumon.core.model import Device
from gpumon.core.notebook import NotebookTable
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.stacks import ThreadStack
from gpumon.core.steps import StepObservation
from gpumon.distributed.environment import RankVariables
from gpumon.insight.bottlenecks.cause import Bottleneck
from gpumon.insight.bottlenecks.overlays import with_gpu, with_waits
from gpumon.insight.bottlenecks.sampled_account import sampled_account
from gpumon.insight.bottlenecks.slowness_evidence import GpuEvidence, HostEvidence, SlownessEvidence, StepAccount
from gpumon.insight.bottlenecks.slowness_verdict import SlownessVerdict, judge_run
from gpumon.operations.process_details import stop_problem
from gpumon.operations.why.device import DeviceObserver, device_observer
from gpumon.operations.why.host import HostObserver
from gpumon.operations.why.source_lines import SourceLines
from gpumon.operations.why.start_command import start_command
from gpumon.probe.messages import Answer, Probe, ProbeMessage, RequestKind
from gpumon.stacks.tables import line_text, program_frame

DEFAULT_SECONDS: Final = 12.0
MAX_SECONDS: Final = 30.0
MIN_SECONDS: Final = 1.0
_SAMPLES: Final = 240
_MIN_HERTZ: Final = 20
_MAX_HERTZ: Final = 64
"""A sample takes the GIL for about 0.2 ms, so a training run that is limited by Python pays 0.4 % for 20 per second."""
_STEPS: Final = 8
"""A slow training run is observed for this many steps, within `MAX_SECONDS`."""
SETTLE_SECONDS: Final = 3.0
_GRACE_SECONDS: Final = 35.0
POLL_SECONDS: Final = 0.1
_STACKS_SECONDS: Final = 0.5
_BUSY_SECONDS: Final = 8.0
"""How long the probe may refuse, because it rests for at most 5 s after it has answered another gpumon."""
_RETRY_SECONDS: Final = 0.5
_NO_PROBE: Final = "Start the program with gpumon watch -- python train.py, or add a probe with gpumon attach {pid}."
PASSIVE: Final = "passive"
TRACE: Final = "trace"
OUTSIDE: Final = "outside"
KERNEL: Final = "kernel"


class ExaminationProgress(NamedTuple):
    """How far an examination is.

    Attributes:
        stage: What it does, as a clause.
        seconds: How long that has taken.
        total_seconds: How long it takes, or None if unknown.
    """

    stage: str
    seconds: float
    total_seconds: float | None


@dataclass(frozen=True, slots=True)
class WhyReport(NotebookTable):
    """The result of an examination.

    Attributes:
        pid: The process.
        command: Its command line.
        device: Its GPU; None for a training run on the CPU.
        stages: What was done: ``passive`` and ``trace`` with a probe; without one, ``outside`` where the stacks were
            read from outside, or ``kernel`` where only the kernel and the driver report something.
        seconds: How long the process was observed.
        evidence: What was measured.
        verdict: The verdict.
        problems: What could not be measured, in sentences.
        host: Where it runs; empty for this host.
    """

    pid: int
    command: str
    device: Device | None
    stages: tuple[str, ...]
    seconds: float
    evidence: SlownessEvidence
    verdict: SlownessVerdict
    problems: tuple[str, ...] = ()
    host: str = ""

    def table_rows(self) -> tuple[Bottleneck, ...]:
        """The causes."""
        return self.verdict.causes

    def table_title(self) -> str:
        """The verdict."""
        return self.verdict.summary


class Listener(NamedTuple):
    """Who follows an examination.

    Attributes:
        on_progress: Called several times a second.
        is_cancelled: Whether to stop; asked several times a second.
        allow: Asked with a reason whether to record a process that is slower afterwards; None for yes.
    """

    on_progress: Callable[[ExaminationProgress], None] = lambda _: None
    is_cancelled: Callable[[], bool] = lambda: False
    allow: Callable[[str], bool] | None = None

    def note(self, stage: str, seconds: float, total_seconds: float) -> None:
        """Report progress.

        Raises:
            CommandError: The examination was cancelled.
        """
        if self.is_cancelled():
            raise CommandError(Problem(ProblemCode.NOT_READ, "The examination was cancelled."), ExitCode.USAGE)
        self.on_progress(ExaminationProgress(stage, seconds, total_seconds))


class ProbeSource(Protocol):
    """The connection to the probes: `ProbeWatcher`, or one process's part of it."""

    inbox: Inbox[ProbeMessage]

    @property
    def probes(self) -> dict[int, Probe]:
        """Connected probes by PID."""

    def settle(self, timeout_seconds: float) -> bool:
        """Wait until every probe of the first scan has sent statistics."""

    def ask(self, pid: int, ask: RequestKind | str, **arguments: int) -> int:
        """Send a request; returns the number of its answer."""


NO_LISTENER: Final = Listener()


def examine(
    pid: int, watcher: ProbeSource, seconds: float | None = None, listener: Listener = NO_LISTENER
) -> WhyReport:
    """Observe a process and judge why its steps take as long as they do. Nothing in the process changes.

    The inbox of the watcher is drained. Without ``seconds``, it takes 12 seconds, or longer where steps take long.

    Raises:
        CommandError: There is no such process, no probe, or no step.
    """
    probe = find_probe(pid, watcher)
    reading, process = probe.reading, probe.process
    with device_observer(pid, is_used=reading is not None and bool(reading.devices)) as observer:
        observed = _observe(probe, watcher, observer, _duration(probe, seconds), listener)
        gpu = None if observer is None else observer.evidence()
        device = None if observer is None else observer.device
    if not observed.observation.steps:
        raise _no_steps(probe, observed.observation)
    has_gpu = observer is not None
    problems = []
    if has_gpu and gpu is None:
        problems.append("No frame of the collector shows the GPU of this process, so its utilization is unknown.")
    ranks = RankVariables(process.rank, process.world_size)
    torch = None if reading is None else reading.torch_version
    evidence = evidence_of(pid, ranks, observed, gpu or GpuEvidence() if has_gpu else None, torch_version=torch)
    return WhyReport(
        pid=pid,
        command=process.command,
        device=device,
        stages=(PASSIVE,),
        seconds=observed.observation.samples.seconds,
        evidence=evidence,
        verdict=judge_run(evidence),
        problems=tuple(problems),
    )


def find_probe(pid: int, watcher: ProbeSource) -> Probe:
    """The probe of a process, which has sent its first statistics.

    Raises:
        CommandError: There is no such process, it has no probe, or it is stopped.
    """
    refuse_stopped(pid)
    deadline = time.monotonic() + SETTLE_SECONDS
    watcher.settle(SETTLE_SECONDS)
    while (probe := watcher.probes.get(pid)) is not None and time.monotonic() < deadline:
        if probe.reading is not None:
            return probe
        time.sleep(POLL_SECONDS)
    if not Path(f"/proc/{pid}").exists():
        raise CommandError(Problem(ProblemCode.NOT_FOUND, f"There is no process {pid}."), ExitCode.MISSING_PREREQUISITE)
    if probe is not None:
        reason = f"The probe of process {pid} has not answered for {SETTLE_SECONDS:.0f} s."
        remedy = "The process may be in a long call that holds the GIL; try again."
        raise CommandError(Problem(ProblemCode.UNRESPONSIVE, reason, remedy), ExitCode.MISSING_PREREQUISITE)
    raise CommandError(
        Problem(ProblemCode.NOT_FOUND, f"Process {pid} has no probe.", _NO_PROBE.format(pid=pid)),
        ExitCode.MISSING_PREREQUISITE,
    )


def refuse_stopped(pid: int) -> None:
    """Refuse a process that is stopped.

    Raises:
        CommandError: It is.
    """
    problem = stop_problem(pid)
    if problem is not None:
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)


class Observed(NamedTuple):
    """What was observed of a process, and the host in the same time."""

    observation: StepObservation
    host: HostEvidence


def _observe(
    probe: Probe, watcher: ProbeSource, device: DeviceObserver | None, seconds: float, listener: Listener
) -> Observed:
    """Have the probe observe the process, and watch its GPU and the host meanwhile.

    Raises:
        CommandError: The probe does not answer, or refuses.
    """
    pid = probe.pid
    if device is not None:
        device.find(watcher.probes, SETTLE_SECONDS)
        device.begin()
    host = HostObserver(pid)
    start = begin = time.monotonic()
    hertz = round(min(max(_SAMPLES / seconds, _MIN_HERTZ), _MAX_HERTZ))
    observe = partial(watcher.ask, pid, RequestKind.OBSERVE, milliseconds=round(1000 * seconds), hertz=hertz)
    number, next_try = observe(), math.inf
    next_stacks = begin + _STACKS_SECONDS
    while (now := time.monotonic()) < begin + seconds + _GRACE_SECONDS:
        listener.note("observing", min(now - begin, seconds), seconds)
        for message in _answers(watcher, pid):
            if message.id == number and _is_busy(message) and now < start + _BUSY_SECONDS:
                next_try = now + _RETRY_SECONDS
            elif message.id == number:
                return Observed(_observation(probe, message), host.evidence())
            if isinstance(message.result, tuple):
                host.add_stacks([item for item in message.result if isinstance(item, ThreadStack)])
        host.poll()
        if device is not None:
            device.poll(watcher.probes)
        if next_try <= now:
            number, next_try, begin = observe(), math.inf, now
        if next_stacks <= now < begin + seconds - _STACKS_SECONDS:
            next_stacks = now + _STACKS_SECONDS
            watcher.ask(pid, RequestKind.STACKS)
        watcher.inbox.arrived.wait(POLL_SECONDS)
    refuse_stopped(pid)
    raise CommandError(
        Problem(ProblemCode.UNRESPONSIVE, f"The probe of process {pid} has not answered."),
        ExitCode.MISSING_PREREQUISITE,
    )


def _answers(watcher: ProbeSource, pid: int) -> list[Answer]:
    """What the probe of a process has answered since the last call."""
    return [message for message in watcher.inbox.drain() if isinstance(message, Answer) and message.pid == pid]


def _is_busy(answer: Answer) -> bool:
    """Whether the probe has just answered another gpumon, or still does."""
    return answer.problem is not None and "try again" in answer.problem.reason


def evidence_of(
    pid: int,
    ranks: RankVariables,
    observed: Observed,
    gpu: GpuEvidence | None,
    *,
    account: StepAccount | None = None,
    torch_version: str | None = None,
) -> SlownessEvidence:
    """What was observed, with the account of the median step.

    Without a GPU, it is a training run on the CPU. Without an account, that of the samples counts.
    """
    observation, has_gpu = observed.observation, gpu is not None
    lines = SourceLines(pid)
    account = account or sampled_account(observation, lines.line, has_gpu=has_gpu)
    thread_account = with_waits(account, observation, observed.host, ranks.world_size, has_gpu=has_gpu)
    return SlownessEvidence(
        account=thread_account if gpu is None else with_gpu(thread_account, gpu),
        host=observed.host,
        gpu=gpu,
        rank=ranks.rank,
        world_size=ranks.world_size,
        torch_version=torch_version,
        thread_account=thread_account,
        start=start_command(pid, ranks.world_size),
        hints=lines.settings(),
    )


def _observation(probe: Probe, answer: Answer) -> StepObservation:
    """The result of the request.

    Raises:
        CommandError: The probe refuses, or the process has ended.
    """
    if isinstance(answer.result, StepObservation):
        return answer.result
    problem = answer.problem or Problem(ProblemCode.UNKNOWN, "The probe has not answered.")
    if "does not know the request" in problem.reason:
        problem = Problem(
            ProblemCode.NOT_SUPPORTED,
            f"The probe of process {probe.pid} comes from an older gpumon and cannot observe steps.",
            "Start the program again with this version of gpumon.",
        )
    elif not Path(f"/proc/{probe.pid}").exists():
        problem = Problem(ProblemCode.NOT_FOUND, f"Process {probe.pid} has ended while it was observed.")
    raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)


def _duration(probe: Probe, seconds: float | None) -> float:
    """How long to observe: longer for slow steps."""
    if seconds is not None:
        return min(max(seconds, MIN_SECONDS), MAX_SECONDS)
    training = None if probe.reading is None else probe.reading.training
    step = None if training is None else training.step_seconds
    return min(max(DEFAULT_SECONDS, _STEPS * (step or 0.0)), MAX_SECONDS)


def _no_steps(probe: Probe, observation: StepObservation) -> CommandError:
    """No step ended in the time of the observation: says where the main thread was."""
    stacks = observation.samples.stacks
    where = ""
    if stacks and stacks[0].frames:
        line = line_text(program_frame(stacks[0].frames))
        share = stacks[0].count / max(1, observation.samples.samples_count)
        where = f" The main thread was at {line} in {share:.0%} of the samples." if line else ""
    reason = f"Process {probe.pid} ended no step in {observation.samples.seconds:.0f} s.{where}"
    remedy = "A step is an optimizer step of torch.optim; observe a slow training run for longer with --seconds."
    return CommandError(Problem(ProblemCode.NOT_READ, reason, remedy), ExitCode.MISSING_PREREQUISITE)
