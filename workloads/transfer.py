"""How fast data moves between host and GPU, within the GPU and between GPUs, and whether it arrives unharmed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from _kit import NotHereError, Uses, Verdict, Workload, flag, integer, number
from _kit.machine import host_free_bytes, link_causes, numa_causes
from _kit.peaks import peak_memory_bytes
from _kit.timing import batch_seconds, hold, host_seconds, median

if TYPE_CHECKING:
    from _kit.context import Context

MEBIBYTE = 1 << 20
SMALLEST_BYTES = 4096
_CHECK_WORDS = 4 * MEBIBYTE
_CHECK_BYTES = 256 * MEBIBYTE
"""Device memory for comparing data with what it should be, chunk by chunk."""
_PEER_BYTES = 512 * MEBIBYTE
_SAMPLES = 5
_MOST_QUEUED = 256
_HELD_BELOW_BYTES = 16 * MEBIBYTE
_HOST_SECONDS_PER_COPY = 20e-6
"""Time that the host takes at most to queue a copy; a held stream waits that long for each."""


@dataclass
class Found:
    """What a run has found, for its verdict.

    Attributes:
        wrong: Sentences on data that arrived wrong.
        warnings: Sentences on what deserves attention.
        remarks: Sentences that explain, without blame.
        rates: GB/s by the name of the figure.
    """

    wrong: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Buffers:
    """Buffers of the same length, all filled with the same pattern: two of the host, two of the device."""

    pageable: Any
    pinned: Any
    target: Any
    source: Any


def sizes_up_to(largest: int) -> list[int]:
    """Sizes in bytes from 4 KiB by factors of four, the largest always among them."""
    found = []
    size = SMALLEST_BYTES
    while size < largest:
        found.append(size)
        size *= 4
    return [*found, largest]


def size_text(size: int) -> str:
    """``4KiB``, ``16MiB``, ``1GiB``, as figures are named."""
    for unit, name in ((1 << 30, "GiB"), (MEBIBYTE, "MiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size // 1024}KiB"


def largest_size(wanted: int, device_free: int, host_free: Optional[int]) -> int:
    """The largest copy in bytes for which a quarter of what is free, on the device and on the host, is enough.

    Raises:
        NotHereError: Not even a mebibyte is.
    """
    rooms = [wanted, (device_free - _CHECK_BYTES) // 4]
    if host_free is not None:
        rooms.append(host_free // 4)
    largest = min(rooms) // MEBIBYTE * MEBIBYTE
    if largest < MEBIBYTE:
        raise NotHereError("There is too little free memory on this GPU or host for copies of even 1 MiB.")
    return largest


def judge_rates(found: Found) -> None:
    """Adds what the rates at the largest size say."""
    rates = found.rates
    to, back = rates["to_device_pinned"], rates["from_device_pinned"]
    if max(to, back) > 2 * min(to, back):
        found.warnings.append(
            f"One direction is more than twice as fast: {to:.1f} GB/s to the GPU, {back:.1f} from it."
        )
    for direction in ("to_device", "from_device"):
        pinned, pageable = rates[f"{direction}_pinned"], rates[f"{direction}_pageable"]
        words = direction.replace("_", " ")
        if pinned <= pageable:
            found.warnings.append(
                f"Pinned memory is no faster than pageable {words}: {pinned:.1f}, {pageable:.1f} GB/s."
            )
        else:
            found.remarks.append(
                f"Pageable memory is {pinned / pageable:.1f} times slower {words}, by design: the driver copies it "
                "through a pinned buffer of its own."
            )
    peers = {name: rate for name, rate in rates.items() if name.startswith("peer_")}
    slow = [name for name, rate in peers.items() if rate < max(peers.values()) / 2]
    if slow:
        found.warnings.append(f"Less than half as fast as the fastest pair of GPUs: {', '.join(sorted(slow))}.")


def verdict_of(context: Context, found: Found) -> Verdict:
    """The verdict: wrong data fails, what deserves attention warns."""
    if found.wrong:
        return context.fail(" ".join(found.wrong))
    if context.cancelled:
        return context.warn("")
    judge_rates(found)
    to, back = found.rates["to_device_pinned"], found.rates["from_device_pinned"]
    said = [f"Pinned memory moves at {to:.1f} GB/s to the GPU and {back:.1f} GB/s from it; all data arrived unharmed."]
    text = " ".join([*found.warnings, *said, *found.remarks])
    return context.warn(text) if found.warnings else context.ok(text)


def _pattern(context: Context, start: int, words: int, seed: int, device: Any) -> Any:
    """Numbers that look random and that host and device compute alike, so no copy is needed to know them."""
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


def _check(context: Context, found: Found, name: str, buffer: Any, *, first_byte: int = 0, seed: int = 0) -> None:
    """Compares a buffer, where it lies, with the pattern; counts what is wrong and tells where it begins."""
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
        found.wrong.append(f"{name}: {wrong} of {buffer.numel()} bytes arrived wrong, the first at byte {first}.")


def _queued_rate(context: Context, copy: Callable[[], object], size: int) -> tuple[float, int]:
    """GB/s of copies queued one behind the other, and how many were timed."""
    batch_seconds(context, copy, 2)
    wanted = context.parameters.milliseconds / 1e3 / _SAMPLES
    guess = max(batch_seconds(context, copy, 4) / 4, 1e-7)
    count = max(1, min(_MOST_QUEUED, round(wanted / guess)))
    samples = []
    for _ in range(_SAMPLES):
        if size < _HELD_BELOW_BYTES:
            hold(context, (count + 8) * _HOST_SECONDS_PER_COPY)
        samples.append(batch_seconds(context, copy, count) / count)
        if context.stopping:
            break
    return size / median(samples) / 1e9, len(samples) * count


def _clocked_rate(context: Context, way: str, copy: Callable[[], object], size: int) -> tuple[float, int]:
    """GB/s by the host's clock until the device is done, and how many were timed; tells when the host had returned."""
    copy()
    samples: list[tuple[float, float]] = []
    until = time.monotonic() + context.parameters.milliseconds / 1e3
    while len(samples) < 3 or (time.monotonic() < until and len(samples) < _MOST_QUEUED):
        samples.append(host_seconds(context, copy))
        if context.stopping:
            break
    done = median([both[1] for both in samples])
    context.timing(f"{way}, {size_text(size)}", median([both[0] for both in samples]), done)
    return size / done / 1e9, len(samples)


def _point(context: Context, found: Found, buffers: Buffers, way: str, size: int) -> None:
    """One point of a curve; ``way`` is ``to_device_pinned`` and so on. The largest size gives the plain figure too."""
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
    context.metric(way, rate, "GB/s")
    _check(context, found, f"{way}, {size_text(size)}", to)
    if not way.endswith("non_blocking"):
        context.figure(f"{way}_{size_text(size)}", rate, "GB/s", count)
    if size == largest:
        found.rates[way] = rate
        context.figure(way, rate, "GB/s", count, limit_source="pcie" if queued else "")


def _both_directions(context: Context, found: Found, buffers: Buffers) -> None:
    """Half of the pinned buffer goes to the device while the other half comes from it, on two streams."""
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
    _check(context, found, "both directions, to the device", to)
    _check(context, found, "both directions, from the device", back, first_byte=half)
    rate = 2 * half * count / max(seconds) / 1e9
    context.metric("both_directions", rate, "GB/s")
    context.figure("both_directions", rate, "GB/s", count)
    context.figure("both_directions_to_device", half * count / seconds[0] / 1e9, "GB/s", count)
    context.figure("both_directions_from_device", half * count / seconds[1] / 1e9, "GB/s", count)


def _inside(context: Context, found: Found, buffers: Buffers) -> None:
    """Copies within the device, and how long the smallest copy from the host takes."""
    size = buffers.target.numel()
    buffers.target.zero_()
    rate, count = _queued_rate(context, lambda: buffers.target.copy_(buffers.source), size)
    _check(context, found, "device to device", buffers.target)
    peak = None if context.chip is None else peak_memory_bytes(context.chip)
    limit = None if peak is None else peak / 2 / 1e9
    context.metric("device_to_device", rate, "GB/s")
    context.figure("device_to_device", rate, "GB/s", count, limit=limit, limit_source="bus width x memory clock / 2")
    small = buffers.target[:4]
    small.zero_()
    seconds = [host_seconds(context, lambda: small.copy_(buffers.pinned[:4]))[1] for _ in range(200)]
    context.figure("latency_to_device", median(seconds) * 1e6, "us", len(seconds))
    _check(context, found, "copies of 4 bytes", buffers.target)


def _measure_here(context: Context, found: Found, largest: int, pairs: int) -> None:
    """Everything between the host and this device."""
    torch = context.torch
    context.step(f"Making buffers of {size_text(largest)}: pageable and pinned on the host, two on the GPU.")
    pageable = torch.empty(largest, dtype=torch.uint8)
    pinned = torch.empty(largest, dtype=torch.uint8, pin_memory=True)
    device = [torch.empty(largest, dtype=torch.uint8, device=context.device) for _ in range(2)]
    buffers = Buffers(pageable, pinned, *device)
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
        _point(context, found, buffers, way, size)
        context.progress(done + 1, _steps(largest) + pairs)
        if (way, size) == ("from_device_pinned", largest):
            _look_at_the_machine(context, found)
    context.step("Both directions at once, then copies within the GPU, then copies of 4 bytes.")
    _both_directions(context, found, buffers)
    _inside(context, found, buffers)


def _steps(largest: int) -> int:
    """How many things are measured between the host and this device: points of four curves, and four more."""
    return 4 * len(sizes_up_to(largest)) + 4


def _look_at_the_machine(context: Context, found: Found) -> None:
    if context.chip is None or context.chip.pci_bus_id is None:
        return
    folder = Path("/sys/bus/pci/devices") / context.chip.pci_bus_id
    warnings, remarks = link_causes(folder)
    found.warnings += warnings
    found.remarks += remarks + numa_causes(folder, Path("/sys/devices/system/node"), os.sched_getaffinity(0))


def _peer_buffers(context: Context, size: int) -> dict[int, tuple[Any, Any]]:
    """A source and a target on every visible GPU that has room, capped there as well."""
    torch, found = context.torch, {}
    for ordinal in range(torch.cuda.device_count()):
        try:
            free, total = torch.cuda.mem_get_info(ordinal)
            if free < 8 * size + _CHECK_BYTES:
                context.step(f"cuda:{ordinal} is left out: only {free / 2**30:.1f} GiB are free there.")
                continue
            limit = torch.cuda.memory_reserved(ordinal) + 2 * size + _CHECK_BYTES
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), ordinal)
            both = [torch.empty(size, dtype=torch.uint8, device=f"cuda:{ordinal}") for _ in range(2)]
            _fill(context, both[0], ordinal)
            found[ordinal] = (both[0], both[1])
        except RuntimeError as error:
            context.step(f"cuda:{ordinal} is left out: {str(error).splitlines()[0]}")
    return found


def _measure_peers(context: Context, found: Found, largest: int) -> None:
    """Every ordered pair of visible GPUs."""
    cuda, size = context.torch.cuda, min(largest, _PEER_BYTES)
    buffers = _peer_buffers(context, size)
    pairs = [(first, second) for first in buffers for second in buffers if first != second]
    off = []
    for done, (first, second) in enumerate(pairs):
        if context.stopping:
            return
        direct = bool(cuda.can_device_access_peer(first, second))
        context.progress(_steps(largest) + done, _steps(largest) + len(pairs))
        context.step(f"cuda:{first} to cuda:{second}, {'directly' if direct else 'by way of the host'}.")
        source, target = buffers[first][0], buffers[second][1]
        target.zero_()
        cuda.synchronize(second)
        with cuda.device(first):  # torch queues such a copy on the stream of the GPU that it comes from
            rate, count = _queued_rate(context, partial(target.copy_, source, non_blocking=True), size)
            cuda.synchronize(first)
        cuda.synchronize(second)
        name = f"peer_{first}_{second}"
        with cuda.device(second):
            _check(context, found, f"cuda:{first} to cuda:{second}", target, seed=first)
        found.rates[name] = rate
        context.metric(name, rate, "GB/s")
        context.figure(name, rate, "GB/s", count, limit_source="nvlink" if direct else "")
        if not direct:
            off.append(f"{first} to {second}")
    if off:
        found.remarks.append(f"No peer access between these GPUs, so copies go by way of the host: {', '.join(off)}.")


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
        context.step(f"Copies of {size_text(largest)} at most: a quarter of what is free here.")
    context.cap_memory(context.memory()["reserved_bytes"] + 2 * largest + _CHECK_BYTES)
    found, pairs = Found(), _pairs(context)
    _measure_here(context, found, largest, pairs)
    context.torch.cuda.empty_cache()
    if pairs and not context.stopping:
        _measure_peers(context, found, largest)
        context.torch.cuda.empty_cache()
    context.progress(1, 1)
    return verdict_of(context, found)


WORKLOAD = Workload(
    name="transfer",
    purpose="How fast data moves between host and GPU, within it and between GPUs, and whether it arrives unharmed.",
    needs="A GPU with CUDA; 2 GiB of its memory and 2 GiB of the host's at the default size.",
    why_not_cpu="It measures copies between host and GPU, and without a GPU there is nowhere to copy to.",
    uses=_uses,
    run=_run,
    parameters=(
        integer("max_mebibytes", 1024, 1, 8192, "The largest copy.", unit="MiB"),
        number("milliseconds", 150, 1, 5000, "How long each point of the curve is measured, about.", unit="ms"),
        flag("peers", default=True, help="Whether copies between all GPUs that are visible are measured too."),
    ),
)
