"""Records of a plausible machine, for tests that need one: H200 GPUs that train."""

from typing import Any

from gpumon.core.model import Device, Frame, Host, Process, Sweep

_MIB = 1 << 20
HOST_RATES = (3.5e8, 1.2e8, 1.2e9, 4.0e7)
"""Network received and sent, disk read and written."""

READINGS: dict[str, float] = {
    "memory_total_bytes": 143771 * _MIB, "memory_used_bytes": 71000 * _MIB, "memory_reserved_bytes": 629 * _MIB,
    "memory_free_bytes": 72142 * _MIB, "memory_unattributed_bytes": 4 * _MIB, "utilization_gpu_percent": 87,
    "utilization_memory_percent": 41, "temperature_celsius": 56, "temperature_slowdown_celsius": 92,
    "power_watts": 612.5, "power_limit_watts": 700.0, "clock_sm_hertz": 1_830_000_000,
    "clock_sm_max_hertz": 1_980_000_000, "clock_memory_hertz": 3_201_000_000, "clock_memory_max_hertz": 3_201_000_000,
    "performance_state": 0, "pcie_generation": 5, "pcie_generation_max": 5, "pcie_width": 16, "pcie_width_max": 16,
}  # fmt: skip


def process(pid: int = 4000, **changes: Any) -> Process:  # noqa: ANN401
    """A training process."""
    values: dict[str, Any] = {
        "pid": pid,
        "memory_bytes": 70996 * _MIB,
        "user": "ada",
        "command": "python train.py --config large.yaml",
        "cpu_percent": 103.5,
        "host_memory_bytes": 9216 * _MIB,
        "age_seconds": 7325.0,
        "start_ticks": 7_907_500 + pid,
    }
    return Process(**(values | changes))


def device(index: int = 0, **changes: Any) -> Device:  # noqa: ANN401
    """A GPU with one process, and idle without; ``readings`` are merged into the usual ones, None takes one out."""
    idle = {"utilization_gpu_percent": 0} if changes.get("processes") == () else {}
    readings = {**READINGS, **idle, **changes.pop("readings", {})}
    values: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index:08x}-4d6f-5b6b-8c01-000000000000",
        "pci_bus_id": f"00000000:{0x1B + index:02X}:00.0",
        "name": "NVIDIA H200",
        "architecture": "Hopper",
        "readings": {metric: value for metric, value in readings.items() if value is not None},
        "throttle_reasons": (),
        "processes": (process(4000 + index),),
    }
    return Device(**(values | changes))


def frame(**changes: Any) -> Frame:  # noqa: ANN401
    """A host with two GPUs at second 100 of its clock."""
    values: dict[str, Any] = {
        "time_seconds": 1_800_000_000.0,
        "monotonic_seconds": 100.0,
        "interval_seconds": 1.0,
        "host": Host("node7", 192, 12.5, (3.0, 2.5, 2.0), 2 << 40, 1 << 40, 86_400.0, *HOST_RATES),
        "driver_version": "580.95.05",
        "cuda_driver_version": "13.0",
        "devices": (device(0), device(1)),
        "sweep": Sweep(0.0004, 36, 0, 0),
    }
    return Frame(**(values | changes))
