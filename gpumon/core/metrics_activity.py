"""Metrics that are read only while somebody looks at their device, since reading them costs the driver's lock.

SM activity is read of a busy device now and then besides.
"""

from typing import Final

from gpumon.core.metric import Metric, Unit

BUSY_PERCENT: Final = 90.0
"""From this utilization on a device is asked now and then whether anything computes on it."""
NO_WORK_PERCENT: Final = 1.0
"""Below this SM activity nothing computes: copies alone make a device look busy."""

_FASTEST: Final = 1e14


def _activity(name: str, label: str, meaning: str) -> Metric:
    return Metric(name, label, Unit.PERCENT, 0, 100, "nvmlGpmMetricsGet", meaning)


def _rate(name: str, label: str, meaning: str) -> Metric:
    return Metric(name, label, Unit.BYTES_PER_SECOND, 0, _FASTEST, "nvmlGpmMetricsGet", meaning)


ACTIVITY: Final = (
    _activity(
        "sm_activity_percent", "SM activity",
        "Share of the streaming multiprocessors that had work, averaged over the time between two looks.",
    ),
    _activity(
        "sm_occupancy_percent", "SM occupancy", "Warps that were resident, as a share of those that the chip can hold."
    ),
    _activity(
        "tensor_activity_percent", "Tensor activity", "Share of the time in which the tensor cores worked, all of them."
    ),
    _activity(
        "dram_activity_percent", "DRAM activity", "Share of the device memory's bandwidth that was used."
    ),
    _activity("fp64_activity_percent", "FP64 activity", "Share of the time in which the FP64 pipes worked."),
    _activity("fp32_activity_percent", "FP32 activity", "Share of the time in which the FP32 pipes worked."),
    _activity("fp16_activity_percent", "FP16 activity", "Share of the time in which the FP16 pipes worked."),
    _rate("pcie_transmit_bytes_per_second", "PCIe transmit", "What the GPU sent over PCIe."),
    _rate("pcie_receive_bytes_per_second", "PCIe receive", "What the GPU received over PCIe."),
    _rate("nvlink_transmit_bytes_per_second", "NVLink transmit", "What the GPU sent over all NVLink links."),
    _rate("nvlink_receive_bytes_per_second", "NVLink receive", "What the GPU received over all NVLink links."),
    Metric(
        "energy_joules", "Energy", Unit.JOULES, 0, 1e12, "nvmlDeviceGetTotalEnergyConsumption",
        "Energy that the board has drawn since somebody first looked at it.",
    ),
)  # fmt: skip
"""Activity of a device, seen closely."""
