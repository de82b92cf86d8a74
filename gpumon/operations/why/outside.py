"""Why a training run without a probe is slow: its stacks are read from outside, and nothing is loaded into it.

Where the stacks cannot be read either, what the kernel and the driver report gives a coarse account.
"""

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.procfs import find_command, find_stat, nvidia_files, read_stat
from gpumon.core.stacks import StackSamples
from gpumon.core.step_classes import RUNNING, WAITING
from gpumon.core.steps import StepObservation
from gpumon.distributed.environment import rank_variables, read_environment
from gpumon.insight.bottlenecks.slowness_evidence import GpuEvidence, StepAccount, StepPart, StepShare
from gpumon.insight.bottlenecks.slowness_verdict import SlownessVerdict, judge_run
from gpumon.operations.rank_state import RankState, read_state
from gpumon.operations.why.device import DeviceObserver, device_observer
from gpumon.operations.why.examination import (
    DEFAULT_SECONDS,
    KERNEL,
    NO_LISTENER,
    OUTSIDE,
    POLL_SECONDS,
    SETTLE_SECONDS,
    Listener,
    Observed,
    WhyReport,
    evidence_of,
    refuse_stopped,
)
from gpumon.operations.why.host import HostObserver, read_main_thread
from gpumon.probe.attach.refusals import RefusalError
from gpumon.stacks.outside import OutsideError, sample_main_thread

_HERTZ: Final = 20
_MAX_TOP: Final = 5
_COMMAND_LENGTH: Final = 200
_FROM_OUTSIDE: Final = (
    "From outside: py-spy has read the stacks of the main thread, and nothing was loaded into the process. Its steps "
    "are unknown, so that the account is one of an average second."
)
_FROM_KERNEL: Final = "The stacks cannot be read, so that the account has only what the kernel and the driver report."
_CALLS: Final = {
    "futex": "waits in a futex (for another thread, a collective or the GPU)",
    "nanosleep": "sleeps",
    "clock_nanosleep": "sleeps",
}


def examine_outside(pid: int, seconds: float | None = None, listener: Listener = NO_LISTENER) -> WhyReport:
    """Observe a process without a probe, and judge where its time goes.

    Without ``seconds``, it takes 12 seconds.

    Raises:
        CommandError: There is no such process, it is stopped, or the examination was cancelled.
    """
    if pid == os.getpid():
        raise CommandError.usage(ProblemCode.INVALID_VALUE, f"PID {pid} is gpumon itself.")
    refuse_stopped(pid)
    folder = Path("/proc", str(pid))
    stat = find_stat(folder)
    if stat is None or stat.has_ended:
        raise RefusalError("no_process", pid=pid)
    ranks = rank_variables(read_environment(folder)[0])
    command = find_command(folder, _COMMAND_LENGTH)
    with device_observer(pid, is_used=_may_use_gpu(folder)) as observer:
        if observer is not None:
            observer.find({}, SETTLE_SECONDS)
            observer.begin()
        duration = seconds or DEFAULT_SECONDS
        with ThreadPoolExecutor(1) as pool:
            sampling = pool.submit(sample_main_thread, pid, duration, _HERTZ)
            observed, states = _observe(pid, observer, duration, listener)
            try:
                observed, problem = _with_stacks(observed, sampling.result()), None
            except OutsideError as error:
                problem = error.problem
    device = None if observer is None else observer.device
    gpu = None if observer is None or device is None else observer.evidence() or GpuEvidence()
    account = None if problem is None else _coarse_account(states)
    evidence = evidence_of(pid, ranks, observed, gpu, account=account)
    verdict = judge_run(evidence)
    if problem is not None and not (verdict.is_decided and verdict.causes):
        verdict = SlownessVerdict(_coarse_summary(evidence.account, gpu), is_decided=False, has_steps=False)
    return WhyReport(
        pid=pid,
        command=command,
        device=device,
        stages=(OUTSIDE if problem is None else KERNEL,),
        seconds=observed.host.seconds,
        evidence=evidence,
        verdict=verdict,
        problems=(_FROM_OUTSIDE,) if problem is None else (_FROM_KERNEL, str(problem)),
    )


def _may_use_gpu(folder: Path) -> bool:
    """Whether a process has a GPU open, or hides that."""
    try:
        return any(nvidia_files(folder))
    except PermissionError:
        return True
    except OSError:
        return False


def _observe(
    pid: int, device: DeviceObserver | None, duration: float, listener: Listener
) -> tuple[Observed, Counter[str]]:
    """What was observed without stacks, and in how many moments the main thread did what."""
    folder = Path("/proc", str(pid))
    stat, host, before = read_stat(folder), HostObserver(pid), read_main_thread(folder)
    states: Counter[str] = Counter()
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < duration:
        listener.note("observing from outside", passed, duration)
        host.poll()
        states[_doing(read_state(pid, stat.start_ticks))] += 1
        if device is not None:
            device.poll({})
        time.sleep(POLL_SECONDS)
    after = read_main_thread(folder)
    evidence = host.evidence()
    cpu_seconds = 0.0 if before is None or after is None else after.cpu_seconds - before.cpu_seconds
    samples = StackSamples(passed, sum(states.values()), ())
    observation = StepObservation(samples, (), cpu_seconds, (evidence.process_cpu_cores or 0.0) * passed)
    return Observed(observation, evidence), states


def _with_stacks(observed: Observed, samples: StackSamples) -> Observed:
    """What was observed, with the stacks of the same time."""
    seconds = observed.observation.samples.seconds
    return observed._replace(observation=replace(observed.observation, samples=replace(samples, seconds=seconds)))


def _doing(state: RankState) -> str:
    """What the main thread does at one moment, as a clause; empty if it runs."""
    if state.state_code == "R":
        return ""
    target = f" on {state.target}" if state.target else ""
    if state.state_code == "D":
        return f"waits for a disk or a driver{target} (state D)"
    if state.system_call:
        return _CALLS.get(state.system_call, f"is in {state.system_call}{target}")
    return f"waits in {state.kernel_function} of the kernel" if state.kernel_function else "waits"


def _coarse_account(states: Counter[str]) -> StepAccount:
    """The account of an average second by what the main thread does in each moment."""
    total = sum(states.values())
    running = states[""] / total
    parts = [StepPart(text, count / total) for text, count in states.most_common() if text]
    shares = (StepShare(RUNNING, running), StepShare(WAITING, 1.0 - running, top=tuple(parts[:_MAX_TOP])))
    return StepAccount(1.0, 1.0, 0, total, tuple(share for share in shares if share.seconds))


def _coarse_summary(account: StepAccount, gpu: GpuEvidence | None) -> str:
    """What the main thread does most of the time, and its GPU."""
    waiting = account.share_of(WAITING)
    texts = [f"{part.name} in {part.seconds:.0%}" for part in waiting.top[:2] if part.seconds >= 0.1]
    texts.append(f"runs on a core in {account.share_of(RUNNING).seconds:.0%} of the time")
    main = f"the main thread {', and '.join(texts)}"
    busy = None if gpu is None else gpu.utilization_share
    device = "" if gpu is None or busy is None else f"; GPU {gpu.label} works in {busy:.0%}"
    return f"Undecided without stacks: {main}{device}."
