"""What the dialogs ask that change a process: which signal it gets, and whether it empties its cache."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.allocator import AllocatorStatistics
from gpumon.core.model import Device
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.units import age_text, bytes_text, counted, local_time_text
from gpumon.operations.gpu_processes import Owner
from gpumon.operations.signals import SentSignal, SignalRefusal, SignalTarget
from gpumon.present.paint.line import clipped
from gpumon.present.probe_text import waiting_text, who_text

SIGNAL_ORDER: Final = (SentSignal.TERM, SentSignal.INT, SentSignal.KILL)
"""The signals in the order of their buttons; the first one is what a user usually wants."""
_EFFECTS: Final = {
    SentSignal.TERM: "asks the program to end; Slurm and Kubernetes do the same",
    SentSignal.INT: "as Ctrl-C: Python raises KeyboardInterrupt",
    SentSignal.KILL: "ends the process at once: no checkpoint, no cleanup",
}
_MAX_TARGET: Final = 220
"""Characters of the command of a process that gets a signal."""
_MAX_COMMAND: Final = 70
_MAX_GPUS: Final = 8
_CACHE_WARNING: Final = (
    "The call waits until the GPU has finished all work of this process, on every GPU that the process uses. The next "
    "tensors need new memory from the driver, which is slower than the cache. Do not call it during CUDA graph "
    "capture: the capture would fail."
)


def signal_question(
    targets: Sequence[SignalTarget], refusals: Sequence[SignalRefusal], devices: Sequence[Device] = ()
) -> str:
    """The processes with their identity and memory, those that get no signal, and the effect of each signal."""
    lines = [f"Send a signal to {counted(len(targets), 'process')}?", ""]
    for target in targets:
        lines += _target_lines(target, devices)
    lines += [f"No signal: {refusal.reason}" for refusal in refusals]
    lines += [""] if refusals else []
    lines += [f"{sent.title:<8} {_EFFECTS[sent]}" for sent in SIGNAL_ORDER]
    return "\n".join([*lines, ""])


def foreign_question(targets: Sequence[SignalTarget], sent: SentSignal) -> str:
    """The second question to root, about processes of other users."""
    users = sorted({target.user for target in targets if target.is_foreign})
    lines = [f"{sent.title} goes to processes of other users: {', '.join(users)}. Send it anyway?", ""]
    for target in targets:
        if target.is_foreign:
            lines += _target_lines(target, ())
    return "\n".join(lines)


def _target_lines(target: SignalTarget, devices: Sequence[Device]) -> Iterator[str]:
    age = age_text(max(0.0, time.time() - target.started_seconds))
    started = local_time_text(target.started_seconds)
    yield f"PID {target.pid}  user {target.user}  started {started} ({age} ago)"
    yield f"  {clipped(target.command, _MAX_TARGET)}"
    held = [
        (device.label, process.memory_bytes or 0)
        for device in devices
        for process in device.processes or ()
        if process.pid == target.pid
    ]
    if held:
        gpus = ", ".join(f"{bytes_text(size)} on GPU {label}" for label, size in held[:_MAX_GPUS])
        more = f" and {counted(len(held) - _MAX_GPUS, 'more GPU')}" if len(held) > _MAX_GPUS else ""
        yield f"  holds {gpus}{more}"
    yield ""


def cache_question(owner: Owner, statistics: AllocatorStatistics, command: str) -> str:
    """The request, what it releases, what it does not release and why, and what it costs."""
    releasable = statistics.releasable_bytes
    lines = [
        f"Have {who_text(owner)} call torch.cuda.empty_cache()?",
        *([f"  {clipped(command, _MAX_COMMAND)}"] if command else []),
        "",
    ]
    if releasable is None:
        idle = max(0, statistics.reserved_bytes - (statistics.active_bytes or statistics.allocated_bytes))
        lines.append(_row("up to " + bytes_text(idle), "released: this allocator does not report how much of it"))
    elif releasable:
        lines.append(_row(bytes_text(releasable), "released: cached, in segments without a tensor"))
    else:
        lines.append(_row("nothing", "released: every segment holds a tensor"))
    return "\n".join([*lines, *_remaining_rows(owner, statistics), "", _CACHE_WARNING, ""])


def _remaining_rows(owner: Owner, statistics: AllocatorStatistics) -> Iterator[str]:
    reasons = [
        (statistics.allocated_bytes, "stays: held by live tensors"),
        (statistics.inactive_split_bytes, "stays: free, but in segments that are partly in use"),
        (statistics.freed_waiting_bytes, "stays: freed, waiting for stream"),
    ]
    if owner.memory_bytes is not None:
        context_bytes = max(0, owner.memory_bytes - statistics.reserved_bytes)
        reasons.append((context_bytes, "stays: the CUDA context and libraries"))
    for size, reason in reasons:
        if size:
            yield _row(bytes_text(size), reason)


def _row(size: str, text: str) -> str:
    return f"  {size:>15}  {text}"


def failed_text(problem: Problem | None) -> str:
    """Why there is no result. A process that has not responded yet may still make the call."""
    if problem is None or problem.code is not ProblemCode.UNRESPONSIVE:
        return f"The cache was not emptied. {problem or ''}\n"
    return f"No result yet. {problem}\n"


def requested_text(owner: Owner, seconds: float) -> str:
    """The request was sent, and the process has not responded yet."""
    return f"{who_text(owner)}: empty_cache() requested. {waiting_text(seconds)}\n"
