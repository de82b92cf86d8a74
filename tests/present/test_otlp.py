"""OpenTelemetry's names, units and attributes of GPUs, through the SDK's own reader."""

import pytest

from gpumon.core.metrics import METRICS
from gpumon.present.otlp import hardware_metrics, meter_provider
from gpumon.session.host_monitor import HostState
from tests import builders


def test_the_table_names_metrics_that_exist() -> None:
    rows = list(hardware_metrics())
    assert {row.metric for row in rows} | {row.divisor for row in rows if not row.divisor.isdecimal()} <= set(METRICS)
    assert len({(row.name, *row.attributes.values()) for row in rows}) == len(rows)


def test_the_sdk_reads_them() -> None:
    export = pytest.importorskip("opentelemetry.sdk.metrics.export", reason="needs the extra: pip install -e '.[otlp]'")
    readings = {"memory_used_bytes": 3 << 30, "memory_total_bytes": 12 << 30, "utilization_gpu_percent": 40}
    devices = (builders.device(readings=readings), builders.device(1, readings={"power_watts": None}))
    reader = export.InMemoryMetricReader()
    provider = meter_provider(reader, lambda: HostState(builders.frame(devices=devices), 0.2))
    resource = reader.get_metrics_data().resource_metrics[0]
    assert resource.resource.attributes["host.name"] == "node7"
    points = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    first, second = devices
    usage = {point.attributes["hw.id"]: point.value for point in points["hw.gpu.memory.usage"].data.data_points}
    assert usage[first.uuid] == 3 << 30
    assert points["hw.gpu.memory.utilization"].data.data_points[0].value == 0.25
    busy = points["hw.gpu.utilization"].data.data_points[0]
    assert (busy.value, busy.attributes["hw.gpu.task"], busy.attributes["hw.vendor"]) == (0.4, "general", "NVIDIA")
    assert [point.attributes["hw.id"] for point in points["hw.power"].data.data_points] == [first.uuid]
    assert second.uuid in usage
    provider.shutdown()
