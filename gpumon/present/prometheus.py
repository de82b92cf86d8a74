"""The state of this host as Prometheus metrics.

Names follow Prometheus: base units, ``_ratio`` from 0 to 1, ``_total`` for counters. A value that is missing or stale
has no sample; ``gpumon_gpu_value_missing`` names the reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gpumon import __version__
from gpumon.core import metrics
from gpumon.core.metrics import METRICS, Unit
from gpumon.core.model import HOST_RATES, Device, DeviceState, Frame, Host, Process
from gpumon.core.throttle_reasons import THROTTLE_REASONS
from gpumon.operations.gpu_processes import owners_of
from gpumon.operations.process_details import ProcessOrigin
from gpumon.session.host_monitor import HostState
from gpumon.session.process_registry import Identity, identity_of

MAX_PROCESSES: Final = 128
"""Processes per GPU that have separate samples, by memory: each is a new time series."""
_GPU_LABELS: Final = ("gpu", "uuid", "model")
_PROCESS_LABELS: Final = (*_GPU_LABELS, "pid", "user", "hpc_job", "pod", "rank")
"""``hpc_job`` as in dcgm-exporter: Prometheus itself has a label ``job``."""
_CURRENT_FACTOR: Final = 3.0
_CURRENT_SECONDS: Final = 5.0
_GAUGE_COUNTS: Final = frozenset({"cores_count", "nvlink_links_count"})
"""Counts that are no counters: they can fall."""
_HOST_GAUGES: Final = (
    ("cpu_count", "cpus", "Logical CPUs."),
    ("memory_total_bytes", "memory_total_bytes", "Installed host memory."),
    ("memory_available_bytes", "memory_available_bytes", "Host memory available without swapping."),
    *((rate, rate, f"{rate.replace('_', ' ').capitalize()}.") for rate in HOST_RATES),
)
_TORCH_METRICS: Final = (
    ("allocated_bytes", "Memory of live tensors.", "allocated_bytes", False),
    ("reserved_bytes", "Memory that PyTorch has reserved from the driver.", "reserved_bytes", False),
    ("ooms", "Failed allocations.", "ooms_count", True),
    ("alloc_retries", "Allocations for which the cache had to be emptied first.", "alloc_retries_count", True),
)
_TRAINING_METRICS: Final = (
    ("steps", "Steps of the training job since the probe has counted them.", "steps_count", True),
    ("step_seconds", "Median duration of the latest steps of the training job.", "step_seconds", False),
    ("step_data_seconds", "Time per step that the training job waited for data.", "data_seconds", False),
    ("step_collection_seconds", "Time per step of Python's garbage collection.", "collection_seconds", False),
)


class ExportedMetric(NamedTuple):
    """How a device metric is exported.

    Attributes:
        name: Its name in Prometheus, for a counter without ``_total``.
        divisor: What a reading is divided by.
        is_counter: Whether it only rises, except when the GPU or gpumon restarts.
    """

    name: str
    divisor: float
    is_counter: bool


def exported_metric(metric: metrics.Metric) -> ExportedMetric:
    """The name, divisor and kind of a device metric."""
    name = metric.id
    is_counter = metric.unit is Unit.JOULES or (metric.unit is Unit.COUNT and name not in _GAUGE_COUNTS)
    if name.startswith("utilization_"):
        part = name.removeprefix("utilization_").removesuffix("_percent")
        name = "utilization_percent" if part == "gpu" else f"{part}_utilization_percent"
    if metric.unit is Unit.PERCENT:
        return ExportedMetric(f"gpumon_gpu_{name.removesuffix('_percent')}_ratio", 100.0, is_counter=False)
    if metric.unit is Unit.BITS:
        return ExportedMetric(f"gpumon_gpu_{name.removesuffix('_bits')}_bytes", 8.0, is_counter=False)
    return ExportedMetric(f"gpumon_gpu_{name.removesuffix('_count')}", 1.0, is_counter)


def metric_families(state: HostState, *, with_processes: bool = True) -> Iterator[Metric]:
    """Every metric of this host; nothing but ``gpumon_up`` and ``gpumon_build_info`` without a current frame.

    Args:
        state: The state of this host.
        with_processes: Whether processes have samples, each with its PID as a label.
    """
    frame = state.frame
    is_current = frame is not None and is_frame_current(frame, state.age_seconds)
    has_driver = is_current and frame is not None and "driver" not in frame.problems
    yield _gauge("gpumon_up", "1 if the driver responds and the newest values are current.", float(has_driver))
    yield _labeled("gpumon_build_info", "Version of gpumon.", ("version",), [((__version__,), 1.0)])
    if state.age_seconds is not None:
        yield _gauge("gpumon_frame_age_seconds", "Age of the newest values.", state.age_seconds)
    if frame is None or not is_current:
        return
    versions = (frame.driver_version or "", frame.cuda_driver_version or "")
    yield _labeled("gpumon_driver_info", "The NVIDIA driver.", ("driver_version", "cuda_version"), [(versions, 1.0)])
    yield from _host_families(frame.host)
    yield from _device_families(frame)
    if with_processes:
        yield from _process_families(frame.devices, state.origins)
        yield from _torch_families(state, frame.devices)
    yield _alert_family(state, frame)
    yield _xid_family(state, frame)


def is_frame_current(frame: Frame, age_seconds: float | None) -> bool:
    """Whether a frame that arrived at that time still describes the host."""
    limit = max(_CURRENT_SECONDS, _CURRENT_FACTOR * frame.interval_seconds)
    return age_seconds is not None and age_seconds <= limit


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


Sample = tuple[Sequence[str], float]


def _labeled(
    name: str, text: str, labels: Sequence[str], samples: Iterable[Sample], *, is_counter: bool = False
) -> Metric:
    family: GaugeMetricFamily | CounterMetricFamily
    family = (CounterMetricFamily if is_counter else GaugeMetricFamily)(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _host_families(host: Host) -> Iterator[Metric]:
    if host.cpu_percent is not None:
        yield _gauge("gpumon_host_cpu_utilization_ratio", "Utilization of all CPUs.", host.cpu_percent / 100)
    for field, name, text in _HOST_GAUGES:
        value = getattr(host, field)
        if value is not None:
            yield _gauge(f"gpumon_host_{name}", text, value)


def _gpu_labels(device: Device) -> tuple[str, str, str]:
    return device.label, device.uuid or "", device.name or ""


def _device_families(frame: Frame) -> Iterator[Metric]:
    devices = frame.devices
    fresh = [device for device in devices if frame.is_fresh(device)]
    states = [
        ((*_gpu_labels(device), state.value), float(device.state is state))
        for device in devices
        for state in DeviceState
    ]
    yield _labeled("gpumon_gpu_state", "1 for the state of the GPU.", (*_GPU_LABELS, "state"), states)
    for metric in METRICS.values():
        exported = exported_metric(metric)
        samples = [
            (_gpu_labels(device), device.readings[metric.id] / exported.divisor)
            for device in fresh
            if metric.id in device.readings and not device.is_stale(metric.id)
        ]
        yield _labeled(exported.name, metric.help, _GPU_LABELS, samples, is_counter=exported.is_counter)
    missing = [
        ((*_gpu_labels(device), name, problem.code.value), 1.0)
        for device in devices
        for name, problem in device.problems.items()
    ]
    yield _labeled(
        "gpumon_gpu_value_missing", "Values without a sample, and why.", (*_GPU_LABELS, "value", "reason"), missing
    )
    reasons = [
        ((*_gpu_labels(device), reason), float(reason in device.throttle_reasons))
        for device in fresh
        if device.throttle_reasons is not None
        for reason in THROTTLE_REASONS
    ]
    yield _labeled(
        "gpumon_gpu_throttle_reason", "1 while the driver lowers the clocks for the reason.",
        (*_GPU_LABELS, "reason"), reasons,
    )  # fmt: skip


def _process_families(devices: Sequence[Device], origins: Mapping[Identity, ProcessOrigin]) -> Iterator[Metric]:
    listed = [device for device in devices if device.processes is not None]
    counts = [(_gpu_labels(device), float(len(device.processes or ()))) for device in listed]
    yield _labeled("gpumon_gpu_processes", "Processes on the GPU.", _GPU_LABELS, counts)
    rows = [
        (_process_labels(device, process, origins), process)
        for device in listed
        for process in largest_processes(device)
    ]
    memory = [(labels, float(process.memory_bytes)) for labels, process in rows if process.memory_bytes is not None]
    yield _labeled("gpumon_process_gpu_memory_bytes", "GPU memory of a process.", _PROCESS_LABELS, memory)
    activity = [(labels, process.sm_percent / 100) for labels, process in rows if process.sm_percent is not None]
    yield _labeled(
        "gpumon_process_sm_utilization_ratio",
        "Share of time in which a process ran kernels.",
        _PROCESS_LABELS,
        activity,
    )
    cpu = [(labels, process.cpu_percent / 100) for labels, process in rows if process.cpu_percent is not None]
    yield _labeled("gpumon_process_cpu_cores", "CPU cores in use by a process.", _PROCESS_LABELS, cpu)


def largest_processes(device: Device) -> list[Process]:
    """The processes of a device that are exported, by memory."""
    processes = sorted(device.processes or (), key=lambda process: (-(process.memory_bytes or 0), process.pid))
    return processes[:MAX_PROCESSES]


def _process_labels(device: Device, process: Process, origins: Mapping[Identity, ProcessOrigin]) -> tuple[str, ...]:
    origin = origins.get(identity_of(process), ProcessOrigin())
    rank = "" if origin.rank is None else str(origin.rank)
    return *_gpu_labels(device), str(process.pid), process.user or "", origin.job or "", origin.pod or "", rank


def _torch_families(state: HostState, devices: Sequence[Device]) -> Iterator[Metric]:
    rows = [
        (_process_labels(device, owner.process, state.origins), owner)
        for device in devices
        if state.probes
        for owner in owners_of(device, state.probes).owners
        if owner.process is not None
    ]
    for name, text, field, is_counter in _TORCH_METRICS:
        values = [(labels, getattr(owner.statistics, field, None)) for labels, owner in rows]
        yield _probed_family(f"gpumon_torch_{name}", text, values, is_counter=is_counter)
    for name, text, field, is_counter in _TRAINING_METRICS:
        values = [(labels, getattr(owner.training, field, None)) for labels, owner in rows]
        yield _probed_family(f"gpumon_training_{name}", text, values, is_counter=is_counter)


def _probed_family(
    name: str, text: str, values: Iterable[tuple[Sequence[str], float | None]], *, is_counter: bool
) -> Metric:
    samples = [(labels, float(value)) for labels, value in values if value is not None]
    return _labeled(name, text, _PROCESS_LABELS, samples, is_counter=is_counter)


def _alert_family(state: HostState, frame: Frame) -> Metric:
    by_key = {device.key: _gpu_labels(device) for device in frame.devices}
    standing: dict[Sequence[str], float] = {}
    for alert in state.alerts:
        labels = by_key.get(alert.device_key or "", ("", "", ""))
        key = (*labels, alert.id, alert.severity.value)
        standing[key] = standing.get(key, 0.0) + 1.0
    text = "Alerts that stand; without gpu for those of the host."
    return _labeled("gpumon_alerts", text, (*_GPU_LABELS, "alert", "severity"), standing.items())


def _xid_family(state: HostState, frame: Frame) -> Metric:
    by_key = {device.key: _gpu_labels(device) for device in frame.devices}
    samples = [((*by_key[key], str(xid)), float(count)) for (key, xid), count in state.xids.items() if key in by_key]
    return _labeled(
        "gpumon_gpu_xids", "Xids since the exporter started.", (*_GPU_LABELS, "xid"), samples, is_counter=True
    )
