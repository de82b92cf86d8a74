"""The catalogue of per-device metrics.

A metric's ``id`` is its name everywhere: in records, in recordings and in ``--json``. It ends in its unit, as
Prometheus names do. A reading outside its metric's bounds is not a reading: drivers do answer 4294967295 %.
"""

from typing import Final

from gpumon.core.metric import Metric, Unit
from gpumon.core.metrics_activity import ACTIVITY
from gpumon.core.metrics_condition import CONDITION

__all__ = ["METRICS", "Metric", "Unit"]

_TEBIBYTE: Final = 1 << 40
_GIGAHERTZ: Final = 1_000_000_000

_MAIN: Final = (
    Metric(
        "memory_total_bytes", "Memory total", Unit.BYTES, 1, 64 * _TEBIBYTE, "nvmlDeviceGetMemoryInfo_v2",
        "Device memory installed, the driver's own share included.",
    ),
    Metric(
        "memory_used_bytes", "Memory used", Unit.BYTES, 0, 64 * _TEBIBYTE, "nvmlDeviceGetMemoryInfo_v2",
        "Device memory that processes hold; the driver's own share is not in it.",
    ),
    Metric(
        "memory_reserved_bytes", "Memory driver-reserved", Unit.BYTES, 0, 64 * _TEBIBYTE, "nvmlDeviceGetMemoryInfo_v2",
        "Device memory that the driver and the firmware keep for themselves.",
    ),
    Metric(
        "memory_free_bytes", "Memory free", Unit.BYTES, 0, 64 * _TEBIBYTE, "nvmlDeviceGetMemoryInfo_v2",
        "Device memory that can still be allocated.",
    ),
    Metric(
        "memory_unattributed_bytes", "Memory unattributed", Unit.BYTES, 0, 64 * _TEBIBYTE, "used minus processes",
        "Memory in use that no visible process owns: a dying process, another container, or bookkeeping.",
    ),
    Metric(
        "utilization_gpu_percent", "GPU utilization", Unit.PERCENT, 0, 100, "nvmlDeviceGetUtilizationRates",
        "Share of the last sample period in which at least one kernel or copy ran; not how much of the chip worked.",
    ),
    Metric(
        "utilization_memory_percent", "Memory-controller utilization", Unit.PERCENT, 0, 100,
        "nvmlDeviceGetUtilizationRates",
        "Share of the last sample period in which device memory was read or written.",
    ),
    Metric(
        "temperature_celsius", "Temperature", Unit.CELSIUS, -40, 150, "nvmlDeviceGetTemperatureV",
        "Temperature of the GPU core.", warning=80, critical=90,
    ),
    Metric(
        "temperature_slowdown_celsius", "Slowdown threshold", Unit.CELSIUS, 1, 200,
        "nvmlDeviceGetTemperatureThreshold",
        "Core temperature at which the chip slows itself down.",
    ),
    Metric(
        "power_watts", "Power", Unit.WATTS, 0, 5000, "nvmlDeviceGetPowerUsage",
        "Power drawn by the board, averaged by the driver.",
    ),
    Metric(
        "power_limit_watts", "Power limit", Unit.WATTS, 1, 5000, "nvmlDeviceGetEnforcedPowerLimit",
        "The power limit in force, whoever set it.",
    ),
    Metric(
        "clock_sm_hertz", "SM clock", Unit.HERTZ, 0, 10 * _GIGAHERTZ, "nvmlDeviceGetClockInfo",
        "Clock of the streaming multiprocessors.",
    ),
    Metric(
        "clock_sm_max_hertz", "SM clock maximum", Unit.HERTZ, 1, 10 * _GIGAHERTZ, "nvmlDeviceGetMaxClockInfo",
        "Highest clock of the streaming multiprocessors.",
    ),
    Metric(
        "clock_memory_hertz", "Memory clock", Unit.HERTZ, 0, 50 * _GIGAHERTZ, "nvmlDeviceGetClockInfo",
        "Clock of the device memory.",
    ),
    Metric(
        "clock_memory_max_hertz", "Memory clock maximum", Unit.HERTZ, 1, 50 * _GIGAHERTZ, "nvmlDeviceGetMaxClockInfo",
        "Highest clock of the device memory.",
    ),
    Metric(
        "performance_state", "Performance state", Unit.PERFORMANCE_STATE, 0, 15, "nvmlDeviceGetPerformanceState",
        "P0 is the fastest state, P15 the slowest.",
    ),
    Metric(
        "pcie_generation", "PCIe generation", Unit.NONE, 1, 10, "nvmlDeviceGetCurrPcieLinkGeneration",
        "PCIe generation of the link now; an idle link may run slower than it can.",
    ),
    Metric(
        "pcie_generation_max", "PCIe generation maximum", Unit.NONE, 1, 10, "nvmlDeviceGetMaxPcieLinkGeneration",
        "Fastest PCIe generation that this GPU and this slot have in common.",
    ),
    Metric(
        "pcie_width", "PCIe width", Unit.NONE, 1, 64, "nvmlDeviceGetCurrPcieLinkWidth",
        "Number of PCIe lanes in use now.",
    ),
    Metric(
        "pcie_width_max", "PCIe width maximum", Unit.NONE, 1, 64, "nvmlDeviceGetMaxPcieLinkWidth",
        "Most PCIe lanes that this GPU and this slot have in common.",
    ),
)  # fmt: skip

METRICS: Final[dict[str, Metric]] = {metric.id: metric for metric in (*_MAIN, *CONDITION, *ACTIVITY)}
