"""One frame as the JSON document of ``gpumon status --json``."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from gpumon.core.frames import to_document
from gpumon.core.metrics import METRICS
from gpumon.core.model import Device, Frame
from gpumon.health.alerts import DEFAULT_THRESHOLDS, Alert, Thresholds, check
from gpumon.operations.memory_document import torch_document
from gpumon.operations.torch_processes import owners_of
from gpumon.probe.messages import Probe

_NO_PROBES: Final[Mapping[int, Probe]] = MappingProxyType({})


def status_document(
    frame: Frame, thresholds: Thresholds = DEFAULT_THRESHOLDS, probes: Mapping[int, Probe] = _NO_PROBES
) -> dict[str, Any]:
    """Return the document of the frame codec, with alerts and with the PyTorch memory that probes report.

    Alerts that need a history, such as a counter that increases, are not part of it.
    """
    document = to_document(frame)
    alerts = check(frame, thresholds)
    for device, entry in zip(frame.devices, document["devices"], strict=True):
        entry["alerts"] = [alert_document(alert) for alert in alerts if alert.device_key == device.key]
        _add_torch(device, entry, probes, frame.monotonic_seconds)
    document["alerts"] = [alert_document(alert) for alert in alerts if alert.device_key is None]
    return document


def _add_torch(device: Device, entry: dict[str, Any], probes: Mapping[int, Probe], now: float) -> None:
    """Add the statistics of PyTorch's allocator to the entry of each process that has a probe."""
    if not probes or device.processes is None:
        return
    processes = {process["pid"]: process for process in entry["processes"]}
    for owner in owners_of(device, probes).owners:
        if owner.probe is not None and owner.process is not None:
            processes[owner.process.pid]["torch"] = torch_document(owner.probe, owner.statistics, now)


CSV_COLUMNS: Final = ("time_seconds", "index", "uuid", "name", "state", *METRICS)
"""The columns of `csv_row`."""


def csv_row(frame: Frame, device: Device) -> tuple[object, ...]:
    """Every value of a device, None for one that is missing, in the columns of `CSV_COLUMNS`."""
    values = (device.get(metric) for metric in METRICS)
    return (f"{frame.time_seconds:.3f}", device.label, device.uuid, device.name, device.state.value, *values)


def alert_document(alert: Alert) -> dict[str, Any]:
    """An alert as JSON has it."""
    return {
        "id": alert.id,
        "severity": alert.severity.value,
        "since_seconds": round(alert.since_seconds, 3),
        "detail": alert.detail,
        "action": alert.action,
    }
