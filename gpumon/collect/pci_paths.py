"""The places of GPUs and network cards on the PCI bus, from sysfs."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import find_text
from gpumon.core.text import safe_text
from gpumon.core.topology import NetworkCard, PathLevel

_FUNCTION: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_IS_ACTIVE: Final = "4: ACTIVE"
"""State of an InfiniBand port that carries data."""
_MAX_CPU_LIST: Final = 256
NO_NODE: Final = Problem(ProblemCode.NOT_SUPPORTED, "The kernel reports no NUMA node for this PCI slot.")
_NO_STATE: Final = Problem(ProblemCode.NOT_FOUND, "The kernel does not report the state of the link.")


def pci_path(folder: Path) -> tuple[str, ...]:
    """The root and the bridges above a device, and the device itself; empty if it is not on the PCI bus."""
    try:
        parts = folder.resolve(strict=True).parts
    except (OSError, RuntimeError):
        return ()
    path = tuple(part for part in parts if _ROOT.fullmatch(part) or _FUNCTION.fullmatch(part))
    return path if len(path) > 1 and _ROOT.fullmatch(path[0]) else ()


def path_level(one: tuple[str, ...], other: tuple[str, ...], *, same_node: bool) -> PathLevel:
    """What lies between two devices, from their `pci_path`.

    Args:
        one: The path of one device.
        other: The path of the other device.
        same_node: Whether both are on the same NUMA node, or the host has only one.
    """
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    if shared == 0:
        return PathLevel.NODE if same_node else PathLevel.SYS
    if shared == 1:
        return PathLevel.PHB
    bridges = max(len(one), len(other)) - shared - 1  # below the bridge that both share
    return PathLevel.PIX if bridges <= 1 else PathLevel.PXB


def numa_node(device: Path) -> int | None:
    """The NUMA node of a PCI device; None if the kernel reports none."""
    number = _number(device / "numa_node")
    return None if number is None or number < 0 else number


def near_cpus(device: Path) -> str | None:
    """The processors near a PCI device, as in ``0-55,112-167``; None if the kernel reports none.

    NVML has them too, but with driver 580.159 on four H200, a process that had called ``nvmlDeviceGetCpuAffinity``
    crashed soon afterward.
    """
    return safe_text(find_text(device / "local_cpulist"), _MAX_CPU_LIST) or None


def max_lanes(device: Path) -> int | None:
    """The PCIe lanes that a device supports, whatever its slot has."""
    lanes = _number(device / "max_link_width")
    return lanes if lanes is not None and 0 < lanes <= 32 else None  # 255 stands for unknown


def network_cards(sys: Path, gpus: Mapping[int, str]) -> tuple[NetworkCard, ...]:
    """The network cards of the host, RDMA devices first, with their distance to each GPU.

    Args:
        sys: Where sysfs is mounted.
        gpus: PCI bus ID of each GPU as sysfs writes it, by NVML's index.
    """
    devices = {index: sys / "bus/pci/devices" / bus_id for index, bus_id in gpus.items()}
    places = {index: (pci_path(device), numa_node(device)) for index, device in devices.items()}
    cards: list[NetworkCard] = []
    seen: set[str] = set()
    for folder, has_rdma in _card_folders(sys):
        path = pci_path(folder / "device")
        if not path or path[-1] in seen:
            continue
        seen.add(path[-1])
        node = numa_node(folder / "device")
        interfaces = _names(folder / "device/net")
        is_up = _has_active_port(folder) if has_rdma else _is_interface_up(folder)
        levels = {
            index: path_level(gpu_path, path, same_node=gpu_node == node)
            for index, (gpu_path, gpu_node) in places.items()
            if gpu_path
        }
        problems = {} if node is not None else {"numa_node": NO_NODE}
        if is_up is None:
            problems["is_up"] = _NO_STATE
        cards.append(
            NetworkCard(safe_text(folder.name, 32), has_rdma, interfaces, path[-1], node, is_up, levels, problems)
        )
    return tuple(cards)


def _card_folders(sys: Path) -> Iterator[tuple[Path, bool]]:
    for kind, has_rdma in (("class/infiniband", True), ("class/net", False)):
        with suppress(OSError):
            yield from ((folder, has_rdma) for folder in sorted((sys / kind).iterdir(), key=_natural))


def _natural(folder: Path) -> tuple[tuple[int, str], ...]:
    """A sort key by which mlx5_2 precedes mlx5_10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", folder.name))


def _names(folder: Path) -> tuple[str, ...]:
    with suppress(OSError):
        return tuple(sorted(safe_text(entry.name, 32) for entry in folder.iterdir()))
    return ()


def _has_active_port(folder: Path) -> bool | None:
    try:
        states = [find_text(port / "state") for port in (folder / "ports").iterdir()]
    except OSError:
        return None
    return any(state == _IS_ACTIVE for state in states) if any(states) else None


def _is_interface_up(folder: Path) -> bool | None:
    state = find_text(folder / "operstate")
    return None if state in {"", "unknown"} else state == "up"


def _number(file: Path) -> int | None:
    try:
        return int(find_text(file))
    except ValueError:
        return None
