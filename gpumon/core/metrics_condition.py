"""Metrics that tell the condition of a device, or what it is made of: they change seldom and are read seldom."""

from typing import Final

from gpumon.core.metric import Metric, Unit

_TEBIBYTE: Final = 1 << 40
_MOST: Final = 1e9
"""More than any counter of errors comes to, and less than 4294967295, which drivers answer for what is not known."""

_ECC: Final = tuple(
    Metric(
        f"ecc_{kind}_{span}_count", f"ECC {kind}, {span}", Unit.COUNT, 0, _MOST, "nvmlDeviceGetFieldValues",
        f"Memory errors that ECC {what} since {since}.",
    )
    for kind, what in (("corrected", "corrected"), ("uncorrected", "found but could not correct"))
    for span, since in (("volatile", "the driver was loaded"), ("aggregate", "the chip was made"))
)  # fmt: skip

CONDITION: Final = (
    Metric(
        "power_instant_watts", "Power, instantaneous", Unit.WATTS, 0, 5000, "nvmlDeviceGetFieldValues",
        "Power drawn by the board at one moment, not averaged; read every ten seconds.",
    ),
    Metric(
        "temperature_memory_celsius", "Memory temperature", Unit.CELSIUS, -40, 150, "nvmlDeviceGetFieldValues",
        "Temperature of the device memory.",
    ),
    Metric(
        "fan_percent", "Fan", Unit.PERCENT, 0, 200, "nvmlDeviceGetFanSpeed",
        "Speed that the fan is told to run at; more than 100 is overdrive.",
    ),
    Metric(
        "utilization_encoder_percent", "Video encoder utilization", Unit.PERCENT, 0, 100,
        "nvmlDeviceGetEncoderUtilization",
        "Share of the last sample period in which the video encoders worked.",
    ),
    Metric(
        "utilization_decoder_percent", "Video decoder utilization", Unit.PERCENT, 0, 100,
        "nvmlDeviceGetDecoderUtilization",
        "Share of the last sample period in which the video decoders worked.",
    ),
    Metric(
        "bar1_total_bytes", "BAR1 total", Unit.BYTES, 1, 64 * _TEBIBYTE, "nvmlDeviceGetBAR1MemoryInfo",
        "Window through which the host and other devices reach device memory directly.",
    ),
    Metric(
        "bar1_used_bytes", "BAR1 used", Unit.BYTES, 0, 64 * _TEBIBYTE, "nvmlDeviceGetBAR1MemoryInfo",
        "Part of the BAR1 window that is mapped.",
    ),
    *_ECC,
    Metric(
        "remapped_rows_correctable_count", "Rows remapped, correctable", Unit.COUNT, 0, _MOST,
        "nvmlDeviceGetRemappedRows",
        "Rows of memory that were replaced because of errors that ECC could correct.",
    ),
    Metric(
        "remapped_rows_uncorrectable_count", "Rows remapped, uncorrectable", Unit.COUNT, 0, _MOST,
        "nvmlDeviceGetRemappedRows",
        "Rows of memory that were replaced because of errors that ECC could not correct.",
    ),
    Metric(
        "remapped_rows_pending", "Row remapping pending", Unit.NONE, 0, 1, "nvmlDeviceGetRemappedRows",
        "1 when a row waits to be replaced, which the next reset of the GPU does.",
    ),
    Metric(
        "remapped_rows_failure", "Row remapping failed", Unit.NONE, 0, 1, "nvmlDeviceGetRemappedRows",
        "1 when a row could not be replaced: the board should be.",
    ),
    Metric(
        "pcie_replay_count", "PCIe replays", Unit.COUNT, 0, _MOST, "nvmlDeviceGetPcieReplayCounter",
        "Packets that had to be sent again; a number that rises is a bad link.",
    ),
    Metric(
        "nvlink_links_count", "NVLink links up", Unit.COUNT, 0, 64, "nvmlDeviceGetFieldValues",
        "NVLink links that have a speed.",
    ),
    Metric(
        "nvlink_bytes_per_second", "NVLink rate", Unit.BYTES_PER_SECOND, 0, 1e14, "nvmlDeviceGetFieldValues",
        "What all NVLink links that are up can carry together in one direction.",
    ),
    Metric(
        "memory_bus_width_bits", "Memory bus width", Unit.BITS, 1, 1 << 20, "nvmlDeviceGetMemoryBusWidth",
        "Width of the bus to the device memory.",
    ),
)  # fmt: skip
"""Condition and make of a device."""
