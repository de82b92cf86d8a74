"""Whether frames come, and whether every value is there or says why not."""

from typing import Final

from gpumon.core.metrics import METRICS
from gpumon.core.model import DeviceState
from gpumon.diagnosis.checks import FailedError
from gpumon.ui.selftest.walk import Walk

_FIRST_FRAMES_SECONDS: Final = 15.0
_TWO_READINGS: Final = 2


async def frames(walk: Walk) -> str:
    """Two readings come, and the driver answers."""
    seen: set[float] = set()

    def has_come() -> bool:
        if walk.app.store.frame is not None:
            seen.add(walk.app.store.frame.monotonic_seconds)
        return len(seen) >= _TWO_READINGS

    await walk.wait(has_come, _FIRST_FRAMES_SECONDS)
    if not seen:
        raise FailedError(str(walk.stream.problem or "no frame came"))
    problem = walk.frame.problems.get("driver")
    if problem is not None:
        raise FailedError(str(problem))
    return f"{len(walk.frame.gpus)} GPUs, driver {walk.frame.driver_version}"


async def values(walk: Walk) -> str:
    """Every value is there or has a reason why not, and at least one of each GPU is there."""
    answering = [device for device in walk.frame.devices if device.state is DeviceState.OK]
    for device in answering:
        unexplained = [name for name in METRICS if name not in device.readings and name not in device.problems]
        if unexplained:
            raise FailedError(f"GPU {device.label} lacks {', '.join(unexplained)} without a reason")
        if not device.readings:
            raise FailedError(f"GPU {device.label} answers, but has no values")
    count = sum(len(device.readings) for device in answering)
    return f"{count} of {len(METRICS) * len(answering)} values, every other with its reason"
