"""One look at this machine: a frame in which every figure that takes two readings has had them."""

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.frames import to_document
from gpumon.core.model import Device, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.diagnosis.health import DEFAULTS, Alert, Thresholds, check
from gpumon.operations.memory_document import torch_document
from gpumon.operations.probed import owners_of
from gpumon.probe.news import Probe
from gpumon.streams.base import Stream
from gpumon.streams.live import LiveStream

_INTERVAL: Final = 0.25
_WHOLE_FRAMES: Final = 2
_PATIENCE_SECONDS: Final = 10.0
_NO_PROBES: Final[Mapping[int, Probe]] = MappingProxyType({})
_SILENT: Final = Problem(
    ProblemCode.COLLECTOR_SILENT, "The collector did not answer.", "Try again; the machine may be overloaded."
)


def look(stream: Stream | None = None, patience: float = _PATIENCE_SECONDS) -> Frame:
    """The state of this machine.

    Host CPU and processes' CPU are differences, so the second frame is taken. When the driver is away there is
    nothing to wait for; when all of it hangs, the patience is used up before that is the answer.

    Raises:
        CommandError: The collector did not bring a single frame in ``patience`` seconds.
    """
    source = stream or LiveStream(_INTERVAL)
    source.start()
    try:
        frame = _second_frame(source, patience)
        if frame is None:
            raise CommandError(source.problem or _SILENT, ExitCode.NOT_THERE)
        return frame
    finally:
        source.close()


def document(
    frame: Frame, thresholds: Thresholds = DEFAULTS, probes: Mapping[int, Probe] = _NO_PROBES
) -> dict[str, Any]:
    """The frame as ``gpumon status --json`` prints it: the codec's document, with alerts and what probes tell.

    What takes time to see, such as a counter that rises, is not among the alerts.
    """
    found = to_document(frame)
    alerts = check(frame, thresholds)
    for device, raw in zip(frame.devices, found["devices"], strict=True):
        raw["alerts"] = [_alert_document(alert) for alert in alerts if alert.device_key == device.key]
        _add_torch(device, raw, probes, frame.monotonic_seconds)
    found["alerts"] = [_alert_document(alert) for alert in alerts if alert.device_key is None]
    return found


def _add_torch(device: Device, raw: dict[str, Any], probes: Mapping[int, Probe], now: float) -> None:
    """Puts what PyTorch's allocator says into the entry of each process that has a probe."""
    if not probes or device.processes is None:
        return
    entries = {entry["pid"]: entry for entry in raw["processes"]}
    for owner in owners_of(device, probes).owners:
        if owner.probe is not None and owner.process is not None:
            entries[owner.process.pid]["torch"] = torch_document(owner.probe, owner.statistics, now)


def _second_frame(source: Stream, patience: float) -> Frame | None:
    deadline = time.monotonic() + patience
    seen = 0
    latest: Frame | None = None
    while (left := deadline - time.monotonic()) > 0 and source.inbox.arrived.wait(left):
        for arrival in source.inbox.drain():
            if isinstance(arrival, Frame):
                latest, seen = arrival, seen + 1
        if latest is not None and _is_whole(latest, seen):
            return latest
    return latest


def _is_whole(frame: Frame, seen: int) -> bool:
    """Whether waiting would bring nothing more; a driver that does not answer yet may only be starting up."""
    problem = frame.problems.get("driver")
    if problem is None:
        return seen >= _WHOLE_FRAMES
    return problem.code is not ProblemCode.UNRESPONSIVE


def _alert_document(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.id,
        "severity": alert.severity.value,
        "since_seconds": round(alert.since_seconds, 3),
        "detail": alert.detail,
        "action": alert.action,
    }
