"""The hardware of all GPUs of this host: from NVML where NVML has it, the rest from the CUDA driver.

The CUDA driver is queried in a child process that initializes it and creates no context, and whose failure costs only
these values.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpumon.core.device_properties import PROPERTY_NAMES, DeviceProperties
from gpumon.core.gpu_models import cores_of, peak_rates, sm_count_of, tensor_core_generation
from gpumon.core.model import Device, Frame, same_uuid, short_product_name
from gpumon.core.problems import Problem, ProblemCode
from gpumon.health.doctor.facts import Steps
from gpumon.operations.doctor.children import Children, query_cuda
from gpumon.operations.one_shot import sample_frame
from gpumon.operations.results import ResultFilter, read_history

_CUDA: Final = (
    *("sm_count", "warp_size", "max_threads_per_sm", "registers_per_sm", "shared_memory_per_sm_bytes"),
    *("shared_memory_per_block_bytes", "shared_memory_per_block_optin_bytes", "l2_bytes"),
)
_NOT_REPORTED: Final = Problem(ProblemCode.NOT_SUPPORTED, "Not reported by this GPU or driver.")
_UNKNOWN_CORES: Final = Problem(ProblemCode.NOT_FOUND, "The cores per SM of this compute capability are unknown.")


def read_devices(
    read_frame: Callable[[], Frame] = sample_frame, read_cuda: Callable[[], Steps] | None = None
) -> tuple[tuple[DeviceProperties, ...], Problem | None]:
    """Read the hardware of all GPUs.

    Returns:
        The GPUs in NVML's order, and why the driver cannot be used, if so.

    Raises:
        CommandError: The collector did not respond.
    """
    frame = read_frame()
    problem = frame.problems.get("driver")
    if not frame.gpus:
        return (), problem
    steps = query_cuda(Children(), os.environ) if read_cuda is None else read_cuda()
    instances = [device.instance.parent for device in frame.devices if device.instance is not None]
    return tuple(_properties(device, steps, instances.count(device.key)) for device in frame.gpus), problem


def measured_rates() -> dict[str, float]:
    """Operations per second of the newest saved run of ``matmul`` in bf16, by product name."""
    rates: dict[str, float] = {}
    for group in read_history(ResultFilter(workload="matmul"), time.time()):
        if group.parameters.get("dtype") == "bf16":
            newest = group.results[0].result.measurements
            rate = next((item.value for item in newest if item.metric.name == "throughput"), None)
            if rate is not None:
                rates.setdefault(short_product_name(group.device_name), rate * 1e12)
    return rates


def _properties(device: Device, steps: Steps, mig_instances: int) -> DeviceProperties:
    cuda, problem = _cuda_values(device, steps)
    values: dict[str, Any] = {name: cuda.get(name) for name in _CUDA}
    cores = device.get("cores_count")
    values["sm_count_source"] = "cuda"
    if values["sm_count"] is None:
        values["sm_count"] = sm_count_of(device.compute_capability, cores)
        values["sm_count_source"] = None if values["sm_count"] is None else "nvml"
    problems = {name: problem for name in _CUDA if values[name] is None}
    for name in ("memory_total_bytes", "memory_bus_width_bits", "pcie_generation_max", "pcie_width_max"):
        reading = device.get(name)
        values[name] = None if reading is None else int(reading)
    values |= {name: device.get(name) for name in ("clock_sm_max_hertz", "clock_memory_max_hertz")}
    values |= {"uuid": device.uuid, "name": device.name, "compute_capability": device.compute_capability}
    values["nvlink_links_count"] = None if (links := device.get("nvlink_links_count")) is None else int(links)
    values |= _computed(values)
    values["mig_mode"] = None if device.mig_mode is None else device.mig_mode.value
    values["core_count"] = cores_of(device.compute_capability, values["sm_count"]) if cores is None else int(cores)
    if values["core_count"] is None:
        missing = next((name for name in ("sm_count", "compute_capability") if values[name] is None), None)
        problems["core_count"] = _UNKNOWN_CORES if missing is None else _reason(missing, problems, device)
    for name in PROPERTY_NAMES:
        if name in values and values[name] is None:
            is_by_sm = name in {"peak_operations_per_second", "sm_count_source"} and values["sm_count"] is None
            problems[name] = _reason("sm_count" if is_by_sm else name, problems, device)
    return DeviceProperties(device.index, **values, mig_instances=mig_instances, problems=problems)


def _computed(values: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from the other values."""
    capability, clock, bus = (
        values[name] for name in ("compute_capability", "clock_memory_max_hertz", "memory_bus_width_bits")
    )
    peaks = peak_rates(values["name"], capability, values["sm_count"], values["clock_sm_max_hertz"])
    return {
        "memory_bandwidth_bytes_per_second": None if clock is None or bus is None else 2 * clock * bus / 8,
        "tensor_core_generation": tensor_core_generation(capability),
        "peak_operations_per_second": peaks or None,
    }


def _reason(name: str, problems: Mapping[str, Problem], device: Device) -> Problem:
    return problems.get(name) or device.problems.get(name) or _NOT_REPORTED


def _cuda_values(device: Device, steps: Steps) -> tuple[Mapping[str, int], Problem]:
    """What CUDA reports about a GPU, and why the rest is missing."""
    listed = steps.value("devices", "devices")
    if isinstance(listed, list):
        for entry in listed:
            if isinstance(entry, dict) and same_uuid(entry.get("uuid"), device.uuid):
                attributes = entry.get("attributes")
                known = attributes if isinstance(attributes, dict) else {}
                return {name: value for name, value in known.items() if type(value) is int and value > 0}, _NOT_REPORTED
        return {}, Problem(
            ProblemCode.NOT_FOUND, "CUDA does not list this GPU: MIG is enabled, or this container may not use it."
        )
    code = steps.value("init", "name")
    error = next(filter(None, (steps.error(step) for step in ("version", "init", "devices"))), "")
    if code:
        reason = f"CUDA cannot be initialized: {code}."
    elif error:
        reason = f"The CUDA driver library did not answer: {error.rstrip('.')}."
    else:
        reason = f"The CUDA driver was not queried: {steps.ended_by or 'no answer'}."
    return {}, Problem(ProblemCode.UNKNOWN, reason, "gpumon doctor examines the driver.")
