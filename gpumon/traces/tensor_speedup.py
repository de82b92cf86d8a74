"""How many times faster a matrix product in fp32 becomes on tensor cores in TF32, by its duration and by the GPU.

Measured on H200 (driver 580, torch 2.11): products of 8192 x 8192 took 21.7 ms in fp32 (50.6 TFLOP/s) and 2.7 ms in
TF32 (406 TFLOP/s), 8.0 times faster. Shorter products fill tensor cores less. `python -m tests.gpu.precision_ratios`
measures the rows of the table.
"""

from typing import Final, NamedTuple

from gpumon.core.gpu_models import RATES


class Speedup(NamedTuple):
    """The least and the largest ratio of a class of products."""

    least: float
    most: float


_BY_DURATION: Final = (
    (1_000_000, Speedup(6.5, 8.0)),
    (100_000, Speedup(4.0, 8.0)),
    (0, Speedup(2.0, 6.0)),
)
"""From a duration of the product in fp32 on, in nanoseconds. Only the first row is measured; the others are limits."""
_MEASURED_RATIO: Final = 8.0
"""Of the rates of the GPU that was measured."""


def tensor_speedup(compute_capability: str, nanoseconds: int) -> Speedup:
    """The ratio for a product that takes a time in fp32.

    Args:
        compute_capability: That of the GPU; empty if it is unknown.
        nanoseconds: Duration of the kernel.
    """
    rates = RATES.get(compute_capability)
    ratio = _MEASURED_RATIO if rates is None else rates.get("tf32", rates["fp32"]) / rates["fp32"]
    if rates is None or ratio != _MEASURED_RATIO:
        return Speedup(1.0, ratio)
    return next(speedup for least, speedup in _BY_DURATION if nanoseconds >= least)
