"""Rules over whether a device answers."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.units import age_text
from gpumon.diagnosis.health.alert import Finding, Severity
from gpumon.diagnosis.health.past import Past
from gpumon.diagnosis.health.rule import Rule
from gpumon.diagnosis.health.thresholds import Thresholds

_XID_ACTION: Final = "Look for an Xid in the kernel log (dmesg | grep -i xid)."
_LOST_ACTION: Final = "Look for an Xid in the kernel log (dmesg | grep -i xid), then reset the GPU or reboot."


def machine_findings(frame: Frame) -> Iterator[Finding]:
    """What is wrong with the driver or the collector as a whole."""
    for subject, problem in frame.problems.items():
        if not hasattr(frame, subject):  # under the name of a field it only says why that is missing
            yield Finding(subject, Severity.CRITICAL, problem.reason, problem.remedy)


def not_answering(device: Device, _: Past, __: Thresholds) -> Iterator[Finding]:
    """A device that cannot be read."""
    subject = f"GPU {device.index}"
    problem = device.problems.get("state")
    reason = "it cannot be read." if problem is None else problem.reason
    remedy = "" if problem is None else problem.remedy
    if device.state is DeviceState.UNRESPONSIVE:
        age = "never read" if device.age_seconds is None else f"its values are {age_text(device.age_seconds)} old"
        action = _XID_ACTION if problem is None else remedy
        yield Finding("gpu_unresponsive", Severity.CRITICAL, f"{subject} does not answer; {age}.", action)
    elif device.state is DeviceState.EXCLUDED:
        yield Finding("gpu_excluded", Severity.WARNING, f"{subject} is excluded: {reason}", remedy)
    elif device.state is DeviceState.LOST:
        yield Finding("gpu_lost", Severity.CRITICAL, f"{subject} is lost: {reason}", remedy or _LOST_ACTION)


STATE_RULES: Final = (Rule("GPU lost, silent or excluded", not_answering, clear_seconds=0.0),)
