"""Bandwidth of device memory: copy, read, write, triad, and strided access."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from _kit import HIGHER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, integer, peaks, timing

if TYPE_CHECKING:
    from _kit.context import Context

_SEED = 20260
_BATCHES = 5
_MAX_BATCH_SECONDS = 1.0
_STRIDE = 32
_FACTOR = 3
_FILLING = 7.0
_CACHES = 4
"""Buffers are at least this many times the size of the L2 cache, so that the cache does not serve the accesses."""
_CHUNK_ELEMENTS = 4 << 20
_SPARE_BYTES = 256 << 20
"""64 MiB for workspaces of torch, the rest for chunks of the checks, which use 64-bit numbers."""
_LARGEST_SHARE_OF_FREE = 0.9
_MIN_SHARE_OF_PEAK = 0.7


@dataclass(frozen=True)
class _Access:
    """One memory access pattern.

    Attributes:
        name: Name of the result.
        about: What the pattern does and what limits its speed, for the user.
        moved_bytes: Useful bytes, read and written together.
        work: Runs the access once.
        wrong: Returns how many elements are wrong after ``work``.
    """

    name: str
    about: str
    moved_bytes: int
    work: Callable[[], object]
    wrong: Callable[[], int]


class AccessBuffers:
    """Three buffers of small integers, whose sums are exact in float32 in any order, and the accesses to them.

    Args:
        context: The run.
        count: Elements per buffer.
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
        """Returns the number of elements that differ from their source."""
        return sum(int((self.target[piece] != self.first[piece]).sum()) for piece in self._pieces)

    def read(self) -> None:
        """Adds all elements in order."""
        self._total = self.first.sum()

    def strided_read(self) -> None:
        """Adds all elements, every 32nd in one pass, so that one pass uses 4 of every 128 bytes."""
        self._total = self._torch.stack([self._columns[:, column].sum() for column in range(_STRIDE)]).sum()

    def read_wrong(self) -> int:
        """Returns 1 if the sum differs from a sum over pieces in 64 bits."""
        expected = sum(float(self.first[piece].sum(dtype=self._torch.float64)) for piece in self._pieces)
        return int(self._total is None or float(self._total) != expected)

    def write(self) -> None:
        """Writes the same number to every element."""
        self.target.fill_(_FILLING)

    def write_wrong(self) -> int:
        """Returns the number of elements with another value."""
        return sum(int((self.target[piece] != _FILLING).sum()) for piece in self._pieces)

    def triad(self) -> None:
        """Adds a multiple of one buffer to another and writes the sum to the third."""
        self._torch.add(self.first, self.second, alpha=_FACTOR, out=self.target)

    def triad_wrong(self) -> int:
        """Returns the number of elements that differ from the same sum in integers."""
        integer_type = self._torch.int32
        return sum(
            int(
                (
                    self.target[piece].to(integer_type)
                    != self.first[piece].to(integer_type) + _FACTOR * self.second[piece].to(integer_type)
                ).sum()
            )
            for piece in self._pieces
        )

    def transposed_copy(self) -> None:
        """Copies a square matrix so that its columns become rows."""
        self._square(self.target).copy_(self._square(self.first).t())

    def transposed_wrong(self) -> int:
        """Returns the number of elements that differ from the transposed source."""
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


def accesses(buffers: AccessBuffers) -> list[_Access]:
    """Returns all access patterns, in order."""
    size = 4 * buffers.first.numel()
    in_order = "Every cache line that the memory delivers is used completely."
    apart = "Each element is in a different cache line, of 64 bytes on most CPUs"
    if buffers.first.is_cuda:
        in_order = "Adjacent threads read adjacent elements, so every sector that the memory delivers is used "
        in_order += "completely: the access is coalesced."
        apart = "Each thread needs 4 bytes of a different sector of 32 bytes"
    return [
        _Access("copy", "Copy: a[i] = b[i]. Bytes read and bytes written are counted together.", 2 * size,
                buffers.copy, buffers.copy_wrong),
        _Access("read", f"Read: all elements are added. {in_order}", size,
                buffers.read, buffers.read_wrong),
        _Access("write", "Write: every element gets the same value.", size, buffers.write, buffers.write_wrong),
        _Access("triad", f"Triad: a[i] = b[i] + {_FACTOR} c[i]. Two buffers are read and one is written. Memory "
                "is the limit: the arithmetic costs nothing.", 3 * size, buffers.triad, buffers.triad_wrong),
        _Access("strided_read", f"Strided read: the same elements are added, but every {_STRIDE}nd in one pass. "
                f"{apart}, and the rest of it is discarded. Only useful bytes are counted.", size,
                buffers.strided_read, buffers.read_wrong),
        _Access("transposed_copy", "Transposed copy: columns become rows. Either the reads or the writes jump a "
                "complete row with each element.", buffers.transposed_bytes,
                buffers.transposed_copy, buffers.transposed_wrong),
    ]  # fmt: skip


def _buffer_bytes(context: Context) -> int:
    """Returns the size of one buffer in bytes: the requested size, or more if the L2 cache could hold it."""
    cache = 0 if context.chip is None or context.chip.l2_bytes is None else context.chip.l2_bytes
    size = max(context.parameters.size_mebibytes << 20, _CACHES * cache)
    return int(size) // 4096 * 4096


def _uses(context: Context) -> Uses:
    """Returns the memory of three buffers.

    Raises:
        UnsupportedError: They do not fit.
    """
    size = _buffer_bytes(context)
    required = 3 * size + _SPARE_BYTES
    if not context.on_gpu:
        return Uses(0, 15, host_memory_bytes=required)
    free = context.free_memory()[0]
    if required > free * _LARGEST_SHARE_OF_FREE:
        raise UnsupportedError(
            f"Three buffers of {size >> 20} MiB need {required / 2**30:.1f} GiB; {free / 2**30:.1f} GiB are free. "
            f"Choose smaller buffers. On this GPU they have at least {_CACHES} times the size of the L2 cache."
        )
    return Uses(required, 10)


def _run(context: Context) -> Verdict:
    uses = _uses(context)
    if context.on_gpu:
        context.cap_memory(uses.memory_bytes)
    size = _buffer_bytes(context)
    context.step(f"Three buffers of {size >> 20} MiB are filled with random integers.")
    patterns = accesses(AccessBuffers(context, size // 4))
    rates: dict[str, float] = {}
    for done, access in enumerate(patterns):
        if context.stopping:
            break
        context.step(access.about)
        rates[access.name] = _measure(context, access, done, len(patterns))
        wrong = access.wrong()
        context.checked += 1
        if wrong:
            return context.fail(f"{access.name}: {wrong} elements are wrong.")
    return _judge(context, rates)


def _measure(context: Context, access: _Access, done: int, total: int) -> float:
    """Measures one pattern and adds its result; returns bytes per second."""
    access.work()
    context.synchronize()
    once = max(timing.batch_seconds(context, access.work, 1), 1e-9)
    length = max(1, min(context.parameters.repetitions, int(_MAX_BATCH_SECONDS / once)))
    rates: list[float] = []
    while len(rates) < _BATCHES and not (rates and context.stopping):
        rates.append(length * access.moved_bytes / timing.batch_seconds(context, access.work, length))
        context.metric(access.name, rates[-1] / 1e9)
        context.progress(done + len(rates) / _BATCHES, total)
    limit, source = _limit(context)
    rate = timing.median(rates)
    context.result(access.name, rate / 1e9, repetitions=length * len(rates), limit=limit, limit_source=source)
    return rate


def _limit(context: Context) -> tuple[Optional[float], str]:
    """Returns the peak bandwidth in GB/s and its formula; None and an empty text if unknown."""
    chip = context.chip
    peak = None if chip is None else peaks.peak_memory_bytes(chip)
    if chip is None or peak is None or chip.memory_clock_hertz is None:
        return None, ""
    return peak / 1e9, f"{chip.memory_bus_bits} bits x {chip.memory_clock_hertz / 1e6:.0f} MHz x 2 (double data rate)"


def _judge(context: Context, rates: dict[str, float]) -> Verdict:
    """Judges the copy; strided access is slow on every GPU and is only reported."""
    if "copy" not in rates:
        return context.fail("Not even a copy was measured.")
    limit, copy = _limit(context)[0], rates["copy"] / 1e9
    summary = f"A copy moves {copy:,.{0 if copy >= 100 else 1}f} GB/s, reads and writes together"
    if limit is not None:
        summary += f": {copy / limit:.0%} of the peak of {limit:,.0f} GB/s"
    slower = ""
    if "strided_read" in rates:
        slower = (
            f" Reading every {_STRIDE}nd element is {rates['read'] / rates['strided_read']:.1f} x slower than in order."
        )
    right = f" All {context.checked} results are correct."
    if limit is not None and copy / limit < _MIN_SHARE_OF_PEAK:
        return context.warn(
            f"{summary}, while {_MIN_SHARE_OF_PEAK:.0%} or more is normal. Check for other processes on this "
            f"GPU, and check the memory clock.{slower}{right}"
        )
    return context.ok(f"{summary}.{slower}{right}")


WORKLOAD = Workload(
    name="bandwidth",
    purpose="Measures the bandwidth of device memory, sequential and strided, and checks the data.",
    needs="A GPU or the CPU, with memory for three buffers.",
    uses=_uses,
    run=_run,
    code=(
        AccessBuffers.copy,
        AccessBuffers.read,
        AccessBuffers.write,
        AccessBuffers.triad,
        AccessBuffers.strided_read,
        AccessBuffers.transposed_copy,
        timing.batch_seconds,
    ),
    metrics=(DeclaredMetric("*", "GB/s", HIGHER),),
    parameters=(
        integer("size_mebibytes", 1024, 1, 65536, "Size of each of the three buffers.", unit="MiB", default_cpu=64),
        integer("repetitions", 50, 1, 1000, "Accesses in each of five batches.", default_cpu=3),
    ),
)
