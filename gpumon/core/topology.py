"""How the GPUs of a host are connected: to each other, to the processors, and to the network cards."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any, Final, TypeVar

from gpumon.core.json_fields import Json, as_count, as_flag, as_list, as_object, as_text, as_tuple, required
from gpumon.core.problem_table import parse_problems, with_problems
from gpumon.core.problems import Problem

SCHEMA: Final = 1


class PathLevel(str, Enum):
    """What lies on the way between two PCI devices, from near to far, in the words of ``nvidia-smi topo -m``."""

    INTERNAL = "X"
    """The same board."""
    PIX = "PIX"
    """At most one PCIe switch."""
    PXB = "PXB"
    """Several PCIe switches."""
    PHB = "PHB"
    """A PCIe host bridge, usually the processor."""
    NODE = "NODE"
    """Several host bridges of one NUMA node."""
    SYS = "SYS"
    """The interconnect between NUMA nodes."""

    @property
    def distance(self) -> int:
        """0 for the nearest level, one more for each next level."""
        return tuple(PathLevel).index(self)


class P2PStatus(str, Enum):
    """Whether one GPU can read the memory of another; the values after OK are reasons."""

    OK = "ok"
    CHIPSET_NOT_SUPPORTED = "chipset_not_supported"
    GPU_NOT_SUPPORTED = "gpu_not_supported"
    IOH_TOPOLOGY_NOT_SUPPORTED = "ioh_topology_not_supported"
    DISABLED_BY_REGKEY = "disabled_by_regkey"
    NOT_SUPPORTED = "not_supported"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NvLink:
    """One NVLink of a GPU.

    Attributes:
        number: NVML's number of the link.
        is_up: Whether the link is active.
        bytes_per_second: Rate in one direction.
        remote_bus_id: PCI bus ID of the GPU or NVSwitch at the other end.
        replay_count: Packets that were sent again since the driver was loaded.
        recovery_count: Recoveries of the link.
        crc_count: Checksum errors.
        transmitted_bytes: Data sent since the driver was loaded, without the overhead of the protocol.
        received_bytes: Data received since then.
        transmit_bytes_per_second: Rate at which data was sent between the last two readings.
        receive_bytes_per_second: Rate at which data was received between them.
        problems: Why a field is None, by field name.
    """

    number: int
    is_up: bool | None = None
    bytes_per_second: int | None = None
    remote_bus_id: str | None = None
    replay_count: int | None = None
    recovery_count: int | None = None
    crc_count: int | None = None
    transmitted_bytes: int | None = None
    received_bytes: int | None = None
    transmit_bytes_per_second: int | None = None
    receive_bytes_per_second: int | None = None
    problems: Mapping[str, Problem] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LinkedGpu:
    """One GPU and its connections.

    Attributes:
        index: NVML's index.
        uuid: NVML's UUID.
        name: Product name.
        pci_bus_id: PCI bus ID, as NVML writes it.
        numa_node: NUMA node of its PCI slot.
        memory_numa_node: NUMA node that the memory of the GPU is, as on Grace Hopper.
        cpus: Processors near it, such as ``0-55,112-167``.
        pcie_generation: PCIe generation of the moment; lower while the GPU is idle.
        pcie_generation_max: Highest generation that GPU and slot support.
        pcie_width: Lanes in use.
        pcie_width_max: Most lanes that GPU and slot support.
        pcie_width_gpu: Lanes that the GPU itself supports, whatever its slot has.
        links: Its NVLinks, or None if they are unknown or there are none; `problems` has the reason.
        problems: Why a field is None, by field name.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    numa_node: int | None = None
    memory_numa_node: int | None = None
    cpus: str | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_width_gpu: int | None = None
    links: tuple[NvLink, ...] | None = None
    problems: Mapping[str, Problem] = field(default_factory=dict)

    @property
    def links_up(self) -> int | None:
        """Number of active NVLinks; None if unknown."""
        return None if self.links is None else sum(link.is_up is True for link in self.links)


@dataclass(frozen=True, slots=True)
class GpuPair:
    """The connection of two GPUs.

    Attributes:
        first: NVML's index of one.
        second: NVML's index of the other, a larger number.
        level: What lies between them on the PCI bus.
        nvlinks: NVLinks from one to the other, directly or through an NVSwitch; 0 without NVLink.
        p2p: Whether one can read the memory of the other.
        problems: Why a field is None, by field name.
    """

    first: int
    second: int
    level: PathLevel | None = None
    nvlinks: int | None = None
    p2p: P2PStatus | None = None
    problems: Mapping[str, Problem] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The connection as ``nvidia-smi topo -m`` writes it: ``NV18``, or a `PathLevel`; ``–`` if unknown."""
        if self.nvlinks:
            return f"NV{self.nvlinks}"
        return "–" if self.level is None else self.level.value


@dataclass(frozen=True, slots=True)
class NetworkCard:
    """A network card on the PCI bus.

    Attributes:
        name: Name of the InfiniBand (RDMA) device, or of the network interface.
        has_rdma: Whether it is an RDMA device, which GPUs can use directly.
        interfaces: Names of its network interfaces.
        pci_bus_id: PCI bus ID.
        numa_node: NUMA node of its PCI slot.
        is_up: Whether one of its ports has a link.
        levels: What lies between it and each GPU, by NVML's index.
        problems: Why a field is None, by field name.
    """

    name: str
    has_rdma: bool
    interfaces: tuple[str, ...] = ()
    pci_bus_id: str | None = None
    numa_node: int | None = None
    is_up: bool | None = None
    levels: Mapping[int, PathLevel] = field(default_factory=dict)
    problems: Mapping[str, Problem] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topology:
    """The connections of all GPUs of a host.

    Attributes:
        gpus: The GPUs in NVML's order.
        pairs: Each pair of GPUs once.
        cards: The network cards.
        problems: Why something is missing, by subject.
    """

    gpus: tuple[LinkedGpu, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    cards: tuple[NetworkCard, ...] = ()
    problems: Mapping[str, Problem] = field(default_factory=dict)

    def pair(self, one: int, other: int) -> GpuPair:
        """The connection of two different GPUs, by NVML's indices in any order."""
        ends = (min(one, other), max(one, other))
        return next((pair for pair in self.pairs if (pair.first, pair.second) == ends), GpuPair(*ends))


RecordT = TypeVar("RecordT", NvLink, LinkedGpu, GpuPair, NetworkCard)

_PARSERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "is_up": as_flag,
    "has_rdma": lambda raw: as_flag(raw) is True,
    "name": as_text,
    "uuid": as_text,
    "cpus": as_text,
    "pci_bus_id": as_text,
    "remote_bus_id": as_text,
    "links": lambda raw: None if raw is None else as_tuple(raw, lambda link: _record(NvLink, link)),
    "level": lambda raw: None if raw is None else PathLevel(raw),
    "p2p": lambda raw: None if raw is None else P2PStatus(raw),
    "interfaces": lambda raw: tuple(required(as_text(name)) for name in as_list(raw)),
    "levels": lambda raw: {int(index): PathLevel(level) for index, level in as_object(raw).items()},
}
"""Parser of each field that is not a count."""


def to_document(topology: Topology) -> Json:
    """The topology as a JSON document. Missing values are null, with the reasons in ``problems`` of their record."""
    document = {
        "schema": SCHEMA,
        "gpus": [
            _document(gpu) | {"links": None if gpu.links is None else [_document(link) for link in gpu.links]}
            for gpu in topology.gpus
        ],
        "pairs": [_document(pair) for pair in topology.pairs],
        "network_cards": [_document(card) for card in topology.cards],
    }
    return with_problems(document, topology.problems)


def from_document(raw: Json) -> Topology:
    """The topology in a JSON document.

    Raises:
        TypeError: A field has another type.
        ValueError: A value is out of range, or the schema is another one.
    """
    if raw.get("schema") != SCHEMA:
        raise ValueError("another schema")
    return Topology(
        as_tuple(raw.get("gpus"), lambda gpu: _record(LinkedGpu, gpu)),
        as_tuple(raw.get("pairs"), lambda pair: _record(GpuPair, pair)),
        as_tuple(raw.get("network_cards"), lambda card: _record(NetworkCard, card)),
        parse_problems(raw),
    )


def _document(record: NvLink | LinkedGpu | GpuPair | NetworkCard) -> Json:
    values = asdict(record)
    if "levels" in values:  # keys of a JSON object are texts
        values["levels"] = {str(index): level for index, level in values["levels"].items()}
    return with_problems(values, record.problems)


def _record(kind: type[RecordT], raw: Json) -> RecordT:
    names = [item.name for item in fields(kind) if item.name != "problems"]
    values = {name: _PARSERS.get(name, as_count)(raw.get(name)) for name in names}
    return kind(**values, problems=parse_problems(raw))
