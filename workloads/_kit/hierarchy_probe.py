"""Measurements of the memory hierarchy: each launches a kernel, compares what it has read, and times it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Optional

from _kit.hierarchy_kernels import (
    LINE_BYTES,
    SHARED_WORDS,
    THREADS,
    chase_kernel,
    occupied_kernel,
    read_kernel,
    register_chain_kernel,
    register_read_kernel,
    shared_chase_kernel,
    shared_read_kernel,
    strided_kernel,
)
from _kit.kernels import compiled, resources_of
from _kit.memory import size_text
from _kit.timing import device_seconds, hold, median

if TYPE_CHECKING:
    from _kit.context import Context

HELD_REGISTERS = (0, 32, 64, 160)
"""Additional registers per thread of the kernels that `HierarchyProbe.occupied` can launch."""
CHASE_STEPS = 1 << 16
"""Loads of a pointer chase that are measured."""
_KIBIBYTE, _MEBIBYTE = 1 << 10, 1 << 20
_SEED = 20260
_FIRST_L2_SET = _MEBIBYTE
"""Smaller sets are read through L1, by every multiprocessor completely; larger ones in parts, and only through L2."""
_PART_BYTES = 64 * _KIBIBYTE
"""Smallest part: with less, most of the threads of a block would have nothing to read."""
_MAX_WARM_UP = 1 << 15
_L1_TRAFFIC, _L2_TRAFFIC = 128 * _MEBIBYTE, 8192 * _MEBIBYTE
"""Bytes that each block, or the GPU, reads in a launch: enough for about a millisecond."""
_OCCUPIED_THREADS = 256
_MAX_SHARED_BYTES = 48 * _KIBIBYTE
"""Shared memory that a block may have without a setting of the kernel."""
_WORD_MASK = 0xFFFFFFFF


def _sources() -> dict[str, str]:
    """Returns the source of every kernel by its name."""
    return {
        "chase": chase_kernel(),
        "chase_shared": shared_chase_kernel(),
        "chain_registers": register_chain_kernel(),
        "read_shared": shared_read_kernel(),
        "read_registers": register_read_kernel(),
        "read_ca": read_kernel("ca"),
        "read_cg": read_kernel("cg"),
        "read_strided": strided_kernel(),
        **{f"read_holding_{held}": occupied_kernel(held) for held in HELD_REGISTERS},
    }


class HierarchyProbe:
    """The kernels, the memory that they read, and the measurements.

    Args:
        context: The run.
        largest: Size of the largest working set in bytes.
    """

    def __init__(self, context: Context, largest: int) -> None:
        torch = context.torch
        self._context, self._repetitions = context, context.parameters.repetitions
        self._sms = context.chip.sm_count if context.chip else 1
        generator = torch.Generator(device=context.device).manual_seed(_SEED)
        self._data = torch.empty(largest // 4, dtype=torch.int32, device=context.device)
        self._data.random_(0, 1 << 16, generator=generator)
        self._next = torch.empty(largest // 4, dtype=torch.int32, device=context.device)
        self._sums = torch.zeros(2, dtype=torch.int32, device=context.device)
        self._out = torch.zeros(4, dtype=torch.int64, device=context.device)
        self._generator = generator
        self._chases = min(3, self._repetitions)
        self._kernels: dict[str, Any] = {}
        for name, source in _sources().items():
            self._kernels.update(compiled(context, source, [name]))
        self.wrong: list[str] = []

    def bandwidth(self, size: int) -> float:
        """Returns the bytes per second at which all multiprocessors read a working set of ``size`` bytes."""
        if size < _FIRST_L2_SET:
            name, parts, copies, passes = "read_ca", 1, 2 * self._sms, max(1, _L1_TRAFFIC // size)
        else:
            name, parts = "read_cg", min(4 * self._sms, size // _PART_BYTES)
            copies = max(1, 4 * self._sms // parts)
            passes = max(2, _L2_TRAFFIC // (size * copies))
        total = self._sum(self._data[: size // 4]) * passes * copies
        arguments = [self._data, self._sums, size // 16, parts, passes]
        return (
            size * passes * copies / self._seconds(f"{name} {size_text(size)}", name, parts * copies, arguments, total)
        )

    def shared_bandwidth(self) -> float:
        """Returns the bytes per second at which all multiprocessors read shared memory."""
        blocks, passes, quads = 4 * self._sms, 20_000, SHARED_WORDS // 4
        total = blocks * passes * (quads * (quads - 1) // 2 + 6 * quads)
        seconds = self._seconds("shared memory", "read_shared", blocks, [self._sums, passes], total)
        return blocks * passes * 4 * SHARED_WORDS / seconds

    def register_bandwidth(self) -> float:
        """Returns the bytes per second that multiply-adds read from registers and write to them."""
        blocks, passes = 4 * self._sms, 50_000
        total = blocks * THREADS * 8 * passes
        seconds = self._seconds("registers", "read_registers", blocks, [self._sums, 1, passes], total)
        return blocks * THREADS * 8 * passes * 16 / seconds

    def strided_bandwidth(self, stride: int) -> float:
        """Returns the useful bytes per second if neighboring threads read elements ``stride`` apart."""
        count = int(self._data.numel())
        total = self._sum(self._data[::stride])
        arguments = [self._data, self._sums, count, stride]
        return (
            4 * (count // stride) / self._seconds(f"stride {stride}", "read_strided", 8 * self._sms, arguments, total)
        )

    def latency(self, size: int) -> tuple[float, float]:
        """Returns clocks and seconds per load of a working set; each load needs the value of the one before."""
        torch, words = self._context.torch, LINE_BYTES // 4
        lines = size // LINE_BYTES
        order = torch.randperm(lines, device=self._context.device, generator=self._generator)
        self._next[order * words] = (order.roll(-1) * words).to(torch.int32)
        self._sum(self._next[: size // 4])  # fills L2
        warm_up = min(lines, _MAX_WARM_UP)
        launches = []
        for repetition in range(self._chases):  # each goes on where the one before ended: its lines are in no cache
            first = repetition * (warm_up + CHASE_STEPS)
            begin, end = (int(order[at % lines]) * words for at in (first, first + warm_up + CHASE_STEPS))
            launches.append(([self._next, self._out, begin, warm_up, CHASE_STEPS], end))
        return self._chase("chase", launches, size_text(size), CHASE_STEPS)

    def shared_latency(self) -> tuple[float, float]:
        """Returns clocks and seconds per load from shared memory."""
        expected = CHASE_STEPS * 33 % SHARED_WORDS
        launches = [([self._out, CHASE_STEPS], expected)] * self._chases
        return self._chase("chase_shared", launches, "shared memory", CHASE_STEPS)

    def register_latency(self) -> tuple[float, float]:
        """Returns clocks and seconds until the next instruction can use a register that was written."""
        steps, expected = 8 * CHASE_STEPS, 1
        for _ in range(steps):
            expected = (5 * expected + 1) & _WORD_MASK
        return self._chase("chain_registers", [([self._out, steps], expected)] * self._chases, "registers", steps)

    def occupied(self, held: int, shared_bytes: int) -> Optional[tuple[float, int, float]]:
        """Measures a read with fewer resident threads, because each holds registers or each block shared memory.

        Returns:
            Occupancy from 0 to 1, registers per thread, and bytes per second; None if the launch is not possible.
        """
        kernel, chip = self._kernels[f"read_holding_{held}"], self._context.chip
        if shared_bytes >= _MAX_SHARED_BYTES:
            try:
                kernel.set_shared_memory_config(shared_bytes)
            except (AttributeError, RuntimeError):  # an older torch, or more than a block may have
                return None
        blocks, registers = resources_of(kernel, _OCCUPIED_THREADS, shared_bytes)
        if not blocks or registers is None or chip is None or not chip.max_threads_per_sm:
            return None
        count = self._data.numel() // 4
        arguments = [self._data, self._sums, count]
        what = f"{registers} registers, {shared_bytes // _KIBIBYTE} KiB"
        seconds = self._seconds(
            what, f"read_holding_{held}", blocks * self._sms, arguments, self._sum(self._data), shared_bytes
        )
        return blocks * _OCCUPIED_THREADS / chip.max_threads_per_sm, registers, 16 * count / seconds

    def _sum(self, words: Any) -> int:
        """The sum in 32 bits, as the kernels calculate it; a wider type would need a copy of all words."""
        return int(words.sum(dtype=self._context.torch.int32))

    def _seconds(
        self, what: str, name: str, blocks: int, arguments: list[Any], total: int, shared_bytes: int = 0
    ) -> float:
        """Launches a kernel once and compares its sum, then measures it; returns seconds per launch."""
        threads = _OCCUPIED_THREADS if name.startswith("read_holding") else THREADS
        launch = partial(
            self._kernels[name], grid=(blocks, 1, 1), block=(threads, 1, 1), args=arguments, shared_mem=shared_bytes
        )
        self._sums.zero_()
        launch()
        self._check(what, int(self._sums[0]) & _WORD_MASK, total & _WORD_MASK)
        hold(self._context, 1e-4)
        return median(device_seconds(self._context, launch, self._repetitions))

    def _chase(
        self, name: str, launches: Sequence[tuple[list[Any], int]], what: str, steps: int
    ) -> tuple[float, float]:
        """Launches one thread several times; returns clocks and seconds per step of the median.

        Args:
            name: Name of the kernel.
            launches: The arguments of each launch, and where it must end.
            what: What is measured, for a sentence about a wrong result.
            steps: Measured steps of a launch.
        """
        measured = []
        for arguments, expected in launches:
            launch = partial(self._kernels[name], grid=(1, 1, 1), block=(1, 1, 1), args=arguments)
            (seconds,) = device_seconds(self._context, launch, 1)
            last, clocks, all_clocks, _ = self._out.tolist()
            self._check(what, last, expected)
            measured.append((clocks / steps, clocks / steps * seconds / max(all_clocks, 1)))
        return sorted(measured)[len(measured) // 2]

    def _check(self, what: str, actual: int, expected: int) -> None:
        self._context.checked += 1
        if actual != expected:
            self.wrong.append(f"{what}: a kernel read {actual} instead of {expected}.")
