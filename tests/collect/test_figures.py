"""All figures of a live machine, through the real library interface: what is there, what is missing, and why."""

import gzip
from pathlib import Path

import pytest

import gpumon
from gpumon.collect.lanes import NEXT_TICK
from gpumon.collect.look import LOOK_METRICS
from gpumon.core.frames import NOT_HELD, decode, encode
from gpumon.core.metrics import METRICS
from gpumon.core.model import TRAITS, ComputeMode, Device, Frame, Switch
from gpumon.core.problems import ProblemCode
from tests.collect.conftest import Live

NVLINK = {"nvlink_links_count", "nvlink_bytes_per_second"}
ECC = {name for name in METRICS if name.startswith("ecc_")}
ROWS = {name for name in METRICS if name.startswith("remapped_rows_")}
BAR1 = {"bar1_total_bytes", "bar1_used_bytes"}


def is_whole(frame: Frame) -> bool:
    """Whether everything has been read or refused that is read once or seldom."""
    return bool(frame.devices) and all(NEXT_TICK not in device.problems.values() for device in frame.devices)


def missing(device: Device) -> set[str]:
    return {name for name in (*METRICS, *TRAITS) if name in device.problems} - set(LOOK_METRICS)


def test_every_figure_of_a_healthy_machine(live: Live) -> None:
    device = live(NVML_MOCK_FAN="1").until(is_whole).devices[1]
    assert missing(device) == set()
    assert set(device.readings) == set(METRICS) - set(LOOK_METRICS)
    assert device.get("nvlink_bytes_per_second") == 18 * 26_562_000_000
    assert device.get("memory_bus_width_bits") == 6016
    assert (device.compute_capability, device.vbios_version) == ("9.0", "96.00.BC.00.01")
    assert (device.persistence_mode, device.compute_mode) == (Switch.ENABLED, ComputeMode.DEFAULT)
    assert (device.ecc_mode, device.mig_mode) == (Switch.ENABLED, Switch.DISABLED)
    assert decode(encode(Frame(0.0, 0.0, 1.0, devices=(device,)))).devices[0] == device


@pytest.mark.parametrize(
    ("category", "metrics"),
    [
        ("ecc", ECC | ROWS | {"ecc_mode", "ecc_mode_pending"}),
        ("nvlink", NVLINK),
        ("fan", {"fan_percent"}),
        ("mig", {"mig_mode", "mig_mode_pending"}),
        ("nvmlDeviceGetBAR1MemoryInfo", BAR1),
        ("fields", ECC | NVLINK | {"temperature_memory_celsius", "power_instant_watts"}),
    ],
)
def test_what_a_chip_does_not_have_costs_its_cells_alone(live: Live, category: str, metrics: set[str]) -> None:
    devices = live(fault=f"notsupported:{category}:1", NVML_MOCK_FAN="1").until(is_whole).devices
    assert missing(devices[1]) == metrics
    assert {devices[1].problems[metric].code for metric in metrics} == {ProblemCode.NOT_SUPPORTED}
    assert missing(devices[0]) == set()


@pytest.mark.parametrize(
    ("garbage", "metrics"),
    [
        ("fields", ECC | NVLINK | {"temperature_memory_celsius", "power_instant_watts"}),
        ("fieldtype", ECC | NVLINK | {"temperature_memory_celsius", "power_instant_watts"}),
    ],
)
def test_fields_that_cannot_be_true_are_missing(live: Live, garbage: str, metrics: set[str]) -> None:
    device = live(gpus=1, fault=f"garbage:{garbage}", NVML_MOCK_FAN="1").until(is_whole).devices[0]
    assert missing(device) >= metrics - {"nvlink_links_count"}
    assert missing(device) <= metrics
    assert {device.problems[metric].code for metric in missing(device)} == {ProblemCode.INVALID_VALUE}


NO_MEMORY = "notsupported:nvmlDeviceGetMemoryInfo*"


def test_a_chip_that_shares_the_hosts_memory_shows_it_and_says_so(live: Live) -> None:
    watched = live(gpus=1, fault=NO_MEMORY, NVML_MOCK_NAME="NVIDIA GB10", NVML_MOCK_CC="12.1")
    frame = watched.until(is_whole)
    device = frame.devices[0]
    assert device.get("memory_total_bytes") == frame.host.memory_total_bytes
    assert device.problems["memory_reserved_bytes"].code is ProblemCode.MEMORY_SHARED
    assert "the host's" in device.problems["memory_unattributed_bytes"].reason
    assert device.get("memory_unattributed_bytes") is None


def test_a_card_whose_memory_is_not_told_shows_none(live: Live) -> None:
    device = live(gpus=1, fault=NO_MEMORY).until(is_whole).devices[0]
    assert {"memory_total_bytes", "memory_used_bytes", "memory_free_bytes"} <= missing(device)
    assert device.problems["memory_total_bytes"].code is ProblemCode.NOT_SUPPORTED
    assert "host" not in device.problems["memory_total_bytes"].reason
    assert device.get("bar1_total_bytes") is not None


@pytest.mark.parametrize("garbage", ["gpm", "energy", "procutil"])
def test_a_look_at_garbage_shows_none_of_it(live: Live, garbage: str) -> None:
    watched = live(gpus=1, fault=f"garbage:{garbage}", NVML_MOCK_PIDS="1", NVML_MOCK_PROCS="1")
    watched.stream.look(["index:0"])
    watched.until(
        lambda frame: "pcie_receive_bytes_per_second" in {**frame.devices[0].readings, **frame.devices[0].problems}
    )
    frames = watched.collect(3)
    told = set()
    for frame in frames:
        device = frame.devices[0]
        assert all(METRICS[name].admits(value) for name, value in device.readings.items())
        told |= {name for name, problem in device.problems.items() if problem.code is ProblemCode.INVALID_VALUE}
        for process in device.processes or ():
            assert process.sm_percent is None or 0 <= process.sm_percent <= 100
            told |= {name for name, problem in process.problems.items() if problem.code is ProblemCode.INVALID_VALUE}
    expected = {"gpm": "sm_activity_percent", "energy": "energy_joules", "procutil": "sm_percent"}
    assert expected[garbage] in told
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


def test_the_bundled_recording_says_what_it_does_not_hold() -> None:
    demo = Path(gpumon.__file__).parent / "data" / "demo.jsonl.gz"
    with gzip.open(demo) as lines:
        frames = [decode(line) for line in lines]
    assert len(frames) > 100
    for frame in frames:
        for device in frame.devices:
            assert set(METRICS) <= set(device.readings) | set(device.problems)
            unknown = [name for name in TRAITS if getattr(device, name) is None]
            assert set(unknown) <= set(device.problems)
    held = frames[-1].devices[0]
    assert NOT_HELD in held.problems.values() or set(METRICS) - set(LOOK_METRICS) <= set(held.readings)
