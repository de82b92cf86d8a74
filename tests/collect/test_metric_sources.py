"""`Metric.source` names the NVML function that the metric's reader calls."""

from collections.abc import Callable
from typing import Any

import pytest

from gpumon.collect import nvml
from gpumon.collect.activity import EnergyCounter, GpmCounters
from gpumon.collect.nvml import Nvml
from gpumon.collect.readers import READERS, FieldReader, Reader, read_fields
from gpumon.core.metrics import METRICS
from tests.collect.fake import FakeGpm, FakeNvml

COMPUTED = {"memory_unattributed_bytes"}
"""Metrics that are computed from other metrics."""


class RecordingNvml(Nvml):
    """Records the functions that are called, by their name in NVML's header."""

    def __init__(self) -> None:
        fake = FakeNvml()
        FakeGpm(fake)
        fake.answer("nvmlDeviceGetTotalEnergyConsumption", 1000)
        super().__init__(library=fake)
        self.functions: list[str] = []

    def call(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401
        # pynvml selects the second version of this function by an argument.
        self.functions.append(f"{name}_v2" if nvml.MEMORY_INFO_V2 in arguments else name)
        return super().call(name, *arguments)


def run_reader(reader: Reader | FieldReader, api: Nvml) -> None:
    if isinstance(reader, FieldReader):
        read_fields(api, 0, reader.fields)
    else:
        reader.read(api, 0)


def run_counters(api: Nvml) -> None:
    counters = GpmCounters(api, 0)
    counters.read()
    counters.read()  # a counter is the difference of two samples


SOURCES: list[tuple[tuple[str, ...], Callable[[Nvml], Any]]] = [
    *((reader.metrics, lambda api, reader=reader: run_reader(reader, api)) for reader in READERS),
    (GpmCounters(Nvml(library=FakeNvml()), 0).metrics, run_counters),
    (EnergyCounter.metrics, lambda api: EnergyCounter(api, 0).read()),
]


@pytest.mark.parametrize(("metrics", "run"), SOURCES, ids=[metrics[0] for metrics, _ in SOURCES])
def test_the_source_of_a_metric_is_the_function_that_returns_the_value(
    metrics: tuple[str, ...], run: Callable[[Nvml], Any]
) -> None:
    api = RecordingNvml()
    run(api)
    assert {METRICS[metric].source for metric in metrics} == {api.functions[-1]}


def test_every_metric_has_exactly_one_source() -> None:
    metrics = [metric for names, _ in SOURCES for metric in names]
    assert len(metrics) == len(set(metrics))
    assert set(metrics) | COMPUTED == set(METRICS)
