"""Causes in the way of the data: workers, the main process, the start of workers, storage."""

from typing import Final

from gpumon.core.step_classes import DATA, GIL_WAIT, PREPARATION
from gpumon.core.units import counted
from gpumon.insight.bottlenecks.cause import Finding, main_line, where_text
from gpumon.insight.bottlenecks.slowness_evidence import HostEvidence, SlownessEvidence, StepShare

_QUEUE_SECONDS: Final = 1e-3
"""More workers do not shorten a wait like this: it takes as long to receive a batch that is ready."""
_LARGE_SHARE: Final = 0.2
_BUSY_WORKER: Final = 0.7
"""A worker that uses more of a core computes; one that uses less waits for storage or the network."""
_DISK_WAIT: Final = 0.3


def _seconds_of(share: StepShare, kinds: frozenset[str]) -> float:
    """The part of the class with these finer names."""
    total = sum(part.seconds for part in share.top)
    part = sum(part.seconds for part in share.top if part.kind in kinds)
    return share.cost_seconds * part / total if total else 0.0


def _free_cores(host: HostEvidence) -> float | None:
    if host.allowed_cores is None or host.host_cpu_cores is None:
        return None
    return max(0.0, min(host.allowed_cores, (host.cpu_count or host.allowed_cores) - host.host_cpu_cores))


def _few_workers(evidence: SlownessEvidence) -> Finding | None:
    share, host = evidence.account.share_of(DATA), evidence.host
    waiting = _seconds_of(share, frozenset({"few_workers", "loader"})) if share.top else share.cost_seconds
    if not waiting or (not share.top and not host.workers_count):
        return None
    waiting *= 1.0 - (host.workers_queued_share or 0.0)  # the rest of the wait is the fault of the cores
    if waiting < min(_QUEUE_SECONDS, _LARGE_SHARE * evidence.account.step_seconds):
        return None
    workers = host.workers_count or 0
    text = (
        f"the main thread waits for {counted(workers, 'worker')} of the DataLoader"
        if workers
        else "the main thread waits for the DataLoader"
    )
    per_worker = None if not workers or host.workers_cpu_cores is None else host.workers_cpu_cores / workers
    if per_worker is not None:
        text += f", each of which uses {per_worker:.0%} of a core"
    if (host.workers_disk_wait_share or 0.0) >= _DISK_WAIT:
        text += f" and waits for a disk in {host.workers_disk_wait_share:.0%} of the samples"
    experiment, value = _workers_experiment(host, workers, per_worker)
    return Finding(waiting, text, main_line(share), experiment=experiment, value=value)


def _workers_experiment(host: HostEvidence, workers: int, per_worker: float | None) -> tuple[str, str]:
    """The experiment, and the number of workers that it sets."""
    free = _free_cores(host)
    if (host.workers_disk_wait_share or 0.0) >= _DISK_WAIT:
        return (
            "Copy a part of the data set to /dev/shm and train on it; if that is faster, the storage is the limit.",
            "",
        )
    if per_worker is not None and per_worker >= _BUSY_WORKER and free is not None and free < 1:
        return "No core is free for more workers: prepare the samples once and store them, or train on one batch.", ""
    change = f"Set num_workers={2 * workers}" if workers else "Raise num_workers"
    text = f"{change} in the DataLoader, with persistent_workers=True, and compare the step times."
    return text, str(2 * workers) if workers else ""


def _main_process(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(DATA)
    seconds = _seconds_of(share, frozenset({"main_process"}))
    if not seconds and share.cost_seconds and not share.top and not evidence.host.workers_count:
        seconds = share.cost_seconds
    if not seconds:
        return None
    text = f"the main process loads each batch itself, and the model waits{where_text(share)}"
    return Finding(seconds, text, main_line(share), value="4")


def _worker_start(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(DATA)
    seconds = _seconds_of(share, frozenset({"worker_start"}))
    if not seconds:
        return None
    text = f"each epoch starts the workers of the DataLoader again{where_text(share)}"
    return Finding(seconds, text, main_line(share))


def _preparation(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(PREPARATION)
    if not share.cost_seconds:
        return None
    text = f"the main thread prepares data outside of a DataLoader{where_text(share)}"
    return Finding(share.cost_seconds, text, main_line(share))


def _queue(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(DATA)
    seconds = _seconds_of(share, frozenset({"queue"}))
    if not seconds:
        return None
    threads = evidence.host.python_threads
    producer = "".join(f"; thread {name} runs at {line}" for name, line in list(threads.items())[:1])
    text = f"the main thread waits for a queue that another thread or process fills{producer}{where_text(share)}"
    # The thread that fills the queue takes the GIL as well, from which a process would free the main thread.
    bound = evidence.account.step_seconds - seconds - evidence.account.share_of(GIL_WAIT).seconds
    return Finding(seconds, text, main_line(share), bound_seconds=bound)


LOADING: Final = (_few_workers, _main_process, _queue, _worker_start, _preparation)
"""The conditions, which causes.txt names."""
