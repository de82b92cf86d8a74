"""What a chip can do at most: arithmetic by compute capability and clock, memory by bus and clock.

Rates are floating-point (or integer) operations a clock a streaming multiprocessor, dense, a fused multiply-add counted
as two; with tensor cores where the chip has them for that type, and with 32-bit accumulation for the 16- and 8-bit
types, which is what torch's matmul asks for. Sources: NVIDIA's datasheets divided by SM count and clock, and the tables
of arithmetic throughput in the CUDA programming guide.
"""

from __future__ import annotations

from typing import Optional

from _kit.chip import Chip

_GEFORCE_HALVES = frozenset({"tf32", "fp16", "bf16", "fp8"})
"""Types whose tensor rate GeForce chips halve when they accumulate in 32 bits."""

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
    """Operations a clock of the whole chip in ``dtype``, or None where that is not known.

    Args:
        chip: The chip.
        dtype: ``fp64``, ``fp32``, ``tf32``, ``fp16``, ``bf16``, ``fp8`` or ``int8``.
    """
    rate = _RATES.get(chip.capability, {}).get(dtype)
    if rate is None:
        return None
    if "GeForce" in chip.name and dtype in _GEFORCE_HALVES and chip.capability[0] in (7, 8, 12):
        rate //= 2
    return rate * chip.sm_count


def peak_operations(chip: Chip, dtype: str) -> Optional[float]:
    """Operations a second at the chip's highest clock, or None where that is not known."""
    per_clock = operations_per_clock(chip, dtype)
    return None if per_clock is None or chip.clock_hertz is None else per_clock * chip.clock_hertz


def peak_memory_bytes(chip: Chip) -> Optional[float]:
    """Bytes a second between the chip and its memory, both directions together, or None where that is not known."""
    if chip.memory_clock_hertz is None or chip.memory_bus_bits is None:
        return None
    return 2 * chip.memory_clock_hertz * chip.memory_bus_bits / 8
