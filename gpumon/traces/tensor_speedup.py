"""How many times faster a matrix product in fp32 becomes on tensor cores in TF32, by its duration and by the GPU.

Measured on H200 (driver 580, torch 2.11): products of 8192 x 8192 took 21.7 ms in fp32 (50.6 TFLOP/s) and 2.7 ms in
TF32 (406 TFLOP/s), 8.0 times faster. Shorter products fill tensor cores less. `python -m tests.gpu.precision_ratios`
measures the rows of the table.
"""

import re
from typing import Final, NamedTuple


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
_EIGHT_TIMES: Final = re.compile(r"\b(A100|A800|A30|H100|H200|H800|GH200)\b|\b(A100|H100|H200)[-_]")
"""GPUs whose data sheets have eight times the rate in TF32 that they have in fp32 without tensor cores."""
_OTHER: Final = Speedup(1.0, 2.0)
"""The data sheets of the other ones with TF32 (A10, A40, L4, L40S, GeForce) have the same rate or twice that."""


def tensor_speedup(device: str, nanoseconds: int) -> Speedup:
    """The ratio for a product that takes a time in fp32.

    Args:
        device: The product name of the GPU.
        nanoseconds: Duration of the kernel.
    """
    if not _EIGHT_TIMES.search(device):
        return _OTHER
    return next(speedup for least, speedup in _BY_DURATION if nanoseconds >= least)
