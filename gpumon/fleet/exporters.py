"""What each exporter calls its metrics and labels, and how its values become gpumon's units."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpumon.core.text_table import table

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


def _exporters() -> Iterator[Exporter]:
    """The exporters of `exporters.txt`; a row with a name starts the next one."""
    rows = [row.split() for row in table("gpumon.fleet", "exporters")]
    starts = [index for index, row in enumerate(rows) if row[0] == "name"]
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        own = rows[start:end]
        metrics = {row[1]: SourceMetric(row[2], *map(float, row[3:])) for row in own if row[0] == "metric"}
        fields: dict[str, Any] = {field: tuple(values) for field, *values in own if field != "metric"}
        texts = {field: fields[field][0] for field in _TEXTS if field in fields}
        yield Exporter(metrics=metrics, **fields | texts)


_TEXTS: Final = ("name", "primary", "index_metric", "info_metric")
EXPORTERS: Final = tuple(_exporters())
"""The first one counts if several report the same GPU."""
DCGM, GPUMON, NVIDIA_SMI, ALL_SMI = EXPORTERS
PODS: Final = ("exported_namespace", "exported_pod", "namespace", "pod")
"""Namespace and pod of the workload: with honor_labels off, the plain labels may name the pod of the exporter."""
SHOWN_METRICS: Final = tuple(table("gpumon.fleet", "shown_metrics"))
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
