"""All values of a live stream, through the real library interface: what is there, what is missing, and why."""

import gzip
from pathlib import Path

import pytest

import gpumon
from gpumon.collect.on_demand import ON_DEMAND_METRICS
from gpumon.collect.schedule import NEXT_FRAME
from gpumon.core.frames import decode, encode
from gpumon.core.metrics import METRICS
from gpumon.core.model import DEVICE_ATTRIBUTES, ComputeMode, Device, Frame, Switch
from gpumon.core.problems import ProblemCode
from tests.collect.conftest import Live

NVLINK = {"nvlink_links_count", "nvlink_bytes_per_second"}
ECC = {name for name in METRICS if name.startswith("ecc_")}
ROWS = {name for name in METRICS if name.startswith("remapped_rows_")}
RETIRED = {name for name in METRICS if name.startswith("retired_pages_")}
"""Pages are retired before compute capability 8.0."""
BAR1 = {"bar1_total_bytes", "bar1_used_bytes"}


def is_whole(frame: Frame) -> bool:
    """Whether every value that is read once or rarely has been read or refused."""
    return bool(frame.devices) and all(NEXT_FRAME not in device.problems.values() for device in frame.devices)


def missing(device: Device) -> set[str]:
    return {name for name in (*METRICS, *DEVICE_ATTRIBUTES) if name in device.problems} - set(ON_DEMAND_METRICS)


def test_every_value_of_a_healthy_host(live: Live) -> None:
    device = live(NVML_MOCK_FAN="1", NVML_MOCK_CC="7.0").until(is_whole).devices[1]
    assert missing(device) == set()
    assert set(device.readings) == set(METRICS) - set(ON_DEMAND_METRICS)
    assert device.get("nvlink_bytes_per_second") == 18 * 26_562_000_000
    assert device.get("memory_bus_width_bits") == 6016
    assert (device.compute_capability, device.vbios_version) == ("7.0", "96.00.BC.00.01")
    assert (device.persistence_mode, device.compute_mode) == (Switch.ENABLED, ComputeMode.DEFAULT)
    assert (device.ecc_mode, device.mig_mode) == (Switch.ENABLED, Switch.DISABLED)
    assert decode(encode(Frame(0.0, 0.0, 1.0, devices=(device,)))).devices[0] == device


@pytest.mark.long
@pytest.mark.parametrize(
    ("category", "metrics"),
    [
        ("ecc", ECC | ROWS | RETIRED | {"ecc_mode", "ecc_mode_pending"}),
        ("nvlink", NVLINK),
        ("fan", {"fan_percent"}),
        ("mig", {"mig_mode", "mig_mode_pending"}),
        ("nvmlDeviceGetBAR1MemoryInfo", BAR1),
        ("fields", ECC | NVLINK | RETIRED | {"temperature_memory_celsius", "power_instant_watts"}),
    ],
)
def test_what_a_chip_does_not_have_affects_only_those_values(live: Live, category: str, metrics: set[str]) -> None:
    devices = live(fault=f"notsupported:{category}:1", NVML_MOCK_FAN="1", NVML_MOCK_CC="7.0").until(is_whole).devices
    assert missing(devices[1]) == metrics
    assert {devices[1].problems[metric].code for metric in metrics} == {ProblemCode.NOT_SUPPORTED}
    assert missing(devices[0]) == set()


@pytest.mark.parametrize(
    ("garbage", "metrics"),
    [
        ("fields", ECC | NVLINK | RETIRED | {"temperature_memory_celsius", "power_instant_watts"}),
        ("fieldtype", ECC | NVLINK | RETIRED | {"temperature_memory_celsius", "power_instant_watts"}),
    ],
)
def test_invalid_fields_are_missing(live: Live, garbage: str, metrics: set[str]) -> None:
    device = live(gpus=1, fault=f"garbage:{garbage}", NVML_MOCK_FAN="1", NVML_MOCK_CC="7.0").until(is_whole).devices[0]
    assert missing(device) >= metrics - {"nvlink_links_count"}
    assert missing(device) <= metrics
    assert {device.problems[metric].code for metric in missing(device)} == {ProblemCode.INVALID_VALUE}


NO_MEMORY = "notsupported:nvmlDeviceGetMemoryInfo*"


def test_a_chip_that_shares_the_hosts_memory_shows_that_memory_and_the_reason(live: Live) -> None:
    watched = live(gpus=1, fault=NO_MEMORY, NVML_MOCK_NAME="NVIDIA GB10", NVML_MOCK_CC="12.1")
    frame = watched.until(is_whole)
    device = frame.devices[0]
    assert device.get("memory_total_bytes") == frame.host.memory_total_bytes
    assert device.problems["memory_reserved_bytes"].code is ProblemCode.MEMORY_SHARED
    assert "the host's" in device.problems["memory_unattributed_bytes"].reason
    assert device.get("memory_unattributed_bytes") is None


def invalid_values(device: Device) -> set[str]:
    """The metrics of a device and its processes for which the driver returned an invalid value."""
    problems = [device.problems, *(process.problems for process in device.processes or ())]
    return {name for some in problems for name, problem in some.items() if problem.code is ProblemCode.INVALID_VALUE}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("garbage", ["gpm", "energy", "procutil"])
def test_invalid_on_demand_values_are_not_shown(live: Live, garbage: str) -> None:
    watched = live(gpus=1, fault=f"garbage:{garbage}", NVML_MOCK_PIDS="1", NVML_MOCK_PROCS="1")
    watched.stream.request_on_demand(["index:0"])
    watched.until(
        lambda frame: "pcie_receive_bytes_per_second" in {**frame.devices[0].readings, **frame.devices[0].problems}
    )
    expected = {"gpm": "sm_activity_percent", "energy": "energy_joules", "procutil": "sm_percent"}[garbage]
    frames = [*watched.collect(3), watched.until(lambda frame: expected in invalid_values(frame.devices[0]))]
    for frame in frames:
        device = frame.devices[0]
        assert all(METRICS[name].admits(value) for name, value in device.readings.items())
        for process in device.processes or ():
            assert process.sm_percent is None or 0 <= process.sm_percent <= 100
    assert {"gpm": "energy_joules"}.get(garbage, "sm_activity_percent") in frames[-1].devices[0].readings


def test_cuda_counts_as_the_environment_says(live: Live) -> None:
    watched = live(CUDA_VISIBLE_DEVICES="2,0")
    devices = watched.until(is_whole).devices
    assert [device.cuda_index for device in devices] == [1, None, 0]
    assert "CUDA_VISIBLE_DEVICES" in devices[1].problems["cuda_index"].reason


def test_with_mig_cuda_counts_instances(live: Live) -> None:
    frame = live(NVML_MOCK_MIG="1:2").until(lambda frame: is_whole(frame) and len(frame.devices) == 5)
    devices = frame.gpus
    assert [device.mig_mode for device in devices] == [Switch.DISABLED, Switch.ENABLED, Switch.DISABLED]
    assert {device.cuda_index for device in frame.devices} == {None}
    assert "MIG" in devices[0].problems["cuda_index"].reason
    assert devices[1].problems["utilization_gpu_percent"].code is ProblemCode.NOT_SUPPORTED
    assert "MIG" in devices[1].problems["utilization_gpu_percent"].reason


@pytest.mark.long
def test_the_bundled_recording_has_a_problem_for_each_missing_value() -> None:
    demo = Path(gpumon.__file__).parent / "data" / "demo.jsonl.gz"
    with gzip.open(demo) as lines:
        frames = [decode(line) for line in lines]
    assert len(frames) > 100
    for frame in frames:
        for device in frame.devices:
            assert set(METRICS) <= set(device.readings) | set(device.problems)
            unknown = [name for name in DEVICE_ATTRIBUTES if getattr(device, name) is None]
            assert set(unknown) <= set(device.problems)
    newest = frames[-1].devices[0]
    newer = {"engine_activity_percent", "cores_count", "vgpu_license"}  # gpumon reads them since then
    missing = set(METRICS) - set(newest.readings) - newer
    assert {newest.problems[name].code for name in missing} <= {ProblemCode.NOT_SUPPORTED}, (
        "all is recorded that there is"
    )
