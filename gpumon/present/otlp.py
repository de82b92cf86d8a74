"""The state of this host as OpenTelemetry's metrics of hardware, ``hw.gpu.*`` and others, from a table.

A value that is missing or stale has no data point.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpumon import __version__
from gpumon.core.model import Device, Frame
from gpumon.core.text_table import table
from gpumon.present.prometheus import is_frame_current
from gpumon.session.host_monitor import HostState

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader


class HardwareMetric(NamedTuple):
    """A row of the table.

    Attributes:
        name: The name of the instrument.
        unit: Its unit, in UCUM.
        kind: ``gauge``, ``counter``, or ``sum`` for one that may fall.
        metric: The metric of gpumon.
        divisor: A number, or another metric.
        attributes: What distinguishes data points of one GPU.
    """

    name: str
    unit: str
    kind: str
    metric: str
    divisor: str
    attributes: dict[str, str]

    def value(self, device: Device) -> float | None:
        """The value of a device; None without a current one."""
        if device.is_stale(self.metric) or device.is_stale(self.divisor):
            return None
        value = device.get(self.metric)
        divisor = float(self.divisor) if self.divisor.isdecimal() else device.get(self.divisor)
        return value / divisor if value is not None and divisor else None


def hardware_metrics() -> Iterator[HardwareMetric]:
    """The rows of the table."""
    for row in table("gpumon.present", "otlp"):
        name, unit, kind, metric, divisor, attributes = (cell.strip() for cell in row.split("|"))
        pairs = dict(pair.split("=") for pair in attributes.split())
        yield HardwareMetric(name, unit, kind, metric, divisor, pairs)


def meter_provider(reader: "MetricReader", state: Callable[[], HostState]) -> "MeterProvider":
    """A provider whose instruments observe this host.

    Args:
        reader: Collects from the instruments, and exports.
        state: Returns the state of this host.
    """
    from opentelemetry.sdk.metrics import MeterProvider  # late: an extra
    from opentelemetry.sdk.resources import Resource

    frame = state().frame
    host = {} if frame is None else {"host.name": frame.host.name}
    resource = Resource.create({"service.name": "gpumon", "service.version": __version__, **host})
    provider = MeterProvider((reader,), resource)
    meter = provider.get_meter("gpumon", __version__)
    create = {
        "gauge": meter.create_observable_gauge,
        "counter": meter.create_observable_counter,
        "sum": meter.create_observable_up_down_counter,
    }
    rows = list(hardware_metrics())
    for name in dict.fromkeys(row.name for row in rows):
        named = [row for row in rows if row.name == name]
        create[named[0].kind](name, [_observer(named, state)], named[0].unit)
    return provider


def _observer(
    rows: list[HardwareMetric], state: Callable[[], HostState]
) -> "Callable[[CallbackOptions], Iterator[Observation]]":
    """What an instrument calls to observe the GPUs."""
    from opentelemetry.metrics import Observation

    def observe(_: "CallbackOptions") -> "Iterator[Observation]":
        now = state()
        if now.frame is None or not is_frame_current(now.frame, now.age_seconds):
            return
        for device in filter(now.frame.is_fresh, now.frame.devices):
            for row in rows:
                value = row.value(device)
                if value is not None:
                    yield Observation(value, {**_attributes(device, now.frame), **row.attributes})

    return observe


def _attributes(device: Device, frame: Frame) -> dict[str, str]:
    named = {"hw.id": device.uuid, "hw.model": device.name, "hw.driver_version": frame.driver_version}
    known = {name: value for name, value in named.items() if value}
    return {**known, "hw.name": f"GPU {device.label}", "hw.type": "gpu", "hw.vendor": "NVIDIA"}
