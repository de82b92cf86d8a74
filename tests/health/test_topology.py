"""What `topology_findings` finds, and what it does not report as wrong."""

from dataclasses import replace
from typing import Any

from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.topology import GpuPair, LinkedGpu, NetworkCard, NvLink, P2PStatus, PathLevel, Topology
from gpumon.health.topology import topology_findings

NO_NVLINK = Problem(ProblemCode.NOT_SUPPORTED, "Not supported by this GPU or driver.")


def gpu(index: int, link_count: int = 18, **changes: Any) -> LinkedGpu:  # noqa: ANN401
    values: dict[str, Any] = {
        "name": "NVIDIA H200",
        "numa_node": index // 4,
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_width_gpu": 16,
        "links": tuple(
            NvLink(number, True, replay_count=0, recovery_count=0, crc_count=0) for number in range(link_count)
        ),
    }
    return LinkedGpu(index, **(values | changes))


def host(*gpus: LinkedGpu, nvlinks: int = 18, p2p: P2PStatus = P2PStatus.OK) -> Topology:
    pairs = [
        GpuPair(
            one.index, other.index, PathLevel.SYS if one.numa_node != other.numa_node else PathLevel.PIX, nvlinks, p2p
        )
        for position, one in enumerate(gpus)
        for other in gpus[position + 1 :]
    ]
    return Topology(gpus, tuple(pairs))


def only(topology: Topology) -> str:
    (finding,) = topology_findings(topology)
    return finding


def test_a_host_without_faults_has_no_findings() -> None:
    assert topology_findings(host(*(gpu(index) for index in range(8)))) == ()
    assert topology_findings(host(gpu(0))) == ()
    assert topology_findings(Topology()) == ()


def test_an_idle_gpu_at_a_lower_generation_is_no_fault() -> None:
    assert topology_findings(host(gpu(0, pcie_generation=1))) == ()


def test_links_that_are_down() -> None:
    links = tuple(NvLink(number, number not in {5, 7}) for number in range(18))
    assert only(host(gpu(0), gpu(1, links=links))).startswith("GPU 1: NVLinks 5, 7 are down, 16 of 18 are up.")


def test_cards_without_a_bridge_are_no_fault() -> None:
    links = tuple(NvLink(number, False) for number in range(12))
    assert topology_findings(host(gpu(0, links=links), gpu(1, links=links), nvlinks=0)) == ()


def test_narrow_and_slow_slots() -> None:
    assert "uses 8 of 16 PCIe lanes" in only(host(gpu(0), gpu(1, pcie_width=8)))
    assert "a slot with 8 PCIe lanes" in only(host(gpu(0), gpu(1, pcie_width=8, pcie_width_max=8)))
    assert "PCIe 3 in its slot" in only(host(gpu(0), gpu(1, pcie_generation_max=3)))


def test_numa_nodes_without_nvlink() -> None:
    split = host(*(gpu(index, links=None, problems={"links": NO_NVLINK}) for index in (0, 1, 4, 5)), nvlinks=0)
    assert only(split).startswith("GPUs 0-1 (node 0) and 4-5 (node 1) are on different NUMA nodes without NVLink")
    unknown = Topology(tuple(replace(one, numa_node=None) for one in split.gpus), split.pairs)
    assert only(unknown).startswith("GPUs 0-1, 4-5 are on different NUMA nodes (SYS in the matrix)")


def test_gpus_far_from_their_network_card() -> None:
    gpus = [gpu(index) for index in range(3)]
    levels = {0: PathLevel.PIX, 1: PathLevel.PHB, 2: PathLevel.SYS}
    card = NetworkCard("mlx5_0", has_rdma=True, levels=levels)
    findings = topology_findings(replace(host(*gpus), cards=(card,)))
    assert [finding.partition(" only")[0] for finding in findings] == [
        "GPU 1 reaches its nearest RDMA card, mlx5_0,",
        "GPU 2 reaches its nearest RDMA card, mlx5_0,",
    ]
    ethernet = replace(card, has_rdma=False)
    assert topology_findings(replace(host(*gpus), cards=(ethernet,))) == ()


def test_p2p_that_is_blocked_despite_nvlink() -> None:
    assert "cannot read each other's memory: disabled by regkey" in only(
        host(gpu(0), gpu(1), p2p=P2PStatus.DISABLED_BY_REGKEY)
    )


def test_errors_of_links() -> None:
    links = (NvLink(0, True, recovery_count=2, crc_count=0), NvLink(1, True, recovery_count=1))
    assert "3 recoveries on NVLink 0-1" in only(host(gpu(0, links=links)))


def test_a_gpu_that_was_not_read() -> None:
    lost = LinkedGpu(1, problems={"pci_bus_id": Problem(ProblemCode.GPU_LOST, "The GPU has fallen off the bus.")})
    assert only(Topology((gpu(0), lost))) == "GPU 1 could not be read. The GPU has fallen off the bus."
