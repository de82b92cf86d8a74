"""Managed memory against explicit copies: first touch, prefetch, read-mostly, and the way back to the host."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from _kit import HIGHER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, integer, number
from _kit.driver import CONCURRENT_MANAGED_ACCESS, MANAGED_MEMORY, PAGE_TABLES_OF_THE_HOST, SET_READ_MOSTLY, Driver
from _kit.host import host_free_bytes
from _kit.timing import median

if TYPE_CHECKING:
    from _kit.context import Context

_MEBIBYTE = 1 << 20
_SPARE_BYTES = 64 << 20
"""Workspaces of torch for the sums."""
_MAX_SHARE_OF_HOST = 0.25
_HOST_COPIES = 3
"""The pinned source, the managed memory while it is on the host, and the result."""
_CASES = {
    "explicit copy": "The host copies pinned memory to the GPU with copy_(non_blocking=True), then a kernel reads it.",
    "first touch": "A kernel reads managed memory that is on the host: each page faults, and the driver moves it.",
    "prefetch": "cuMemPrefetchAsync moves managed memory to the GPU before the kernel reads it.",
    "read mostly": "With the hint read-mostly, GPU and host each keep a copy: the host reads on without moving pages.",
}


class ManagedBuffer:
    """Managed memory as a tensor of the GPU and as a tensor of the host, which share their bytes.

    Args:
        context: The run.
        driver: The driver library.
        address: The managed memory.
        count: Elements of 4 bytes.
    """

    def __init__(self, context: Context, driver: Driver, address: int, count: int) -> None:
        torch = context.torch
        self.address, self.size_bytes, self._driver = address, 4 * count, driver
        self.host = torch.frombuffer((ctypes.c_ubyte * self.size_bytes).from_address(address), dtype=torch.int32)
        # This is how any array library passes GPU memory to torch without a copy.
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": "<i4", "data": (address, False), "strides": None, "version": 2,
        }  # fmt: skip
        try:
            self.gpu = torch.as_tensor(self, device=context.device)
        except RuntimeError as error:
            if "numpy" not in str(error).lower():
                raise
            raise UnsupportedError(
                "torch needs NumPy to use memory that another library has allocated. Install numpy."
            ) from error
        if self.gpu.data_ptr() != address:
            raise UnsupportedError(f"torch {torch.__version__} copies managed memory instead of using it.")

    def prefetch(self, *, to_host: bool = False) -> None:
        """Moves the memory to the GPU, or to the host, on the current stream."""
        self._driver.prefetch(self.address, self.size_bytes, to_host=to_host)

    def expect_reads(self) -> None:
        """Gives the driver the hint that the memory is mostly read."""
        self._driver.advise(self.address, self.size_bytes, SET_READ_MOSTLY)


class PinnedPair:
    """Pinned host memory and plain GPU memory of the same size, with explicit copies between them."""

    def __init__(self, context: Context, count: int) -> None:
        torch = context.torch
        self.host = torch.empty(count, dtype=torch.int32, pin_memory=True)
        self.gpu = torch.empty(count, dtype=torch.int32, device=context.device)

    def prefetch(self, *, to_host: bool = False) -> None:
        """Copies the memory to the GPU, or to the host, on the current stream."""
        if to_host:
            self.host.copy_(self.gpu, non_blocking=True)
        else:
            self.gpu.copy_(self.host, non_blocking=True)


@contextmanager
def managed_buffer(context: Context, driver: Driver, count: int) -> Iterator[ManagedBuffer]:
    """Allocates managed memory and frees it, whatever happens."""
    address = driver.allocate_managed(4 * count)
    try:
        yield ManagedBuffer(context, driver, address, count)
    finally:
        try:
            context.synchronize()
        finally:
            driver.free(address)


def _count(context: Context) -> int:
    """Returns the elements of each buffer: the requested size, or a set share of free memory.

    Raises:
        UnsupportedError: The share of free memory is less than a mebibyte, or the host has too little memory.
    """
    free, share = context.free_memory()[0], context.parameters.share_percent / 100
    size = min(context.parameters.size_mebibytes << 20, int(free * share))
    if size < _MEBIBYTE:
        raise UnsupportedError(f"{share:.0%} of the {free >> 20} MiB that are free is less than a mebibyte.")
    available = host_free_bytes()
    if available is not None and _HOST_COPIES * size > available * _MAX_SHARE_OF_HOST:
        raise UnsupportedError("The host has too little free memory. Choose a smaller size_mebibytes.")
    return int(size // _MEBIBYTE * _MEBIBYTE // 4)


def _uses(context: Context) -> Uses:
    size = 4 * _count(context)
    return Uses(2 * size + _SPARE_BYTES, 5 + 20 * size * context.parameters.repetitions / 4e9, _HOST_COPIES * size)


def _require_support(driver: Driver) -> None:
    """Checks that this GPU moves pages of managed memory on demand.

    Raises:
        UnsupportedError: It does not.
    """
    if not driver.attribute(MANAGED_MEMORY):
        raise UnsupportedError("This GPU and driver do not support managed memory.")
    if not driver.attribute(CONCURRENT_MANAGED_ACCESS):
        raise UnsupportedError(
            "This GPU and system do not move pages of managed memory on demand (the attribute concurrent managed "
            "access is 0, as before Pascal, on Windows and on WSL): all of it moves before each kernel, so that "
            "neither first touch nor prefetch can be measured. Use explicit copies."
        )


def to_gpu(context: Context, buffer: Any, *, moves: bool) -> tuple[float, int]:
    """Reads memory of the host on the GPU; returns the seconds, and the sum of all elements in 32 bits."""
    context.synchronize()
    start = time.perf_counter()
    if moves:
        buffer.prefetch()
    total = buffer.gpu.sum(dtype=buffer.gpu.dtype)  # a wider type would need a copy of all elements
    context.synchronize()
    return time.perf_counter() - start, int(total)


def to_host(context: Context, buffer: Any, *, moves: bool) -> tuple[float, int]:
    """Reads memory of the GPU on the host; returns the seconds, and the sum of all elements in 32 bits."""
    context.synchronize()
    start = time.perf_counter()
    if moves:
        buffer.prefetch(to_host=True)
        context.synchronize()
    total = int(buffer.host.sum(dtype=buffer.host.dtype))
    return time.perf_counter() - start, total


def _measure(context: Context, case: str, buffer: Any) -> dict[str, float]:
    """Measures one case and adds its results; returns GB/s by name of the measurement.

    Raises:
        ArithmeticError: The GPU or the host read other values than were written.
    """
    moves = case != "first touch"
    seconds: dict[str, list[float]] = {"to_gpu": [], "second_read": [], "to_host": []}
    torch, size = context.torch, 4 * buffer.host.numel()
    if case == "read mostly":
        buffer.expect_reads()
    for repetition in range(context.parameters.repetitions):
        if repetition and context.stopping:
            break
        torch.arange(repetition, repetition + buffer.host.numel(), out=buffer.host)  # the host writes every page
        expected = int(buffer.host.sum(dtype=buffer.host.dtype))
        for name, (took, total) in (
            ("to_gpu", to_gpu(context, buffer, moves=moves)),
            ("second_read", to_gpu(context, buffer, moves=False)),
            ("to_host", to_host(context, buffer, moves=moves and case != "read mostly")),
        ):
            if total != expected:
                raise ArithmeticError(f"{case}: the sum of {name} is {total} and should be {expected}.")
            context.checked += 1
            seconds[name].append(took)
            context.metric(f"{case.replace(' ', '_')}_{name}", size / took / 1e9)
    _write_on_gpu(context, case, buffer)
    rates = {name: size / median(values) / 1e9 for name, values in seconds.items()}
    for name, rate in rates.items():
        context.result(name, rate, repetitions=len(seconds[name]), case=case)
    return rates


def _write_on_gpu(context: Context, case: str, buffer: Any) -> None:
    """Lets the GPU change every element, and compares them on the host.

    Raises:
        ArithmeticError: The host sees other values than the GPU wrote.
    """
    torch = context.torch
    first = int(buffer.host[0])
    buffer.gpu.add_(1)
    if isinstance(buffer, PinnedPair):
        buffer.prefetch(to_host=True)
    context.synchronize()
    expected = torch.arange(first + 1, first + 1 + buffer.host.numel(), dtype=torch.int32)
    wrong = int((buffer.host != expected).sum())
    if wrong:
        raise ArithmeticError(f"{case}: the host reads {wrong} elements that the GPU did not write.")
    context.checked += 1


def _run(context: Context) -> Verdict:
    count = _count(context)
    context.cap_memory(context.memory()["reserved_bytes"] + 4 * count + _SPARE_BYTES)
    context.torch.empty(1, device=context.device)  # creates the CUDA context that the driver calls need
    driver = Driver(context)
    _require_support(driver)
    rates: dict[str, dict[str, float]] = {}
    try:
        for done, (case, about) in enumerate(_CASES.items()):
            if context.stopping:
                break
            context.step(about)
            if case == "explicit copy":
                rates[case] = _measure(context, case, PinnedPair(context, count))
            else:
                with managed_buffer(context, driver, count) as buffer:
                    rates[case] = _measure(context, case, buffer)
            context.progress(done + 1, len(_CASES))
    except ArithmeticError as error:
        return context.fail(f"Wrong data. {error}")
    return verdict_of(context, rates, shares_page_tables=bool(driver.attribute(PAGE_TABLES_OF_THE_HOST)))


def verdict_of(context: Context, rates: dict[str, dict[str, float]], *, shares_page_tables: bool) -> Verdict:
    """Returns the verdict: which way to use, with the measured rates.

    Args:
        context: The run.
        rates: GB/s by case and measurement.
        shares_page_tables: Whether the GPU reads host memory without moving it, as on Grace Hopper.
    """
    if len(rates) < len(_CASES):
        return context.warn("Stopped before every way was measured.")
    copy, touch, prefetch = (rates[case]["to_gpu"] for case in ("explicit copy", "first touch", "prefetch"))
    back = rates["read mostly"]["to_host"] / rates["first touch"]["to_host"]
    summary = (
        f"Managed memory that the GPU touches first arrives at {touch:.1f} GB/s, prefetched at {prefetch:.1f} GB/s "
        f"({prefetch / touch:.1f}x), and an explicit copy from pinned memory at {copy:.1f} GB/s. With read-mostly, the "
        f"host reads back {back:.1f}x as fast."
    )
    if shares_page_tables:
        return context.ok(f"{summary} This GPU shares the page tables of the host: managed memory need not move.")
    if prefetch < touch:
        return context.warn(f"{summary} Prefetching does not help here: copy explicitly.")
    return context.ok(
        f"{summary} Copy batches explicitly; where managed memory is needed (more data than fits, or a paged "
        "optimizer), prefetch it before the kernel that uses it."
    )


WORKLOAD = Workload(
    name="managed",
    purpose="Compares managed memory (first touch, prefetch, read-mostly) with explicit copies, in both directions.",
    needs="A GPU that moves managed memory on demand (Linux, Pascal or later), and NumPy.",
    why_not_cpu="managed measures how memory moves between host and GPU, which needs a GPU.",
    uses=_uses,
    run=_run,
    metrics=(DeclaredMetric("*", "GB/s", HIGHER),),
    parameters=(
        integer("size_mebibytes", 512, 1, 4096, "Size of each buffer.", unit="MiB"),
        number("share_percent", 10, 0.1, 40, "Maximum share of free GPU memory for a buffer.", unit="%"),
        integer("repetitions", 3, 1, 50, "Measurements per case; the median is reported."),
    ),
    code=(to_gpu, to_host, ManagedBuffer, PinnedPair),
)
