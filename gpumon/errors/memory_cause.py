"""Decides why an allocation failed, from the sizes in its error message."""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from gpumon.core.units import bytes_text
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.memory_message import MemoryMessage

_LARGE_SHARE: Final = 0.02
"""A smaller share of the GPU is negligible: such a request is one of the many small ones that filled the GPU."""
_SCATTERED_SHARE: Final = 0.05
"""Less unused memory than this share of the GPU is not the cause: the next step would not fit even if it were free."""
_HUGE_SHARE: Final = 0.25
"""A single request for more than this share of the GPU is one tensor that may be avoided."""
_UNKNOWN_TOTAL: Final = 1 << 60
_OTHERS_SHARE: Final = 0.05
_OTHERS_BYTES: Final = 1 << 30
"""Other processes that hold less than these bytes or this share are only contexts and displays, not the cause.

The same number of bytes is left for this process's own context and libraries, if its message does not count them."""


_PROGRESS: Final = lazy_pattern(r"(?<![\d/])(?P<done>\d{1,8})/\d{1,8} \[\d\d:\d\d")
"""How tqdm prints complete steps and all steps."""
_PREPARATION: Final = lazy_pattern(r"Load|load|Fetch|Map|map|oken|ownload|cach|Cach|Prepar|prepar")
"""Labels of progress bars before a training run starts."""
_LATER: Final = lazy_pattern(
    r"\b[Ee]poch\b\D{0,4}(?!0\b|1/)\d"
    r"|\b(?:[Vv]alid|[Ee]val|[Tt]est)\w{0,8}\b[^|\n]{0,20}%\||^ {2,9}(?!1/)\d{1,6}/\d{1,6} {2}"
)
"""A later epoch, or the evaluation; the last form is that of Ultralytics."""


class MemoryCause(str, Enum):
    """Why an allocation failed. The values are stable, public names."""

    TOO_BIG = "too_big"
    OTHER_PROCESSES = "neighbour"
    FRAGMENTATION = "fragmentation"
    LEAK = "leak"
    CAP = "cap"
    UNKNOWN = "unknown"


def memory_cause(message: MemoryMessage, *, is_first_step: bool = False) -> MemoryCause:
    """Why the allocation failed; unknown if the message was cut off before its sizes, or if they match no cause.

    Args:
        message: The message.
        is_first_step: Whether no step was complete, so that nothing can have accumulated.
    """
    cause = _cause_of(message)
    return MemoryCause.TOO_BIG if is_first_step and cause is MemoryCause.LEAK else cause


def is_first_step(lines: Iterable[str]) -> bool:
    """Whether all progress bars in the lines around an error are at 0, except those of loading, in the first epoch."""
    texts = list(lines)
    bars = [(text[: match.start()], int(match["done"])) for text in texts for match in _PROGRESS.finditer(text)]
    counts = [done for label, done in bars if _PREPARATION.search(label) is None]
    return bool(counts) and not any(counts) and not any(map(_LATER.search, texts))


def _cause_of(message: MemoryMessage) -> MemoryCause:
    limit = message.total or _UNKNOWN_TOTAL
    if message.allowed is not None and message.allowed < min(limit, message.held + message.asked):
        return MemoryCause.CAP
    if message.total is None or message.free is None:
        return MemoryCause.UNKNOWN
    return _cause_of_full_gpu(message, message.total, message.free)


def _cause_of_full_gpu(message: MemoryMessage, total: int, free: int) -> MemoryCause:
    unused, foreign = message.unallocated or 0, message.foreign or 0
    is_large = message.asked >= _LARGE_SHARE * total
    is_scattered = unused >= max(message.asked / 2, _SCATTERED_SHARE * total)
    own_context = _OTHERS_BYTES if message.own is None and not message.others else 0
    is_crowded = foreign - own_context >= max(_OTHERS_BYTES, _OTHERS_SHARE * total)
    if message.held > total:
        return MemoryCause.TOO_BIG
    if is_scattered and free + unused >= message.asked:
        return MemoryCause.FRAGMENTATION
    if is_crowded and free + unused + foreign >= message.asked:
        return MemoryCause.OTHER_PROCESSES
    if is_large and message.allocated is not None:
        is_explained = (message.unexplained or 0) < max(_OTHERS_BYTES, message.asked - free)
        return MemoryCause.TOO_BIG if is_explained else MemoryCause.UNKNOWN
    return MemoryCause.LEAK if (message.allocated or 0) >= total / 2 else MemoryCause.UNKNOWN


def value_rows(message: MemoryMessage) -> Iterator[tuple[str, str]]:
    """The sizes in the message, as labels and texts."""
    rows = (
        ("requested", message.asked),
        ("GPU memory in total", message.total),
        ("free", message.free),
        ("held by other processes" if message.own or message.others else "not in this process's pool", message.foreign),
        ("held by this process", message.own),
        ("allowed for this process", message.allowed),
        ("in live tensors", message.allocated),
        ("of that in CUDA graphs", message.private_pools),
        ("reserved, unallocated", message.unallocated),
    )
    yield from ((name, bytes_text(value)) for name, value in rows if value is not None)


def cause_sentence(cause: MemoryCause, message: MemoryMessage) -> str:
    """The reason for this cause, with sizes."""
    requested, held = bytes_text(message.asked), bytes_text(message.held)
    if cause is MemoryCause.CAP:
        return (
            f"Memory limit: the process is limited to {bytes_text(message.allowed)} and held {held} when it requested "
            f"{requested} more; the GPU had {bytes_text(message.free)} free."
        )
    if cause is MemoryCause.FRAGMENTATION:
        return (
            f"Fragmentation: PyTorch holds {bytes_text(message.unallocated)} that no tensor uses, but no contiguous "
            f"piece of it is as large as the requested {requested}."
        )
    if cause is MemoryCause.OTHER_PROCESSES:
        return f"Other processes hold {_others_text(message)}; without them the requested {requested} would have fit."
    if cause is MemoryCause.TOO_BIG:
        return _too_big_sentence(message)
    if cause is MemoryCause.LEAK:
        return (
            f"Leak, or a job that is slightly too big: tensors hold {bytes_text(message.allocated)}, so that not even "
            f"{requested} more was available. If many steps succeeded before, something keeps tensors alive; if the "
            "first steps failed, each step is too big."
        )
    return _unknown_sentence(message)


def _too_big_sentence(message: MemoryMessage) -> str:
    requested, held = bytes_text(message.asked), bytes_text(message.held)
    if _cause_of(message) is MemoryCause.LEAK:
        return (
            f"Too big: tensors hold {bytes_text(message.allocated)}, and not even {requested} more was available before"
            " the first step was complete: the weights, gradients, activations and the optimizer's state do not fit."
        )
    free, foreign, unused = message.free or 0, message.foreign or 0, message.unallocated or 0
    if message.total is not None and message.held > message.total:
        return (
            f"Too big: the process held {held}, more than the GPU's {bytes_text(message.total)}, because its driver "
            f"had moved memory to the host, as on Windows. It requested {requested} more."
        )
    if free < message.asked <= free + foreign + unused:
        reserves = {"other processes hold": foreign, "this process reserves without using it": unused}
        names = " and the ".join(f"{bytes_text(size)} that {name}" for name, size in reserves.items() if size)
        return (
            f"Slightly too big: the process held {held} and requested {requested} more, which is "
            f"{bytes_text(message.asked - free)} more than was free. The {names} would have been just enough: a "
            "slightly smaller step fits."
        )
    return (
        f"Too big: the process requested {requested} in addition to the {held} that it already held, and other "
        f"processes make no difference: the job needs more than the GPU's {bytes_text(message.total)}."
    )


def _unknown_sentence(message: MemoryMessage) -> str:
    if message.total is None:
        return "The message ends before the sizes that show why memory ran out."
    if message.unexplained is None:
        return "The sizes in the message match no single cause."
    return (
        f"The message does not show who holds {bytes_text(message.unexplained)} of the GPU's "
        f"{bytes_text(message.total)}: tensors of this process hold {bytes_text(message.allocated)}, and "
        f"{bytes_text(message.free)} are free. The rest is unused memory of this process's pool, or other processes."
    )


def _others_text(message: MemoryMessage) -> str:
    """The memory of other processes, with their PIDs where the message contains them."""
    holders = ", ".join(f"process {pid}: {bytes_text(held)}" for pid, held in message.others)
    return f"{bytes_text(message.foreign)} ({holders})" if holders else bytes_text(message.foreign)


def is_one_tensor(message: MemoryMessage | None) -> bool:
    """Whether the request is so large that it is one tensor, which may be avoided."""
    return message is not None and message.asked >= _HUGE_SHARE * (message.total or _UNKNOWN_TOTAL)
