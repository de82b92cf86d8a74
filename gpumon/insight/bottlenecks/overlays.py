"""What the samples of a thread cannot show: waits for a core or the GIL, and what the GPU does at the same time.

Each function takes time from classes of an account and gives it to another one, so that the sum stays the same.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from gpumon.core.step_classes import (
    BACKWARD,
    CHECKPOINT,
    COLLECTION,
    COMMUNICATION,
    CORE_WAIT,
    DATA,
    FORWARD,
    GIL_WAIT,
    GPU_WORK,
    HOST,
    IDLE,
    LOCKS,
    LOGGING,
    OPTIMIZER,
    PROGRAMS,
    SAMPLED_CLASSES,
    SLEEP,
    SYNC,
    WAITING,
)
from gpumon.core.steps import StepObservation
from gpumon.insight.bottlenecks.slowness_evidence import GpuEvidence, HostEvidence, StepAccount, StepPart, StepShare

_BLOCKED: Final = frozenset({SLEEP, LOCKS, PROGRAMS, COMMUNICATION, IDLE, SYNC, WAITING})
_PARTLY_BLOCKED: Final = frozenset({LOGGING, CHECKPOINT})
"""Classes that may wait for a disk."""
LAUNCHING: Final = (FORWARD, BACKWARD, OPTIMIZER)
"""Classes in which the main thread launches kernels."""
_MIN_UNEXPLAINED: Final = 0.08
_MAX_TOP: Final = 5


def with_waits(
    account: StepAccount, observation: StepObservation, host: HostEvidence, world_size: int | None, *, has_gpu: bool
) -> StepAccount:
    """The account with the time in which the main thread was ready and did not run."""
    step = account.step_seconds
    computing = [share.name for share in account.shares if _is_computing(share)]
    queued = host.main_run_queue_share or 0.0
    account = _with_long_waits(moved(account, computing, CORE_WAIT, queued * step), queued)
    seconds = observation.samples.seconds
    if not seconds:
        return account
    off_cpu = 1.0 - observation.cpu_seconds / seconds - queued
    blocked = sum(share.seconds for share in account.shares if share.name in _BLOCKED | _PARTLY_BLOCKED)
    blocked += sum(share.seconds for share in account.shares if share.name == DATA and not _is_computing(share))
    unexplained = off_cpu - blocked / step if step else 0.0
    if unexplained < _MIN_UNEXPLAINED:
        return account
    if host.python_threads:
        parts = tuple(StepPart(line, 0.0, line, name) for name, line in host.python_threads.items())
        return moved(account, computing, GIL_WAIT, unexplained * step, parts)
    if not has_gpu and world_size is not None and world_size > 1:
        return moved(account, [BACKWARD, FORWARD], COMMUNICATION, unexplained * step)
    return account


def _with_long_waits(account: StepAccount, queued: float) -> StepAccount:
    """The account with the waits for a core that make some steps longer than the median one."""
    waiting = account.share_of(CORE_WAIT)
    excess = account.mean_seconds - account.step_seconds - sum(share.pause_seconds for share in account.shares)
    pause = min(queued * account.mean_seconds - waiting.seconds, excess)
    if pause <= 0:
        return account
    others = tuple(share for share in account.shares if share.name != CORE_WAIT)
    return replace(account, shares=_ordered([*others, replace(waiting, pause_seconds=pause)]))


def with_gpu(account: StepAccount, gpu: GpuEvidence) -> StepAccount:
    """The account of a program with a GPU: its work, and what the main thread did while the GPU was idle.

    What the main thread does while kernels run costs nothing. The samples do not show when that was, so what the main
    thread does other than launching counts first, and the time of the GPU's work is taken from launches and from waits
    for the GPU.
    """
    if gpu.utilization_share is None:
        return account
    step = account.step_seconds
    busy = min(1.0, gpu.utilization_share) * step
    launching = sum(share.seconds for share in account.shares if share.name in LAUNCHING)
    tops = sorted(
        (part for share in account.shares if share.name in LAUNCHING for part in share.top),
        key=lambda part: -part.seconds,
    )
    special = [share for share in account.shares if share.name not in {*LAUNCHING, SYNC}]
    total = sum(share.seconds for share in special)
    idle = step - busy
    scale = min(1.0, idle / total) if total else 0.0
    result = [_scaled(share, share.seconds * scale) for share in special]
    idle = max(0.0, idle - total * scale)
    waits = account.share_of(SYNC)
    both = launching + waits.seconds
    host = min(launching, idle * launching / both) if both else 0.0
    sync = min(waits.seconds, idle - host)
    host = min(launching, idle - sync)
    result += [
        StepShare(GPU_WORK, busy),
        _scaled(StepShare(HOST, launching, top=tuple(tops[:_MAX_TOP])), host),
        _scaled(waits, sync),
        StepShare(IDLE, max(0.0, idle - host - sync)),
    ]
    return replace(account, shares=_ordered(result))


def moved(
    account: StepAccount, names: Collection[str], target: str, seconds: float, parts: tuple[StepPart, ...] = ()
) -> StepAccount:
    """The account with time taken from classes in proportion to their times.

    It is at most the time that they have; ``parts`` are added to the class that receives it.
    """
    available = sum(share.seconds for share in account.shares if share.name in names)
    seconds = min(seconds, available)
    if seconds <= 0:
        return account
    factor = 1.0 - seconds / available
    is_queued = target == CORE_WAIT
    shares = [
        _scaled(share, share.seconds * factor, share.seconds * (1.0 - factor) if is_queued else share.queued_seconds)
        if share.name in names
        else share
        for share in account.shares
    ]
    old = account.share_of(target)
    shares = [share for share in shares if share.name != target]
    shares.append(replace(old, seconds=old.seconds + seconds, top=(*old.top, *parts)))
    return replace(account, shares=_ordered(shares))


def _is_computing(share: StepShare) -> bool:
    """Whether the main thread needs a core in a class."""
    if share.name == DATA:
        return bool(share.top) and share.top[0].kind == "main_process"
    return share.name not in _BLOCKED or share.name == COLLECTION


def _scaled(share: StepShare, seconds: float, queued: float = 0.0) -> StepShare:
    """The class with another time in the median step; its parts keep their proportions."""
    before, after = share.seconds + share.pause_seconds, seconds + share.pause_seconds
    factor = after / before if before else 0.0
    top = tuple(replace(part, seconds=part.seconds * factor) for part in share.top)
    return replace(share, seconds=seconds, top=top, queued_seconds=queued)


def _ordered(shares: list[StepShare]) -> tuple[StepShare, ...]:
    kept = [share for share in shares if share.seconds > 0 or share.pause_seconds > 0]
    return tuple(sorted(kept, key=lambda share: SAMPLED_CLASSES.index(share.name)))
