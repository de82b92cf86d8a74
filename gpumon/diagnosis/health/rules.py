"""All rules, and what they find at one moment."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem
from gpumon.diagnosis.health.activity import ACTIVITY_RULES
from gpumon.diagnosis.health.alert import Alert, Finding, alert_of
from gpumon.diagnosis.health.errors import ERROR_RULES, XID_RULES
from gpumon.diagnosis.health.heat import HEAT_RULES
from gpumon.diagnosis.health.links import LINK_RULES
from gpumon.diagnosis.health.memory import MEMORY_RULES
from gpumon.diagnosis.health.past import Past
from gpumon.diagnosis.health.rule import Rule
from gpumon.diagnosis.health.state import STATE_RULES, machine_findings
from gpumon.diagnosis.health.thresholds import DEFAULTS, Thresholds

_ALWAYS: Final = (*STATE_RULES, *XID_RULES)
"""Those that need no readings."""
_OF_READINGS: Final = (*HEAT_RULES, *MEMORY_RULES, *LINK_RULES, *ERROR_RULES, *ACTIVITY_RULES)
RULES: Final = (*_ALWAYS, *_OF_READINGS)


class Unchecked(NamedTuple):
    """A rule that cannot tell on some devices.

    Attributes:
        rule: The rule.
        indices: NVML's indices of the devices.
        why: Why, of the first of them.
    """

    rule: Rule
    indices: tuple[int, ...]
    why: str


def check(frame: Frame, limits: Thresholds = DEFAULTS) -> list[Alert]:
    """Everything that is wrong in one frame, worst first; what takes time to see is not among it.

    ``since_seconds`` is the frame's own time.
    """
    found = [alert_of(finding, None, frame.time_seconds) for finding in machine_findings(frame)]
    if "driver" not in frame.problems:
        pasts = remember({}, frame)
        for device in frame.gpus:
            found += [
                alert_of(finding, device, frame.time_seconds)
                for _, finding in device_findings(
                    device, pasts[device.key], limits, has_readings=device.state is DeviceState.OK
                )
                if not finding.after_seconds
            ]
    return worst_first(found)


def device_findings(
    device: Device, past: Past, limits: Thresholds, *, has_readings: bool
) -> Iterator[tuple[Rule, Finding]]:
    """What the rules find on a device; of one without readings of this moment, only what needs none."""
    for rule in RULES if has_readings else _ALWAYS:
        for finding in rule.check(device, past, limits):
            yield rule, finding


def remember(pasts: dict[str, Past], frame: Frame) -> dict[str, Past]:
    """Takes a frame into what is remembered of the devices, and returns that."""
    now = frame.monotonic_seconds
    most: dict[str | None, float] = {}
    for device in frame.devices:
        past = pasts.get(device.key)
        if past is None:
            past = pasts[device.key] = Past()
        past.now = now
        if frame.events:
            past.take_events(event for event in frame.events if event.device_key == device.key)
        if frame.is_fresh(device):
            past.take(device, now)
        most[device.name] = max(most.get(device.name, 0.0), past.most_nvlinks)
    for device in frame.devices:
        pasts[device.key].most_nvlinks_alike = most[device.name]
    return pasts


def worst_first(alerts: Sequence[Alert]) -> list[Alert]:
    """The alerts by severity, those of one severity in the order in which they come."""
    return sorted(alerts, key=lambda alert: alert.severity.rank)


def unchecked(frame: Frame, limits: Thresholds = DEFAULTS) -> Iterator[Unchecked]:
    """The rules that lack readings on devices that answer, and why."""
    answering = [device for device in frame.gpus if device.state is DeviceState.OK]
    for rule in RULES:
        lacking = [(device, name) for device in answering if (name := rule.missing(device, limits)) is not None]
        if lacking:
            device, name = lacking[0]
            yield Unchecked(rule, tuple(each.index for each, _ in lacking), _why(device.problems.get(name), name))


def _why(problem: Problem | None, name: str) -> str:
    return f"{name} is not read." if problem is None else problem.reason
