"""Bandwidth of the device's own memory: copied, read, written, and in orders that it likes less."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from _kit import NotHereError, Uses, Verdict, Workload, integer, peaks, timing

if TYPE_CHECKING:
    from _kit.context import Context

_SEED = 20260
_BATCHES = 5
_LONGEST_BATCH_SECONDS = 1.0
_STRIDE = 32
_FACTOR = 3
_FILLING = 7.0
_CACHES = 4
"""Buffers are this many times as large as the second-level cache, lest the cache be measured."""
_CHUNK_ELEMENTS = 4 << 20
_SPARE_BYTES = 256 << 20
"""64 MiB for torch's own workspaces, the rest for chunks of the checks, which are done in 64 bits."""
_LARGEST_SHARE_OF_FREE = 0.9
_LEAST_SHARE_OF_PEAK = 0.7


@dataclass(frozen=True)
class _Access:
    """One way to use memory.

    Attributes:
        name: Name of its figure.
        about: What it does and why it is as fast as it is, for the user.
        moved_bytes: Bytes that are of use, read and written together.
        work: Does it once.
        wrong: How many elements of what ``work`` left are wrong.
    """

    name: str
    about: str
    moved_bytes: int
    work: Callable[[], object]
    wrong: Callable[[], int]


class Buffers:
    """Three buffers of small whole numbers, whose sums float32 holds exactly in any order, and what is done with them.

    Args:
        context: The run.
        count: Elements of each.
    """

    def __init__(self, context: Context, count: int) -> None:
        torch = context.torch
        generator = torch.Generator(device=context.device).manual_seed(_SEED)
        self.first, self.second, self.target = (
            torch.empty(count, dtype=torch.float32, device=context.device) for _ in range(3)
        )
        self.first.random_(-8, 9, generator=generator)
        self.second.random_(-8, 9, generator=generator)
        self._torch, self._side = torch, math.isqrt(count)
        self._total: Any = None
        self._pieces = [slice(at, min(at + _CHUNK_ELEMENTS, count)) for at in range(0, count, _CHUNK_ELEMENTS)]
        self._columns = self.first.view(-1, _STRIDE)

    def copy(self) -> None:
        """Copies one buffer to another."""
        self.target.copy_(self.first)

    def copy_wrong(self) -> int:
        """Elements that differ from their source."""
        return sum(int((self.target[each] != self.first[each]).sum()) for each in self._pieces)

    def read(self) -> None:
        """Adds all elements in order."""
        self._total = self.first.sum()

    def strided_read(self) -> None:
        """Adds all elements, every 32nd in one pass, so that one pass uses 4 of each 128 bytes."""
        self._total = self._torch.stack([self._columns[:, column].sum() for column in range(_STRIDE)]).sum()

    def read_wrong(self) -> int:
        """1 if the sum is wrong: it is made again in pieces and in 64 bits."""
        expected = sum(float(self.first[each].sum(dtype=self._torch.float64)) for each in self._pieces)
        return int(self._total is None or float(self._total) != expected)

    def write(self) -> None:
        """Writes the same number everywhere."""
        self.target.fill_(_FILLING)

    def write_wrong(self) -> int:
        """Elements that do not hold the number."""
        return sum(int((self.target[each] != _FILLING).sum()) for each in self._pieces)

    def triad(self) -> None:
        """Adds a multiple of one buffer to another and writes the sum to the third."""
        self._torch.add(self.first, self.second, alpha=_FACTOR, out=self.target)

    def triad_wrong(self) -> int:
        """Elements that differ from the same sum in whole numbers."""
        whole = self._torch.int32
        return sum(
            int(
                (
                    self.target[each].to(whole) != self.first[each].to(whole) + _FACTOR * self.second[each].to(whole)
                ).sum()
            )
            for each in self._pieces
        )

    def transposed_copy(self) -> None:
        """Copies a square matrix so that its columns become rows."""
        self._square(self.target).copy_(self._square(self.first).t())

    def transposed_wrong(self) -> int:
        """Elements that are not where the transposition puts them."""
        source, target = self._square(self.first), self._square(self.target)
        step = max(1, _CHUNK_ELEMENTS // self._side)
        return sum(
            int((target[at : at + step] != source[:, at : at + step].t()).sum()) for at in range(0, self._side, step)
        )

    @property
    def transposed_bytes(self) -> int:
        """Bytes that the transposed copy reads and writes."""
        return 2 * 4 * self._side**2

    def _square(self, buffer: Any) -> Any:
        return buffer[: self._side**2].view(self._side, self._side)


def accesses(buffers: Buffers) -> list[_Access]:
    """All that is measured, in order."""
    size = 4 * buffers.first.numel()
    return [
        _Access("copy", "Copy: a[i] = b[i]. Bytes read and bytes written are counted together.", 2 * size,
                buffers.copy, buffers.copy_wrong),
        _Access("read", "Read: all elements are added. Neighbouring threads read neighbouring numbers, so that each "
                "piece that the memory delivers is used in full: the access is coalesced.", size,
                buffers.read, buffers.read_wrong),
        _Access("write", "Write: every element gets the same number.", size, buffers.write, buffers.write_wrong),
        _Access("triad", f"Triad: a[i] = b[i] + {_FACTOR} c[i]. Two buffers are read and one is written; so little "
                "arithmetic costs nothing, the memory sets the pace.", 3 * size, buffers.triad, buffers.triad_wrong),
        _Access("strided_read", f"Strided read: the same elements are added, but every {_STRIDE}nd in one pass. Each "
                "thread needs 4 bytes of a piece of its own; the memory still delivers whole pieces of 32 bytes or "
                "more, and the rest is thrown away. Only bytes of use are counted.", size,
                buffers.strided_read, buffers.read_wrong),
        _Access("transposed_copy", "Transposed copy: columns become rows. Either the reading or the writing jumps a "
                "whole row ahead with each element.", buffers.transposed_bytes,
                buffers.transposed_copy, buffers.transposed_wrong),
    ]  # fmt: skip


def _buffer_bytes(context: Context) -> int:
    """Size of one buffer: what was asked for, or more where the cache would hold it."""
    cache = 0 if context.chip is None or context.chip.l2_bytes is None else context.chip.l2_bytes
    wanted = max(context.parameters.size_mebibytes << 20, _CACHES * cache)
    return int(wanted) // 4096 * 4096


def _uses(context: Context) -> Uses:
    """What three buffers take.

    Raises:
        NotHereError: They do not fit.
    """
    each = _buffer_bytes(context)
    held = 3 * each + _SPARE_BYTES
    if not context.on_gpu:
        return Uses(0, 15, host_memory_bytes=held)
    free = context.free_memory()[0]
    if held > free * _LARGEST_SHARE_OF_FREE:
        raise NotHereError(
            f"Three buffers of {each >> 20} MiB need {held / 2**30:.1f} GiB; {free / 2**30:.1f} GiB are free. "
            f"Choose smaller buffers; here they have {_CACHES} times the size of the second-level cache at least."
        )
    return Uses(held, 10)


def _run(context: Context) -> Verdict:
    uses = _uses(context)
    if context.on_gpu:
        context.cap_memory(uses.memory_bytes)
    size = _buffer_bytes(context)
    context.step(f"Three buffers of {size >> 20} MiB are filled with random whole numbers.")
    ways = accesses(Buffers(context, size // 4))
    rates: dict[str, float] = {}
    for done, access in enumerate(ways):
        if context.stopping:
            break
        context.step(access.about)
        rates[access.name] = _measure(context, access, done, len(ways))
        wrong = access.wrong()
        context.checked += 1
        if wrong:
            return context.fail(f"{access.name}: {wrong} elements are wrong after it.")
    return _judge(context, rates)


def _measure(context: Context, access: _Access, done: int, ways: int) -> float:
    """Adds the figure of one way; returns bytes a second."""
    access.work()
    context.synchronize()
    once = max(timing.batch_seconds(context, access.work, 1), 1e-9)
    length = max(1, min(context.parameters.repetitions, int(_LONGEST_BATCH_SECONDS / once)))
    rates: list[float] = []
    while len(rates) < _BATCHES and not (rates and context.stopping):
        rates.append(length * access.moved_bytes / timing.batch_seconds(context, access.work, length))
        context.metric(access.name, rates[-1] / 1e9, "GB/s")
        context.progress(done + len(rates) / _BATCHES, ways)
    limit, source = _limit(context)
    rate = timing.median(rates)
    context.figure(access.name, rate / 1e9, "GB/s", length * len(rates), limit=limit, limit_source=source)
    return rate


def _limit(context: Context) -> tuple[Optional[float], str]:
    """What bus and clock allow in GB/s, and how that is reckoned."""
    chip = context.chip
    peak = None if chip is None else peaks.peak_memory_bytes(chip)
    if chip is None or peak is None or chip.memory_clock_hertz is None:
        return None, ""
    return peak / 1e9, f"{chip.memory_bus_bits} bits x {chip.memory_clock_hertz / 1e6:.0f} MHz x 2 (double data rate)"


def _judge(context: Context, rates: dict[str, float]) -> Verdict:
    """Looks at the copy; strided access is slow everywhere, and is told beside it."""
    if "copy" not in rates:
        return context.fail("Not even a copy was measured.")
    limit, copy = _limit(context)[0], rates["copy"] / 1e9
    told = f"A copy moves {copy:,.0f} GB/s, read and written together"
    if limit is not None:
        told += f": {copy / limit:.0%} of the {limit:,.0f} GB/s that bus and clock allow"
    slower = ""
    if "strided_read" in rates:
        slower = (
            f" Reading every {_STRIDE}nd number is {rates['read'] / rates['strided_read']:.1f} x slower than in order."
        )
    right = f" All {context.checked} results are right."
    if limit is not None and copy / limit < _LEAST_SHARE_OF_PEAK:
        return context.warn(
            f"{told}, where {_LEAST_SHARE_OF_PEAK:.0%} or more is usual. Look for others who use this GPU, and at the "
            f"memory clock.{slower}{right}"
        )
    return context.ok(f"{told}.{slower}{right}")


WORKLOAD = Workload(
    name="bandwidth",
    purpose="Reads and writes device memory, in order and in strides: how fast is it, and is it right?",
    needs="One GPU or the CPU, and memory for three buffers.",
    uses=_uses,
    run=_run,
    parameters=(
        integer("size_mebibytes", 1024, 1, 65536, "Size of each of the three buffers.", unit="MiB", default_cpu=64),
        integer("repetitions", 50, 1, 1000, "How often each access is done in one of five batches.", default_cpu=3),
    ),
)
