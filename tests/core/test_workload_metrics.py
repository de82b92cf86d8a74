"""The metrics of workloads: how values are written, which direction is better, and what a declaration says."""

import pytest

from gpumon.core.workload_metrics import Better, Measurement, MetricFormat, WorkloadMetric, declared_metric

FIGURE = {"name": "throughput_last_second", "value": 5, "unit": "GB/s", "repetitions": 3}


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (617.254, "TFLOP/s", "617.3 TFLOP/s"),
        (0.19071, "TFLOP/s", "0.1907 TFLOP/s"),
        (0, "elements", "0 elements"),
        (123456, "", "123456"),
        (999.94, "W", "999.9 W"),
        (999.97, "W", "1000 W"),
        (9_999_999, "", "9999999"),
        (1e7, "", "1e+07"),
        (1e-3, "s", "0.001 s"),
        (4.2e-6, "s", "4.2e-06 s"),
        (-1234.5, "", "-1234"),
        (3 << 30, "bytes", "3.00 GiB"),
        (None, "W", "–"),
    ],
)
def test_a_measurement_has_four_digits_and_its_unit(value: float | None, unit: str, text: str) -> None:
    assert WorkloadMetric.of({"name": "speed", "unit": unit}).text(value) == text


def test_a_count_has_all_digits_and_a_heading_can_have_the_unit() -> None:
    metric = WorkloadMetric("checked", "words", format=MetricFormat.COUNT)
    assert metric.text(123_456_789) == "123456789 words"
    assert metric.text(7, has_unit=False) == "7"
    assert (metric.heading, WorkloadMetric("peak", "bytes", format=MetricFormat.BYTES).heading) == ("words", "")


@pytest.mark.parametrize(("better", "expected"), [(Better.HIGHER, True), (Better.LOWER, False), (Better.NEITHER, None)])
def test_the_better_direction(better: Better, expected: bool | None) -> None:
    assert WorkloadMetric("speed", "x", better).is_better(1.0, 2.0) is expected
    assert WorkloadMetric("speed", "x", better).is_better(2.0, 2.0) is None


def test_the_first_declaration_that_fits_counts_and_the_unit_of_a_value_is_its_own() -> None:
    declared = [WorkloadMetric("throughput*", "TFLOP/s", Better.HIGHER), WorkloadMetric("*", "ms", Better.LOWER)]
    measurement = Measurement.of(FIGURE, declared)
    assert measurement is not None
    assert measurement.metric == WorkloadMetric("throughput_last_second", "GB/s", Better.HIGHER)
    assert measurement.metric.label == "throughput last second"
    assert declared_metric(WorkloadMetric("step", "s"), declared).better is Better.LOWER
    assert Measurement.of(measurement.document()) == measurement, "a saved result has what was declared"


def test_the_share_of_a_limit() -> None:
    for limit, share in ((10, 0.5), (0, None), (None, None)):
        measurement = Measurement.of({**FIGURE, "limit": limit, "better": "sideways", "format": 7})
        assert measurement is not None
        assert measurement.share_of_limit == share
        assert measurement.metric.better is Better.NEITHER
