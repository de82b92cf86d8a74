"""One GPU: who is on it, and whose memory it is."""

from pathlib import Path

import pytest

from gpumon.collect.calls import CallsInFlight
from gpumon.collect.device import DeviceReader
from gpumon.collect.nvml import DeviceLostError, DriverGoneError, Nvml
from gpumon.collect.process_lists import PROCESS_LIST_RETRY_SECONDS
from gpumon.collect.processes import ProcessTable
from gpumon.collect.schedule import Period
from gpumon.core.model import Device, Process, ProcessKind
from gpumon.core.problems import ProblemCode
from tests.collect.fake import (
    LOST,
    MIB,
    NO_PERMISSION,
    NOT_SUPPORTED,
    NOT_UTF8,
    TOO_OLD,
    UNINITIALIZED,
    UNKNOWN,
    FakeNvml,
    entry,
)
from tests.collect.proc import add_process

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
MPS = "nvmlDeviceGetMPSComputeRunningProcesses"
IDENTITY_CALLS = ("nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo", "nvmlDeviceGetName", "nvmlDeviceGetArchitecture")
UNATTRIBUTED = "memory_unattributed_bytes"


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    add_process(tmp_path, 4000)
    return FakeNvml()


@pytest.fixture
def reader(fake: FakeNvml, tmp_path: Path) -> DeviceReader:
    return DeviceReader(Nvml(library=fake), 0, ProcessTable(CallsInFlight(), tmp_path))


def read(reader: DeviceReader, now: float = 0) -> Device:
    return reader.read(now, uptime=10_000)


def only_process(device: Device) -> Process:
    assert device.processes is not None
    (process,) = device.processes
    return process


def test_identity(reader: DeviceReader, fake: FakeNvml) -> None:
    device = read(reader)
    assert (device.uuid, device.pci_bus_id, device.name) == ("GPU-0", "00000000:1B:00.0", "NVIDIA H200")
    assert device.architecture == "Hopper"
    assert device.throttle_reasons == ("sw_power_cap",)
    fake.count()
    read(reader, 1)
    assert not {"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetHandleByIndex"} & set(fake.count())


@pytest.mark.parametrize("refusal", [UNKNOWN, NOT_SUPPORTED])
def test_an_identity_that_a_passing_fault_hid_is_queried_again(
    reader: DeviceReader, fake: FakeNvml, refusal: Exception
) -> None:
    for name in IDENTITY_CALLS:
        fake.answer(name, refusal)
    hidden = read(reader)
    assert (hidden.uuid, hidden.name, "name" in hidden.problems) == (None, None, True)
    fake.restore()
    assert read(reader, Period.TEN_SECONDS - 1).name is None
    device = read(reader, Period.TEN_SECONDS)
    assert (device.uuid, device.name, device.architecture) == ("GPU-0", "NVIDIA H200", "Hopper")
    assert not {"uuid", "name", "architecture", "pci_bus_id"} & device.problems.keys()
    fake.count()
    read(reader, 3 * Period.TEN_SECONDS)
    assert not set(IDENTITY_CALLS) & fake.count().keys()


def test_a_name_that_is_not_utf8_keeps_what_can_be_read_of_it(reader: DeviceReader, fake: FakeNvml) -> None:
    fake.answer("nvmlDeviceGetName", NOT_UTF8)
    device = read(reader)
    assert device.name == "\ufffd"
    assert "name" not in device.problems


def test_an_architecture_of_the_future_is_its_number(reader: DeviceReader, fake: FakeNvml) -> None:
    fake.answer("nvmlDeviceGetArchitecture", 77)
    assert read(reader).architecture == "77"


def test_throttle_reasons_that_cannot_be_read(reader: DeviceReader, fake: FakeNvml) -> None:
    fake.answer("nvmlDeviceGetCurrentClocksEventReasons", NOT_SUPPORTED)
    device = read(reader)
    assert device.throttle_reasons is None
    assert device.problems["throttle_reasons"].code is ProblemCode.NOT_SUPPORTED


def test_processes_and_unattributed_memory(reader: DeviceReader) -> None:
    device = read(reader)
    process = only_process(device)
    assert (process.pid, process.command, process.memory_bytes) == (4000, "python train.py", 3000 * MIB)
    assert device.get(UNATTRIBUTED) == 4 * MIB


def test_one_process_in_several_lists_is_one_process(reader: DeviceReader, fake: FakeNvml) -> None:
    fake.answer(GRAPHICS, [entry(4000, 3000)])
    fake.answer(MPS, [entry(4000, None)])
    process = only_process(read(reader))
    assert process.kinds == (ProcessKind.COMPUTE, ProcessKind.GRAPHICS, ProcessKind.MPS)
    assert process.memory_bytes == 3000 * MIB


def test_a_process_listed_twice_holds_the_sum(reader: DeviceReader, fake: FakeNvml) -> None:
    fake.answer(COMPUTE, [entry(4000, 1000), entry(4000, 500)])
    assert only_process(read(reader)).memory_bytes == 1500 * MIB


@pytest.mark.parametrize("parts", [(None,), (1000, None), (None, 1000)])
def test_process_memory_that_the_driver_reports_in_part_or_not_at_all_is_not_known(
    reader: DeviceReader, fake: FakeNvml, parts: tuple[int | None, ...]
) -> None:
    fake.answer(COMPUTE, [entry(4000, part) for part in parts])
    device = read(reader)
    process = only_process(device)
    assert process.memory_bytes is None
    assert process.problems["memory_bytes"].code is ProblemCode.NOT_SUPPORTED
    assert device.get(UNATTRIBUTED) is None
    assert UNATTRIBUTED in device.problems


def test_graphics_and_mps_lists_are_read_rarely(reader: DeviceReader, fake: FakeNvml) -> None:
    fake.answer(GRAPHICS, [entry(4000, 100)])
    fake.answer(COMPUTE, [])
    for second in range(int(Period.TEN_SECONDS)):
        assert only_process(read(reader, second)).kinds == (ProcessKind.GRAPHICS,)
    count = fake.count()
    assert (count[COMPUTE], count[GRAPHICS], count[MPS]) == (6, 1, 1)


@pytest.mark.parametrize("refusal", [NOT_SUPPORTED, NO_PERMISSION])
def test_process_lists_return_soon_after_a_passing_refusal(
    reader: DeviceReader, fake: FakeNvml, refusal: Exception
) -> None:
    fake.answer(COMPUTE, refusal)
    assert read(reader).processes is None
    fake.answer(COMPUTE, [entry(4000, 100)])
    fake.answer(GRAPHICS, refusal)
    assert read(reader, PROCESS_LIST_RETRY_SECONDS - 1).processes is None
    assert only_process(read(reader, PROCESS_LIST_RETRY_SECONDS)).kinds == (ProcessKind.COMPUTE,)
    fake.answer(GRAPHICS, [entry(4000, 100)])
    assert len(only_process(read(reader, 2 * PROCESS_LIST_RETRY_SECONDS)).kinds) == 2


@pytest.mark.parametrize(("refusal", "calls"), [(NOT_SUPPORTED, 6), (NO_PERMISSION, 6), (TOO_OLD, 1)])
def test_process_lists_that_are_missing_for_good_are_queried_rarely(
    reader: DeviceReader, fake: FakeNvml, refusal: Exception, calls: int
) -> None:
    fake.answer(COMPUTE, refusal)
    fake.answer(f"{COMPUTE}_v2", refusal)
    for second in range(60):
        assert read(reader, second).processes is None
    assert fake.count()[COMPUTE] == calls


def test_memory_beyond_what_is_installed_is_missing(reader: DeviceReader, fake: FakeNvml) -> None:
    fake.answer(COMPUTE, [entry(4000, 1 << 40)])
    process = only_process(read(reader))
    assert process.memory_bytes is None
    assert process.problems["memory_bytes"].code is ProblemCode.INVALID_VALUE


@pytest.mark.parametrize(
    ("pid", "code"),
    [(4001, ProblemCode.PROCESS_NOT_VISIBLE), (0, ProblemCode.INVALID_VALUE), (0xFFFFFFFF, ProblemCode.INVALID_VALUE)],
)
def test_processes_that_proc_does_not_show(reader: DeviceReader, fake: FakeNvml, pid: int, code: ProblemCode) -> None:
    fake.answer(COMPUTE, [entry(pid)])
    process = only_process(read(reader))
    assert (process.pid, process.user, process.command) == (pid, None, None)
    assert process.memory_bytes == 1000 * MIB
    for field in ("user", "command", "cpu_percent", "host_memory_bytes", "age_seconds"):
        assert getattr(process, field) is None
        assert process.problems[field].code is code


def test_a_list_that_cannot_be_read_is_not_an_empty_one(reader: DeviceReader, fake: FakeNvml) -> None:
    fake.answer(COMPUTE, NO_PERMISSION)
    device = read(reader)
    assert device.processes is None
    assert device.problems["processes"].code is ProblemCode.NO_PERMISSION
    assert device.get(UNATTRIBUTED) is None


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetPowerUsage", COMPUTE, GRAPHICS]
)
def test_a_lost_device_is_reported_by_any_call(reader: DeviceReader, fake: FakeNvml, call: str) -> None:
    fake.answer(call, LOST)
    with pytest.raises(DeviceLostError):
        read(reader)
    reader.forget_handle()
    fake.answer(call, UNINITIALIZED)
    with pytest.raises(DriverGoneError):
        read(reader)


def test_lists_are_read_about_once_a_second_while_a_screen_shows_them(reader: DeviceReader, fake: FakeNvml) -> None:
    for tenth in range(21):
        reader.read(tenth / 10, 1000.0)
    count = fake.count()
    assert count[COMPUTE] == 3  # at 0.0, 0.1 (CPU is a difference) and 2.0 s
    assert count[GRAPHICS] == 1
    reader._budget.process_keys = frozenset({reader.identity.key})
    for tenth in range(21, 61):
        reader.read(tenth / 10, 1000.0)
    assert fake.count()[COMPUTE] == 3  # at 3.9, 4.8 and 5.7 s


def test_of_old_processes_or_old_memory_nothing_is_subtracted(reader: DeviceReader, fake: FakeNvml) -> None:
    first = read(reader)
    read(reader, 1)
    assert first.get(UNATTRIBUTED) is not None
    fake.answer(COMPUTE, UNKNOWN)
    device = read(reader, 3)
    assert device.is_stale("processes")
    assert device.processes
    assert device.get(UNATTRIBUTED) is None
    fake.answer(COMPUTE, [])
    fake.answer("nvmlDeviceGetMemoryInfo", UNKNOWN)
    device = read(reader, 5)
    assert device.is_stale("memory_used_bytes")
    assert device.get(UNATTRIBUTED) is None
