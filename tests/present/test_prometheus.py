"""The metrics of the exporter: every value that is current, none that is missing, and labels that name the job."""

from typing import Any

import pytest
from prometheus_client.core import Metric

from gpumon.core.allocator import ProbedProcess, ProbeReading, ProbeState
from gpumon.core.metrics import METRICS
from gpumon.core.model import DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.steps import StepProgress
from gpumon.health.alerts import Alert, Severity
from gpumon.operations.process_details import ProcessOrigin
from gpumon.present.process_details import training_entries
from gpumon.present.process_table import PROCESS_COLUMNS, process_rows
from gpumon.present.prometheus import MAX_PROCESSES, exported_metric, metric_families
from gpumon.present.table_state import columns_for
from gpumon.probe.messages import Probe
from gpumon.session.host_monitor import HostState
from tests import builders

Samples = dict[tuple[str, ...], float]


def samples(name: str, *labels: str, state: HostState) -> Samples:
    """Values of a metric by the values of some labels."""
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in metric_families(state)
        for sample in family.samples
        if sample.name == name
    }


def state_of(frame: Frame, **changes: Any) -> HostState:  # noqa: ANN401
    return HostState(frame, 0.2, **changes)


def test_percent_is_a_ratio_and_other_units_are_kept() -> None:
    state = state_of(builders.frame())
    assert samples("gpumon_gpu_utilization_ratio", "gpu", state=state) == {("0",): 0.87, ("1",): 0.87}
    assert samples("gpumon_gpu_memory_utilization_ratio", "gpu", state=state)["0",] == 0.41
    assert samples("gpumon_gpu_power_watts", "model", state=state) == {("NVIDIA H200",): 612.5}
    assert samples("gpumon_gpu_memory_used_bytes", "gpu", state=state)["1",] == 71000 << 20
    assert samples("gpumon_host_cpu_utilization_ratio", state=state) == {(): 0.125}
    assert samples("gpumon_driver_info", "driver_version", "cuda_version", state=state) == {("580.95.05", "13.0"): 1.0}


def test_every_metric_is_exported_once_with_a_valid_name() -> None:
    names = [exported_metric(metric).name for metric in METRICS.values()]
    assert len(set(names)) == len(METRICS)
    assert not [name for name in names if name.endswith(("_percent", "_count", "_bits"))]
    readings = {metric.id: max(metric.minimum, 1.0) for metric in METRICS.values()}
    state = state_of(builders.frame(devices=(builders.device(readings=readings),)))
    families: list[Metric] = list(metric_families(state))
    exported = {family.name for family in families if family.samples}
    assert set(names) <= exported
    assert len(exported) == len([family for family in families if family.samples])


def test_counters_end_in_total() -> None:
    device = builders.device(
        readings={"ecc_corrected_volatile_count": 7, "nvlink_links_count": 18, "energy_joules": 5.5}
    )
    state = state_of(builders.frame(devices=(device,)))
    assert samples("gpumon_gpu_ecc_corrected_volatile_total", "gpu", state=state) == {("0",): 7.0}
    assert samples("gpumon_gpu_energy_joules_total", "gpu", state=state) == {("0",): 5.5}
    assert samples("gpumon_gpu_nvlink_links", "gpu", state=state) == {("0",): 18.0}


def test_a_missing_value_has_a_reason_and_no_sample() -> None:
    refused = Problem(ProblemCode.NOT_SUPPORTED, "The driver does not support it.")
    device = builders.device(readings={"power_watts": None}, problems={"power_watts": refused})
    state = state_of(builders.frame(devices=(device,)))
    assert samples("gpumon_gpu_power_watts", "gpu", state=state) == {}
    assert samples("gpumon_gpu_value_missing", "value", "reason", state=state) == {
        ("power_watts", "not_supported"): 1.0
    }


def test_a_stale_value_has_no_sample() -> None:
    stale = Problem(ProblemCode.STALE, "This is the last known value.")
    device = builders.device(problems={"power_watts": stale})
    state = state_of(builders.frame(devices=(device,)))
    assert samples("gpumon_gpu_power_watts", "gpu", state=state) == {}
    assert samples("gpumon_gpu_temperature_celsius", "gpu", state=state) == {("0",): 56.0}


def test_a_gpu_that_does_not_respond_has_a_state_and_no_values() -> None:
    lost = builders.device(1, state=DeviceState.LOST, age_seconds=60.0)
    state = state_of(builders.frame(devices=(builders.device(0), lost)))
    states = samples("gpumon_gpu_state", "gpu", "state", state=state)
    assert states["1", "lost"] == 1.0
    assert states["1", "ok"] == 0.0
    assert states["0", "ok"] == 1.0
    assert samples("gpumon_gpu_power_watts", "gpu", state=state).keys() == {("0",)}


@pytest.mark.parametrize("age", [None, 6.0])
def test_without_a_current_frame_nothing_is_claimed(age: float | None) -> None:
    state = HostState(None if age is None else builders.frame(), age)
    assert samples("gpumon_up", state=state) == {(): 0.0}
    assert not any("gpu" in sample.labels for family in metric_families(state) for sample in family.samples)


def test_without_a_driver_gpumon_is_not_up() -> None:
    problem = Problem(ProblemCode.LIBRARY_NOT_FOUND, "The NVIDIA driver is not installed.")
    state = state_of(builders.frame(devices=(), problems={"driver": problem}))
    assert samples("gpumon_up", state=state) == {(): 0.0}


def test_processes_have_their_user_and_job() -> None:
    frame = builders.frame(devices=(builders.device(processes=(builders.process(4000, sm_percent=40.0),)),))
    origin = ProcessOrigin(job="4711.0", pod="ml/train-0", rank=3)
    state = state_of(frame, origins={(4000, 7_911_500): origin})
    labels = ("pid", "user", "hpc_job", "pod", "rank")
    expected = ("4000", "ada", "4711.0", "ml/train-0", "3")
    assert samples("gpumon_process_gpu_memory_bytes", *labels, state=state) == {expected: 70996 << 20}
    assert samples("gpumon_process_sm_utilization_ratio", *labels, state=state) == {expected: 0.4}
    assert samples("gpumon_process_cpu_cores", *labels, state=state) == {expected: 1.035}


def test_a_reused_pid_has_no_job() -> None:
    state = state_of(builders.frame(), origins={(4000, 1): ProcessOrigin(job="4711")})
    assert samples("gpumon_process_gpu_memory_bytes", "pid", "hpc_job", state=state).keys() == {
        ("4000", ""),
        ("4001", ""),
    }


def test_the_number_of_series_is_bounded() -> None:
    processes = tuple(builders.process(pid, memory_bytes=pid) for pid in range(1, 1001))
    state = state_of(builders.frame(devices=(builders.device(processes=processes),)))
    exported = samples("gpumon_process_gpu_memory_bytes", "pid", state=state)
    assert len(exported) == MAX_PROCESSES
    assert ("1000",) in exported
    assert samples("gpumon_gpu_processes", "gpu", state=state) == {("0",): 1000.0}


def test_throttling_alerts_and_xids() -> None:
    device = builders.device(throttle_reasons=("hw_thermal_slowdown",))
    alerts = (
        Alert("xid_79", Severity.CRITICAL, "It fell off the bus.", device_key=device.key, device_index=0),
        Alert("driver", Severity.WARNING, "The collector was replaced."),
    )
    state = state_of(builders.frame(devices=(device,)), alerts=alerts, xids={(device.key, 79): 2, ("GPU-gone", 31): 1})
    reasons = samples("gpumon_gpu_throttle_reason", "reason", state=state)
    assert reasons["hw_thermal_slowdown",] == 1.0
    assert sum(reasons.values()) == 1.0
    assert samples("gpumon_alerts", "gpu", "alert", "severity", state=state) == {
        ("0", "xid_79", "critical"): 1.0,
        ("", "driver", "warning"): 1.0,
    }
    assert samples("gpumon_gpu_xids_total", "gpu", "xid", state=state) == {("0", "79"): 2.0}


def test_steps_of_processes_with_a_probe() -> None:
    progress = StepProgress(120, 121, 99.0, 0.25, 0.125, 0.0)
    pid = 4321
    reading = ProbeReading(
        state=ProbeState.CPU_ONLY,
        monotonic_seconds=100.0,
        torch_version="2.11.0",
        backend=None,
        expandable_segments=None,
        devices=(),
        training=progress,
    )
    probe = Probe(ProbedProcess(pid, pid, "python train.py", "3.12.3", rank=3), reading, 100.0)
    processes = (builders.process(pid), builders.process(5000))
    frame = builders.frame(devices=(builders.device(0, processes=processes),))
    state = state_of(frame, probes={pid: probe})
    assert samples("gpumon_training_step_seconds", "gpu", "pid", state=state) == {("0", "4321"): 0.25}
    assert samples("gpumon_training_step_data_seconds", "pid", state=state) == {("4321",): 0.125}
    assert samples("gpumon_training_steps_total", "pid", state=state) == {("4321",): 120.0}
    assert samples("gpumon_torch_allocated_bytes", "pid", state=state) == {}
    (row,) = (row for row in process_rows(frame, {pid: probe}) if row.training is not None)
    assert row.process == processes[0]
    for probes, shown in (({pid: probe}, {"step"}), ({}, set())):
        columns = columns_for(PROCESS_COLUMNS, process_rows(frame, probes))
        assert {column.id for column in columns if column.is_filled and not column.is_optional} == shown
    (step,) = (column for column in PROCESS_COLUMNS if column.id == "step")
    assert step.text_of(row) == "250 ms"
    entries = {label: value for label, value, _ in training_entries(progress)}
    assert entries["Step time"] == "250 ms"
    assert entries["Waits for data"] == "125 ms, 50 %"
