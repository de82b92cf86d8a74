"""The topology as lines: a matrix of GPUs and network cards, the connections of each GPU, and first what is wrong."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.topology import GpuPair, LinkedGpu, NetworkCard, P2PStatus, PathLevel, Topology
from gpumon.health.topology import topology_findings
from gpumon.present.nvlink_traffic import traffic_lines
from gpumon.present.paint.line import Line, Role, Span, clipped, line, section_heading, wrapped

_MISSING: Final = "–"
_CELL: Final = 5
"""Cells of a column of the matrix: ``NV18``, ``NODE``, and a space; sixteen of them fit into 100."""
_LABEL: Final = 12
_LEGEND: Final = (
    "NV# NVLinks · PIX one PCIe switch · PXB several switches · PHB host bridge · NODE same NUMA node · SYS other node"
)
_P2P_TEXTS: Final = {
    P2PStatus.OK: "OK",
    P2PStatus.CHIPSET_NOT_SUPPORTED: "CNS",
    P2PStatus.GPU_NOT_SUPPORTED: "GNS",
    P2PStatus.IOH_TOPOLOGY_NOT_SUPPORTED: "TNS",
    P2PStatus.DISABLED_BY_REGKEY: "DR",
    P2PStatus.NOT_SUPPORTED: "NS",
    P2PStatus.UNKNOWN: "U",
}


def topology_lines(topology: Topology, width: int) -> list[Line]:
    """The lines of the screen and of ``gpumon topology``."""
    lines: list[Line] = []
    findings = topology_findings(topology)
    if findings:
        lines.append(section_heading("Findings", width))
        for finding in findings:
            lines += _wrapped(finding, width, Role.WARNING, mark="! ")
        lines.append(line())
    lines += [section_heading("Connections", width), *_matrix(topology), *_wrapped(_LEGEND, width, Role.DIM)]
    lines += [line(), section_heading("GPUs", width), *_gpu_lines(topology.gpus, width)]
    lines += [line(), section_heading("NVLink traffic in GB/s", width), *traffic_lines(topology.gpus, width)]
    if topology.cards:
        lines += [line(), section_heading("Network cards", width), *_card_lines(topology.cards, width)]
    lines += [line(), section_heading("P2P memory access between GPUs", width), *_p2p_lines(topology, width)]
    return lines if findings else [*lines, line(), line("Nothing is wrong with the connections.")]


def _wrapped(text: str, width: int, role: Role = Role.PLAIN, mark: str = "") -> Iterator[Line]:
    for number, piece in enumerate(wrapped(text, width - len(mark))):
        yield line(Span(f"{' ' * len(mark) if number else mark}{piece}", role))


def _matrix(topology: Topology) -> Iterator[Line]:
    indices = [gpu.index for gpu in topology.gpus]
    yield _headings(indices)
    for gpu in topology.gpus:
        cells = (_pair_cell(None if gpu.index == other else topology.pair(gpu.index, other)) for other in indices)
        yield line(f"GPU {gpu.index}".ljust(_LABEL), *cells)
    for card in topology.cards:
        cells = (_level_cell(card.levels.get(index)) for index in indices)
        yield line(clipped(card.name, _LABEL - 1).ljust(_LABEL), *cells)


def _headings(indices: Sequence[int]) -> Line:
    """The headings of the matrix; ``GPU10`` leaves no space between two columns."""
    return line(
        Span(
            " " * _LABEL + "".join((f"GPU{i}" if i < 10 else f"G{i}").ljust(_CELL) for i in indices).rstrip(), Role.DIM
        )
    )


def _pair_cell(pair: GpuPair | None) -> Span:
    if pair is None:
        return Span("X".ljust(_CELL), Role.DIM)
    return Span(pair.label.ljust(_CELL), Role.LINK) if pair.nvlinks else _level_cell(pair.level)


def _level_cell(level: PathLevel | None) -> Span:
    text = _MISSING if level is None else level.value
    return Span(text.ljust(_CELL), Role.WARNING if level is PathLevel.SYS else Role.PLAIN)


def _gpu_lines(gpus: Sequence[LinkedGpu], width: int) -> Iterator[Line]:
    headings = ("GPU", "PCI address", "NUMA", "PCIe now", "PCIe max", "NVLink", "GB/s", "errors", "CPUs")
    widths = (4, 17, 5, 9, 9, 7, 6, 7, 0)
    yield line(Span(_row(headings, widths, width), Role.DIM))
    for gpu in gpus:
        cells = (
            str(gpu.index),
            gpu.pci_bus_id or _MISSING,
            _number(gpu.numa_node),
            _pcie(gpu.pcie_generation, gpu.pcie_width),
            _pcie(gpu.pcie_generation_max, gpu.pcie_width_max),
            _MISSING if gpu.links is None else f"{gpu.links_up}/{len(gpu.links)}",
            _rate(gpu),
            _errors(gpu),
            gpu.cpus or _MISSING,
        )
        yield line(_row(cells, widths, width))


def _card_lines(cards: Sequence[NetworkCard], width: int) -> Iterator[Line]:
    widths = (_LABEL, 17, 5, 6, 5, 24, 0)
    yield line(
        Span(_row(("Card", "PCI address", "NUMA", "link", "RDMA", "interfaces", "nearest"), widths, width), Role.DIM)
    )
    for card in cards:
        state = {True: "up", False: "down", None: _MISSING}[card.is_up]
        cells = (
            clipped(card.name, _LABEL - 1),
            card.pci_bus_id or _MISSING,
            _number(card.numa_node),
            state,
            "yes" if card.has_rdma else "no",
            clipped(", ".join(card.interfaces) or _MISSING, 23),
            _nearest(card),
        )
        yield line(_row(cells, widths, width))


def _nearest(card: NetworkCard) -> str:
    """The GPUs that are nearest to a card."""
    best = min((level.distance for level in card.levels.values()), default=None)
    names = [f"GPU{index}" for index, level in card.levels.items() if level.distance == best]
    return " ".join(names) or _MISSING


def _p2p_lines(topology: Topology, width: int) -> Iterator[Line]:
    states = {pair.p2p for pair in topology.pairs}
    if not states:
        yield line("There is only one GPU.")
    elif len(states) == 1:
        (state,) = states
        if state is P2PStatus.OK:
            yield line("Every GPU can read the memory of every other GPU.")
        elif state is None:
            problem = topology.pairs[0].problems.get("p2p")
            yield from _wrapped(f"Unknown. {'' if problem is None else problem.reason}".strip(), width)
        else:
            yield line(f"No GPU can read the memory of another GPU: {state.value.replace('_', ' ')}.")
    else:
        indices = [gpu.index for gpu in topology.gpus]
        yield _headings(indices)
        for one in indices:
            yield line(f"GPU {one}".ljust(_LABEL), *(_p2p_cell(topology, one, other) for other in indices))
        shown = [state for state in _P2P_TEXTS if state in states]
        legend = " · ".join(f"{_P2P_TEXTS[state]} {state.value.replace('_', ' ')}" for state in shown)
        yield line(Span(legend, Role.DIM))


def _p2p_cell(topology: Topology, one: int, other: int) -> Span:
    if one == other:
        return Span("X".ljust(_CELL), Role.DIM)
    state = topology.pair(one, other).p2p
    text = _MISSING if state is None else _P2P_TEXTS[state]
    return Span(text.ljust(_CELL), Role.PLAIN if state in {P2PStatus.OK, None} else Role.WARNING)


def _row(cells: Sequence[str], widths: Sequence[int], width: int) -> str:
    text = "".join(cell.ljust(size) if size else cell for cell, size in zip(cells, widths, strict=True))
    return clipped(text, width)


def _number(value: int | None) -> str:
    return _MISSING if value is None else str(value)


def _pcie(generation: int | None, lanes: int | None) -> str:
    return _MISSING if generation is None or lanes is None else f"{generation}.0 x{lanes}"


def _rate(gpu: LinkedGpu) -> str:
    """The rate of all active links together, in one direction."""
    rates = [link.bytes_per_second for link in gpu.links or () if link.is_up]
    known = [rate for rate in rates if rate is not None]
    return f"{sum(known) / 1e9:.0f}" if known and len(known) == len(rates) else _MISSING


def _errors(gpu: LinkedGpu) -> str:
    """Errors of all links together; missing if no link reports them."""
    counts = [count for link in gpu.links or () for count in (link.recovery_count, link.crc_count) if count is not None]
    return str(sum(counts)) if counts else _MISSING
