"""The topology: from the driver's answers and sysfs to the records, with calls that fail or never return."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pynvml  # noqa: TID251 - its errors are what the stand-in raises
import pytest

from gpumon.collect import nvml
from gpumon.collect.calls import CallsInFlight
from gpumon.collect.nvml import Nvml
from gpumon.collect.readers import Field
from gpumon.collect.topology import TopologyReader
from gpumon.core.problems import ProblemCode
from gpumon.core.procfs import sysfs_bus_id
from gpumon.core.topology import NvLink, P2PStatus, PathLevel, Topology, from_document, to_document
from tests.collect.fake import LOST, NOT_SUPPORTED, FakeNvml, fields

NVLINK_FIELDS = (
    nvml.FIELD_NVLINK_STATE,
    nvml.FIELD_NVLINK_SPEED,
    nvml.FIELD_NVLINK_REPLAYS,
    nvml.FIELD_NVLINK_RECOVERIES,
    nvml.FIELD_NVLINK_CRC_ERRORS,
)
NO_NVLINK = dict.fromkeys(NVLINK_FIELDS, NOT_SUPPORTED)


def bus_id(index: int) -> str:
    """GPUs 0 to 3 are below root 0000:15, the others below 0000:95; two GPUs share a switch."""
    return f"00000000:{0x18 + index + (0x7C if index >= 4 else 0):02X}:00.0"


def fake_driver(gpus: int, *, nvlink: bool) -> FakeNvml:
    fake = FakeNvml(gpus)
    fake.answer("nvmlDeviceGetPciInfo", lambda handle: SimpleNamespace(busId=bus_id(handle).encode()))
    if not nvlink:
        fake.answer("nvmlDeviceGetFieldValues", fields(NO_NVLINK))
    half = (gpus + 1) // 2

    def level(one: int, other: int) -> int:
        same = one // half == other // half
        number: int = nvml.TOPOLOGY_SINGLE if same else nvml.TOPOLOGY_SYSTEM
        return number

    fake.answer("nvmlDeviceGetTopologyCommonAncestor", level)
    return fake


def add_device(sys: Path, path: str, node: int, **files: str) -> Path:
    """A PCI device below the given root and bridges."""
    folder = sys / "devices" / path
    folder.mkdir(parents=True)
    for name, text in {"numa_node": str(node), "local_cpulist": "0-7,16-23", "max_link_width": "16", **files}.items():
        (folder / name).write_text(f"{text}\n")
    by_id = sys / "bus/pci/devices"
    by_id.mkdir(parents=True, exist_ok=True)
    (by_id / folder.name).symlink_to(folder)
    return folder


def add_card(sys: Path, kind: str, name: str, device: Path, **files: str) -> None:
    folder = sys / "class" / kind / name
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(device)
    for file, text in files.items():
        target = folder / file.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n")


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """A host with eight GPUs on two NUMA nodes, an RDMA card next to GPUs 0 and 1, and an Ethernet card elsewhere."""
    root = tmp_path / "sys"
    for index in range(8):
        node = index // 4
        root_name = f"pci0000:{'15' if node == 0 else '95'}"
        bus = f"{'1' if node == 0 else '9'}{index // 2}"
        path = f"{root_name}/0000:{bus}:01.0/0000:{bus}:02.0/0000:{bus}:0{index % 2}.1/{sysfs_bus_id(bus_id(index))}"
        add_device(root, path, node)
    near = add_device(root, "pci0000:15/0000:10:01.0/0000:10:02.0/0000:10:03.1/0000:40:00.0", 0)
    add_card(root, "infiniband", "mlx5_10", near, ports__1__state="4: ACTIVE")
    (near / "net/ibs1").mkdir(parents=True)
    add_card(root, "net", "ibs1", near, operstate="up")
    far = add_device(root, "pci0000:e0/0000:e0:01.0/0000:e1:00.0", 1)
    add_card(root, "net", "eno1", far, operstate="down")
    (root / "class/net/lo").mkdir()
    return root


def read(fake: FakeNvml, sys: Path = Path("/nowhere"), call_seconds: float = 5.0, total: float = 10.0) -> Topology:
    in_flight = CallsInFlight()
    return TopologyReader(Nvml(library=fake, in_flight=in_flight), in_flight, sys, call_seconds, total).read()


def test_eight_gpus_with_an_nvswitch(sys: Path) -> None:
    topology = read(fake_driver(8, nvlink=True), sys)
    assert len(topology.pairs) == 28
    assert {pair.label for pair in topology.pairs} == {"NV18"}
    assert {pair.p2p for pair in topology.pairs} == {P2PStatus.OK}
    first = topology.gpus[0]
    assert (first.links_up, first.cpus, first.numa_node, first.pcie_width_gpu) == (18, "0-7,16-23", 0, 16)
    assert topology.gpus[7].numa_node == 1
    assert first.memory_numa_node is None
    assert first.problems["memory_numa_node"].code is ProblemCode.NOT_SUPPORTED
    assert first.links is not None
    assert first.links[3].remote_bus_id == "00000000:C8:00.0"
    assert first.links[3].bytes_per_second == 26_562_000_000


def test_bridges_connect_only_the_gpus_at_their_ends() -> None:
    fake = fake_driver(4, nvlink=True)
    fake.answer(
        "nvmlDeviceGetNvLinkRemotePciInfo", lambda handle, _: SimpleNamespace(busId=bus_id(handle ^ 1).encode())
    )
    labels = {(pair.first, pair.second): pair.label for pair in read(fake).pairs}
    assert labels[0, 1] == labels[2, 3] == "NV18"
    assert labels[0, 2] == "SYS"


def test_a_link_that_is_down_connects_nothing() -> None:
    fake = fake_driver(2, nvlink=True)

    def answer(handle: int, asked: list[object]) -> list[object]:
        answers = fields()(handle, asked)
        for field, value in zip(asked, answers, strict=True):
            if handle == 1 and field.scope == 5 and field.id in NVLINK_FIELDS[:2]:  # type: ignore[attr-defined]
                value.value.uiVal = 0
        return answers

    fake.answer("nvmlDeviceGetFieldValues", answer)
    topology = read(fake)
    assert topology.gpus[1].links_up == 17
    assert topology.pair(0, 1).label == "NV17"


def test_network_cards_and_their_distances(sys: Path) -> None:
    rdma, ethernet = read(fake_driver(8, nvlink=True), sys).cards
    assert (rdma.name, rdma.has_rdma, rdma.interfaces, rdma.is_up) == ("mlx5_10", True, ("ibs1",), True)
    assert [rdma.levels[index].value for index in range(8)] == ["PIX", "PIX", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS"]
    assert (ethernet.name, ethernet.has_rdma, ethernet.is_up) == ("eno1", False, False)
    assert ethernet.levels[0] is PathLevel.SYS
    assert ethernet.levels[7] is PathLevel.NODE


def test_a_gpu_that_is_lost_costs_only_its_own_values() -> None:
    fake = fake_driver(3, nvlink=True)
    fake.answer("nvmlDeviceGetHandleByIndex", lambda index: (_ for _ in ()).throw(LOST) if index == 1 else index)
    topology = read(fake)
    assert topology.gpus[1].problems["uuid"].code is ProblemCode.GPU_LOST
    assert topology.pair(0, 2).label == "NV18"
    assert topology.pair(0, 1).label == "–"
    assert topology.pair(0, 1).problems["nvlinks"].code is ProblemCode.GPU_LOST
    assert topology.pair(0, 1).problems["level"].code is ProblemCode.GPU_LOST
    assert topology.pair(0, 2).level is PathLevel.SYS


def test_a_call_that_never_returns_is_left_behind() -> None:
    gate = threading.Event()
    fake = fake_driver(3, nvlink=True)
    fake.answer("nvmlDeviceGetUUID", lambda _: gate.wait(20), device=1)
    try:
        topology = read(fake, call_seconds=0.1)
    finally:
        gate.set()
    assert "nvmlDeviceGetUUID" in topology.gpus[1].problems["uuid"].reason
    assert topology.gpus[2].uuid == "GPU-2"
    assert topology.pair(0, 2).label == "NV18"
    assert topology.pair(1, 2).level is None


def test_without_a_driver_there_is_a_reason() -> None:
    fake = FakeNvml(1)
    fake.answer("nvmlInitWithFlags", pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    topology = read(fake)
    assert topology.gpus == ()
    assert topology.problems["driver"].code is ProblemCode.DRIVER_NOT_LOADED


def test_every_topology_call_is_made() -> None:
    fake = fake_driver(2, nvlink=True)
    read(fake)
    names = ("NumaNodeId", "NvLinkRemotePciInfo", "TopologyCommonAncestor", "P2PStatus")
    assert {f"nvmlDeviceGet{name}" for name in names} <= set(fake.count())


def test_the_document_has_everything(sys: Path) -> None:
    topology = read(fake_driver(8, nvlink=True), sys)
    assert from_document(json.loads(json.dumps(to_document(topology)))) == topology


class Counters:
    """A fake driver with two GPUs whose links count KiB, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.kibibytes = 1_000_000
        self.answer: object | None = None
        self.fake = fake = fake_driver(2, nvlink=True)
        fake.answer("nvmlDeviceGetFieldValues", self._fields)
        in_flight = CallsInFlight(lambda: self.now)
        self.reader = TopologyReader(Nvml(library=fake, in_flight=in_flight), in_flight, Path("/nowhere"))

    def _fields(self, handle: int, asked: list[object]) -> list[object]:
        counter = (3, self.kibibytes) if self.answer is None else self.answer
        known = {nvml.FIELD_NVLINK_TRANSMITTED: counter, nvml.FIELD_NVLINK_RECEIVED: (3, 7)}
        return fields(known)(handle, asked)

    def link(self, *, first: bool = False) -> NvLink:
        if first:
            self.reader.read()
        topology = self.reader.read_rates()
        assert topology.gpus[1].links is not None
        assert len(topology.gpus[1].links) == 18
        return topology.gpus[1].links[17]


def test_the_rates_of_a_link_follow_from_two_readings_of_its_counters() -> None:
    counters = Counters()
    first = counters.link(first=True)
    assert first.transmitted_bytes == 1_024_000_000
    assert first.transmit_bytes_per_second is None
    assert first.problems["transmit_bytes_per_second"].code is ProblemCode.NOT_READ
    counters.now += 2
    counters.kibibytes += 2_000_000
    second = counters.link()
    assert second.transmitted_bytes == 3_072_000_000
    assert (second.transmit_bytes_per_second, second.receive_bytes_per_second) == (1_024_000_000, 0)
    assert not second.problems.keys() & {"transmit_bytes_per_second", "transmitted_bytes"}
    assert second.bytes_per_second == 26_562_000_000, "the rest is as it was"


def test_the_connections_are_read_without_the_counters() -> None:
    counters = Counters()
    calls: list[list[int]] = []

    def recorded(handle: int, asked: list[Field]) -> list[object]:
        calls.append([item.id for item in asked])
        return fields({nvml.FIELD_NVLINK_STATE: 1, nvml.FIELD_NVLINK_SPEED: 26_562})(handle, asked)

    counters.fake.answer("nvmlDeviceGetFieldValues", recorded)
    link = counters.reader.read().gpus[1].links
    counted = {nvml.FIELD_NVLINK_TRANSMITTED, nvml.FIELD_NVLINK_RECEIVED}
    assert link is not None
    assert link[17].problems["transmitted_bytes"].code is ProblemCode.NOT_READ
    assert not any(counted & set(call) for call in calls)
    counters.reader.read_rates()
    assert counted == set(calls[-1])


@pytest.mark.parametrize("step", [-1, 80_000_000])
def test_a_counter_that_goes_back_or_is_faster_than_its_link_gives_no_rate(step: int) -> None:
    counters = Counters()
    counters.link(first=True)
    counters.now += 2
    counters.kibibytes += step
    link = counters.link()
    assert link.transmit_bytes_per_second is None
    assert link.problems["transmit_bytes_per_second"].code is ProblemCode.INVALID_VALUE
    counters.now += 2
    assert counters.link().transmit_bytes_per_second == 0


@pytest.mark.parametrize(
    ("answer", "code"), [(NOT_SUPPORTED, ProblemCode.NOT_SUPPORTED), ((3, (1 << 64) - 1), ProblemCode.INVALID_VALUE)]
)
def test_links_without_counters_have_the_reason(answer: object, code: ProblemCode) -> None:
    counters = Counters()
    counters.answer = answer
    for first in (True, False):
        link = counters.link(first=first)
        assert link.is_up
        for field in ("transmitted_bytes", "transmit_bytes_per_second"):
            assert getattr(link, field) is None
            assert link.problems[field].code is code
        counters.now += 1


@pytest.mark.parametrize(
    "damage", [{"schema": 2}, {"gpus": [{"index": "x"}]}, {"pairs": [{"level": "NEAR"}]}, {"gpus": 3}]
)
def test_a_damaged_document_is_refused(damage: dict[str, object]) -> None:
    document = {**to_document(Topology()), **damage}
    with pytest.raises((TypeError, ValueError)):
        from_document(document)
