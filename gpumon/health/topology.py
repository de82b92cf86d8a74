"""What is wrong with the connections of the GPUs, in sentences."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gpumon.core.topology import LinkedGpu, NetworkCard, P2PStatus, PathLevel, Topology
from gpumon.health.alerts import ranges_text


def topology_findings(topology: Topology) -> tuple[str, ...]:
    """Each finding in one or two sentences, the most important kind first."""
    return tuple(finding for check in _CHECKS for finding in check(topology))


def _unread(topology: Topology) -> Iterator[str]:
    for gpu in topology.gpus:
        problem = gpu.problems.get("pci_bus_id")
        if problem is not None:
            yield f"GPU {gpu.index} could not be read. {problem}"


def _links_down(topology: Topology) -> Iterator[str]:
    """A card without an NVLink bridge has no link up, which is no fault unless other cards of its product have one."""
    linked = {gpu.name for gpu in topology.gpus if gpu.links_up}
    for gpu in topology.gpus:
        down = [link.number for link in gpu.links or () if link.is_up is False]
        if down and (gpu.links_up or gpu.name in linked):
            subject = "NVLink" if len(down) == 1 else "NVLinks"
            verb = "is" if len(down) == 1 else "are"
            yield (
                f"GPU {gpu.index}: {subject} {ranges_text(down)} {verb} down, {gpu.links_up} of {len(gpu.links or ())} "
                "are up. Check nvidia-smi nvlink -s and, with NVSwitch, the log of the fabric manager."
            )


def _link_errors(topology: Topology) -> Iterator[str]:
    for gpu in topology.gpus:
        for field, noun in (("recovery_count", "recoveries"), ("crc_count", "checksum errors")):
            counts = {link.number: getattr(link, field) for link in gpu.links or () if getattr(link, field)}
            if counts:
                total = sum(counts.values())
                yield (
                    f"GPU {gpu.index}: {total} {noun} on NVLink {ranges_text([*counts])} since the driver was loaded. "
                    "If the number grows, reseat or replace the GPU."
                )


def _narrow_slots(topology: Topology) -> Iterator[str]:
    for gpu in topology.gpus:
        used, most, possible = gpu.pcie_width, gpu.pcie_width_max, gpu.pcie_width_gpu
        if used is not None and most is not None and used < most:
            yield f"GPU {gpu.index} uses {used} of {most} PCIe lanes. Check its seat, its riser, and the slot settings."
        elif most is not None and possible is not None and most < possible:
            yield f"GPU {gpu.index} is in a slot with {most} PCIe lanes; the GPU supports {possible}."


def _slow_slots(topology: Topology) -> Iterator[str]:
    highest: defaultdict[str | None, int] = defaultdict(int)
    for gpu in topology.gpus:
        highest[gpu.name] = max(highest[gpu.name], gpu.pcie_generation_max or 0)
    for gpu in topology.gpus:
        most, best = gpu.pcie_generation_max, highest[gpu.name]
        if most is not None and most < best:
            yield f"GPU {gpu.index} supports PCIe {most} in its slot, other GPUs of its product PCIe {best}."


def _far_cards(topology: Topology) -> Iterator[str]:
    """GPUs far from every RDMA card while other GPUs are near one, or across NUMA nodes."""
    cards = [card for card in topology.cards if card.has_rdma]
    nearest: dict[int, tuple[PathLevel, NetworkCard]] = {}
    for gpu in topology.gpus:
        paths = [(card.levels[gpu.index], card) for card in cards if gpu.index in card.levels]
        if paths:
            nearest[gpu.index] = min(paths, key=lambda path: path[0].distance)
    best = min((level.distance for level, _ in nearest.values()), default=0)
    by_path: defaultdict[tuple[PathLevel, str], list[int]] = defaultdict(list)
    for index, (level, card) in nearest.items():
        is_far = level is PathLevel.SYS or (level.distance >= PathLevel.PHB.distance and level.distance > best)
        if is_far:
            by_path[level, card.name].append(index)
    for (level, name), indices in by_path.items():
        way = "another NUMA node" if level is PathLevel.SYS else "the processor's PCIe host bridge"
        verb = "reaches its" if len(indices) == 1 else "reach their"
        yield (
            f"{_gpus(indices)} {verb} nearest RDMA card, {name}, only through {way} ({level.value}): "
            "transfers between hosts are slower there."
        )


def _split_nodes(topology: Topology) -> Iterator[str]:
    by_node: defaultdict[int, list[LinkedGpu]] = defaultdict(list)
    for gpu in topology.gpus:
        if gpu.numa_node is not None:
            by_node[gpu.numa_node].append(gpu)
    crossing = [pair for pair in topology.pairs if pair.nvlinks == 0 and pair.level is PathLevel.SYS]
    if not crossing:
        return
    if len(by_node) > 1:
        groups = " and ".join(
            f"{ranges_text([gpu.index for gpu in gpus])} (node {node})" for node, gpus in sorted(by_node.items())
        )
        subject = f"GPUs {groups} are on different NUMA nodes"
    else:
        ends = {index for pair in crossing for index in (pair.first, pair.second)}
        subject = f"{_gpus(ends)} are on different NUMA nodes (SYS in the matrix)"
    yield (
        f"{subject} without NVLink between them: copies cross the processors' interconnect. "
        "Give a job GPUs of one node: gpumon pick --count N prefers them."
    )


def _blocked_p2p(topology: Topology) -> Iterator[str]:
    blocked = [pair for pair in topology.pairs if pair.nvlinks and pair.p2p not in {P2PStatus.OK, None}]
    if blocked:
        ends = {index for pair in blocked for index in (pair.first, pair.second)}
        reasons = ", ".join(sorted({pair.p2p.value.replace("_", " ") for pair in blocked if pair.p2p is not None}))
        yield f"{_gpus(ends)} have NVLink, but cannot read each other's memory: {reasons}."


def _gpus(indices: Iterable[int]) -> str:
    every = list(indices)
    return f"GPU{'' if len(every) == 1 else 's'} {ranges_text(every)}"


_CHECKS: Final[tuple[Callable[[Topology], Iterator[str]], ...]] = (
    _unread,
    _links_down,
    _blocked_p2p,
    _narrow_slots,
    _slow_slots,
    _split_nodes,
    _far_cards,
    _link_errors,
)
