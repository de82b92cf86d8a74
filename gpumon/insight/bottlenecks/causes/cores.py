"""Causes on the CPU: other processes, threads, the GIL, quotas, swapping, small operators."""

from typing import Final

from gpumon.core.step_classes import BACKWARD, CORE_WAIT, DATA, FORWARD, GIL_WAIT, OPTIMIZER
from gpumon.core.units import counted
from gpumon.insight.bottlenecks.cause import Finding
from gpumon.insight.bottlenecks.slowness_evidence import SlownessEvidence

_MIN_OWN_EXCESS: Final = 1.25
"""A process with more busy threads than cores competes with itself from this ratio on."""
_MIN_OWN_PART: Final = 0.75
_MIN_QUOTA: Final = 0.05
_MIN_FAULTS_PER_SECOND: Final = 50.0


def _others_text(evidence: SlownessEvidence) -> str:
    others = evidence.host.busiest_others
    if not others:
        return ""
    return ": " + ", ".join(f"{command} uses {cores:.1f} cores" for command, cores in others[:2])


def _own_threads(evidence: SlownessEvidence) -> bool:
    """Whether threads of the process itself, and not other processes, take the cores from each other."""
    host = evidence.host
    cores = host.allowed_cores or host.cpu_count
    if cores is None or host.busy_threads_count is None:
        return False
    own, total = host.process_cpu_cores or 0.0, host.host_cpu_cores or 0.0
    return host.busy_threads_count + 1 >= _MIN_OWN_EXCESS * cores and own >= _MIN_OWN_PART * total


def _quota(evidence: SlownessEvidence) -> Finding | None:
    host, waiting = evidence.host, evidence.account.share_of(CORE_WAIT)
    if (host.quota_throttled_share or 0.0) < _MIN_QUOTA:
        return None
    seconds = max(waiting.seconds, (host.quota_throttled_share or 0.0) * evidence.account.step_seconds)
    cores = f" of {host.allowed_cores:g} cores" if host.allowed_cores is not None else ""
    text = f"the CPU quota{cores} of its cgroup stopped the process in {host.quota_throttled_share:.0%} of the time"
    return Finding(seconds, text)


def _contention(evidence: SlownessEvidence) -> Finding | None:
    waiting = evidence.account.share_of(CORE_WAIT)
    starved = evidence.account.share_of(DATA).seconds * (evidence.host.workers_queued_share or 0.0)
    if (
        not waiting.cost_seconds + starved
        or _own_threads(evidence)
        or (evidence.host.quota_throttled_share or 0.0) >= _MIN_QUOTA
    ):
        return None
    allowed, count = evidence.host.allowed_cores, evidence.host.cpu_count
    text = "the main thread was ready to run, and other processes had the cores" + _others_text(evidence)
    experiment = "Stop the other processes, or reserve cores for this one, and compare the step times."
    if allowed is not None and count is not None and allowed < count and not evidence.host.busiest_others:
        text = f"the process may use {allowed:g} of {count} cores, and they are not enough for its threads and workers"
        experiment = "Give the process more cores: taskset, the cpuset of the container, or the job's request."
    if starved:
        text += ", also while it waited for workers of the DataLoader, which were ready to run"
    bound = evidence.account.step_seconds - waiting.seconds - starved
    return Finding(waiting.cost_seconds + starved, text, bound_seconds=bound, experiment=experiment)


def _threads(evidence: SlownessEvidence) -> Finding | None:
    waiting, host = evidence.account.share_of(CORE_WAIT), evidence.host
    if not waiting.seconds or not _own_threads(evidence):
        return None
    cores = host.allowed_cores or host.cpu_count or 0
    busy = (host.busy_threads_count or 0) + 1
    text = f"{counted(busy, 'busy thread')} of the process compete for {cores:g} cores"
    threads = max(1, int(cores))
    experiment = f"Call torch.set_num_threads({threads}), or set OMP_NUM_THREADS."
    return Finding(waiting.seconds, text, experiment=experiment, value=str(threads))


def _gil(evidence: SlownessEvidence) -> Finding | None:
    waiting = evidence.account.share_of(GIL_WAIT)
    if not waiting.seconds:
        return None
    name, line = next(iter(evidence.host.python_threads.items()), ("", ""))
    text = f"another Python thread holds the GIL: {name} at {line}"
    queue = sum(part.seconds for part in evidence.account.share_of(DATA).top if part.kind == "queue")
    bound = evidence.account.step_seconds - waiting.seconds - queue  # another process fills the queue as well
    return Finding(waiting.seconds, text, line, bound_seconds=bound)


def _swapping(evidence: SlownessEvidence) -> Finding | None:
    host = evidence.host
    rate = (host.major_faults_count or 0) / host.seconds if host.seconds else 0.0
    if rate < _MIN_FAULTS_PER_SECOND or not host.disk_wait_share:
        return None
    text = f"{rate:.0f} pages per second of the process had to be read from disk"
    return Finding(host.disk_wait_share * evidence.account.step_seconds, text)


def _few_threads(evidence: SlownessEvidence) -> Finding | None:
    """Operators on one core of many, because a variable says so; torchrun sets it to 1 for every process."""
    host, account = evidence.host, evidence.account
    setting = host.settings.get("OMP_NUM_THREADS") or host.settings.get("MKL_NUM_THREADS")
    if evidence.gpu is not None or setting != "1" or host.allowed_cores is None or host.host_cpu_cores is None:
        return None
    free = min(host.allowed_cores, host.allowed_cores - host.host_cpu_cores)
    work = sum(account.share_of(name).median_seconds for name in (FORWARD, BACKWARD, OPTIMIZER))
    if free < 3 or work < 0.7 * account.step_seconds or account.overhead_share >= _MAX_OVERHEAD:
        return None
    saved = work * (1 - 1 / (1 + free))
    text = f"operators use one thread, because OMP_NUM_THREADS is 1, and {free:.0f} cores are free"
    bound, threads = account.step_seconds - saved, str(int(free) + 1)
    return Finding(saved, text, experiment=f"Set OMP_NUM_THREADS={threads}.", bound_seconds=bound, value=threads)


_MAX_OVERHEAD: Final = 0.08
"""Of the samples of operators, those in torch's Python around the operators; more means that operators are small."""


_COST_RATIO: Final = 5.0
"""A call of an operator costs about this many times what its part in Python does: dispatch, autograd, allocation."""
_MAX_SAVED: Final = 0.8
_MIN_WORK: Final = 0.5
_MIN_OPTIMIZER: Final = 0.3
"""The optimizer takes less of forward, backward and optimizer together where a batch is large enough."""


def _small_operators(evidence: SlownessEvidence) -> Finding | None:
    """Operators, or a batch, so small that what does not depend on the batch takes most of the time."""
    account = evidence.account
    if evidence.gpu is not None:
        return None
    optimizer = account.share_of(OPTIMIZER).median_seconds
    work = sum(account.share_of(name).median_seconds for name in (FORWARD, BACKWARD)) + optimizer
    if work < _MIN_WORK * account.step_seconds:
        return None
    experiment = "Double the batch size; if a step takes hardly longer, the batch is too small."
    calls = 0.0
    if account.overhead_share >= _MAX_OVERHEAD:
        calls = work * min(_MAX_SAVED, _COST_RATIO * account.overhead_share)
    if calls >= optimizer:
        part = f"{account.overhead_share:.0%} of the samples of operators are in Python code around them"
        text = f"operators are so small that calling them takes most of the time: {part}"
        return (
            Finding(calls, text, bound_seconds=account.step_seconds - calls, experiment=experiment) if calls else None
        )
    if optimizer < _MIN_OPTIMIZER * work:
        return None
    text = "the optimizer, whose work does not depend on the batch, takes as long as for a large batch"
    experiment += " Try also fused=True in the optimizer."
    return Finding(optimizer, text, bound_seconds=account.step_seconds - optimizer, experiment=experiment)


CORES: Final = (_quota, _threads, _contention, _gil, _swapping, _few_threads, _small_operators)
"""The conditions, which causes.txt names."""
