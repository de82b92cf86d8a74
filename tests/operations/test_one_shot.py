"""A single sample with the values that are read only on demand."""

from collections.abc import Collection
from dataclasses import replace

from gpumon.collect.on_demand import NOT_SELECTED
from gpumon.core.metrics import ON_DEMAND_METRICS
from gpumon.core.model import Frame
from gpumon.operations.one_shot import sample_frame
from tests import builders
from tests.ui.fakes import FakeStream

VALUES = {metric.id: 1.0 for metric in ON_DEMAND_METRICS}


class OnDemand(FakeStream):
    """Answers a request for the values of devices with a frame that has them."""

    def request_on_demand(self, keys: Collection[str], process_keys: Collection[str] = ()) -> None:
        assert (set(keys), set(process_keys)) == ({builders.device(0).key}, set())
        self.put(frame(VALUES))


def frame(values: dict[str, float]) -> Frame:
    device = builders.device(0)
    readings = {key: value for key, value in device.readings.items() if key not in VALUES} | values
    problems = {} if values else dict.fromkeys(VALUES, NOT_SELECTED)
    return builders.frame(devices=(replace(device, readings=readings, problems={**device.problems, **problems}),))


def test_activity_rates_and_energy_are_waited_for_on_request() -> None:
    stream = OnDemand()
    stream.put(frame({}), frame({}))
    assert sample_frame(stream).devices[0].get("sm_activity_percent") is None
    stream = OnDemand()
    stream.put(frame({}), frame({}))
    sampled = sample_frame(stream, on_demand=True).devices[0]
    assert {sampled.get(name) for name in VALUES} == {1.0}
