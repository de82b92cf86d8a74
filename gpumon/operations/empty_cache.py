"""What emptying PyTorch's cache has brought, and what stays and why, in sentences."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.allocator import AllocatorStatistics, EmptiedCache
from gpumon.core.units import bytes_text

_FAR_BYTES: Final = 64 << 20
"""The driver's figure moves by less than this by itself."""


def explain_emptied(
    emptied: EmptiedCache, ordinal: int, used_before: float | None = None, used_after: float | None = None
) -> tuple[str, ...]:
    """What came back on one GPU, what did not, and why: the answer first.

    Args:
        emptied: What the probe has told.
        ordinal: The process's own number of the GPU.
        used_before: Memory of the GPU in use as the driver told it before, or None where it is not known.
        used_after: The same afterwards.
    """
    before, after = _of(emptied.before, ordinal), _of(emptied.after, ordinal)
    if before is None or after is None:
        return ("PyTorch has no memory of this GPU in this process.",)
    came_back = before.reserved_bytes - after.reserved_bytes
    first = _came_back(came_back, before, after, emptied.seconds)
    driver = _driver_says(came_back, used_before, used_after)
    return (first, *driver, *_stays(after))


def _of(told: tuple[AllocatorStatistics, ...], ordinal: int) -> AllocatorStatistics | None:
    return next((each for each in told if each.ordinal == ordinal), None)


def _came_back(came_back: int, before: AllocatorStatistics, after: AllocatorStatistics, seconds: float) -> str:
    if came_back <= 0:
        grown = f"; the program has taken {bytes_text(-came_back)} meanwhile" if came_back else ""
        return f"Nothing came back: PyTorch reserves {bytes_text(after.reserved_bytes)}{grown}."
    change = f"from {bytes_text(before.reserved_bytes)} to {bytes_text(after.reserved_bytes)}"
    return f"{bytes_text(came_back)} came back in {1000 * seconds:.0f} ms: what PyTorch reserves went {change}."


def _driver_says(came_back: int, used_before: float | None, used_after: float | None) -> Iterator[str]:
    """Whether the driver's own figure fell by as much."""
    if used_before is None or used_after is None or came_back <= 0:
        return
    fell = used_before - used_after
    if abs(fell - came_back) <= _FAR_BYTES:
        yield f"The driver agrees: memory in use fell by {bytes_text(fell)}."
    elif fell < came_back:
        what = f"fell by only {bytes_text(fell)}" if fell > 0 else "did not fall"
        yield f"By the driver, memory in use {what}: somebody, perhaps this process itself, has taken the rest already."
    else:
        yield f"By the driver, memory in use fell by {bytes_text(fell)}: others gave memory back as well."


def _stays(after: AllocatorStatistics) -> Iterator[str]:
    """What did not come back, and why; the largest reason is most often the tensors."""
    if after.allocated_bytes:
        yield f"{bytes_text(after.allocated_bytes)} stays: live tensors hold it, and only deleting them frees it."
    if after.freed_waiting_bytes:
        yield f"{bytes_text(after.freed_waiting_bytes)} stays until a stream that may still use it is done."
    if after.releasable_bytes is None:
        rest = after.reserved_bytes - after.allocated_bytes - (after.freed_waiting_bytes or 0)
        if rest > 0:
            yield f"{bytes_text(rest)} stays in no tensor: holes between tensors, or what belongs to CUDA graphs."
        return
    if after.inactive_split_bytes:
        yield (
            f"{bytes_text(after.inactive_split_bytes)} stays fragmented: it is free, in segments of which another part "
            "is in use. PYTORCH_ALLOC_CONF=expandable_segments:True, set before the start, avoids most of that."
        )
    if after.releasable_bytes:
        size = bytes_text(after.releasable_bytes)
        if after.private_pools_bytes:
            yield f"{size} stays in pools of CUDA graphs or of the program, as long as these exist."
        else:
            yield f"{size} is cached again: the program went on meanwhile."
