"""What ``torch.cuda.empty_cache()`` returned to the driver, and what PyTorch still reserves and why, in sentences."""

import time
from collections.abc import Iterator
from typing import Final

from gpumon.core.allocator import AllocatorStatistics, EmptyCacheResult
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.units import bytes_text
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Answer, RequestKind

_MIN_DIFFERENCE_BYTES: Final = 64 << 20
"""The memory in use that the driver reports changes by less than this without any cause."""
_ANSWER_SECONDS: Final = 60.0
"""The process waits for all work of its GPUs before it answers."""


def explain_emptied(
    emptied: EmptyCacheResult, ordinal: int, used_before: float | None = None, used_after: float | None = None
) -> tuple[str, ...]:
    """What the call released on one GPU, what it did not, and why; the answer comes first.

    What is in use before and after the call is what the driver reports, in bytes; None where it is not known.
    """
    before, after = _statistics_of(emptied.before, ordinal), _statistics_of(emptied.after, ordinal)
    if before is None or after is None:
        return ("PyTorch has no memory of this GPU in this process.",)
    released = before.reserved_bytes - after.reserved_bytes
    first = _released_text(released, before, after, emptied.seconds)
    return (first, *_driver_text(released, used_before, used_after), *_remaining_texts(after))


def _statistics_of(devices: tuple[AllocatorStatistics, ...], ordinal: int) -> AllocatorStatistics | None:
    return next((statistics for statistics in devices if statistics.ordinal == ordinal), None)


def _released_text(released: int, before: AllocatorStatistics, after: AllocatorStatistics, seconds: float) -> str:
    if released <= 0:
        grown = f"; the program reserved {bytes_text(-released)} more in the meantime" if released else ""
        return f"Nothing was released: PyTorch reserves {bytes_text(after.reserved_bytes)}{grown}."
    change = f"from {bytes_text(before.reserved_bytes)} to {bytes_text(after.reserved_bytes)}"
    return f"{bytes_text(released)} released in {1000 * seconds:.0f} ms: reserved memory went {change}."


def _driver_text(released: int, used_before: float | None, used_after: float | None) -> Iterator[str]:
    """Whether the memory in use that the driver reports fell by as much."""
    if used_before is None or used_after is None or released <= 0:
        return
    fell = used_before - used_after
    if abs(fell - released) <= _MIN_DIFFERENCE_BYTES:
        yield f"The driver agrees: memory in use fell by {bytes_text(fell)}."
    elif fell < released:
        what = f"fell by only {bytes_text(fell)}" if fell > 0 else "did not fall"
        yield f"The driver reports that memory in use {what}: this or another process has already taken the rest."
    else:
        yield f"The driver reports that memory in use fell by {bytes_text(fell)}: other processes released memory too."


def _remaining_texts(after: AllocatorStatistics) -> Iterator[str]:
    """What PyTorch still reserves, and why; the largest reason is usually live tensors."""
    if after.allocated_bytes:
        yield f"{bytes_text(after.allocated_bytes)} stays: live tensors hold it, and only deleting them frees it."
    if after.freed_waiting_bytes:
        yield f"{bytes_text(after.freed_waiting_bytes)} stays until a stream that may still use it has finished."
    if after.releasable_bytes is None:
        rest = after.reserved_bytes - after.allocated_bytes - (after.freed_waiting_bytes or 0)
        if rest > 0:
            yield f"{bytes_text(rest)} stays outside of tensors: gaps between tensors, or memory of CUDA graphs."
        return
    if after.inactive_split_bytes:
        yield (
            f"{bytes_text(after.inactive_split_bytes)} stays fragmented: it is free, in segments of which another part "
            "is in use. PYTORCH_ALLOC_CONF=expandable_segments:True, set before the start, avoids most of that."
        )
    if after.releasable_bytes:
        yield (
            f"{bytes_text(after.releasable_bytes)} is still cached: the program went on in the meantime, or it belongs "
            "to pools of CUDA graphs, which keep it as long as they exist."
        )


def empty_cache(watcher: ProbeWatcher, pid: int) -> EmptyCacheResult:
    """Have a process call ``torch.cuda.empty_cache()``, and wait for what it released.

    The watcher is connected to the process, as `connected_watcher` returns it; its inbox is drained.

    Raises:
        CommandError: The process did not answer, or could not make the call.
    """
    number = watcher.ask(pid, RequestKind.EMPTY_CACHE)
    deadline = time.monotonic() + _ANSWER_SECONDS
    problem = Problem(
        ProblemCode.UNRESPONSIVE, "No result yet: the process is in one long call, and empties its cache afterward."
    )
    while time.monotonic() < deadline:
        watcher.inbox.arrived.wait(min(1.0, max(0.0, deadline - time.monotonic())))
        for answer in watcher.inbox.drain():
            if isinstance(answer, Answer) and answer.id == number:
                if isinstance(answer.result, EmptyCacheResult):
                    return answer.result
                problem, deadline = answer.problem or problem, 0.0
    raise CommandError(problem, ExitCode.BAD_VERDICT)
