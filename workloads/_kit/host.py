"""Properties of the host around a GPU, from /proc and sysfs: PCIe link, NUMA node, host memory, load."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

_BUSY_LOAD = 0.7
"""Load average per core from which other processes slow a run down."""


def host_free_bytes(meminfo: Path = Path("/proc/meminfo")) -> Optional[int]:
    """Returns MemAvailable in bytes, or None if the host does not report it."""
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def busy_notes() -> list[str]:
    """Returns a warning if other processes keep the CPU busy, so that the CPU looks slower than it is."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load < _BUSY_LOAD * cores:
        return []
    return [f"The load average was {load:.1f} on {cores} CPU cores before the run: an idle host is faster."]


def link_causes(folder: Path) -> tuple[list[str], list[str]]:
    """Returns warnings and remarks about the PCIe link from sysfs.

    Args:
        folder: The directory of the device, such as ``/sys/bus/pci/devices/0000:1b:00.0``.
    """
    width, widest = _read(folder / "current_link_width"), _read(folder / "max_link_width")
    speed, fastest = _read(folder / "current_link_speed"), _read(folder / "max_link_speed")
    warnings, remarks = [], []
    if width.isdecimal() and widest.isdecimal() and 0 < int(width) < int(widest) < 64:
        warnings.append(
            f"The PCIe link is x{width} and the GPU supports x{widest}. Check the slot, the riser and the firmware."
        )
    if _transfers(speed) and _transfers(fastest) and _transfers(speed) < _transfers(fastest):
        remarks.append(f"Directly after a copy the link ran at {speed}; the GPU supports {fastest}.")
    return warnings, remarks


def numa_causes(folder: Path, nodes: Path, allowed: set[int]) -> list[str]:
    """Returns a remark if this process cannot run on the NUMA node of the GPU.

    Args:
        folder: The directory of the device in sysfs.
        nodes: ``/sys/devices/system/node``.
        allowed: CPUs in the affinity mask of this process.
    """
    node = _read(folder / "numa_node")
    if not node.isdecimal():
        return []
    listed = _read(nodes / f"node{node}" / "cpulist")
    near = cpus_of(listed)
    if not near or near & allowed:
        return []
    remedy = f"Start it with numactl --cpunodebind={node} --membind={node}."
    return [f"The GPU belongs to NUMA node {node} (CPUs {listed}), and this process may run on none of them. {remedy}"]


def cpus_of(text: str) -> set[int]:
    """Returns the CPUs of a list such as ``0-3,8``; empty if the list is invalid."""
    cpus: set[int] = set()
    try:
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    except ValueError:
        return set()
    return cpus


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _transfers(speed: str) -> float:
    """Returns the number of ``32.0 GT/s PCIe``, or 0."""
    first = speed.partition(" ")[0]
    return float(first) if first.replace(".", "", 1).isdecimal() else 0.0
