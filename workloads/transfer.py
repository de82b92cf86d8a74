"""Copy bandwidth between host and GPU, within the GPU and between GPUs; every byte is compared."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from _kit import HIGHER, LOWER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, flag, integer, number
from _kit.host import host_free_bytes, link_causes, numa_causes
from _kit.peaks import peak_memory_bytes
from _kit.timing import batch_seconds, hold, host_seconds, median

if TYPE_CHECKING:
    from _kit.context import Context

MEBIBYTE = 1 << 20
SMALLEST_BYTES = 4096
_CHECK_WORDS = 4 * MEBIBYTE
_CHECK_BYTES = 256 * MEBIBYTE
"""Device memory for comparing data with the expected pattern, chunk by chunk."""
_PEER_BYTES = 512 * MEBIBYTE
_SAMPLES = 5
_MAX_QUEUED = 256
_HELD_BELOW_BYTES = 16 * MEBIBYTE
_HOST_SECONDS_PER_COPY = 20e-6
"""Upper bound of the time to queue a copy; a blocked stream waits this long per copy."""


@dataclass
class TransferResults:
    """The results of a run, for its verdict.

    Attributes:
        wrong: Sentences about wrong data.
        warnings: Sentences about findings that need attention.
        remarks: Sentences that explain a result.
        rates: GB/s by the name of the result.
    """

    wrong: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TransferBuffers:
    """Buffers of the same length and pattern: two on the host, two on the device."""

    pageable: Any
    pinned: Any
    target: Any
    source: Any


def sizes_up_to(largest: int) -> list[int]:
    """Returns sizes in bytes from 4 KiB by factors of four, with the largest as the last."""
    sizes = []
    size = SMALLEST_BYTES
    while size < largest:
        sizes.append(size)
        size *= 4
    return [*sizes, largest]


def size_text(size: int) -> str:
    """Returns ``4KiB``, ``16MiB`` or ``1GiB``, as in the names of results."""
    for unit, name in ((1 << 30, "GiB"), (MEBIBYTE, "MiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size // 1024}KiB"


def largest_size(requested: int, device_free: int, host_free: Optional[int]) -> int:
    """Returns the largest copy in bytes that needs at most a quarter of free device and host memory.

    Raises:
        UnsupportedError: That is less than 1 MiB.
    """
    limits = [requested, (device_free - _CHECK_BYTES) // 4]
    if host_free is not None:
        limits.append(host_free // 4)
    largest = min(limits) // MEBIBYTE * MEBIBYTE
    if largest < MEBIBYTE:
        raise UnsupportedError("The free memory of this GPU or host is not sufficient for copies of 1 MiB.")
    return largest


def judge_rates(results: TransferResults) -> None:
    """Adds warnings and remarks about the rates at the largest size."""
    rates = results.rates
    to, back = rates["to_device_pinned"], rates["from_device_pinned"]
    if max(to, back) > 2 * min(to, back):
        results.warnings.append(
            f"One direction is more than twice as fast as the other: {to:.1f} GB/s to the GPU, {back:.1f} GB/s from it."
        )
    for direction in ("to_device", "from_device"):
        pinned, pageable = rates[f"{direction}_pinned"], rates[f"{direction}_pageable"]
        direction_text = direction.replace("_", " ")
        if pinned <= pageable:
            results.warnings.append(
                f"Pinned memory is not faster than pageable {direction_text}: {pinned:.1f} and {pageable:.1f} GB/s."
            )
        else:
            results.remarks.append(
                f"Pageable memory is {pinned / pageable:.1f} times slower {direction_text}, by design: the driver "
                "copies it through its own pinned buffer."
            )
    peers = {name: rate for name, rate in rates.items() if name.startswith("peer_")}
    slow = [name for name, rate in peers.items() if rate < max(peers.values()) / 2]
    if slow:
        results.warnings.append(f"Less than half as fast as the fastest pair of GPUs: {', '.join(sorted(slow))}.")


def verdict_of(context: Context, results: TransferResults) -> Verdict:
    """Returns the verdict: wrong data fails, a finding that needs attention warns."""
    if results.wrong:
        return context.fail(" ".join(results.wrong))
    if context.cancelled:
        return context.warn("")
    judge_rates(results)
    to, back = results.rates["to_device_pinned"], results.rates["from_device_pinned"]
    summary = f"Pinned memory: {to:.1f} GB/s to the GPU and {back:.1f} GB/s from it; all data is correct."
    text = " ".join([*results.warnings, summary, *results.remarks])
    return context.warn(text) if results.warnings else context.ok(text)


def _pattern(context: Context, start: int, words: int, seed: int, device: Any) -> Any:
    """Returns pseudorandom numbers that host and device compute identically, so that no copy is needed to compare."""
    torch = context.torch
    numbers = torch.arange(start, start + words, dtype=torch.int64, device=device)
    numbers.mul_(0x1E3779B97F4A7C15).add_(seed)
    numbers.bitwise_xor_(numbers >> 29)
    return numbers.mul_(0x3F58476D1CE4E5B9)


def _fill(context: Context, buffer: Any, seed: int) -> None:
    words = buffer.view(context.torch.int64)
    for start in range(0, words.numel(), _CHECK_WORDS):
        piece = words[start : start + _CHECK_WORDS]
        piece.copy_(_pattern(context, start, piece.numel(), seed, buffer.device))


def _check(
    context: Context, results: TransferResults, name: str, buffer: Any, *, first_byte: int = 0, seed: int = 0
) -> None:
    """Compares a buffer in place with the pattern; adds the number of wrong bytes and the first position."""
    torch = context.torch
    words = buffer.view(torch.int64)
    wrong, first = 0, -1
    for start in range(0, words.numel(), _CHECK_WORDS):
        piece = words[start : start + _CHECK_WORDS]
        expected = _pattern(context, first_byte // 8 + start, piece.numel(), seed, buffer.device)
        if torch.equal(piece, expected):
            continue
        differs = piece.view(torch.uint8).ne(expected.view(torch.uint8))
        wrong += int(differs.sum())
        if first < 0:
            first = start * 8 + int(differs.to(torch.uint8).argmax())
    context.checked += 1
    if wrong:
        results.wrong.append(f"{name}: {wrong} of {buffer.numel()} bytes are wrong, the first at byte {first}.")


def _queued_rate(context: Context, copy: Callable[[], object], size: int) -> tuple[float, int]:
    """Returns GB/s of copies that are queued back to back, and the number of timed copies."""
    batch_seconds(context, copy, 2)
    sample_seconds = context.parameters.milliseconds / 1e3 / _SAMPLES
    guess = max(batch_seconds(context, copy, 4) / 4, 1e-7)
    count = max(1, min(_MAX_QUEUED, round(sample_seconds / guess)))
    samples = []
    for _ in range(_SAMPLES):
        if size < _HELD_BELOW_BYTES:
            hold(context, (count + 8) * _HOST_SECONDS_PER_COPY)
        samples.append(batch_seconds(context, copy, count) / count)
        if context.stopping:
            break
    return size / median(samples) / 1e9, len(samples) * count


def _clocked_rate(context: Context, way: str, copy: Callable[[], object], size: int) -> tuple[float, int]:
    """Returns GB/s by the host clock until the device finished, and the number of timed copies; reports the timing."""
    copy()
    samples: list[tuple[float, float]] = []
    until = time.monotonic() + context.parameters.milliseconds / 1e3
    while len(samples) < 3 or (time.monotonic() < until and len(samples) < _MAX_QUEUED):
        samples.append(host_seconds(context, copy))
        if context.stopping:
            break
    done = median([finished for _, finished in samples])
    context.timing(f"{way}, {size_text(size)}", median([returned for returned, _ in samples]), done)
    return size / done / 1e9, len(samples)


def _point(context: Context, results: TransferResults, buffers: TransferBuffers, way: str, size: int) -> None:
    """Measures one point of the curve of ``way``, such as ``to_device_pinned``; the largest size has its own result."""
    largest = buffers.target.numel()
    host = (buffers.pinned if "pinned" in way else buffers.pageable)[:size]
    outward, queued = way.startswith("to_"), way.endswith("pinned")
    to, source = (buffers.target[:size], host) if outward else (host, buffers.source[:size])
    to.zero_()

    copy = partial(to.copy_, source, non_blocking=not way.endswith("pageable"))
    if queued:
        rate, count = _queued_rate(context, copy, size)
    else:
        rate, count = _clocked_rate(context, way, copy, size)
    context.synchronize()
    context.metric(way, rate)
    _check(context, results, f"{way}, {size_text(size)}", to)
    if not way.endswith("non_blocking"):
        context.result(f"{way}_{size_text(size)}", rate, repetitions=count)
    if size == largest:
        results.rates[way] = rate
        context.result(way, rate, repetitions=count, limit_source="pcie" if queued else "")


def _both_directions(context: Context, results: TransferResults, buffers: TransferBuffers) -> None:
    """Copies half of the pinned buffer to the device and the other half from it, on two streams."""
    cuda, half = context.torch.cuda, buffers.target.numel() // 2
    to, back = buffers.target[:half], buffers.pinned[half:]
    to.zero_()
    back.zero_()
    pairs = [(to, buffers.pinned[:half]), (back, buffers.source[half:])]
    count = max(2, min(64, round(context.parameters.milliseconds / 1e3 * 40e9 / half)))
    streams = [cuda.Stream(context.device) for _ in pairs]
    start, ends = cuda.Event(enable_timing=True), [cuda.Event(enable_timing=True) for _ in pairs]
    context.synchronize()
    hold(context, 2 * count * _HOST_SECONDS_PER_COPY)
    start.record()
    for stream in streams:
        stream.wait_event(start)
    for _ in range(count):
        for (destination, source), stream in zip(pairs, streams):
            with cuda.stream(stream):
                destination.copy_(source, non_blocking=True)
    for end, stream in zip(ends, streams):
        end.record(stream)
    context.synchronize()
    seconds = [start.elapsed_time(end) / 1e3 for end in ends]
    _check(context, results, "both directions, to the device", to)
    _check(context, results, "both directions, from the device", back, first_byte=half)
    rate = 2 * half * count / max(seconds) / 1e9
    context.metric("both_directions", rate)
    context.result("both_directions", rate, repetitions=count)
    context.result("both_directions_to_device", half * count / seconds[0] / 1e9, repetitions=count)
    context.result("both_directions_from_device", half * count / seconds[1] / 1e9, repetitions=count)


def _inside(context: Context, results: TransferResults, buffers: TransferBuffers) -> None:
    """Measures copies within the device, and the latency of a small copy from the host."""
    size = buffers.target.numel()
    buffers.target.zero_()
    rate, count = _queued_rate(context, lambda: buffers.target.copy_(buffers.source), size)
    _check(context, results, "device to device", buffers.target)
    peak = None if context.chip is None else peak_memory_bytes(context.chip)
    limit = None if peak is None else peak / 2 / 1e9
    context.metric("device_to_device", rate)
    context.result(
        "device_to_device", rate, repetitions=count, limit=limit, limit_source="bus width x memory clock / 2"
    )
    small = buffers.target[:4]
    small.zero_()
    seconds = [host_seconds(context, lambda: small.copy_(buffers.pinned[:4]))[1] for _ in range(200)]
    context.result("latency_to_device", median(seconds) * 1e6, repetitions=len(seconds))
    _check(context, results, "copies of 4 bytes", buffers.target)


def _measure_here(context: Context, results: TransferResults, largest: int, pairs: int) -> None:
    """Measures all copies between the host and this device."""
    torch = context.torch
    context.step(f"Allocating buffers of {size_text(largest)}: pageable and pinned on the host, two on the GPU.")
    pageable = torch.empty(largest, dtype=torch.uint8)
    pinned = torch.empty(largest, dtype=torch.uint8, pin_memory=True)
    device = [torch.empty(largest, dtype=torch.uint8, device=context.device) for _ in range(2)]
    buffers = TransferBuffers(pageable, pinned, *device)
    for buffer in (pageable, pinned, *device):
        _fill(context, buffer, 0)
    ways = [f"{way}_{memory}" for memory in ("pinned", "pageable") for way in ("to_device", "from_device")]
    points = [(way, size) for way in ways for size in sizes_up_to(largest)]
    points += [(f"{way}_pinned_non_blocking", largest) for way in ("to_device", "from_device")]
    for done, (way, size) in enumerate(points):
        if context.stopping:
            return
        if size in (SMALLEST_BYTES, largest):
            context.step(f"{way.replace('_', ' ')}, {size_text(size)}.")
        _point(context, results, buffers, way, size)
        context.progress(done + 1, _steps(largest) + pairs)
        if (way, size) == ("from_device_pinned", largest):
            _check_host(context, results)
    context.step("Both directions at once, then copies within the GPU, then copies of 4 bytes.")
    _both_directions(context, results, buffers)
    _inside(context, results, buffers)


def _steps(largest: int) -> int:
    """Returns the number of measurements between the host and this device: points of four curves, and four more."""
    return 4 * len(sizes_up_to(largest)) + 4


def _check_host(context: Context, results: TransferResults) -> None:
    if context.chip is None or context.chip.pci_bus_id is None:
        return
    folder = Path("/sys/bus/pci/devices") / context.chip.pci_bus_id
    warnings, remarks = link_causes(folder)
    results.warnings += warnings
    results.remarks += remarks + numa_causes(folder, Path("/sys/devices/system/node"), os.sched_getaffinity(0))


def _peer_buffers(context: Context, size: int) -> dict[int, tuple[Any, Any]]:
    """Returns a source and a target on every visible GPU with enough free memory, and caps the memory there."""
    torch, buffers = context.torch, {}
    for ordinal in range(torch.cuda.device_count()):
        try:
            free, total = torch.cuda.mem_get_info(ordinal)
            if free < 8 * size + _CHECK_BYTES:
                context.step(f"cuda:{ordinal} is skipped: only {free / 2**30:.1f} GiB are free there.")
                continue
            limit = torch.cuda.memory_reserved(ordinal) + 2 * size + _CHECK_BYTES
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), ordinal)
            source, target = (torch.empty(size, dtype=torch.uint8, device=f"cuda:{ordinal}") for _ in range(2))
            _fill(context, source, ordinal)
            buffers[ordinal] = (source, target)
        except RuntimeError as error:
            context.step(f"cuda:{ordinal} is skipped: {str(error).splitlines()[0]}")
    return buffers


def _measure_peers(context: Context, results: TransferResults, largest: int) -> None:
    """Measures every ordered pair of visible GPUs."""
    cuda, size = context.torch.cuda, min(largest, _PEER_BYTES)
    buffers = _peer_buffers(context, size)
    pairs = [(first, second) for first in buffers for second in buffers if first != second]
    indirect = []
    for done, (first, second) in enumerate(pairs):
        if context.stopping:
            return
        direct = bool(cuda.can_device_access_peer(first, second))
        context.progress(_steps(largest) + done, _steps(largest) + len(pairs))
        context.step(f"cuda:{first} to cuda:{second}, {'directly' if direct else 'through the host'}.")
        source, target = buffers[first][0], buffers[second][1]
        target.zero_()
        cuda.synchronize(second)
        with cuda.device(first):  # torch queues a peer copy on the stream of the source GPU
            rate, count = _queued_rate(context, partial(target.copy_, source, non_blocking=True), size)
            cuda.synchronize(first)
        cuda.synchronize(second)
        name = f"peer_{first}_{second}"
        with cuda.device(second):
            _check(context, results, f"cuda:{first} to cuda:{second}", target, seed=first)
        results.rates[name] = rate
        context.metric(name, rate)
        context.result(name, rate, repetitions=count, limit_source="nvlink" if direct else "")
        if not direct:
            indirect.append(f"{first} to {second}")
        if first > second and not context.stopping:
            _measure_both(context, results, buffers, (second, first), size)
    if indirect:
        results.remarks.append(
            f"No peer access between these GPUs, so copies go through the host: {', '.join(indirect)}."
        )


def _measure_both(
    context: Context, results: TransferResults, buffers: dict[int, tuple[Any, Any]], pair: tuple[int, int], size: int
) -> None:
    """Measures copies between two GPUs in both directions at once.

    torch lets a peer copy wait for the current streams of both GPUs, so each direction has its own stream on each.
    """
    cuda = context.torch.cuda
    count = max(4, min(_MAX_QUEUED, round(context.parameters.milliseconds / 1e3 * 40e9 / size)))
    ways = [(source, target, cuda.Stream(source), cuda.Stream(target)) for source, target in (pair, pair[::-1])]

    def copy() -> float:
        start = time.perf_counter()
        for _ in range(count):
            for source, target, sending, receiving in ways:
                with cuda.stream(receiving), cuda.stream(sending):
                    buffers[target][1].copy_(buffers[source][0], non_blocking=True)
        for ordinal in pair:
            cuda.synchronize(ordinal)
        return time.perf_counter() - start

    for ordinal in pair:
        buffers[ordinal][1].zero_()
        cuda.synchronize(ordinal)
    rate = 2 * size * count / median([copy() for _ in range(_SAMPLES)]) / 1e9
    name = f"both_peers_{pair[0]}_{pair[1]}"
    for source, target, *_ in ways:
        with cuda.device(target):
            text = f"cuda:{source} to cuda:{target}, both directions"
            _check(context, results, text, buffers[target][1], seed=source)
    context.metric(name, rate)
    context.result(name, rate, repetitions=_SAMPLES * count)


def _largest(context: Context) -> int:
    return largest_size(context.parameters.max_mebibytes * MEBIBYTE, context.free_memory()[0], host_free_bytes())


def _pairs(context: Context) -> int:
    count = int(context.torch.cuda.device_count())
    return count * (count - 1) if context.parameters.peers else 0


def _uses(context: Context) -> Uses:
    largest = _largest(context)
    pairs = _pairs(context)
    seconds = (_steps(largest) + 2 * pairs) * context.parameters.milliseconds / 1e3 + 8 * largest / 2**30 + 4
    return Uses(2 * largest + _CHECK_BYTES, seconds, host_memory_bytes=2 * largest, peers=pairs > 0)


def _run(context: Context) -> Verdict:
    largest = _largest(context)
    if largest < context.parameters.max_mebibytes * MEBIBYTE:
        context.step(f"Copies of at most {size_text(largest)}: a quarter of free memory.")
    context.cap_memory(context.memory()["reserved_bytes"] + 2 * largest + _CHECK_BYTES)
    results, pairs = TransferResults(), _pairs(context)
    _measure_here(context, results, largest, pairs)
    context.torch.cuda.empty_cache()
    if pairs and not context.stopping:
        _measure_peers(context, results, largest)
        context.torch.cuda.empty_cache()
    context.progress(1, 1)
    return verdict_of(context, results)


WORKLOAD = Workload(
    name="transfer",
    purpose="Measures copies between host and GPU, within the GPU and between GPUs, and compares every byte.",
    needs="A GPU with CUDA; 2 GiB of GPU memory and 2 GiB of host memory at the default size.",
    why_not_cpu="transfer measures copies between host and GPU, which need a GPU.",
    uses=_uses,
    run=_run,
    main_metric="to_device_pinned",
    code=(_point, _queued_rate, _clocked_rate, _both_directions, batch_seconds, host_seconds),
    metrics=(DeclaredMetric("latency_to_device", "us", LOWER), DeclaredMetric("*", "GB/s", HIGHER)),
    parameters=(
        integer("max_mebibytes", 1024, 1, 8192, "The largest copy.", unit="MiB"),
        number("milliseconds", 150, 1, 5000, "Approximate measurement time per point of the curve.", unit="ms"),
        flag("peers", default=True, help="Also measure copies between all visible GPUs."),
    ),
)
