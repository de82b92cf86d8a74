"""The hardware of all GPUs as lines: each kind of GPU once, then the GPUs of that kind."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.device_properties import PROPERTY_NAMES, DeviceProperties
from gpumon.core.units import MISSING, bytes_text, count_text, megahertz_text
from gpumon.present.paint.line import Line, Role, Span, clipped, line, section_heading

_LABEL: Final = 26


def device_list_lines(devices: Sequence[DeviceProperties], width: int) -> list[Line]:
    """The lines of ``gpumon devices``.

    Args:
        devices: The GPUs.
        width: Cells of a line.
    """
    kinds: dict[tuple[object, ...], list[DeviceProperties]] = {}
    for device in devices:
        kinds.setdefault(_kind(device), []).append(device)
    lines: list[Line] = []
    for members in kinds.values():
        if lines:
            lines.append(line())
        lines.append(section_heading(_heading(members), width))
        lines += [
            line(Span(label.ljust(_LABEL), Role.DIM), clipped(text, width - _LABEL))
            for label, text in _rows(members[0])
        ]
        lines += [line(clipped(f"GPU {device.index}".ljust(8) + (device.uuid or MISSING), width)) for device in members]
    return lines


def _kind(device: DeviceProperties) -> tuple[object, ...]:
    """What GPUs of one kind have in common."""
    return tuple(getattr(device, name) for name in PROPERTY_NAMES if name not in {"index", "uuid"})


def _heading(members: Sequence[DeviceProperties]) -> str:
    numbers = ", ".join(str(device.index) for device in members)
    return f"GPU{'s' * (len(members) > 1)} {numbers}: {members[0].name or MISSING}"


def _rows(kind: DeviceProperties) -> Iterator[tuple[str, str]]:
    """Label and value of each property."""
    yield "Compute capability", kind.compute_capability or MISSING
    yield "SMs", f"{count_text(kind.sm_count)} ({count_text(kind.core_count)} FP32 cores)"
    yield "Threads", f"warps of {count_text(kind.warp_size)}, {count_text(kind.max_threads_per_sm)} per SM"
    yield "Registers per SM", count_text(kind.registers_per_sm)
    block, optin = kind.shared_memory_per_block_bytes, kind.shared_memory_per_block_optin_bytes
    yield "Shared memory per SM", bytes_text(kind.shared_memory_per_sm_bytes)
    yield "Shared memory per block", f"{bytes_text(block)}, up to {bytes_text(optin)} on request"
    yield "L2 cache", bytes_text(kind.l2_bytes)
    yield "SM clock", f"{megahertz_text(kind.clock_sm_max_hertz)} MHz"
    yield "Memory", bytes_text(kind.memory_total_bytes)
    clock = megahertz_text(kind.clock_memory_max_hertz)
    yield "Memory bus", f"{count_text(kind.memory_bus_width_bits)} bits at {clock} MHz"
    yield "PCIe", f"generation {count_text(kind.pcie_generation_max)}, {count_text(kind.pcie_width_max)} lanes"
    instances = f", {kind.mig_instances} MIG devices" if kind.mig_instances else ""
    yield "MIG", f"{kind.mig_mode or MISSING}{instances}"
