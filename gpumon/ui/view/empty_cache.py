"""What is asked before a process empties its cache, and what is told meanwhile."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.allocator import AllocatorStatistics
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.units import bytes_text
from gpumon.operations.probed import Owner
from gpumon.ui.paint.line import clipped
from gpumon.ui.view.memory_words import waiting_words, who_text

_WARNING: Final = (
    "It waits until the GPU has done all work of this process, and does so on all GPUs that the process uses. Its next "
    "tensors have to ask the driver for memory again, which takes longer than the cache. Not while a CUDA graph is "
    "being captured: the capture would fail."
)
_COMMAND_WIDTH: Final = 70


def question(owner: Owner, told: AllocatorStatistics, command: str) -> str:
    """What will be done, what comes back, what does not and why, and what it costs."""
    releasable = told.releasable_bytes
    lines = [
        f"Have {who_text(owner)} call torch.cuda.empty_cache()?",
        *([f"  {clipped(command, _COMMAND_WIDTH)}"] if command else []),
        "",
    ]
    if releasable is None:
        idle = max(0, told.reserved_bytes - (told.active_bytes or told.allocated_bytes))
        lines.append(_row("up to " + bytes_text(idle), "comes back: this allocator does not tell how much of it"))
    elif releasable:
        lines.append(_row(bytes_text(releasable), "comes back: cached, and no tensor is in its segments"))
    else:
        lines.append(_row("nothing", "comes back: there is no segment without a tensor"))
    return "\n".join([*lines, *_stays(owner, told), "", _WARNING, ""])


def _stays(owner: Owner, told: AllocatorStatistics) -> Iterator[str]:
    reasons = [
        (told.allocated_bytes, "stays: live tensors hold it"),
        (told.inactive_split_bytes, "stays: free, but parts of its segments are in use"),
        (told.freed_waiting_bytes, "stays: freed, and a stream may still use it"),
    ]
    if owner.memory_bytes is not None:
        reasons.append((max(0, owner.memory_bytes - told.reserved_bytes), "stays: the CUDA context and libraries"))
    for size, why in reasons:
        if size:
            yield _row(bytes_text(size), why)
    if told.private_pools_bytes:
        yield _row(bytes_text(told.private_pools_bytes), "of all that is in pools of CUDA graphs, which keep it")


def _row(size: str, words: str) -> str:
    return f"  {size:>15}  {words}"


def failed_text(problem: Problem | None) -> str:
    """Why nothing is told of what came back. A process that was asked and has not answered may do it yet."""
    if problem is None or problem.code is not ProblemCode.UNRESPONSIVE:
        return f"Nothing was done. {problem or ''}\n"
    return f"Nothing is known to be done. {problem}\n"


def asked_text(owner: Owner, seconds: float) -> str:
    """That it was asked, and has not answered yet."""
    return f"{who_text(owner)} was asked to empty its cache. {waiting_words(seconds)}\n"
