"""Which of five causes an allocation failed of, by the figures of its message, and what mends that one."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

from gpumon.core.units import bytes_text
from gpumon.diagnosis.known import Fix
from gpumon.diagnosis.memory_message import MemoryMessage

_LARGE_SHARE: Final = 0.02
"""Less of the GPU than this does not matter: a request for it is one of the many small ones that filled the GPU."""
_ENDLESS: Final = 1 << 60
_NEIGHBOUR_SHARE: Final = 0.05
_NEIGHBOUR_BYTES: Final = 1 << 30
"""Others that hold less than this and less than that share are contexts and displays, not what is in the way."""


class MemoryCause(str, Enum):
    """Why an allocation failed. Stable, public names."""

    TOO_BIG = "too_big"
    NEIGHBOUR = "neighbour"
    FRAGMENTATION = "fragmentation"
    LEAK = "leak"
    CAP = "cap"
    UNKNOWN = "unknown"


def memory_cause(message: MemoryMessage) -> MemoryCause:
    """Which of the five it is; unknown where the message was cut before its figures or they fit none."""
    limit = message.total or _ENDLESS
    if message.allowed is not None and message.allowed < min(limit, message.held + message.asked):
        return MemoryCause.CAP
    if message.total is None or message.free is None:
        return MemoryCause.UNKNOWN
    return _cause_of_full_gpu(message, message.total, message.free)


def _cause_of_full_gpu(message: MemoryMessage, total: int, free: int) -> MemoryCause:
    unused, foreign = message.unallocated or 0, message.foreign or 0
    is_large = message.asked >= _LARGE_SHARE * total
    is_scattered = unused >= max(message.asked / 2, _LARGE_SHARE * total)
    is_crowded = foreign >= max(_NEIGHBOUR_BYTES, _NEIGHBOUR_SHARE * total)
    if is_scattered and free + unused >= message.asked:
        return MemoryCause.FRAGMENTATION
    if is_crowded and free + unused + foreign >= message.asked:
        return MemoryCause.NEIGHBOUR
    if is_large and message.allocated is not None:
        return MemoryCause.TOO_BIG
    return MemoryCause.LEAK if (message.allocated or 0) >= total / 2 else MemoryCause.UNKNOWN


def figure_rows(message: MemoryMessage) -> Iterator[tuple[str, str]]:
    """What the message says, in words and sizes."""
    rows = (
        ("asked for", message.asked),
        ("size of the GPU", message.total),
        ("free", message.free),
        ("held by other processes", message.foreign),
        ("held by this process", message.own),
        ("allowed to this process", message.allowed),
        ("in live tensors", message.allocated),
        ("of that in CUDA graphs", message.private_pools),
        ("reserved, in no tensor", message.unallocated),
    )
    yield from ((name, bytes_text(value)) for name, value in rows if value is not None)


def cause_sentence(cause: MemoryCause, message: MemoryMessage) -> str:
    """Why it is this cause, in figures."""
    asked, held = bytes_text(message.asked), bytes_text(message.held)
    if cause is MemoryCause.CAP:
        return (
            f"Cap: the process has limited itself to {bytes_text(message.allowed)} and held {held} when it asked for "
            f"{asked} more; the GPU itself had {bytes_text(message.free)} free."
        )
    if cause is MemoryCause.FRAGMENTATION:
        return (
            f"Fragmentation: PyTorch keeps {bytes_text(message.unallocated)} that no tensor uses, but in pieces of "
            f"which none is as large as the {asked} asked for."
        )
    if cause is MemoryCause.NEIGHBOUR:
        return f"Neighbour: others hold {_foreign_text(message)}; without them the {asked} asked for would have fit."
    if cause is MemoryCause.TOO_BIG:
        return (
            f"Too big: it asked for {asked} beside the {held} that it held already, and no other process makes the "
            f"difference: the job needs more than the GPU's {bytes_text(message.total)}."
        )
    if cause is MemoryCause.LEAK:
        return (
            f"Leak, or a job just too big: tensors hold {bytes_text(message.allocated)}, so that not even {asked} more "
            "were there. If many steps went well before, something keeps tensors alive; if the first ones failed, each "
            "step is too big."
        )
    return "The figures do not tell which cause it is."


def _foreign_text(message: MemoryMessage) -> str:
    """What others hold, and who they are as far as it is told."""
    holders = ", ".join(f"process {pid} {bytes_text(held)}" for pid, held in message.others)
    return f"{bytes_text(message.foreign)} ({holders})" if holders else bytes_text(message.foreign)


_OWN_FIXES: Final[Mapping[MemoryCause, tuple[Fix, ...]]] = {
    MemoryCause.CAP: (
        Fix(
            "Raise the cap, or leave out the line that sets it; look for the fraction in the environment as well.",
            """\
torch.cuda.set_per_process_memory_fraction(0.95)
print(os.environ.get("PYTORCH_ALLOC_CONF"), os.environ.get("PYTORCH_CUDA_ALLOC_CONF"))""",
        ),
    ),
    MemoryCause.LEAK: (
        Fix(
            "Print what is held once a step: if it grows from step to step, something keeps tensors alive.",
            'print(f"{torch.cuda.memory_allocated() / 2**30:.2f} GiB in tensors at step {step}")',
        ),
        Fix("Keep numbers, not tensors: a loss that is kept keeps its whole graph.", "total_loss += loss.item()"),
    ),
}
_FIRST: Final[Mapping[MemoryCause, str]] = {
    MemoryCause.NEIGHBOUR: "nvidia-smi",
    MemoryCause.FRAGMENTATION: "expandable_segments",
    MemoryCause.TOO_BIG: "accumulation",
}
"""What the code of the fix has in it that mends this cause before all others."""


def ranked_fixes(cause: MemoryCause, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of an out-of-memory error in the order in which they help against this cause."""
    marker = _FIRST.get(cause)
    if marker is not None:
        fixes = sorted(fixes, key=lambda fix: marker not in fix.code)
    return (*_OWN_FIXES.get(cause, ()), *fixes)
