"""What stands in place of a figure that is missing."""

from gpumon.core.model import Device
from gpumon.core.problems import ProblemCode
from gpumon.core.units import MISSING, UNTRUE


def missing_text(device: Device, name: str) -> str:
    """A dash, or for an answer of the driver that cannot be true a question mark.

    Args:
        device: The device that lacks it.
        name: A metric or a field.
    """
    problem = device.problems.get(name)
    return UNTRUE if problem is not None and problem.code is ProblemCode.INVALID_VALUE else MISSING
