"""The hardware of all GPUs as lines: each kind of GPU once, then the GPUs of that kind."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpumon.core.device_properties import PROPERTY_NAMES, DeviceProperties
from gpumon.core.gpu_models import GpuModel, model_of, models
from gpumon.core.groups import grouped
from gpumon.core.model import short_product_name
from gpumon.core.units import MISSING, bytes_text, count_text, megahertz_text
from gpumon.present.paint.cell_table import CellColumn, cell_table, fitting_columns, value_column
from gpumon.present.paint.line import Line, Role, Span, clipped, line, section_heading

_LABEL: Final = 26
_SM_SOURCES: Final = {"cuda": "CUDA", "nvml": "NVML, by its cores", None: "CUDA"}
_NOTHING: Final[Mapping[str, float]] = {}


def device_list_lines(
    devices: Sequence[DeviceProperties], width: int, measured: Mapping[str, float] = _NOTHING
) -> list[Line]:
    """The lines of ``gpumon devices``.

    Args:
        devices: The GPUs.
        measured: Operations per second of the newest ``gpumon run matmul`` in bf16, by product name.
        width: Cells of a line.
    """
    kinds = grouped((_kind(device), device) for device in devices)
    lines: list[Line] = []
    for members in kinds.values():
        if lines:
            lines.append(line())
        lines.append(section_heading(_heading(members), width))
        lines += [
            line(
                Span(label.ljust(_LABEL), Role.DIM),
                clipped(text, width - _LABEL - len(source) - 2),
                Span(f"  {source}" if source else "", Role.DIM),
            )
            for label, text, source in _rows(members[0], measured)
        ]
        lines += [line(clipped(f"GPU {device.index}".ljust(8) + (device.uuid or MISSING), width)) for device in members]
    return lines


def _kind(device: DeviceProperties) -> tuple[object, ...]:
    """What GPUs of one kind have in common."""
    return tuple(str(getattr(device, name)) for name in PROPERTY_NAMES if name not in {"index", "uuid"})


def _heading(members: Sequence[DeviceProperties]) -> str:
    numbers = ", ".join(str(device.index) for device in members)
    return f"GPU{'s' * (len(members) > 1)} {numbers}: {members[0].name or MISSING}"


def _class_text(model: GpuModel, bandwidth: float | None, peaks: Mapping[str, float]) -> str:
    """The data sheet of the model, and what the clocks of this GPU reach of it."""
    text = f"{model.name}: {model.bf16:,g} TFLOP/s bf16, {model.memory_bandwidth:,} GB/s, {model.power_watts} W"
    rate = peaks.get("bf16", peaks.get("fp16"))
    shares = [
        f"{value / sheet:.0%} of its {what}"
        for value, sheet, what in (
            (rate, model.bf16 * 1e12, "TFLOP/s"),
            (bandwidth, model.memory_bandwidth * 1e9, "bandwidth"),
        )
        if value is not None
    ]
    return f"{text}; by its clocks {' and '.join(shares)}" if shares else text


def reference_lines(width: int) -> list[Line]:
    """The table of data sheets, for ``gpumon devices --reference``."""
    sheets = models()
    columns = [
        CellColumn(["GPU"], [model.name for model in sheets], 0),
        value_column("Capability", [model.compute_capability for model in sheets], 4),
        value_column("SMs", [str(model.sm_count) for model in sheets], 3),
        value_column("Memory GB", [str(model.memory_gigabytes) for model in sheets], 1),
        value_column("GB/s", [f"{model.memory_bandwidth:,}" for model in sheets], 0),
        value_column("fp32 TFLOP/s", [f"{model.fp32:,g}" for model in sheets], 2),
        value_column("bf16 TFLOP/s", [f"{model.bf16:,g}" for model in sheets], 0),
        value_column("NVLink GB/s", [f"{model.nvlink:,}" if model.nvlink else MISSING for model in sheets], 2),
        value_column("W", [f"{model.power_watts:,}" for model in sheets], 1),
        CellColumn(["Source: nvidia.com/"], [model.source for model in sheets], 5),
    ]
    return cell_table(fitting_columns(columns, width))


def _rows(kind: DeviceProperties, measured: Mapping[str, float]) -> Iterator[tuple[str, str, str]]:
    """Label, value and source of each property."""
    yield "Compute capability", kind.compute_capability or MISSING, "NVML"
    cores = f" ({count_text(kind.core_count)} FP32 cores)" if kind.core_count is not None else ""
    yield "SMs", f"{count_text(kind.sm_count)}{cores}", _SM_SOURCES[kind.sm_count_source]
    yield "Threads", f"warps of {count_text(kind.warp_size)}, {count_text(kind.max_threads_per_sm)} per SM", "CUDA"
    yield "Registers per SM", count_text(kind.registers_per_sm), "CUDA"
    block, optin = kind.shared_memory_per_block_bytes, kind.shared_memory_per_block_optin_bytes
    yield "Shared memory per SM", bytes_text(kind.shared_memory_per_sm_bytes), "CUDA"
    yield "Shared memory per block", f"{bytes_text(block)}, up to {bytes_text(optin)} on request", "CUDA"
    yield "L2 cache", bytes_text(kind.l2_bytes), "CUDA"
    yield "SM clock", f"{megahertz_text(kind.clock_sm_max_hertz)} MHz", "NVML"
    yield "Memory", bytes_text(kind.memory_total_bytes), "NVML"
    clock = megahertz_text(kind.clock_memory_max_hertz)
    yield "Memory bus", f"{count_text(kind.memory_bus_width_bits)} bits at {clock} MHz", "NVML"
    bandwidth = kind.memory_bandwidth_bytes_per_second
    yield "Memory bandwidth", MISSING if bandwidth is None else f"{bandwidth / 1e9:,.0f} GB/s", "computed"
    generation = kind.tensor_core_generation
    yield "Tensor cores", MISSING if generation is None else f"generation {generation}", "computed"
    peaks = kind.peak_operations_per_second or {}
    rates = "  ".join(f"{name} {rate / 1e12:,.0f}" for name, rate in peaks.items())
    yield "Peak, dense TFLOP/s", rates or MISSING, "computed"
    yield "NVLink", f"{count_text(kind.nvlink_links_count)} links", "NVML"
    model = model_of(kind.name, kind.compute_capability, kind.memory_total_bytes)
    if model is not None:
        yield "Data sheet", _class_text(model, bandwidth, peaks), ""
        rate = measured.get(short_product_name(kind.name))
        share = (
            "run gpumon run matmul" if rate is None else f"{rate / 1e12 / model.bf16:.0%} of it, by gpumon run matmul"
        )
        yield "Measured in bf16", share, ""
    yield "PCIe", f"generation {count_text(kind.pcie_generation_max)}, {count_text(kind.pcie_width_max)} lanes", "NVML"
    instances = f", {kind.mig_instances} MIG devices" if kind.mig_instances else ""
    yield "MIG", f"{kind.mig_mode or MISSING}{instances}", "NVML"
    reasons = Counter(problem.reason for problem in kind.problems.values())
    yield from (("Not known", reason, "") for reason, count in reasons.most_common(1) if count > 1)
