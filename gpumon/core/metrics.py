"""The catalogue of per-device metrics: identity, unit, bounds and source of each.

A metric's ``id`` is its name everywhere: in records, in recordings and in ``--json``. The id ends in the unit, as
Prometheus names do. A value outside the bounds of its metric is not a reading: drivers do return 4294967295 %.

To add a metric, add one entry here and one reader in the collector.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

_TEBIBYTE: Final = 1 << 40
_GIGAHERTZ: Final = 1_000_000_000
_MAX_BYTES_PER_SECOND: Final = 1e14
_MAX_COUNT: Final = 1e9
"""More than any error counter reaches, and less than 4294967295, which drivers return for an unknown value."""


class Unit(Enum):
    """The unit of a metric's values."""

    BYTES = "B"
    BYTES_PER_SECOND = "B/s"
    PERCENT = "%"
    CELSIUS = "°C"
    WATTS = "W"
    JOULES = "J"
    HERTZ = "Hz"
    BITS = "bit"
    PERFORMANCE_STATE = "P"
    COUNT = "#"
    """A number of events or of items; written without a unit."""
    NONE = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number that a device can report.

    Attributes:
        id: Public name, with the unit at its end.
        label: Short human-readable name.
        unit: Unit of the value.
        minimum: Lowest valid value.
        maximum: Highest valid value.
        source: The NVML call that returns the value.
        help: What the number means, in one sentence.
    """

    id: str
    label: str
    unit: Unit
    minimum: float
    maximum: float
    source: str
    help: str

    def admits(self, value: float) -> bool:
        """Whether ``value`` is within the bounds."""
        return self.minimum <= value <= self.maximum


def _activity(metric_id: str, label: str, meaning: str) -> Metric:
    return Metric(metric_id, label, Unit.PERCENT, 0, 100, "nvmlGpmMetricsGet", meaning)


def _rate(metric_id: str, label: str, meaning: str) -> Metric:
    return Metric(metric_id, label, Unit.BYTES_PER_SECOND, 0, _MAX_BYTES_PER_SECOND, "nvmlGpmMetricsGet", meaning)


_SAMPLED: Final = (
    Metric(
        "memory_total_bytes", "Memory total", Unit.BYTES, 1, 64 * _TEBIBYTE, "nvmlDeviceGetMemoryInfo_v2",
        "Installed device memory, including the part that the driver reserves.",
    ),
    Metric(
        "memory_used_bytes", "Memory used", Unit.BYTES, 0, 64 * _TEBIBYTE, "nvmlDeviceGetMemoryInfo_v2",
        "Device memory held by processes; memory reserved by the driver is not included.",
    ),
    Metric(
        "memory_reserved_bytes", "Memory driver-reserved", Unit.BYTES, 0, 64 * _TEBIBYTE, "nvmlDeviceGetMemoryInfo_v2",
        "Device memory reserved by the driver and the firmware.",
    ),
    Metric(
        "memory_free_bytes", "Memory free", Unit.BYTES, 0, 64 * _TEBIBYTE, "nvmlDeviceGetMemoryInfo_v2",
        "Device memory available for allocation.",
    ),
    Metric(
        "memory_unattributed_bytes", "Memory unattributed", Unit.BYTES, 0, 64 * _TEBIBYTE, "used minus processes",
        "Used memory that no visible process owns: an exiting process, another container, or driver bookkeeping.",
    ),
    Metric(
        "utilization_gpu_percent", "GPU utilization", Unit.PERCENT, 0, 100, "nvmlDeviceGetUtilizationRates",
        "Share of the last sample period in which at least one kernel or copy ran; not the share of the GPU in use.",
    ),
    Metric(
        "utilization_memory_percent", "Memory-controller utilization", Unit.PERCENT, 0, 100,
        "nvmlDeviceGetUtilizationRates",
        "Share of the last sample period in which device memory was read or written.",
    ),
    Metric(
        "temperature_celsius", "Temperature", Unit.CELSIUS, -40, 150, "nvmlDeviceGetTemperatureV",
        "Temperature of the GPU core.",
    ),
    Metric(
        "temperature_slowdown_celsius", "Slowdown threshold", Unit.CELSIUS, 1, 200,
        "nvmlDeviceGetTemperatureThreshold",
        "Core temperature at which the GPU lowers its clocks.",
    ),
    Metric(
        "temperature_shutdown_celsius", "Shutdown threshold", Unit.CELSIUS, 1, 200,
        "nvmlDeviceGetTemperatureThreshold",
        "Core temperature at which the GPU turns itself off to avoid damage.",
    ),
    Metric(
        "power_watts", "Power", Unit.WATTS, 0, 5000, "nvmlDeviceGetPowerUsage",
        "Power drawn by the board, averaged by the driver.",
    ),
    Metric(
        "power_limit_watts", "Power limit", Unit.WATTS, 1, 5000, "nvmlDeviceGetEnforcedPowerLimit",
        "The power limit in force.",
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
        "clock_video_hertz", "Video clock", Unit.HERTZ, 0, 10 * _GIGAHERTZ, "nvmlDeviceGetClockInfo",
        "Clock of the video encoders and decoders.",
    ),
    Metric(
        "clock_video_max_hertz", "Video clock maximum", Unit.HERTZ, 1, 10 * _GIGAHERTZ, "nvmlDeviceGetMaxClockInfo",
        "Highest clock of the video encoders and decoders.",
    ),
    Metric(
        "performance_state", "Performance state", Unit.PERFORMANCE_STATE, 0, 15, "nvmlDeviceGetPerformanceState",
        "P0 is the fastest state, P15 the slowest.",
    ),
    Metric(
        "pcie_generation", "PCIe generation", Unit.NONE, 1, 10, "nvmlDeviceGetCurrPcieLinkGeneration",
        "Current PCIe generation of the link; an idle link may run below its maximum.",
    ),
    Metric(
        "pcie_generation_max", "PCIe generation maximum", Unit.NONE, 1, 10, "nvmlDeviceGetMaxPcieLinkGeneration",
        "Highest PCIe generation that both the GPU and the slot support.",
    ),
    Metric(
        "pcie_width", "PCIe width", Unit.NONE, 1, 64, "nvmlDeviceGetCurrPcieLinkWidth",
        "Number of PCIe lanes in use.",
    ),
    Metric(
        "pcie_width_max", "PCIe width maximum", Unit.NONE, 1, 64, "nvmlDeviceGetMaxPcieLinkWidth",
        "Highest number of PCIe lanes that both the GPU and the slot support.",
    ),
)  # fmt: skip
"""Read at every frame, or once if it never changes."""

_ECC: Final = tuple(
    Metric(
        f"ecc_{kind}_{span}_count", f"ECC {kind}, {span}", Unit.COUNT, 0, _MAX_COUNT, "nvmlDeviceGetFieldValues",
        f"Memory errors that ECC {what} since {since}.",
    )
    for kind, what in (("corrected", "corrected"), ("uncorrected", "detected but could not correct"))
    for span, since in (("volatile", "the driver was loaded"), ("aggregate", "the GPU was manufactured"))
)  # fmt: skip

_SLOW: Final = (
    Metric(
        "power_instant_watts", "Power, instantaneous", Unit.WATTS, 0, 5000, "nvmlDeviceGetFieldValues",
        "Power drawn by the board at one moment, not averaged; read every 10 seconds.",
    ),
    Metric(
        "temperature_memory_celsius", "Memory temperature", Unit.CELSIUS, -40, 150, "nvmlDeviceGetFieldValues",
        "Temperature of the device memory.",
    ),
    Metric(
        "fan_percent", "Fan", Unit.PERCENT, 0, 200, "nvmlDeviceGetFanSpeed",
        "Target speed of the fan; more than 100 is overdrive.",
    ),
    Metric(
        "utilization_encoder_percent", "Video encoder utilization", Unit.PERCENT, 0, 100,
        "nvmlDeviceGetEncoderUtilization",
        "Share of the last sample period in which the video encoders were active.",
    ),
    Metric(
        "utilization_decoder_percent", "Video decoder utilization", Unit.PERCENT, 0, 100,
        "nvmlDeviceGetDecoderUtilization",
        "Share of the last sample period in which the video decoders were active.",
    ),
    Metric(
        "bar1_total_bytes", "BAR1 total", Unit.BYTES, 1, 64 * _TEBIBYTE, "nvmlDeviceGetBAR1MemoryInfo",
        "Window through which the host and other devices access device memory directly.",
    ),
    Metric(
        "bar1_used_bytes", "BAR1 used", Unit.BYTES, 0, 64 * _TEBIBYTE, "nvmlDeviceGetBAR1MemoryInfo",
        "Mapped part of the BAR1 window.",
    ),
    *_ECC,
    Metric(
        "remapped_rows_correctable_count", "Rows remapped, correctable", Unit.COUNT, 0, _MAX_COUNT,
        "nvmlDeviceGetRemappedRows",
        "Memory rows remapped because of errors that ECC corrected.",
    ),
    Metric(
        "remapped_rows_uncorrectable_count", "Rows remapped, uncorrectable", Unit.COUNT, 0, _MAX_COUNT,
        "nvmlDeviceGetRemappedRows",
        "Memory rows remapped because of errors that ECC could not correct.",
    ),
    Metric(
        "remapped_rows_pending", "Row remapping pending", Unit.NONE, 0, 1, "nvmlDeviceGetRemappedRows",
        "1 when a row is waiting to be remapped; the next GPU reset remaps it.",
    ),
    Metric(
        "remapped_rows_failure", "Row remapping failed", Unit.NONE, 0, 1, "nvmlDeviceGetRemappedRows",
        "1 when a row could not be remapped: replace the board.",
    ),
    Metric(
        "retired_pages_corrected_count", "Pages retired, corrected errors", Unit.COUNT, 0, _MAX_COUNT,
        "nvmlDeviceGetFieldValues",
        "Memory pages that are no longer used because ECC corrected several errors in them; GPUs before Ampere only.",
    ),
    Metric(
        "retired_pages_uncorrected_count", "Pages retired, uncorrected errors", Unit.COUNT, 0, _MAX_COUNT,
        "nvmlDeviceGetFieldValues",
        "Memory pages that are no longer used because of an error that ECC could not correct; before Ampere only.",
    ),
    Metric(
        "retired_pages_pending", "Page retirement pending", Unit.NONE, 0, 1, "nvmlDeviceGetFieldValues",
        "1 when a page is waiting to be retired; the next restart of the driver retires it.",
    ),
    Metric(
        "pcie_replay_count", "PCIe replays", Unit.COUNT, 0, _MAX_COUNT, "nvmlDeviceGetPcieReplayCounter",
        "PCIe packets that were sent again; a rising number indicates a bad link.",
    ),
    Metric(
        "nvlink_links_count", "NVLink links up", Unit.COUNT, 0, 64, "nvmlDeviceGetFieldValues",
        "NVLink links that report a speed.",
    ),
    Metric(
        "nvlink_bytes_per_second", "NVLink rate", Unit.BYTES_PER_SECOND, 0, _MAX_BYTES_PER_SECOND,
        "nvmlDeviceGetFieldValues",
        "Combined speed in one direction of all NVLink links that are up.",
    ),
    Metric(
        "memory_bus_width_bits", "Memory bus width", Unit.BITS, 1, 1 << 20, "nvmlDeviceGetMemoryBusWidth",
        "Width of the device memory bus.",
    ),
)  # fmt: skip
"""Condition and hardware of a device: values that change rarely and are read rarely."""

ON_DEMAND_METRICS: Final = (
    _activity(
        "sm_activity_percent", "SM activity",
        "Share of the streaming multiprocessors that had at least one warp, averaged between two samples.",
    ),
    _activity(
        "sm_occupancy_percent", "SM occupancy", "Resident warps as a share of the maximum that the GPU supports."
    ),
    _activity(
        "tensor_activity_percent", "Tensor activity", "Share of time in which the tensor cores were active."
    ),
    _activity("dram_activity_percent", "DRAM activity", "Share of the device memory bandwidth in use."),
    _activity("fp64_activity_percent", "FP64 activity", "Share of time in which the FP64 pipes were active."),
    _activity("fp32_activity_percent", "FP32 activity", "Share of time in which the FP32 pipes were active."),
    _activity("fp16_activity_percent", "FP16 activity", "Share of time in which the FP16 pipes were active."),
    _rate(
        "pcie_transmit_bytes_per_second", "PCIe transmit",
        "Data that the GPU sent over PCIe; before Hopper, measured during 20 ms every two seconds.",
    ),
    _rate(
        "pcie_receive_bytes_per_second", "PCIe receive",
        "Data that the GPU received over PCIe; before Hopper, measured during 20 ms every two seconds.",
    ),
    _rate("nvlink_transmit_bytes_per_second", "NVLink transmit", "Data that the GPU sent over all NVLink links."),
    _rate("nvlink_receive_bytes_per_second", "NVLink receive", "Data that the GPU received over all NVLink links."),
    Metric(
        "energy_joules", "Energy", Unit.JOULES, 0, 1e12, "nvmlDeviceGetTotalEnergyConsumption",
        "Energy drawn by the board since gpumon started; updated while a screen shows the GPU.",
    ),
)  # fmt: skip
"""Read only while a screen shows the device, since reading these holds the driver's lock; SM activity is also sampled
now and then on a busy device."""

METRICS: Final[dict[str, Metric]] = {metric.id: metric for metric in (*_SAMPLED, *_SLOW, *ON_DEMAND_METRICS)}


def unknown_metric_text(name: str) -> str:
    """That there is no such metric, with the closest names."""
    from difflib import get_close_matches  # late: few programs misspell a metric

    matches = get_close_matches(name, METRICS, n=3, cutoff=0.5)
    return f"There is no metric {name!r}." + (f" Did you mean {', '.join(matches)}?" if matches else "")
