"""The rule for what a GPU does while it is busy."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.device_use import is_busy
from gpumon.core.model import Device
from gpumon.core.units import rate_text
from gpumon.health.alerts.model import AlertFinding, Severity, evidence_of
from gpumon.health.alerts.rule import BUSY_MARGIN, AlertRule, Thresholds
from gpumon.health.alerts.tracking import DeviceTracker

_MIN_COPY_BYTES_PER_SECOND: Final = 1e9
"""Kernels alone cause less traffic than this."""
_TRAFFIC: Final = {
    "PCIe": ("pcie_transmit_bytes_per_second", "pcie_receive_bytes_per_second"),
    "NVLink": ("nvlink_transmit_bytes_per_second", "nvlink_receive_bytes_per_second"),
}
_EVIDENCE: Final = (
    "utilization_gpu_percent", "sm_activity_percent", "utilization_memory_percent", "dram_activity_percent",
    "power_watts", *(metric for metrics in _TRAFFIC.values() for metric in metrics),
)  # fmt: skip


def has_no_sm_work(device: Device, thresholds: Thresholds) -> bool:
    """Whether a device is busy while its streaming multiprocessors have no work, as when it only copies.

    Decides the alert and the state on the overview.
    """
    activity = device.get("sm_activity_percent")
    return is_busy(device, thresholds.busy_percent) and activity is not None and activity <= thresholds.sm_idle_percent


def _busy_without_sm(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Utilization without SM work: copies count as utilization too."""
    if not has_no_sm_work(device, thresholds):
        return
    traffic = _traffic_text(device)
    reason = f"It copies over {traffic}." if traffic else "It copies, or a kernel is stuck or far too small."
    detail = (
        f"GPU {device.index} is {device.get('utilization_gpu_percent'):.0f} % busy, but its SMs have work for "
        f"{device.get('sm_activity_percent'):.0f} % of the time. {reason}"
    )
    action = (
        "Overlap copies with computation (pinned memory, non_blocking=True, more DataLoader workers). If there are no "
        "copies, see where the process is: py-spy dump --pid PID."
    )
    evidence = evidence_of(device, *_EVIDENCE)
    yield AlertFinding("busy_without_sm", Severity.INFO, detail, action, evidence, "", thresholds.sm_idle_seconds)


def _traffic_text(device: Device) -> str:
    """The link that carries the copies and its rate; empty where no traffic is seen or none is read."""
    for name, metrics in _TRAFFIC.items():
        rate = sum(device.get(metric) or 0.0 for metric in metrics)
        if rate >= _MIN_COPY_BYTES_PER_SECOND:
            return f"{name} at {rate_text(rate)}"
    return ""


ACTIVITY_RULES: Final = (
    AlertRule(
        "Busy without SM work",
        _busy_without_sm,
        {"busy_without_sm": "are busy, but their SMs have no work"},
        ("sm_activity_percent",),
        clear_seconds=5.0,
        margins={**BUSY_MARGIN, "sm_idle_percent": 2.0},
        applies=lambda device, thresholds: is_busy(device, thresholds.busy_percent),
    ),
)
"""The rule applies to busy devices only: SM activity is read only while a device is busy or is shown."""
