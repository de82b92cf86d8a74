"""The state of this host with the names and labels of NVIDIA's dcgm-exporter, so that its dashboards read gpumon.

A metric is a row of a table. There are no series of processes, so that their number is that of the GPUs.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric, UnknownMetricFamily

from gpumon.core.metrics import METRICS, Unit
from gpumon.core.model import Device, Frame
from gpumon.fleet.exporters import DCGM, DCGM_XIDS, SourceMetric
from gpumon.present.prometheus import is_frame_current
from gpumon.session.host_monitor import HostState
from gpumon.session.process_registry import identity_of

DCGM_METRICS: Final[Mapping[str, SourceMetric]] = {
    **DCGM.metrics,
    "DCGM_FI_DEV_MEM_CLOCK": SourceMetric("clock_memory_hertz", 1e6),
    "DCGM_FI_DEV_MEMORY_TEMP": SourceMetric("temperature_memory_celsius"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": SourceMetric("pcie_replay_count"),
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": SourceMetric("pcie_transmit_bytes_per_second", 1000),
    "DCGM_FI_DEV_PCIE_RX_THROUGHPUT": SourceMetric("pcie_receive_bytes_per_second", 1000),
    "DCGM_FI_DEV_MEM_COPY_UTIL": SourceMetric("utilization_memory_percent"),
    "DCGM_FI_DEV_ENC_UTIL": SourceMetric("utilization_encoder_percent"),
    "DCGM_FI_DEV_DEC_UTIL": SourceMetric("utilization_decoder_percent"),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": SourceMetric("ecc_corrected_volatile_count"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": SourceMetric("ecc_uncorrected_volatile_count"),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": SourceMetric("ecc_corrected_aggregate_count"),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": SourceMetric("ecc_uncorrected_aggregate_count"),
    "DCGM_FI_DEV_RETIRED_SBE": SourceMetric("retired_pages_corrected_count"),
    "DCGM_FI_DEV_RETIRED_DBE": SourceMetric("retired_pages_uncorrected_count"),
    "DCGM_FI_DEV_RETIRED_PENDING": SourceMetric("retired_pages_pending"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": SourceMetric("remapped_rows_uncorrectable_count"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": SourceMetric("remapped_rows_correctable_count"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": SourceMetric("remapped_rows_failure"),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": SourceMetric("remapped_rows_pending"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": SourceMetric("power_limit_watts"),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": SourceMetric("engine_activity_percent", 100),
    "DCGM_FI_PROF_SM_OCCUPANCY": SourceMetric("sm_occupancy_percent", 100),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": SourceMetric("fp64_activity_percent", 100),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": SourceMetric("fp32_activity_percent", 100),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": SourceMetric("fp16_activity_percent", 100),
    "DCGM_FI_PROF_PCIE_TX_BYTES": SourceMetric("pcie_transmit_bytes_per_second"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": SourceMetric("pcie_receive_bytes_per_second"),
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": SourceMetric("vgpu_license"),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": SourceMetric(
        "nvlink_transmit_bytes_per_second nvlink_receive_bytes_per_second", 1_024_000
    ),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": SourceMetric("nvlink_transmit_bytes_per_second"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": SourceMetric("nvlink_receive_bytes_per_second"),
}
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
