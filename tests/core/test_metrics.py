"""The catalogue keeps its promises to scripts."""

import pytest

from gpumon.collect.calls import CALLS
from gpumon.collect.on_demand import ON_DEMAND_METRICS
from gpumon.collect.readers import READERS
from gpumon.core.metrics import METRICS, Metric, Unit

SUFFIXES = {
    Unit.BYTES: "_bytes", Unit.PERCENT: "_percent", Unit.CELSIUS: "_celsius", Unit.WATTS: "_watts",
    Unit.HERTZ: "_hertz", Unit.BYTES_PER_SECOND: "_bytes_per_second", Unit.JOULES: "_joules", Unit.BITS: "_bits",
    Unit.COUNT: "_count",
}  # fmt: skip
DIFFERENCES = {"energy_joules"}
"""What the driver answered is checked before the difference is taken."""
COMPUTED = {"memory_unattributed_bytes"}

each_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))


@each_metric
def test_id_ends_in_its_unit(metric: Metric) -> None:
    assert metric.id.endswith(SUFFIXES.get(metric.unit, ""))
    assert metric.unit in SUFFIXES or not metric.id.endswith(tuple(SUFFIXES.values()))


@each_metric
def test_drivers_sentinels_are_no_readings(metric: Metric) -> None:
    assert metric.minimum < metric.maximum
    for sentinel in (0xFFFFFFFFFFFFFFFF, -0x7FFFFFFF):
        assert not metric.admits(sentinel)
    if metric.unit is not Unit.BYTES and metric.id not in DIFFERENCES:
        scale = {Unit.HERTZ: 1e6, Unit.WATTS: 1e-3, Unit.BYTES_PER_SECOND: 1e6}.get(metric.unit, 1)
        assert not metric.admits(0xFFFFFFFF * scale)
    assert not metric.admits(float("nan"))


@each_metric
def test_help_is_a_sentence(metric: Metric) -> None:
    assert metric.help.endswith(".")
    assert metric.label


@each_metric
def test_source_is_a_call_that_is_made(metric: Metric) -> None:
    if metric.id not in COMPUTED:
        assert any(metric.source.startswith(call) for call in CALLS)


def test_every_metric_has_one_reader() -> None:
    read = [metric for reader in READERS for metric in reader.metrics] + list(ON_DEMAND_METRICS)
    assert len(read) == len(set(read))
    assert set(read) | COMPUTED == set(METRICS)
