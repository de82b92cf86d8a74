"""Instances of a GPU that is split (MIG)."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.collect.calls import CallsInFlight
from gpumon.collect.device import DeviceReader
from gpumon.collect.instances import NOT_OF_INSTANCE
from gpumon.collect.nvml import Nvml
from gpumon.collect.nvml_session import Slot
from gpumon.collect.processes import ProcessTable
from gpumon.collect.schedule import Period
from gpumon.core.metrics import METRICS
from gpumon.core.model import DEVICE_ATTRIBUTES, Device, DeviceState, Frame, MigInstance, Switch
from gpumon.core.problems import ProblemCode
from tests.collect.conftest import Live
from tests.collect.fake import (
    LOST,
    MIB,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    VOID_HANDLE,
    FakeGpm,
    FakeNvml,
    entry,
    error,
)
from tests.collect.proc import add_process

NOT_FOUND = error(6)
BY_INDEX = "nvmlDeviceGetMigDeviceHandleByIndex"
MEMORY = "nvmlDeviceGetMemoryInfo"
RATES = "nvmlDeviceGetUtilizationRates"
COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
FIRST, SECOND = 100, 102
"""Handles; there is no instance at the second place."""


def memory(mebibytes: int) -> Any:  # noqa: ANN401
    total = 18_000 * MIB
    used, reserved = mebibytes * MIB, 80 * MIB
    return SimpleNamespace(total=total, used=used, reserved=reserved, free=total - used - reserved)


class Split:
    """A GPU with two instances and a separate clock."""

    def __init__(self, proc: Path) -> None:
        for pid in (4000, 4001):
            add_process(proc, pid)
        self.fake = FakeNvml()
        self.now = 0.0
        self.fake.answer("nvmlDeviceGetMigMode", [1, 1])
        self.fake.answer(RATES, NOT_SUPPORTED)
        self.fake.answer("nvmlDeviceGetMaxMigDeviceCount", 3)
        self.put({0: FIRST, 2: SECOND})
        for handle, name, pid in ((FIRST, "1g.18gb", 4000), (SECOND, "2g.35gb", 4001)):
            self.fake.answer("nvmlDeviceGetUUID", f"MIG-{handle}", handle)
            self.fake.answer("nvmlDeviceGetName", f"NVIDIA H200 MIG {name}", handle)
            self.fake.answer("nvmlDeviceGetGpuInstanceId", handle - 93, handle)
            self.fake.answer("nvmlDeviceGetComputeInstanceId", 0, handle)
            self.fake.answer(MEMORY, memory(1010), handle)
            self.fake.answer(COMPUTE, [entry(pid, 1000)], handle)
        self.reader = DeviceReader(Nvml(library=self.fake), 0, ProcessTable(CallsInFlight(), proc))

    def put(self, handles: dict[int, int]) -> None:
        """Makes these the instances, by place."""

        def by_index(_: int, place: int) -> int:
            if place not in handles:
                raise NOT_FOUND
            return handles[place]

        self.fake.answer(BY_INDEX, by_index)

    def read(self, ticks: int = 1) -> Device:
        for _ in range(ticks):
            device = self.reader.read(self.now, 10_000)
            self.now += 1
        return device


@pytest.fixture
def split(tmp_path: Path) -> Split:
    return Split(tmp_path)


def test_each_instance_is_a_separate_device(split: Split) -> None:
    whole = split.read(2)
    first, second = split.reader.instances
    assert (first.instance, second.instance) == (MigInstance("GPU-0", 0, 7, 0), MigInstance("GPU-0", 2, 9, 0))
    assert (first.label, second.label, whole.label) == ("0:0", "0:2", "0")
    assert (first.uuid, first.key, first.name) == ("MIG-100", "MIG-100", "NVIDIA H200 MIG 1g.18gb")
    assert (first.index, first.pci_bus_id, first.architecture) == (0, whole.pci_bus_id, "Hopper")
    assert first.get("memory_used_bytes") == 1010 * MIB
    assert first.get("memory_unattributed_bytes") == 10 * MIB
    assert [process.pid for process in first.processes or ()] == [4000]
    assert [process.pid for process in second.processes or ()] == [4001]


def test_values_that_nvml_does_not_report_for_an_instance_have_a_reason(split: Split) -> None:
    split.read(2)
    first = split.reader.instances[0]
    assert set(METRICS) <= set(first.readings) | set(first.problems)
    assert not set(first.readings) & set(first.problems)
    assert first.problems["utilization_gpu_percent"].code is ProblemCode.NOT_SUPPORTED, "without counters"
    assert first.problems["throttle_reasons"] == first.problems["mig_mode"] == NOT_OF_INSTANCE
    assert {name for name in DEVICE_ATTRIBUTES if getattr(first, name) is None} == {"mig_mode", "mig_mode_pending"}
    assert first.processes is not None
    assert first.processes[0].problems["sm_percent"].code is ProblemCode.NOT_SUPPORTED
    assert "MIG" in first.processes[0].problems["sm_percent"].reason


def test_the_counters_of_an_instance_have_its_utilization_and_are_freed_with_it(split: Split) -> None:
    gpm = FakeGpm(split.fake)
    gpm.values[1] = 42.0
    split.read(4)
    assert [instance.get("utilization_gpu_percent") for instance in split.reader.instances] == [42.0, 42.0]
    assert split.reader.instances[0].get("sm_activity_percent") == 1.0
    for call in (MEMORY, COMPUTE):
        split.fake.answer(call, VOID_HANDLE, FIRST)
    split.read()
    assert len(gpm.samples) == 2, "those of the other instance"
    split.reader.forget_handle()
    assert gpm.samples == []


def test_in_mig_mode_the_instances_have_the_processes(split: Split) -> None:
    split.fake.answer(COMPUTE, [entry(4000, 1000), entry(4001, 1000)], 0)
    whole = split.read(3)
    assert whole.mig_mode is Switch.ENABLED
    assert whole.processes == ()
    assert whole.get("memory_unattributed_bytes") is None
    assert "instances" in whole.problems["memory_unattributed_bytes"].reason
    assert "MIG" in whole.problems["utilization_gpu_percent"].reason
    assert whole.get("power_watts") is not None


def test_a_gpu_that_is_not_split_is_not_asked_for_instances(split: Split) -> None:
    split.fake.answer("nvmlDeviceGetMigMode", [0, 0])
    split.read(30)
    assert split.reader.instances == ()
    assert not split.fake.count().keys() & {BY_INDEX, "nvmlDeviceGetMaxMigDeviceCount"}


def test_instances_are_searched_every_ten_seconds(split: Split) -> None:
    split.read(2)
    split.put({1: SECOND})
    split.fake.count()
    split.read(8)
    assert not split.fake.count()[BY_INDEX]
    split.read(3)
    (only,) = split.reader.instances
    assert (only.uuid, only.label) == ("MIG-102", "0:1")


def test_a_failing_reading_affects_only_its_values(split: Split) -> None:
    split.fake.answer(MEMORY, NO_PERMISSION, FIRST)
    split.fake.answer("nvmlDeviceGetName", NO_PERMISSION, FIRST)
    split.fake.answer("nvmlDeviceGetGpuInstanceId", NO_PERMISSION, FIRST)
    split.read(2)
    first, second = split.reader.instances
    assert first.problems["memory_used_bytes"].code is ProblemCode.NO_PERMISSION
    assert first.problems["name"].code is first.problems["gpu_instance_id"].code is ProblemCode.NO_PERMISSION
    assert first.instance == MigInstance("GPU-0", 0, None, 0)
    assert second.get("memory_used_bytes") is not None


def test_instances_that_cannot_be_listed_are_missing_with_a_reason(split: Split) -> None:
    split.fake.answer(BY_INDEX, NO_PERMISSION)
    whole = split.read(2)
    assert split.reader.instances == ()
    assert whole.processes is None
    assert whole.problems["processes"].code is ProblemCode.NO_PERMISSION
    assert whole.get("power_watts") is not None


def test_a_gpu_that_is_lost_is_lost_with_its_instances(split: Split) -> None:
    slot = Slot(split.reader, lambda: split.now)
    for now in (0.0, 1.0):
        slot.read(now, 10_000)
    assert [device.state for device in slot.devices] == [DeviceState.OK] * 3
    split.fake.answer(MEMORY, LOST)
    split.fake.answer(MEMORY, LOST, FIRST)
    slot.read(2.0, 10_000)
    assert [device.state for device in slot.devices] == [DeviceState.LOST] * 3
    assert [device.key for device in slot.devices] == ["GPU-0", "MIG-100", "MIG-102"]
    assert {device.problems["memory_used_bytes"].code for device in slot.devices} == {ProblemCode.GPU_LOST}


# Through the driver's library


def has(count: int) -> Callable[[Frame], bool]:
    return lambda frame: len(frame.devices) == count and all(device.state is DeviceState.OK for device in frame.devices)


def test_rows_processes_and_memory_of_instances(live: Live, sleepers: Callable[[int], list[int]]) -> None:
    pids = sleepers(2)
    watched = live(NVML_MOCK_MIG="1:2", NVML_MOCK_PIDS=",".join(map(str, [1, 1, *pids])), NVML_MOCK_PROCS="2", gpus=3)
    frame = watched.until(has(5))
    assert [device.label for device in frame.devices] == ["0", "1", "1:0", "1:1", "2"]
    whole, first, second = frame.devices[1:4]
    assert whole.processes == ()
    assert [[process.pid for process in instance.processes or ()] for instance in (first, second)] == [
        [pids[0]],
        [pids[1]],
    ]
    assert (first.get("memory_total_bytes") or 0) < (whole.get("memory_total_bytes") or 0) / 7
    assert [device.key for device in frame.gpus] == [frame.devices[place].key for place in (0, 1, 4)]


def test_cuda_shows_the_instance_that_is_named(live: Live) -> None:
    watched = live(NVML_MOCK_MIG="1:2", CUDA_VISIBLE_DEVICES="MIG-a5000011-4d6f-5b6b-8c01-000000000001", gpus=2)
    frame = watched.until(has(4))
    assert [device.cuda_index for device in frame.devices] == [None, None, None, 0]


def test_a_passing_failure_keeps_the_instances_and_marks_them(split: Split) -> None:
    split.read(2)
    split.fake.answer("nvmlDeviceGetMaxMigDeviceCount", UNKNOWN)
    split.fake.answer("nvmlDeviceGetMigMode", UNKNOWN)
    whole = split.read(int(Period.TEN_SECONDS) + 2)
    assert whole.is_stale("mig_mode")
    assert [instance.key for instance in split.reader.instances] == ["MIG-100", "MIG-102"]
    split.read(4 * int(Period.TEN_SECONDS))
    assert split.reader.instances == ()


def test_an_instance_that_stays_is_asked_no_more_than_whether_it_does(split: Split) -> None:
    split.read(2)
    split.fake.count()
    split.read(5 * int(Period.TEN_SECONDS))
    asked = split.fake.count()
    assert not asked.keys() & {"nvmlDeviceGetName", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"}
    split.fake.answer("nvmlDeviceGetUUID", UNKNOWN, FIRST)
    split.read(int(Period.TEN_SECONDS) + 1)
    assert [instance.key for instance in split.reader.instances] == ["MIG-100", "MIG-102"], (
        "a stumble is no other instance"
    )
    split.fake.answer("nvmlDeviceGetUUID", "MIG-new", FIRST)
    split.read(int(Period.TEN_SECONDS) + 1)
    assert [instance.key for instance in split.reader.instances] == ["MIG-new", "MIG-102"]
