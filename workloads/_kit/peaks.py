"""Peak rates of a GPU: arithmetic by compute capability and clock, memory by bus width and clock.

Rates are dense floating-point (or integer) operations per clock and streaming multiprocessor; a fused multiply-add
counts as two. They include tensor cores where the GPU has them for the type, with 32-bit accumulation for 16- and
8-bit types, as torch.matmul uses. Sources: NVIDIA's datasheets divided by SM count and clock, and the arithmetic
throughput tables in the CUDA programming guide.
"""

from __future__ import annotations

from typing import Optional

from _kit.chip import Chip

_GEFORCE_HALVES = frozenset({"tf32", "fp16", "bf16", "fp8"})
"""Types whose tensor rate is half on GeForce GPUs with 32-bit accumulation."""

_RATES: dict[tuple[int, int], dict[str, int]] = {
    (7, 0): {"fp64": 64, "fp32": 128, "fp16": 1024},
    (7, 5): {"fp64": 4, "fp32": 128, "fp16": 1024, "int8": 2048},
    (8, 0): {"fp64": 128, "fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    (8, 6): {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    (8, 9): {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
    (9, 0): {"fp64": 256, "fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
    (10, 0): {"fp64": 128, "fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "int8": 16384},
    (12, 0): {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
}


def operations_per_clock(chip: Chip, dtype: str) -> Optional[int]:
    """Returns the operations per clock of the GPU in ``dtype``, or None if unknown.

    Args:
        chip: The GPU.
        dtype: ``fp64``, ``fp32``, ``tf32``, ``fp16``, ``bf16``, ``fp8`` or ``int8``.
    """
    rate = _RATES.get(chip.capability, {}).get(dtype)
    if rate is None:
        return None
    if "GeForce" in chip.name and dtype in _GEFORCE_HALVES and chip.capability[0] in (7, 8, 12):
        rate //= 2
    return rate * chip.sm_count


def peak_operations(chip: Chip, dtype: str) -> Optional[float]:
    """Returns the operations per second at the maximum SM clock, or None if unknown."""
    per_clock = operations_per_clock(chip, dtype)
    return None if per_clock is None or chip.clock_hertz is None else per_clock * chip.clock_hertz


def peak_memory_bytes(chip: Chip) -> Optional[float]:
    """Returns the peak device memory bandwidth in bytes per second, reads and writes together, or None if unknown."""
    if chip.memory_clock_hertz is None or chip.memory_bus_bits is None:
        return None
    return 2 * chip.memory_clock_hertz * chip.memory_bus_bits / 8
