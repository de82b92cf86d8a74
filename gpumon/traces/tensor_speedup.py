"""How many times faster a matrix product in fp32 becomes on tensor cores in TF32, by its duration and by the GPU.

Measured on H200 (driver 580, torch 2.11) with `python -m tests.gpu.precision_ratios`, for 18 sizes from 256 x 64 to
8192 x 8192: shorter products fill tensor cores less.
"""

from typing import Final, NamedTuple

from gpumon.core.gpu_models import RATES


class Speedup(NamedTuple):
    """The least and the largest ratio of a class of products."""

    least: float
    most: float


_BY_DURATION: Final = (
    (1_000_000, Speedup(6.4, 7.5)),
    (100_000, Speedup(3.6, 6.0)),
    (0, Speedup(1.0, 2.8)),
)
"""From a duration of the product in fp32 on, in nanoseconds."""
_MEASURED_RATIO: Final = 8.0
"""Of the rates of the GPU that was measured."""


def tensor_speedup(compute_capability: str, nanoseconds: int) -> Speedup:
    """The ratio for a product that takes a time in fp32.

    The compute capability is empty if it is unknown.
    """
    rates = RATES.get(compute_capability)
    ratio = _MEASURED_RATIO if rates is None else rates.get("tf32", rates["fp32"]) / rates["fp32"]
    if rates is None or ratio != _MEASURED_RATIO:
        return Speedup(1.0, ratio)
    return next(speedup for least, speedup in _BY_DURATION if nanoseconds >= least)
