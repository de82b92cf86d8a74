"""Rules over what a GPU does while it is busy."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.model import Device
from gpumon.core.units import rate_text
from gpumon.diagnosis.health.alert import Finding, Severity, figures
from gpumon.diagnosis.health.past import Past
from gpumon.diagnosis.health.rule import Rule, is_busy
from gpumon.diagnosis.health.thresholds import Thresholds

_COPYING_BYTES_PER_SECOND: Final = 1e9
"""Traffic that is no by-product of kernels."""
_TRAFFIC: Final = {
    "PCIe": ("pcie_transmit_bytes_per_second", "pcie_receive_bytes_per_second"),
    "NVLink": ("nvlink_transmit_bytes_per_second", "nvlink_receive_bytes_per_second"),
}
_EVIDENCE: Final = (
    "utilization_gpu_percent", "sm_activity_percent", "utilization_memory_percent", "dram_activity_percent",
    "power_watts", *(metric for metrics in _TRAFFIC.values() for metric in metrics),
)  # fmt: skip


def busy_without_sm(device: Device, _: Past, limits: Thresholds) -> Iterator[Finding]:
    """Utilization that is none of the multiprocessors: copies count as well."""
    utilization, active = device.get("utilization_gpu_percent"), device.get("sm_activity_percent")
    if not is_busy(device, limits) or active is None or active > limits.sm_idle_percent:
        return
    copies = _copies(device)
    does = f"it copies over {copies}" if copies else "it copies, or a kernel is stuck or far too small"
    detail = (
        f"GPU {device.index} says that it is {utilization:.0f} % busy, but its multiprocessors have work for "
        f"{active:.0f} % of the time: {does}."
    )
    action = (
        "Copies: overlap them with work (pinned memory, non_blocking=True, more data loader workers). "
        "Else see where its process stands: py-spy dump --pid PID."
    )
    found = figures(device, *_EVIDENCE)
    yield Finding("busy_without_sm", Severity.INFO, detail, action, found, "", limits.sm_idle_seconds)


def _copies(device: Device) -> str:
    """Over what it copies, and how fast; empty where no traffic is seen, or none is read."""
    for name, metrics in _TRAFFIC.items():
        rate = sum(device.get(metric) or 0.0 for metric in metrics)
        if rate >= _COPYING_BYTES_PER_SECOND:
            return f"{name} at {rate_text(rate)}"
    return ""


ACTIVITY_RULES: Final = (
    Rule(
        "Busy without work for its multiprocessors",
        busy_without_sm,
        ("sm_activity_percent",),
        clear_seconds=5.0,
        concerns=is_busy,
    ),
)
"""The counters of the chip are read only of a device that is busy, or is looked at."""
