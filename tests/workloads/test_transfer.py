"""Transfer: its curve, its checks and the causes that it names."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.workloads.conftest import Judge, RunWorkload, load_workload, needs_torch, output_of

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def transfer() -> ModuleType:
    """The workload's file, loaded without torch."""
    return load_workload("transfer")


def test_sizes_grow_by_four_and_end_with_the_largest(transfer: ModuleType) -> None:
    assert [transfer.size_text(size) for size in transfer.sizes_up_to(1 << 30)] == [
        "4KiB", "16KiB", "64KiB", "256KiB", "1MiB", "4MiB", "16MiB", "64MiB", "256MiB", "1GiB",
    ]  # fmt: skip
    assert transfer.sizes_up_to(17 * MEBIBYTE)[-2:] == [16 * MEBIBYTE, 17 * MEBIBYTE]


def test_the_largest_copy_leaves_room(transfer: ModuleType) -> None:
    assert transfer.largest_size(1 << 30, 100 << 30, 100 << 30) == 1 << 30
    assert transfer.largest_size(1 << 30, 100 << 30, None) == 1 << 30
    assert transfer.largest_size(1 << 30, 100 << 30, 1 << 30) == 256 * MEBIBYTE
    assert transfer.largest_size(1 << 30, 1 << 30, 100 << 30) < 256 * MEBIBYTE
    with pytest.raises(Exception, match="not sufficient"):
        transfer.largest_size(1 << 30, 10 * MEBIBYTE, None)


def test_host_memory_is_read(transfer: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 10 kB\nMemAvailable:   7 kB\n")
    assert transfer.host_free_bytes(tmp_path / "meminfo") == 7 * 1024
    assert transfer.host_free_bytes(tmp_path / "none") is None


def test_a_narrow_or_slow_link_is_told(transfer: ModuleType, tmp_path: Path) -> None:
    assert transfer.link_causes(tmp_path) == ([], [])
    values = {"current_link_width": "8", "max_link_width": "16"}
    values |= {"current_link_speed": "2.5 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
    for name, text in values.items():
        (tmp_path / name).write_text(text + "\n")
    warnings, remarks = transfer.link_causes(tmp_path)
    assert "x8" in warnings[0]
    assert "x16" in warnings[0]
    assert "2.5 GT/s" in remarks[0]
    (tmp_path / "current_link_width").write_text("16")
    (tmp_path / "current_link_speed").write_text("Unknown")
    assert transfer.link_causes(tmp_path) == ([], [])
    (tmp_path / "max_link_width").write_text("255")  # what a virtual machine may say
    assert transfer.link_causes(tmp_path) == ([], [])


def test_the_memory_node_matters_only_when_it_is_known_and_far(transfer: ModuleType, tmp_path: Path) -> None:
    assert transfer.numa_causes(tmp_path, tmp_path, {0}) == []
    (tmp_path / "numa_node").write_text("-1")
    assert transfer.numa_causes(tmp_path, tmp_path, {0}) == []
    (tmp_path / "numa_node").write_text("1")
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "cpulist").write_text("4-7,12\n")
    assert transfer.numa_causes(tmp_path, tmp_path, {0, 12}) == []
    (cause,) = transfer.numa_causes(tmp_path, tmp_path, {0, 1})
    assert "NUMA node 1" in cause
    machine = load_workload("_kit.host")
    assert machine.cpus_of("0-2,8") == {0, 1, 2, 8}
    assert machine.cpus_of("what") == set()


RATES = {"to_device_pinned": 55.0, "from_device_pinned": 54.0, "to_device_pageable": 10.0, "from_device_pageable": 18.0}


@pytest.mark.parametrize(
    ("rates", "kind", "said"),
    [
        ({}, "ok", "5.5 times slower to device, by design"),
        ({"from_device_pinned": 20.0}, "warn", "more than twice as fast"),
        ({"to_device_pageable": 56.0}, "warn", "not faster than pageable"),
        ({"peer_0_1": 390.0, "peer_1_0": 40.0}, "warn", "peer_1_0"),
    ],
)
def test_the_verdict_names_what_is_low(transfer: ModuleType, rates: dict[str, float], kind: str, said: str) -> None:
    verdict = transfer.verdict_of(Judge(), transfer.TransferResults(rates={**RATES, **rates}))
    assert verdict[0] == kind
    assert said in verdict[1]


@needs_torch
def test_one_wrong_byte_is_found_where_it_is() -> None:
    said = output_of(
        "transfer",
        """
results = w.TransferResults()
buffer = torch.zeros(40 << 20, dtype=torch.uint8)
w._fill(context, buffer, 3)
w._check(context, results, "good", buffer, seed=3)
w._check(context, results, "its second half", buffer[20 << 20 :], first_byte=20 << 20, seed=3)
print(len(results.wrong), context.checked, len(set(buffer[:65536].tolist())))
buffer[35_000_001] ^= 4
buffer[35_000_005] ^= 1
w._check(context, results, "bad", buffer, seed=3)
w._check(context, results, "other seed", buffer, seed=4)
print(results.wrong)
""",
    )
    first, second = said.splitlines()
    assert first == "0 2 256"
    assert "bad: 2 of 41943040 bytes are wrong, the first at byte 35000001." in second
    assert "other seed" in second


@pytest.mark.gpu
@needs_torch
def test_it_runs_on_a_gpu(run_workload: RunWorkload) -> None:
    ran = run_workload("transfer", "cuda:0", max_mebibytes=64, milliseconds=20, peers=False)
    assert ran.result["verdict"] in {"ok", "warn"}, ran.result["why"]
    assert ran.metric("to_device_pinned")["limit_source"] == "pcie"
    assert ran.metric("to_device_pinned")["value"] > ran.metric("to_device_pageable")["value"]
    for name in ("to_device_pinned_4KiB", "from_device_pageable_64MiB", "both_directions", "latency_to_device"):
        assert ran.metric(name)["value"] > 0
    assert ran.of("memory")[-1]["reserved_bytes"] <= 64 * MEBIBYTE
