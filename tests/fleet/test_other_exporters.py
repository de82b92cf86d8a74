"""nvidia_gpu_exporter and all-smi, in the form of their texts, scraped by a real Prometheus."""

import time
from pathlib import Path

import pytest

from gpumon.fleet.__main__ import read_snapshot
from gpumon.fleet.model import FleetSnapshot
from gpumon.fleet.settings import FleetSettings, PrometheusAddress
from gpumon.operations.fleet.history import HostHistoryStream
from gpumon.present.fleet import lacks
from gpumon.streams.base import Arrival
from tests.fleet.prometheus_server import needs_prometheus, prometheus
from tests.fleet.targets import FakeHost, serving, write_targets

pytestmark = [needs_prometheus, pytest.mark.xdist_group("prometheus")]
SECONDS = 40.0
UUIDS = ("df6e7a7c-7314-46f8-abc4-b88b36dcf3aa", "df6e7a7c-7314-46f8-abc4-b88b36dcf3ab")


def nvidia_gpu_exporter() -> str:
    """Two GPUs: all values have the UUID alone, without its prefix; index and name are separate metrics."""
    lines = []
    for index, uuid in enumerate(UUIDS):
        lines += [
            f'nvidia_smi_gpu_info{{driver_version="580.1",name="NVIDIA L40S",uuid="{uuid}",vbios_version="95.02"}} 1',
            f'nvidia_smi_index{{uuid="{uuid}"}} {index}',
            f'nvidia_smi_utilization_gpu_ratio{{uuid="{uuid}"}} 0.{index + 4}',
            f'nvidia_smi_memory_used_bytes{{uuid="{uuid}"}} 1.048576e+09',
            f'nvidia_smi_memory_total_bytes{{uuid="{uuid}"}} 4.8305799168e+10',
            f'nvidia_smi_power_draw_watts{{uuid="{uuid}"}} 99.5',
            f'nvidia_smi_temperature_gpu{{uuid="{uuid}"}} 34',
            f'nvidia_smi_clocks_current_sm_clock_hz{{uuid="{uuid}"}} 2.1e+09',
        ]
    return "\n".join(lines) + "\n"


def all_smi() -> str:
    """One GPU; the label ``gpu`` is its product name."""
    labels = 'gpu="NVIDIA H200",instance="node-0058",uuid="GPU-12345",index="3"'
    values = {
        "all_smi_gpu_utilization": 25.5,
        "all_smi_gpu_memory_used_bytes": 8589934592,
        "all_smi_gpu_memory_total_bytes": 151397597184,
        "all_smi_gpu_temperature_celsius": 45,
        "all_smi_gpu_power_consumption_watts": 320.5,
        "all_smi_gpu_frequency_mhz": 1980,
    }
    return "".join(f"{name}{{{labels}}} {value}\n" for name, value in values.items())


def _newest(stream: HostHistoryStream) -> Arrival:
    """The newest frame; the first answers are empty if Prometheus has scraped nothing before the last full second."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        assert stream.inbox.arrived.wait(SECONDS)
        if arrivals := stream.inbox.drain():
            return arrivals[-1]
    raise AssertionError("no frame has arrived")


def test_identities_and_values_in_the_units_of_gpumon(tmp_path: Path) -> None:
    texts, targets = {"smi": nvidia_gpu_exporter, "all": all_smi}, tmp_path / "targets.json"
    with serving({}, texts) as port:
        write_targets(targets, port, list(texts))
        with prometheus(tmp_path, targets) as url:
            snapshot = _read(url, 3)
            gpus = [gpu for gpu in snapshot.gpus if gpu.host == "smi"]
            stream = HostHistoryStream(FleetSettings(PrometheusAddress(url), interval_seconds=1.0), gpus)
            stream.start()
            frame = _newest(stream)
            stream.close()
    identities = [(gpu.host, gpu.label, gpu.model, gpu.exporter) for gpu in snapshot.gpus]
    assert identities == [
        ("node-0058", "3", "NVIDIA H200", "all-smi"),
        ("smi", "0", "NVIDIA L40S", "nvidia_gpu_exporter"),
        ("smi", "1", "NVIDIA L40S", "nvidia_gpu_exporter"),
    ]
    names = ("utilization_gpu_percent", "memory_used_bytes", "power_watts", "temperature_celsius", "clock_sm_hertz")
    assert [snapshot.value(name, 0) for name in names] == [25.5, 8589934592, 320.5, 45, 1.98e9]
    assert [snapshot.value(name, 2) for name in names] == [50, 1048576000, 99.5, 34, 2.1e9]
    activity = "SM activity, Tensor activity, DRAM activity."
    assert sorted(lacks(snapshot)) == [
        f"all-smi does not report: {activity}",
        f"nvidia_gpu_exporter does not report: {activity}",
    ]
    assert [device.get("utilization_gpu_percent") for device in frame.devices] == [40.0, 50.0]  # type: ignore[union-attr]


@pytest.mark.long
def test_a_gpu_of_two_exporters_is_one_gpu(tmp_path: Path) -> None:
    host, targets = FakeHost("node1", gpus=2), tmp_path / "targets.json"
    text = nvidia_gpu_exporter()
    for gpu, uuid in enumerate(UUIDS):
        text = text.replace(uuid, host.uuid(gpu).removeprefix("GPU-"))
    with serving({"node1": host}, {"smi": lambda: text}) as port:
        write_targets(targets, port, ["smi"])
        with prometheus(tmp_path, targets) as url:
            assert [gpu.host for gpu in _read(url, 2).gpus] == ["smi", "smi"]
            write_targets(targets, port, ["smi", "node1"])
            deadline = time.monotonic() + SECONDS
            snapshot = _read(url, 2)
            while {gpu.host for gpu in snapshot.gpus} != {"node1"}:
                assert time.monotonic() < deadline, snapshot.gpus
                snapshot = _read(url, 2)
    assert {(gpu.exporter, gpu.model) for gpu in snapshot.gpus} == {("dcgm-exporter", "NVIDIA H200")}
    assert snapshot.value("utilization_gpu_percent", 1) == host.value("DCGM_FI_DEV_GPU_UTIL", 1)


def _read(url: str, count: int) -> FleetSnapshot:
    """The first snapshot with as many GPUs that all have values."""
    deadline = time.monotonic() + SECONDS
    while True:
        snapshot = read_snapshot(PrometheusAddress(url))
        if len(snapshot.gpus) == count and all(snapshot.value("clock_sm_hertz", gpu) for gpu in range(count)):
            return snapshot
        assert time.monotonic() < deadline, snapshot
        time.sleep(0.3)
