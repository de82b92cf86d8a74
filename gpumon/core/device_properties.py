"""The hardware of a GPU: what does not change while a host runs, next to the readings of `gpumon.core.model`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from gpumon.core.problem_table import with_problems
from gpumon.core.problems import Problem

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """One GPU.

    Attributes:
        index: NVML's index.
        uuid: NVML's UUID.
        name: Product name.
        compute_capability: CUDA compute capability, such as ``9.0``.
        sm_count: Streaming multiprocessors.
        sm_count_source: ``cuda`` for the CUDA driver, or ``nvml`` where that does not answer: cores by cores of one.
        core_count: FP32 cores of all streaming multiprocessors.
        warp_size: Threads of a warp.
        max_threads_per_sm: Threads that a streaming multiprocessor can hold.
        registers_per_sm: 32-bit registers of a streaming multiprocessor.
        shared_memory_per_sm_bytes: Shared memory of a streaming multiprocessor.
        shared_memory_per_block_bytes: Shared memory that a block gets without a setting of the kernel.
        shared_memory_per_block_optin_bytes: Shared memory that a block gets with that setting.
        l2_bytes: L2 cache.
        clock_sm_max_hertz: Maximum clock of the streaming multiprocessors.
        memory_total_bytes: Device memory.
        memory_bus_width_bits: Width of the memory bus.
        clock_memory_max_hertz: Maximum memory clock, before doubling for double data rate.
        pcie_generation_max: Highest PCIe generation that GPU and slot support.
        pcie_width_max: Most PCIe lanes that GPU and slot support.
        memory_bandwidth_bytes_per_second: Twice the maximum memory clock times the bus width.
        tensor_core_generation: Generation of the tensor cores.
        peak_operations_per_second: Dense operations at the maximum clock, by precision; from `gpu_models`.
        nvlink_links_count: NVLink links that are up.
        mig_mode: ``enabled`` or ``disabled``.
        mig_instances: MIG devices.
        problems: Why a field is None, by field name.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
    sm_count_source: str | None = None
    core_count: int | None = None
    warp_size: int | None = None
    max_threads_per_sm: int | None = None
    registers_per_sm: int | None = None
    shared_memory_per_sm_bytes: int | None = None
    shared_memory_per_block_bytes: int | None = None
    shared_memory_per_block_optin_bytes: int | None = None
    l2_bytes: int | None = None
    clock_sm_max_hertz: float | None = None
    memory_total_bytes: int | None = None
    memory_bus_width_bits: int | None = None
    clock_memory_max_hertz: float | None = None
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    memory_bandwidth_bytes_per_second: float | None = None
    tensor_core_generation: int | None = None
    peak_operations_per_second: Mapping[str, float] | None = None
    nvlink_links_count: int | None = None
    mig_mode: str | None = None
    mig_instances: int = 0
    problems: Mapping[str, Problem] = field(default_factory=dict)


PROPERTY_NAMES: Final = tuple(item.name for item in fields(DeviceProperties) if item.name != "problems")


def to_document(devices: tuple[DeviceProperties, ...]) -> dict[str, Any]:
    """The document of ``gpumon devices --json``."""
    records = (({name: getattr(device, name) for name in PROPERTY_NAMES}, device.problems) for device in devices)
    return {"schema": SCHEMA, "devices": [with_problems(record, problems) for record, problems in records]}
