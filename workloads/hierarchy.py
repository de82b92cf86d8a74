"""The memory hierarchy of a GPU: bandwidth and latency by working set, occupancy, and coalescing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from _kit import HIGHER, LOWER, DeclaredMetric, Uses, Verdict, Workload, integer
from _kit.hierarchy_kernels import chase_kernel, occupied_kernel, read_kernel, shared_read_kernel, strided_kernel
from _kit.hierarchy_probe import CHASE_STEPS, HELD_REGISTERS, HierarchyProbe
from _kit.memory import budget_of, size_text

if TYPE_CHECKING:
    from _kit.context import Context

_KIBIBYTE, _MEBIBYTE = 1 << 10, 1 << 20
_SMALLEST_SET, _L1_SET = 16 * _KIBIBYTE, 32 * _KIBIBYTE
_FIRST_STEP_SET = 2 * _MEBIBYTE
"""From this size on, the sweep is searched for the step of L2."""
_CACHES = 8
"""The largest set is at least this many times the size of the L2 cache."""
_STRIDES = (1, 2, 4, 8, 16, 32)
_SHARED_KIBIBYTES = (16, 32, 47, 100, 200)
_MAX_STEP_FACTOR = 2.0
_SPARE_BYTES = 256 * _MEBIBYTE
_BUFFERS = 3
"""The data, the pointers, and as much again for the random order of the pointers."""
Curve = dict[int, tuple[float, float, float]]
"""By size of the working set: bytes per second, and clocks and seconds per load."""


def working_sets(largest: int) -> list[int]:
    """Returns the sizes of the sweep in bytes, two per doubling, from 16 KiB up to ``largest``."""
    count = 2 * (largest // _SMALLEST_SET).bit_length() - 1
    sizes = [round(_SMALLEST_SET * 2 ** (step / 2)) // 4096 * 4096 for step in range(count)]
    return [size for size in sizes if size <= largest]


def largest_drop(curve: Sequence[tuple[int, float]]) -> Optional[tuple[int, float]]:
    """Returns where a curve falls most per doubling, and by which factor.

    Args:
        curve: Size and value, two points per doubling.
    """
    drops = [(before[1] / after[1], at[0]) for before, at, after in zip(curve, curve[1:], curve[2:])]
    if not drops:
        return None
    factor, position = max(drops)
    return position, factor


def _largest_set(context: Context) -> int:
    """Returns the size of the largest working set in bytes.

    Raises:
        UnsupportedError: Too little memory is free.
    """
    l2 = (context.chip.l2_bytes if context.chip else None) or 0
    requested = max(context.parameters.size_mebibytes << 20, _CACHES * l2)
    required = max(32 * _MEBIBYTE, 2 * l2)
    limit, minimum = (_BUFFERS * size + _SPARE_BYTES for size in (requested, required))
    budget = budget_of(limit, context.free_memory()[0], minimum)
    return (budget - _SPARE_BYTES) // _BUFFERS // _MEBIBYTE * _MEBIBYTE


def _uses(context: Context) -> Uses:
    return Uses(_BUFFERS * _largest_set(context) + _SPARE_BYTES, 20)


def _run(context: Context) -> Verdict:
    largest = _largest_set(context)
    context.cap_memory(context.memory()["reserved_bytes"] + _BUFFERS * largest + _SPARE_BYTES)
    context.step(f"Compiling the kernels. {_properties_text(context)}")
    probe = HierarchyProbe(context, largest)
    curve = _sweep(context, probe, working_sets(largest))
    if not context.stopping:
        parts = (_levels, _occupancies, _coalescing)
        for done, part in enumerate(parts, 1):
            part(context, probe, curve)
            context.progress(len(curve) + done, len(curve) + len(parts))
    return verdict_of(context, curve, probe.wrong)


def _properties_text(context: Context) -> str:
    """What the device properties claim, in a sentence."""
    properties, chip = context.torch.cuda.get_device_properties(context.device), context.chip
    registers = getattr(properties, "regs_per_multiprocessor", None)
    shared = getattr(properties, "shared_memory_per_multiprocessor", None)
    parts = [f"{properties.multi_processor_count} SMs", f"warps of {getattr(properties, 'warp_size', 32)} threads"]
    parts += [] if registers is None else [f"{registers:,} registers per SM"]
    parts += [] if shared is None else [f"{size_text(shared)} shared memory per SM"]
    parts += [] if chip is None or chip.l2_bytes is None else [f"{size_text(chip.l2_bytes)} L2"]
    return f"The device properties claim {', '.join(parts)}, compute capability {properties.major}.{properties.minor}."


def _sweep(context: Context, probe: HierarchyProbe, sizes: Sequence[int]) -> Curve:
    """Measures all working sets; returns bytes per second, clocks and seconds per load, by size."""
    context.step("Working sets of growing size: below 1 MiB read through L1, from there on through L2.")
    probe.bandwidth(sizes[-1])  # raises the clocks
    curve: Curve = {}
    for done, size in enumerate(sizes):
        if context.stopping:
            break
        rate, (clocks, seconds) = probe.bandwidth(size), probe.latency(size)
        curve[size] = rate, clocks, seconds
        case, count = size_text(size), context.parameters.repetitions
        context.metric("bandwidth", rate / 1e9)
        context.result("read_bandwidth", rate / 1e9, repetitions=count, case=case, position=size)
        context.result("load_latency", seconds * 1e9, repetitions=CHASE_STEPS, case=case, position=size)
        context.progress(done + 1, len(sizes) + 3)
    return curve


def _levels(context: Context, probe: HierarchyProbe, curve: Curve) -> None:
    """Adds one row per level of the hierarchy."""
    context.step("Registers and shared memory, next to L1, L2 and DRAM from the sweep.")
    l2 = (context.chip.l2_bytes if context.chip else None) or 16 * _MEBIBYTE
    levels = {
        "registers": (probe.register_bandwidth(), *probe.register_latency()),
        "shared memory": (probe.shared_bandwidth(), *probe.shared_latency()),
        "L1": curve[min(curve, key=lambda size: abs(size - _L1_SET))],
        "L2": curve[min(curve, key=lambda size: abs(size - l2 // 4))],
        "DRAM": curve[max(curve)],
    }
    for level, (rate, clocks, seconds) in levels.items():
        context.result("bandwidth", rate / 1e9, repetitions=context.parameters.repetitions, case=level)
        context.result("latency", seconds * 1e9, repetitions=CHASE_STEPS, case=level)
        context.result("latency_clocks", clocks, repetitions=CHASE_STEPS, case=level)


def _occupancies(context: Context, probe: HierarchyProbe, _: Curve) -> None:
    """Measures a read of DRAM with fewer and fewer resident warps."""
    context.step("Occupancy: registers per thread and shared memory per block limit the warps that hide latency.")
    limits = [(held, 0) for held in HELD_REGISTERS] + [(0, size << 10) for size in _SHARED_KIBIBYTES]
    for held, shared in limits:
        measured = None if context.stopping else probe.occupied(held, shared)
        if measured is None:
            continue
        occupancy, registers, rate = measured
        case = f"{shared >> 10} KiB per block" if shared else f"{registers} registers"
        context.result("occupancy", occupancy * 100, repetitions=1, case=case)
        context.result("dram_bandwidth", rate / 1e9, repetitions=context.parameters.repetitions, case=case)


def _coalescing(context: Context, probe: HierarchyProbe, _: Curve) -> None:
    """Measures the useful bandwidth by the distance of the elements that neighboring threads read."""
    context.step("Coalescing: threads of a warp read elements 1 to 32 apart; the memory delivers sectors of 32 bytes.")
    for stride in _STRIDES:
        if context.stopping:
            return
        rate = probe.strided_bandwidth(stride) / 1e9
        count = context.parameters.repetitions
        context.result("useful_bandwidth", rate, repetitions=count, case=f"stride {stride}", position=stride)


def verdict_of(context: Context, curve: Curve, wrong: Sequence[str]) -> Verdict:
    """Returns the verdict: a wrong sum fails, a step far from the L2 size that the device claims warns.

    Args:
        context: The run.
        curve: Bytes per second, clocks and seconds per load, by size of the working set in bytes.
        wrong: Sentences about wrong results.
    """
    if wrong:
        return context.fail(" ".join(wrong[:3]))
    drop = largest_drop([(size, values[0]) for size, values in sorted(curve.items()) if size >= _FIRST_STEP_SET])
    if context.stopping or drop is None:
        return context.warn("Stopped before all working sets were measured.")
    l2 = context.chip.l2_bytes if context.chip else None
    position, factor = drop
    context.result(
        "l2_step", position / _MEBIBYTE, repetitions=len(curve), limit=l2 and l2 / _MEBIBYTE, limit_source="L2"
    )
    fast, slow = curve[min(curve, key=lambda size: abs(size - position // 4))], curve[max(curve)]
    summary = (
        f"The bandwidth falls most, {factor:.1f}x per doubling, at a working set of {size_text(position)}: from "
        f"{fast[0] / 1e9:,.0f} to {slow[0] / 1e9:,.0f} GB/s, with a latency of {fast[2] * 1e9:.0f} and "
        f"{slow[2] * 1e9:.0f} ns."
    )
    advice = f"Keep data that a kernel reads repeatedly below {size_text(position)}, and let neighboring threads read "
    advice += "neighboring elements."
    if l2 is None:
        return context.ok(f"{summary} The driver does not report the size of L2. {advice}")
    agrees = 1 / _MAX_STEP_FACTOR <= position / l2 <= _MAX_STEP_FACTOR
    if not agrees:
        return context.warn(
            f"{summary} The device claims {size_text(l2)} of L2. Check for other processes on this GPU, which share it."
        )
    part = " A GPU with two L2 partitions loses bandwidth before the set fills both." if position < l2 else ""
    return context.ok(f"{summary} The device claims {size_text(l2)} of L2.{part} {advice}")


WORKLOAD = Workload(
    name="hierarchy",
    purpose="Measures bandwidth and latency of registers, shared memory, caches and DRAM, occupancy, and coalescing.",
    needs="A GPU with CUDA, torch 2.9 or later with NVRTC, and 1.8 GiB of GPU memory at the default size.",
    why_not_cpu="hierarchy measures CUDA kernels, which need a GPU.",
    uses=_uses,
    run=_run,
    metrics=(
        DeclaredMetric("load_latency", "ns", LOWER),
        DeclaredMetric("latency", "ns", LOWER),
        DeclaredMetric("latency_clocks", "clocks", LOWER),
        DeclaredMetric("occupancy", "%"),
        DeclaredMetric("l2_step", "MiB"),
        DeclaredMetric("*bandwidth", "GB/s", HIGHER),
    ),
    parameters=(
        integer("size_mebibytes", 512, 32, 4096, "Size of the largest working set.", unit="MiB"),
        integer("repetitions", 5, 1, 100, "Timed launches per measurement; the median is reported."),
    ),
    code=(chase_kernel, read_kernel, shared_read_kernel, strided_kernel, occupied_kernel),
)
