"""Facts of the machine around a GPU, from /proc and sysfs: its link, its memory node, the memory of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Optional


def host_free_bytes(meminfo: Path = Path("/proc/meminfo")) -> Optional[int]:
    """Memory of the host that can be had without swapping, or None where that is not told."""
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def link_causes(folder: Path) -> tuple[list[str], list[str]]:
    """What sysfs says of the PCIe link, as warnings and remarks; nothing where it says nothing.

    Args:
        folder: The device's folder, such as ``/sys/bus/pci/devices/0000:1b:00.0``.
    """
    width, widest = _read(folder / "current_link_width"), _read(folder / "max_link_width")
    speed, fastest = _read(folder / "current_link_speed"), _read(folder / "max_link_speed")
    warnings, remarks = [], []
    if width.isdecimal() and widest.isdecimal() and 0 < int(width) < int(widest) < 64:
        warnings.append(
            f"The PCIe link is x{width} and the GPU could use x{widest}: look at the slot, the riser and the firmware."
        )
    if _transfers(speed) and _transfers(fastest) and _transfers(speed) < _transfers(fastest):
        remarks.append(f"Just after a copy the link ran at {speed}; the GPU can do {fastest}.")
    return warnings, remarks


def numa_causes(folder: Path, nodes: Path, allowed: set[int]) -> list[str]:
    """Whether this process runs away from the GPU's memory node; empty where that is not told.

    Args:
        folder: The device's folder in sysfs.
        nodes: ``/sys/devices/system/node``.
        allowed: CPUs on which this process may run.
    """
    node = _read(folder / "numa_node")
    if not node.isdecimal():
        return []
    listed = _read(nodes / f"node{node}" / "cpulist")
    near = cpus_of(listed)
    if not near or near & allowed:
        return []
    said = f"The GPU belongs to NUMA node {node} (CPUs {listed}), and this process may run on none of them: "
    return [f"{said}numactl --cpunodebind={node} --membind={node} brings it near."]


def cpus_of(text: str) -> set[int]:
    """CPUs of a list such as ``0-3,8``; empty if it cannot be read."""
    found: set[int] = set()
    try:
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    except ValueError:
        return set()
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _transfers(speed: str) -> float:
    """GT/s of ``32.0 GT/s PCIe``, or 0."""
    first = speed.partition(" ")[0]
    return float(first) if first.replace(".", "", 1).isdecimal() else 0.0
