"""`--names dcgm`: the names, labels and units of dcgm-exporter, as its dashboards query them."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gpumon.core.metrics import METRICS
from gpumon.core.model import Frame
from gpumon.fleet.exporters import DCGM_XIDS
from gpumon.operations.process_details import ProcessOrigin
from gpumon.present.dcgm import DCGM_METRICS, dcgm_families
from gpumon.session.host_monitor import HostState
from gpumon.session.process_registry import identity_of
from tests import builders

BOARD_12239 = {
    "DCGM_FI_DEV_GPU_TEMP": ("avg({})", "max({}) by (Hostname, gpu, uuid)"),
    "DCGM_FI_DEV_POWER_USAGE": ("sum(max({}) by (gpu))", "max({}) by (Hostname, gpu, uuid)"),
    "DCGM_FI_DEV_SM_CLOCK": ("max({} * 1000000) by (Hostname, UUID, gpu)",),
    "DCGM_FI_DEV_GPU_UTIL": ("max({}) by (Hostname, gpu)",),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("max({}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)",),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("max({}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)",),
    "DCGM_FI_DEV_FB_USED": ("max({}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)",),
    "DCGM_FI_DEV_FB_FREE": ("group({}) by (Hostname, gpu)",),
}
"""What the panels and variables of NVIDIA's dashboard for dcgm-exporter query, of all its releases."""
FLEET_PAGE = Path(__file__).resolve().parents[2] / "docs" / "fleet.md"


def state_of(frame: Frame, **changes: object) -> HostState:
    return HostState(frame, 0.2)._replace(**changes)  # type: ignore[arg-type]


def values(state: HostState, name: str) -> list[float]:
    return [sample.value for family in dcgm_families(state) for sample in family.samples if sample.name == name]


def test_units_are_those_of_dcgm() -> None:
    readings = {"clock_sm_hertz": 1.98e9, "memory_used_bytes": 3 << 30, "energy_joules": 2.5, "sm_activity_percent": 40}
    readings |= {"nvlink_transmit_bytes_per_second": 1024e6, "nvlink_receive_bytes_per_second": 2048e6}
    state = state_of(builders.frame(devices=(builders.device(readings=readings),)))
    assert values(state, "DCGM_FI_DEV_SM_CLOCK") == [1980]
    assert values(state, "DCGM_FI_DEV_FB_USED") == [3072]
    assert values(state, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION") == [pytest.approx(2500)]
    assert values(state, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL") == [3000]
    assert values(state, "DCGM_FI_PROF_SM_ACTIVE") == [pytest.approx(0.4)]


def test_every_row_is_exported_and_documented() -> None:
    readings = {metric.id: max(metric.minimum, 1.0) for metric in METRICS.values()}
    state = state_of(builders.frame(devices=(builders.device(readings=readings),)))
    names = {sample.name for family in dcgm_families(state) for sample in family.samples}
    assert names == {*DCGM_METRICS, DCGM_XIDS}
    assert names >= set(BOARD_12239)
    page = FLEET_PAGE.read_text()
    assert [name for name in names if f"_{name.split('_', 3)[3]}`" not in page] == []


def test_labels_and_the_last_xid() -> None:
    frame = builders.frame()
    device = frame.devices[0]
    assert device.processes
    origins = {identity_of(process): ProcessOrigin(job="4711") for process in device.processes}
    state = state_of(frame, origins=origins, xids={(device.key, 79): 1, (device.key, 31): 2})
    sample = next(family for family in dcgm_families(state) if family.name == DCGM_XIDS).samples[0]
    assert sample.value == 31
    assert sample.labels["gpu"] == "0"
    assert sample.labels["UUID"] == device.uuid
    assert sample.labels["modelName"] == "NVIDIA H200"
    assert sample.labels["hpc_job"] == "4711"
    assert sample.labels["Hostname"] == frame.host.name


def test_the_text_has_no_suffix_and_processes_add_no_series() -> None:
    def text(state: HostState) -> str:
        registry = CollectorRegistry()
        registry.register(type("Host", (), {"collect": lambda _: dcgm_families(state)})())
        return generate_latest(registry).decode()

    quiet, churned = builders.frame(), builders.frame(devices=(builders.device(processes=()), builders.device(1)))
    assert "_total" not in text(state_of(quiet))
    assert len(text(state_of(quiet)).splitlines()) == len(text(state_of(churned)).splitlines())
    assert text(HostState()) == ""
