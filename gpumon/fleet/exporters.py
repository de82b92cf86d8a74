"""What each exporter calls its metrics and labels, and how its values become gpumon's units."""

from collections.abc import Mapping
from typing import Final, NamedTuple

_MIB: Final = float(1 << 20)
_LARGEST: Final = 1e18
"""Larger values are blanks: DCGM writes 9223372036854775794 or a number close to it for a missing value."""
_BLANKS: Final = frozenset({140737488355328.0, 2147483632.0, 2147483633.0, 2147483634.0, 2147483635.0})
"""Blanks of DCGM for floating-point numbers and for 32-bit integers."""


class SourceMetric(NamedTuple):
    """A metric of an exporter.

    Attributes:
        id: gpumon's id of the metric.
        factor: What a value is multiplied by to get gpumon's unit.
    """

    id: str
    factor: float = 1.0


class Exporter(NamedTuple):
    """An exporter.

    Attributes:
        name: Its name.
        primary: The metric that every GPU has. It carries the labels of the GPU; the others are joined by UUID.
        metrics: Its metrics by their names in Prometheus.
        hosts: Labels that name the host, best first; without any of them the host is the address of the target.
        uuids: Labels that contain the UUID.
        indexes: Labels that contain the index.
        models: Labels that contain the product name.
        jobs: Labels that name the job of a scheduler.
        users: Labels that name the user.
        index_metric: A metric whose value is the index, where no label contains it.
        info_metric: A metric that has the label of the product name, where the others do not have it.
    """

    name: str
    primary: str
    metrics: Mapping[str, SourceMetric]
    hosts: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ("uuid",)
    indexes: tuple[str, ...] = ("gpu",)
    models: tuple[str, ...] = ("model",)
    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    index_metric: str = ""
    info_metric: str = ""


DCGM: Final = Exporter(
    name="dcgm-exporter",
    primary="DCGM_FI_DEV_GPU_UTIL",
    metrics={
        "DCGM_FI_DEV_GPU_UTIL": SourceMetric("utilization_gpu_percent"),
        "DCGM_FI_DEV_FB_USED": SourceMetric("memory_used_bytes", _MIB),
        "DCGM_FI_DEV_FB_FREE": SourceMetric("memory_free_bytes", _MIB),
        "DCGM_FI_DEV_FB_RESERVED": SourceMetric("memory_reserved_bytes", _MIB),
        "DCGM_FI_DEV_POWER_USAGE": SourceMetric("power_watts"),
        "DCGM_FI_DEV_GPU_TEMP": SourceMetric("temperature_celsius"),
        "DCGM_FI_DEV_SM_CLOCK": SourceMetric("clock_sm_hertz", 1e6),
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": SourceMetric("energy_joules", 1e-3),
        "DCGM_FI_PROF_SM_ACTIVE": SourceMetric("sm_activity_percent", 100),
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": SourceMetric("tensor_activity_percent", 100),
        "DCGM_FI_PROF_DRAM_ACTIVE": SourceMetric("dram_activity_percent", 100),
    },
    hosts=("exported_Hostname", "Hostname", "exported_hostname", "hostname"),
    uuids=("UUID", "uuid"),
    models=("modelName",),
    jobs=("hpc_job",),
)
GPUMON: Final = Exporter(
    name="gpumon",
    primary="gpumon_gpu_utilization_ratio",
    metrics={
        "gpumon_gpu_utilization_ratio": SourceMetric("utilization_gpu_percent", 100),
        "gpumon_gpu_memory_used_bytes": SourceMetric("memory_used_bytes"),
        "gpumon_gpu_memory_total_bytes": SourceMetric("memory_total_bytes"),
        "gpumon_gpu_power_watts": SourceMetric("power_watts"),
        "gpumon_gpu_temperature_celsius": SourceMetric("temperature_celsius"),
        "gpumon_gpu_clock_sm_hertz": SourceMetric("clock_sm_hertz"),
        "gpumon_gpu_energy_joules_total": SourceMetric("energy_joules"),
        "gpumon_gpu_sm_activity_ratio": SourceMetric("sm_activity_percent", 100),
        "gpumon_gpu_tensor_activity_ratio": SourceMetric("tensor_activity_percent", 100),
        "gpumon_gpu_dram_activity_ratio": SourceMetric("dram_activity_percent", 100),
    },
)
NVIDIA_SMI: Final = Exporter(
    name="nvidia_gpu_exporter",
    primary="nvidia_smi_utilization_gpu_ratio",
    metrics={
        "nvidia_smi_utilization_gpu_ratio": SourceMetric("utilization_gpu_percent", 100),
        "nvidia_smi_memory_used_bytes": SourceMetric("memory_used_bytes"),
        "nvidia_smi_memory_total_bytes": SourceMetric("memory_total_bytes"),
        "nvidia_smi_memory_reserved_bytes": SourceMetric("memory_reserved_bytes"),
        "nvidia_smi_power_draw_watts": SourceMetric("power_watts"),
        "nvidia_smi_temperature_gpu": SourceMetric("temperature_celsius"),
        "nvidia_smi_clocks_current_sm_clock_hz": SourceMetric("clock_sm_hertz"),
    },
    indexes=("index", "minor_number"),
    models=("name",),
    index_metric="nvidia_smi_index",
    info_metric="nvidia_smi_gpu_info",
)
ALL_SMI: Final = Exporter(
    name="all-smi",
    primary="all_smi_gpu_utilization",
    metrics={
        "all_smi_gpu_utilization": SourceMetric("utilization_gpu_percent"),
        "all_smi_gpu_memory_used_bytes": SourceMetric("memory_used_bytes"),
        "all_smi_gpu_memory_total_bytes": SourceMetric("memory_total_bytes"),
        "all_smi_gpu_power_consumption_watts": SourceMetric("power_watts"),
        "all_smi_gpu_temperature_celsius": SourceMetric("temperature_celsius"),
        "all_smi_gpu_frequency_mhz": SourceMetric("clock_sm_hertz", 1e6),
    },
    hosts=("exported_instance", "host", "hostname"),
    uuids=("gpu_uuid", "uuid"),
    indexes=("gpu_index", "index"),
    models=("gpu",),
)
EXPORTERS: Final = (DCGM, GPUMON, NVIDIA_SMI, ALL_SMI)
"""The first one counts if several report the same GPU."""
PODS: Final = ("exported_namespace", "exported_pod", "namespace", "pod")
"""Namespace and pod of the workload: with honor_labels off, the plain labels may name the pod of the exporter."""
SHOWN_METRICS: Final = (
    "utilization_gpu_percent",
    "memory_used_bytes",
    "memory_total_bytes",
    "power_watts",
    "temperature_celsius",
    "clock_sm_hertz",
    "sm_activity_percent",
    "tensor_activity_percent",
    "dram_activity_percent",
)
"""What a GPU of the fleet is shown with; an exporter may report less."""
HISTORY_ONLY: Final = frozenset({"energy_joules"})
"""Metrics that only the history of a host has: each costs a result per GPU."""
DCGM_XIDS: Final = "DCGM_FI_DEV_XID_ERRORS"
"""Number of the last Xid of a GPU."""
GPUMON_XIDS: Final = "gpumon_gpu_xids_total"
"""Number of Xids by the label ``xid``."""


def uuid_key(uuid: str) -> str:
    """What is the same in a UUID of every exporter: nvidia_gpu_exporter leaves out the prefix ``GPU-``."""
    return uuid.lower().removeprefix("gpu-")


def is_blank(value: float) -> bool:
    """Whether a value stands for a missing one; also true of NaN and infinity."""
    return not abs(value) < _LARGEST or value in _BLANKS


def pod_of(labels: Mapping[str, str]) -> str:
    """The pod that uses a GPU as ``namespace/name``; empty if there is none."""
    for namespace, pod in (PODS[:2], PODS[2:]):
        name = labels.get(pod, "")
        if name and not _is_exporter(name):
            return f"{labels[namespace]}/{name}" if labels.get(namespace) else name
    return ""


def _is_exporter(pod: str) -> bool:
    """Whether a pod is that of an exporter, which a service discovery attaches to every GPU."""
    return any(f"{exporter.name}-" in pod for exporter in EXPORTERS) or "gpumon-exporter" in pod
