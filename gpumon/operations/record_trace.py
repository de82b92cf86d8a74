"""Records traces of running processes through their probes, all of them at the same time."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.allocator import ProbeState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.operations.recorded_file import RecordedFile, request_files
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import RequestKind

LEAD_SECONDS: Final = 4.0
"""Time between the request and the common start of several ranks: Kineto asks for its configuration once a second."""
_ANSWER_SECONDS: Final = 120.0
"""Longest time to wait for the answers after the recording; the probes give up earlier."""
_CHUNK_BYTES: Final = 1 << 20
_KERNEL: Final = re.compile(rb'"cat": ?"kernel"')
_KERNEL_BYTES: Final = 16
_STAYS: Final = "CUPTI would stay attached"
_NO_KERNELS: Final = Problem(
    ProblemCode.INVALID_VALUE,
    "The trace has no kernels, so it was dropped: the process used no GPU in that time, or another profiler is active.",
    "Record a longer time.",
)


@dataclass(frozen=True, slots=True)
class RecordedTrace(RecordedFile):
    """The trace of one process, or why there is none.

    Attributes:
        is_failed: Whether Kineto recorded, and the result is worth nothing: no kernels of a process that has a GPU.
    """

    is_failed: bool = False


def record_traces(
    watcher: ProbeWatcher, pids: Sequence[int], milliseconds: int, allow: Callable[[str], bool] | None = None
) -> tuple[RecordedTrace, ...]:
    """Have processes record a trace with Kineto, several of them from one common start on, and wait for the files.

    The call takes the duration and a few seconds more. It drains the watcher's inbox: a session that shows the same
    probes has its own watcher.

    Args:
        watcher: A started client that is connected to the processes, as `connected_watcher` returns.
        pids: The processes, as in `Probe.pid`.
        milliseconds: How long to record, 200 to 10,000.
        allow: Asked with a reason, in sentences, whether to record a process that is slower afterwards; None for yes.

    Returns:
        A trace or a problem for each process, in the order of `pids`.
    """
    has_gpu = {pid: _has_gpu(watcher, pid) for pid in pids}
    start = int(1000 * (time.time() + LEAD_SECONDS)) if len(pids) > 1 else 0
    may_stay = int(allow is None)
    arguments = {"milliseconds": milliseconds, "start_at_epoch_milliseconds": start, "may_stay": may_stay}
    seconds = milliseconds / 1000 + LEAD_SECONDS + _ANSWER_SECONDS
    files = {file.pid: file for file in request_files(watcher, pids, RequestKind.TRACE, seconds, arguments)}
    staying = [
        file.problem.reason for file in files.values() if file.problem and file.problem.reason.startswith(_STAYS)
    ]
    if allow is not None and staying and allow(staying[0]):
        return record_traces(watcher, pids, milliseconds)
    return tuple(_checked(files[pid], has_gpu[pid]) for pid in pids)


def _has_gpu(watcher: ProbeWatcher, pid: int) -> bool:
    probe = watcher.probes.get(pid)
    return probe is not None and probe.reading is not None and probe.reading.state is ProbeState.LIVE


def _checked(file: RecordedFile, has_gpu: bool) -> RecordedTrace:
    """The trace, without its file if that has no kernels although the process has a GPU."""
    if file.path is not None and has_gpu and not _has_kernels(file.path):
        file.path.unlink(missing_ok=True)
        return RecordedTrace(file.pid, notes=file.notes, problem=_NO_KERNELS, is_failed=True)
    return RecordedTrace(file.pid, file.path, file.size_bytes, file.notes, file.problem)


def _has_kernels(path: Path) -> bool:
    """Whether a trace of Kineto has a kernel; the file may be large."""
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            if _KERNEL.search(rest + chunk):
                return True
            rest = chunk[-_KERNEL_BYTES:]
    return False
