"""How the GPUs are connected to the PCI bus, read from sysfs below a root."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.core.problems import Problem, ProblemCode
from gpumon.health.doctor.facts import PciDevice, PciTopology

_NVIDIA: Final = "0x10de"
_GPU_CLASSES: Final = ("0x0300", "0x0302")
_SWITCH_CLASS: Final = "0x0680"
_BUS_ID: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_FIRST_EXTENDED: Final = 0x100
_HEADER_BYTES: Final = 4
_ACS: Final = 0x000D
_ACS_CONTROL: Final = 6
_ACS_REDIRECTS: Final = 0b1100
"""Request and completion redirect, bits of the ACS control register."""
_NOT_ROOT: Final = Problem(
    ProblemCode.NO_PERMISSION,
    "Only root may read the ACS settings; sudo lspci -vvv | grep ACSCtl shows them (SrcValid+ is on).",
)


def pci_topology(root: Path) -> PciTopology:
    """The GPUs and the bridges above them."""
    devices = list(_folders(root, _GPU_CLASSES))
    bridges = {bridge.name: bridge for device in devices for bridge in _bridges(device)}
    redirecting, problem = [], None
    for name, bridge in bridges.items():
        config = _bytes(bridge / "config")
        if len(config) <= _FIRST_EXTENDED:
            problem = _NOT_ROOT
        elif _acs_control(config) & _ACS_REDIRECTS:
            redirecting.append(name)
    return PciTopology(tuple(_device(device) for device in devices), tuple(sorted(redirecting)), problem)


def count_switches(root: Path) -> int:
    """The number of NVSwitch chips on the bus."""
    return sum(1 for _ in _folders(root, (_SWITCH_CLASS,)))


def numbers_of(text: str) -> frozenset[int]:
    """The numbers of a list such as ``0-3,8``; an empty set for another text."""
    numbers: set[int] = set()
    try:
        for part in filter(None, text.strip().split(",")):
            first, _, last = part.partition("-")
            numbers.update(range(int(first), int(last or first) + 1))
    except ValueError:
        return frozenset()
    return frozenset(numbers)


def _folders(root: Path, classes: tuple[str, ...]) -> Iterator[Path]:
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        if _text(folder / "vendor") == _NVIDIA and _text(folder / "class").startswith(classes):
            yield folder


def _device(folder: Path) -> PciDevice:
    node = _text(folder / "numa_node")
    return PciDevice(
        bus_id=folder.name,
        node=int(node) if node.isdecimal() else None,
        cpus=numbers_of(_text(folder / "local_cpulist")),
        iommu=_text(folder / "iommu_group" / "type"),
    )


def _bridges(device: Path) -> Iterator[Path]:
    """The bridges between a device and the CPU: sysfs nests devices as the bus does."""
    yield from (parent for parent in device.resolve().parents if _BUS_ID.fullmatch(parent.name))


def _acs_control(config: bytes) -> int:
    """The ACS control register, or 0 if a bridge has none."""
    offset, seen = _FIRST_EXTENDED, set()
    while _FIRST_EXTENDED <= offset <= len(config) - _HEADER_BYTES and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + _HEADER_BYTES], "little")
        if header & 0xFFFF == _ACS:
            return int.from_bytes(config[offset + _ACS_CONTROL : offset + _ACS_CONTROL + 2], "little")
        offset = header >> 20
    return 0


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace").strip()
    return ""


def _bytes(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()
    return b""
