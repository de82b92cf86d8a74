"""The effect of a GPU's own metrics on a result."""

from typing import Any

import pytest

from gpumon.core.workload_metrics import Measurement
from gpumon.insight.workload_verdict import DeviceSample, Judgment, judge, sample_of
from tests.builders import device
from tests.runs import measured


def sample(**changes: Any) -> DeviceSample:  # noqa: ANN401
    readings = {"utilization_gpu_percent": 99, "clock_sm_hertz": 1_485e6, **changes.pop("readings", {})}
    return sample_of(device(readings=readings, **changes), 1_800_000_000.0)


def figure(**changes: Any) -> Measurement:  # noqa: ANN401
    fields = {"name": "throughput", "value": 600.0, "unit": "TFLOP/s", "repetitions": 9, "limit": 1000.0}
    (measurement,) = measured(fields | changes)
    return measurement


def named(figures: Any) -> dict[str, Any]:  # noqa: ANN401
    return {item.metric.name: item.document() for item in figures}


def test_a_sample_holds_what_was_read_and_none_where_nothing_was() -> None:
    result = sample(readings={"power_watts": None}, throttle_reasons=None)
    assert (result.power_watts, result.power_limit_watts, result.throttle_reasons) == (None, 700.0, ())


@pytest.mark.parametrize("samples", [[], [sample(readings={"utilization_gpu_percent": 3})]])
def test_without_a_busy_moment_nothing_is_added(samples: list[DeviceSample]) -> None:
    assert judge([figure()], samples) == Judgment((figure(),))


def test_clock_power_and_temperature_are_added_with_their_limits() -> None:
    added = named(judge([figure()], [sample(), sample(readings={"temperature_celsius": 71})]).metrics)
    assert list(added) == ["throughput", "sm_clock", "power", "temperature"]
    assert added["sm_clock"] == {
        "name": "sm_clock", "value": 1485.0, "unit": "MHz", "better": "higher", "format": "number", "repetitions": 2,
        "limit": 1980.0, "limit_source": "maximum", "case": "", "position": None,
    }  # fmt: skip
    assert (added["power"]["value"], added["power"]["limit"]) == (612.5, 700.0)
    assert (added["temperature"]["value"], added["temperature"]["limit_source"]) == (71, "")


def test_activity_is_the_mean_of_the_samples_that_have_it() -> None:
    readings = [{"sm_activity_percent": 90, "tensor_activity_percent": 40}, {"sm_activity_percent": 80}, {}]
    none = {"sm_activity_percent": None, "tensor_activity_percent": None}
    added = named(judge([], [sample(readings=none | values) for values in readings]).metrics)
    assert [(added[name]["value"], added[name]["repetitions"]) for name in ("sm_activity", "tensor_activity")] == [
        (85, 2),
        (40, 1),
    ]
    assert added["sm_activity"]["unit"] == "%"


def test_what_was_not_read_is_not_added() -> None:
    bare = sample(
        readings={"clock_sm_hertz": None, "power_watts": None, "temperature_celsius": None, "clock_sm_max_hertz": None}
    )
    assert judge([figure()], [bare]) == Judgment((figure(),))


def test_a_power_cap_is_normal_and_told() -> None:
    judgement = judge([figure()], [sample(throttle_reasons=("sw_power_cap",))])
    assert judgement.sentences == (
        "Power-capped at 700 W, 1485 of 1980 MHz: normal for a chip under full load.",
        "The throughput is 80% of the peak at this clock.",
    )
    assert not judgement.is_slowed_by_fault


def test_without_a_reason_the_clock_is_told() -> None:
    assert judge([], [sample(throttle_reasons=("gpu_idle",))]).sentences == ("The GPU ran at 1485 of 1980 MHz.",)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("hw_thermal_slowdown", "a high temperature (hardware"),
        ("sw_thermal_slowdown", "high GPU or memory temperature"),
        ("hw_power_brake_slowdown", "the power brake signal of the power supply"),
        ("hw_slowdown", "the hardware slowdown ("),
    ],
)
def test_a_fault_is_told_and_counts_more_than_a_power_cap(reason: str, words: str) -> None:
    judgement = judge([], [sample(throttle_reasons=("sw_power_cap", reason))])
    assert judgement.is_slowed_by_fault
    assert "ran at 1485 of 1980 MHz. This is not normal" in judgement.sentences[0]
    assert words in judgement.sentences[0]


def test_a_reason_that_held_only_for_a_moment_or_while_idle_is_not_told() -> None:
    hot = ("hw_thermal_slowdown",)
    idle = sample(readings={"utilization_gpu_percent": 0}, throttle_reasons=hot)
    judgement = judge([], [sample(throttle_reasons=hot), *[sample()] * 9, *[idle] * 9])
    assert not judgement.is_slowed_by_fault
    assert judge([], [*[sample(throttle_reasons=hot)] * 2, *[sample()] * 8]).is_slowed_by_fault


def test_the_clock_told_is_the_median() -> None:
    clocks = [300e6, 1_400e6, 1_500e6]
    judgement = judge([], [sample(readings={"clock_sm_hertz": clock}) for clock in clocks])
    assert judgement.sentences == ("The GPU ran at 1400 of 1980 MHz.",)


@pytest.mark.parametrize("changes", [{"limit": None}, {"limit": 0}, {"name": "latency"}])
def test_only_throughput_with_a_limit_is_compared_at_its_clock(changes: dict[str, Any]) -> None:
    assert len(judge([figure(**changes)], [sample()]).sentences) == 1


def test_a_transfer_is_compared_with_the_fastest_link_that_was_seen() -> None:
    links = [(1, 16), (5, 16), (5, 8)]
    samples = [sample(readings={"pcie_generation": generation, "pcie_width": width}) for generation, width in links]
    (result, *_) = judge([figure(name="h2d", limit=None, limit_source="pcie")], samples).metrics
    assert result.limit == pytest.approx(63.0, rel=0.001)
    assert result.limit_source == "PCIe 5 x16 during the run"


@pytest.mark.parametrize("source", ["pcie", "nvlink"])
@pytest.mark.parametrize("readings", [{}, {"pcie_generation": 9, "pcie_width": 16}, {"pcie_width": 0}])
def test_a_link_that_is_not_known_gives_no_limit(source: str, readings: dict[str, float]) -> None:
    samples = [sample(readings=readings)] if readings else []
    (result, *_) = judge([figure(limit=None, limit_source=source)], samples).metrics
    assert (result.limit, result.limit_source) == (None, "")


WRONG_WORDS = figure(name="wrong_words", value=0, unit="words", repetitions=5, limit=None)
ECC = {"ecc_corrected_volatile_count": 3, "ecc_uncorrected_volatile_count": 0}
ROWS = {
    "remapped_rows_correctable_count": 1,
    "remapped_rows_uncorrectable_count": 0,
    "remapped_rows_pending": 0,
    "remapped_rows_failure": 0,
}


def changed(**changes: float) -> list[DeviceSample]:
    """Samples of a run during which counters changed."""
    before = {**ECC, **ROWS}
    return [sample(readings=before), sample(readings={**before, **changes})]


def test_a_memory_test_reports_counters_that_did_not_change_and_the_temperature() -> None:
    hot = sample(readings={**ECC, **ROWS, "temperature_celsius": 71, "temperature_memory_celsius": 80})
    judgement = judge([WRONG_WORDS], [*changed(), hot, *changed()])
    assert judgement.sentences[-2:] == (
        "The highest temperature was 71 °C (92 °C slows the GPU down), that of the memory 80 °C.",
        "ECC reported no error and no memory row was remapped during the run.",
    )
    added = named(judgement.metrics)
    assert [added[name]["value"] for name in ("ecc_corrected", "ecc_uncorrected", "remapped_rows")] == [0, 0, 0]
    assert added["temperature_memory"]["value"] == 80
    assert not judgement.is_memory_bad
    assert not judgement.is_memory_suspect


def test_other_workloads_do_not_list_counters_that_did_not_change() -> None:
    judgement = judge([figure()], changed())
    assert "ecc_corrected" not in named(judgement.metrics)
    assert not any("ECC" in sentence for sentence in judgement.sentences)


@pytest.mark.parametrize("utilization", [99, 0])
def test_an_error_that_ecc_could_not_correct_is_bad_whatever_runs(utilization: float) -> None:
    samples = changed(ecc_uncorrected_volatile_count=2, utilization_gpu_percent=utilization)
    judgement = judge([figure()], samples)
    assert judgement.is_memory_bad
    assert "ECC found 2 uncorrectable memory errors during the run." in " ".join(judgement.sentences)
    assert named(judgement.metrics)["ecc_uncorrected"]["value"] == 2


@pytest.mark.parametrize(
    ("changes", "words", "bad", "suspect"),
    [
        ({"ecc_corrected_volatile_count": 4}, "ECC corrected 1 memory error during the run", False, True),
        ({"remapped_rows_uncorrectable_count": 1}, "The driver remapped 1 memory row during", False, True),
        ({"remapped_rows_pending": 1}, "A memory row waits to be remapped", False, True),
        ({"remapped_rows_failure": 1}, "have the board replaced", True, False),
    ],
)
def test_what_changed_in_a_memory_test_is_reported(
    changes: dict[str, float], words: str, bad: bool, suspect: bool
) -> None:
    judgement = judge([WRONG_WORDS], changed(**changes))
    assert words in " ".join(judgement.sentences)
    assert (judgement.is_memory_bad, judgement.is_memory_suspect) == (bad, suspect)


def test_corrected_errors_do_not_change_the_verdict_of_other_workloads() -> None:
    judgement = judge([figure()], changed(ecc_corrected_volatile_count=9))
    assert not judgement.is_memory_suspect
    assert "ECC corrected 6 memory errors during the run; results are not affected." in judgement.sentences


def test_a_counter_that_was_reset_counts_from_zero_and_one_reading_is_no_change() -> None:
    judgement = judge([WRONG_WORDS], changed(ecc_corrected_volatile_count=1))
    assert named(judgement.metrics)["ecc_corrected"]["value"] == 1
    single = judge([WRONG_WORDS], [sample(readings=ECC)])
    assert "ecc_corrected" not in named(single.metrics)
    assert single.sentences[-1] == "This GPU reports neither ECC errors nor remapped rows."
