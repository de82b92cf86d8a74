"""Chips that share the host's memory, and those that do not."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from gpumon.collect.calls import CallsInFlight
from gpumon.collect.device import SHARED_MEMORY, DeviceReader, add_host_memory, has_shared_memory, host_memory
from gpumon.collect.nvml import Nvml
from gpumon.collect.processes import ProcessTable
from gpumon.core.model import Device
from gpumon.core.problems import Problem, ProblemCode
from tests.collect.fake import NOT_SUPPORTED, UNKNOWN, FakeNvml
from tests.collect.proc import add_process

MEMORY = "nvmlDeviceGetMemoryInfo"
FIGURES = ("memory_total_bytes", "memory_used_bytes", "memory_free_bytes")
UNTOLD = Problem(ProblemCode.NOT_SUPPORTED, "Not supported by this GPU or driver.")


@pytest.mark.parametrize(
    ("name", "capability", "unified"),
    [
        ("NVIDIA GB10", "12.1", True), ("NVIDIA-GB10", None, True), ("Orin (nvgpu)", None, True),
        ("NVIDIA Thor", "11.0", True), ("NVIDIA Jetson AGX Xavier", None, True), (None, "8.7", True),
        ("NVIDIA H200", "9.0", False), ("NVIDIA GH200 480GB", "9.0", False), ("NVIDIA GB200", "10.0", False),
        ("NVIDIA GB100", None, False), ("NVIDIA GeForce RTX 5090", "12.0", False), ("NVIDIA A10", "8.6", False),
        (None, None, False),
    ],
)  # fmt: skip
def test_chips_by_name_and_capability(name: str | None, capability: str | None, unified: bool) -> None:
    assert has_shared_memory(name, capability) is unified


def test_the_hosts_memory_counts_cache_as_free(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  400 kB\nCached: 390 kB\n")
    assert host_memory(tmp_path) == dict(zip(FIGURES, (1000 << 10, 600 << 10, 400 << 10), strict=True))


@pytest.mark.parametrize("text", ["", "MemTotal: 1000 kB\n", "garbage"])
def test_without_meminfo_the_memory_is_unknown(tmp_path: Path, text: str) -> None:
    assert host_memory(tmp_path) == {}
    (tmp_path / "meminfo").write_text(text)
    readings: dict[str, float] = {}
    problems = dict.fromkeys(FIGURES, UNTOLD)
    add_host_memory(readings, problems, lambda: host_memory(tmp_path))
    assert readings == {}
    assert {problems[metric] for metric in FIGURES} == {UNTOLD}


def test_memory_that_nvml_reports_is_not_replaced() -> None:
    readings = {"memory_total_bytes": 5.0}
    problems: dict[str, Problem] = {}
    add_host_memory(readings, problems, dict)
    assert (readings, problems) == ({"memory_total_bytes": 5.0}, {})


def whole(tmp_path: Path, capability: tuple[int, int], memory: object) -> Device:
    """A device after its second reading, when all is known of it."""
    add_process(tmp_path, 4000)
    fake = FakeNvml()
    fake.answer(MEMORY, memory)
    fake.answer("nvmlDeviceGetCudaComputeCapability", capability)
    reader = DeviceReader(Nvml(library=fake), 0, ProcessTable(CallsInFlight(), tmp_path))
    reader.read(0, 10_000)
    return reader.read(1, 10_000)


@pytest.mark.parametrize("memory", [NOT_SUPPORTED, SimpleNamespace(total=0, used=0, free=0, reserved=0), UNKNOWN])
def test_a_chip_that_shares_memory_shows_the_hosts_memory_and_the_reason(tmp_path: Path, memory: object) -> None:
    device = whole(tmp_path, (12, 1), memory)
    assert all(device.get(metric) for metric in FIGURES)
    assert not set(FIGURES) & set(device.problems)
    assert device.problems["memory_reserved_bytes"] == SHARED_MEMORY
    assert device.problems["memory_unattributed_bytes"] == SHARED_MEMORY
    (process,) = device.processes or ()
    assert process.memory_bytes is not None


@pytest.mark.parametrize("memory", [NOT_SUPPORTED, UNKNOWN])
def test_a_card_never_has_the_hosts_memory(tmp_path: Path, memory: object) -> None:
    device = whole(tmp_path, (9, 0), memory)
    assert not set(FIGURES) & set(device.readings)
    assert set(FIGURES) <= set(device.problems)
    assert SHARED_MEMORY not in device.problems.values()
