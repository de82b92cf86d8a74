"""The state of this host with the names and labels of NVIDIA's dcgm-exporter, so that its dashboards read gpumon.

A metric is a row of a table. There are no series of processes, so that their number is that of the GPUs.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric, UnknownMetricFamily

from gpumon.core.metrics import METRICS, Unit
from gpumon.core.model import Device, Frame
from gpumon.core.text_table import table
from gpumon.fleet.exporters import DCGM, DCGM_XIDS, SourceMetric
from gpumon.present.prometheus import is_frame_current
from gpumon.session.host_monitor import HostState
from gpumon.session.process_registry import identity_of


def _metrics() -> Iterator[tuple[str, SourceMetric]]:
    for row in table("gpumon.present", "dcgm_metrics"):
        name, ours, factor = row.split(" | ")
        yield name, SourceMetric(ours, float(factor))


DCGM_METRICS: Final[Mapping[str, SourceMetric]] = {**DCGM.metrics, **dict(_metrics())}
"""What is exported, with the factor from DCGM's unit to gpumon's; of several metrics, the sum."""
_LABELS: Final = (
    "gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION", "hpc_job", "GPU_I_ID",
    "GPU_I_PROFILE",
)  # fmt: skip


def dcgm_families(state: HostState) -> Iterator[Metric]:
    """Every metric of the table for which this host has a value; nothing without a current frame."""
    frame = state.frame
    if frame is None or not is_frame_current(frame, state.age_seconds):
        return
    fresh = [(device, _labels(device, frame, state)) for device in frame.devices if frame.is_fresh(device)]
    for name, source in DCGM_METRICS.items():
        ids = source.id.split()
        family = _family(name, ids)
        for device, labels in fresh:
            if all(metric in device.readings and not device.is_stale(metric) for metric in ids):
                family.add_metric(labels, sum(device.readings[metric] for metric in ids) / source.factor)
        if family.samples:
            yield family
    family = GaugeMetricFamily(
        DCGM_XIDS, "Value of the last Xid since the exporter started; 0 for none.", labels=_LABELS
    )
    last = dict(state.xids.keys())
    for device, labels in fresh:
        family.add_metric(labels, float(last.get(device.key, 0)))
    yield family


def _family(name: str, ids: list[str]) -> GaugeMetricFamily | UnknownMetricFamily:
    """A family without samples. A counter would get the suffix ``_total``, which dcgm-exporter's counters lack."""
    rises = METRICS[ids[0]].unit in {Unit.JOULES, Unit.COUNT}
    text = " ".join(METRICS[metric].help for metric in ids)
    return (UnknownMetricFamily if rises else GaugeMetricFamily)(name, text, labels=_LABELS)


def _labels(device: Device, frame: Frame, state: HostState) -> tuple[str, ...]:
    jobs = {
        origin.job
        for process in device.processes or ()
        if (origin := state.origins.get(identity_of(process))) is not None and origin.job
    }
    instance = ("", "")
    if device.instance is not None:
        number = device.instance.gpu_instance_id
        instance = ("" if number is None else str(number), (device.name or "").partition(" MIG ")[2])
    return (
        str(device.index),
        device.uuid or "",
        device.pci_bus_id or "",
        f"nvidia{device.index}",
        device.name or "",
        frame.host.name or "",
        frame.driver_version or "",
        jobs.pop() if len(jobs) == 1 else "",
        *instance,
    )
