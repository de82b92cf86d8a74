"""What clocks, power, throttle reasons and memory errors of a GPU during a run add to the result of a workload.

A workload sees only what torch reports. Here its metrics get the limits that NVML knows, and its verdict the reasons.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import mean, median
from typing import Final, NamedTuple

from gpumon.core.device_use import LOADED_PERCENT
from gpumon.core.metrics import METRICS
from gpumon.core.model import Device
from gpumon.core.throttle_reasons import POWER_CAP, THROTTLE_REASONS
from gpumon.core.units import counted, megahertz_text
from gpumon.core.workload_metrics import Better, Measurement, MetricFormat, WorkloadMetric

CORRECTED: Final = "ecc_corrected_volatile_count"
UNCORRECTED: Final = "ecc_uncorrected_volatile_count"
_REMAPPED: Final = ("remapped_rows_correctable_count", "remapped_rows_uncorrectable_count")
_PENDING: Final = "remapped_rows_pending"
_FAILURE: Final = "remapped_rows_failure"
COUNTERS: Final = (CORRECTED, UNCORRECTED, *_REMAPPED, _PENDING, _FAILURE)
"""The metrics that are compared."""
TESTS_MEMORY: Final = "wrong_words"
"""The measurement of a workload that tests memory: its result also names the counters that did not change."""
_METRICS: Final = tuple(
    WorkloadMetric(name, unit, Better.LOWER, MetricFormat.COUNT)
    for name, unit in (("ecc_corrected", "errors"), ("ecc_uncorrected", "errors"), ("remapped_rows", "rows"))
)
_RESET: Final = "Reset the GPU and run the test again; if errors return, have the board replaced."


class MemoryErrors(NamedTuple):
    """The memory errors of a run.

    Attributes:
        sentences: Sentences to add to the verdict.
        metrics: Metrics to add to the result.
        is_bad: Whether results of the run cannot be trusted, or the board must be replaced.
        is_suspect: Whether the memory needs attention.
    """

    sentences: tuple[str, ...] = ()
    metrics: tuple[Measurement, ...] = ()
    is_bad: bool = False
    is_suspect: bool = False


def memory_errors(counters: Sequence[Mapping[str, float]], *, tests_memory: bool) -> MemoryErrors:
    """Compares the counters of a GPU before and after a run.

    The readings of `COUNTERS` are in order; a metric that was not read is missing.
    """
    corrected, uncorrected = _rise(counters, CORRECTED), _rise(counters, UNCORRECTED)
    rises = [rise for rise in (_rise(counters, name) for name in _REMAPPED) if rise is not None]
    remapped = sum(rises) if rises else None
    sentences = []
    if uncorrected:
        sentences.append(f"ECC found {counted(uncorrected, 'uncorrectable memory error')} during the run. {_RESET}")
    if corrected:
        sentences.append(
            f"ECC corrected {counted(corrected, 'memory error')} during the run; results are not affected."
        )
    if remapped:
        sentences.append(f"The driver remapped {counted(remapped, 'memory row')} during the run. {_RESET}")
    has_failed, is_pending = _rise(counters, _FAILURE), _rise(counters, _PENDING)
    if has_failed:
        sentences.append("A bad memory row could not be remapped: have the board replaced.")
    if is_pending:
        sentences.append("A memory row waits to be remapped: reset the GPU.")
    metrics = tuple(
        Measurement(metric, rise, len(counters))
        for metric, rise in zip(_METRICS, (corrected, uncorrected, remapped), strict=True)
        if rise is not None and (rise or tests_memory)
    )
    if tests_memory and not sentences:
        sentences.append(_quiet_sentence(corrected, uncorrected, remapped))
    is_suspect = bool(remapped or is_pending or (tests_memory and corrected))
    return MemoryErrors(tuple(sentences), metrics, bool(uncorrected or has_failed), is_suspect)


def _quiet_sentence(corrected: int | None, uncorrected: int | None, remapped: int | None) -> str:
    """What a run without a change reports about the counters."""
    ecc = None if corrected is None or uncorrected is None else "ECC reported no error"
    rows = None if remapped is None else "no memory row was remapped"
    known = [text for text in (ecc, rows) if text is not None]
    if not known:
        return "This GPU reports neither ECC errors nor remapped rows."
    text = " and ".join(known)
    return f"{text[0].upper()}{text[1:]} during the run."


def _rise(counters: Sequence[Mapping[str, float]], name: str) -> int | None:
    """How far a counter rose; None if it was not read twice. A counter that fell was reset, and counts from zero."""
    values = [sample[name] for sample in counters if name in sample]
    if len(values) < 2:
        return None
    return int(values[-1] - values[0] if values[-1] >= values[0] else values[-1])


"""Utilization from which a sample belongs to the measured work rather than to its preparation."""
_MIN_REASON_SHARE: Final = 0.2
"""Share of the busy samples in which a throttle reason must hold to be reported."""
_PCIE_BYTES_PER_LANE: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes per second of one lane in one direction after line coding, by PCIe generation."""
_CLOCK: Final = WorkloadMetric("sm_clock", "MHz", Better.HIGHER)
_SM_ACTIVITY: Final = WorkloadMetric("sm_activity", "%", Better.HIGHER)
_TENSOR_ACTIVITY: Final = WorkloadMetric("tensor_activity", "%", Better.HIGHER)
_TEMPERATURE: Final = WorkloadMetric("temperature", "°C", Better.LOWER)
_MEMORY_TEMPERATURE: Final = WorkloadMetric("temperature_memory", "°C", Better.LOWER)
_ADVICE: Final = "This is not normal; check the cooling and the power supply."


class DeviceSample(NamedTuple):
    """A GPU at one moment of a run, with some of its metrics; None where a value was not measured."""

    time_seconds: float
    utilization_gpu_percent: float | None
    sm_activity_percent: float | None
    tensor_activity_percent: float | None
    power_watts: float | None
    power_limit_watts: float | None
    clock_sm_hertz: float | None
    clock_sm_max_hertz: float | None
    temperature_celsius: float | None
    memory_used_bytes: float | None
    pcie_generation: float | None
    pcie_width: float | None
    nvlink_bytes_per_second: float | None
    throttle_reasons: tuple[str, ...]
    temperature_slowdown_celsius: float | None
    temperature_memory_celsius: float | None
    memory_errors: Mapping[str, float]


class Judgment(NamedTuple):
    """What the samples of a GPU add to a result.

    Attributes:
        metrics: All metrics: those of the workload with their limits, then those of the GPU.
        sentences: Sentences to add to the verdict.
        is_slowed_by_fault: Whether the GPU was throttled by something that is not normal under load.
        is_memory_bad: Whether ECC found an error that it could not correct, or a row could not be remapped.
        is_memory_suspect: Whether memory needs attention, such as a remapped row.
    """

    metrics: tuple[Measurement, ...]
    sentences: tuple[str, ...] = ()
    is_slowed_by_fault: bool = False
    is_memory_bad: bool = False
    is_memory_suspect: bool = False


def sample_of(device: Device, time_seconds: float) -> DeviceSample:
    """The values of a device that are kept while a workload runs on it."""
    return DeviceSample(
        time_seconds=time_seconds,
        throttle_reasons=device.throttle_reasons or (),
        memory_errors={name: device.readings[name] for name in COUNTERS if name in device.readings},
        **{name: device.get(name) for name in DeviceSample._fields if name in METRICS},
    )


def judge(metrics: Sequence[Measurement], samples: Sequence[DeviceSample]) -> Judgment:
    """Combines the metrics of a workload with what its GPU did meanwhile.

    The samples are those from the beginning of the work to its end.
    """
    limited = tuple(_with_link_limit(metric, samples) for metric in metrics)
    tests_memory = any(item.metric.name == TESTS_MEMORY for item in metrics)
    errors = memory_errors([sample.memory_errors for sample in samples], tests_memory=tests_memory and bool(samples))
    busy = [sample for sample in samples if (sample.utilization_gpu_percent or 0) >= LOADED_PERCENT]
    own, sentences, is_slowed = _judge_load(limited, busy) if busy else ((), (), False)
    if tests_memory:
        sentences += _temperature_sentences(busy)
    return Judgment(
        (*limited, *own, *errors.metrics), (*sentences, *errors.sentences), is_slowed, errors.is_bad, errors.is_suspect
    )


def _judge_load(
    metrics: Sequence[Measurement], busy: Sequence[DeviceSample]
) -> tuple[tuple[Measurement, ...], tuple[str, ...], bool]:
    """The metrics of the GPU under load, sentences about them, and whether a fault slowed it."""
    counts = Counter(reason for sample in busy for reason in sample.throttle_reasons)
    frequent = {reason for reason, count in counts.items() if count >= _MIN_REASON_SHARE * len(busy)}
    faults = [reason.fault for reason in THROTTLE_REASONS.values() if reason.fault and reason.id in frequent]
    clock, power = _median(sample.clock_sm_hertz for sample in busy), _median(sample.power_watts for sample in busy)
    latest = busy[-1]
    own = (
        _measured(_CLOCK, len(busy), _scaled(clock, 1e6), (_scaled(latest.clock_sm_max_hertz, 1e6), "maximum")),
        _measured(WorkloadMetric("power", "W"), len(busy), power, (latest.power_limit_watts, "power limit in force")),
        _measured(_SM_ACTIVITY, *_activity(sample.sm_activity_percent for sample in busy)),
        _measured(_TENSOR_ACTIVITY, *_activity(sample.tensor_activity_percent for sample in busy)),
        _measured(_TEMPERATURE, len(busy), _highest(sample.temperature_celsius for sample in busy)),
        _measured(_MEMORY_TEMPERATURE, len(busy), _highest(sample.temperature_memory_celsius for sample in busy)),
    )
    sentences = _clock_sentences(clock, latest, faults, is_capped=POWER_CAP in frequent)
    sentences += _share_sentences(metrics, clock, latest)
    return tuple(metric for metric in own if metric is not None), sentences, bool(faults)


def _temperature_sentences(busy: Sequence[DeviceSample]) -> tuple[str, ...]:
    """The highest temperatures under load, and how far they are from the slowdown threshold."""
    core = _highest(sample.temperature_celsius for sample in busy)
    memory = _highest(sample.temperature_memory_celsius for sample in busy)
    if core is None:
        return ()
    slowdown = busy[-1].temperature_slowdown_celsius
    text = f"The highest temperature was {core:.0f} °C"
    text += "" if slowdown is None else f" ({slowdown:.0f} °C slows the GPU down)"
    return (f"{text}{'' if memory is None else f', that of the memory {memory:.0f} °C'}.",)


def _clock_sentences(
    clock: float | None, latest: DeviceSample, faults: Sequence[str], *, is_capped: bool
) -> tuple[str, ...]:
    """The SM clock of the run, and why it was not higher."""
    throttled = f"The GPU was throttled by {' and '.join(faults)}" if faults else ""
    if clock is None or latest.clock_sm_max_hertz is None:
        return (f"{throttled}. {_ADVICE}",) if faults else ()
    clock_text = f"{megahertz_text(clock)} of {megahertz_text(latest.clock_sm_max_hertz)} MHz"
    if faults:
        return (f"{throttled} and ran at {clock_text}. {_ADVICE}",)
    if is_capped and latest.power_limit_watts is not None:
        return (f"Power-capped at {latest.power_limit_watts:.0f} W, {clock_text}: normal for a chip under full load.",)
    return (f"The GPU ran at {clock_text}.",)


def _share_sentences(metrics: Sequence[Measurement], clock: float | None, latest: DeviceSample) -> tuple[str, ...]:
    """The throughput as a share of what the GPU can do at the clock of the run."""
    if not clock or not latest.clock_sm_max_hertz:
        return ()
    for metric in metrics:
        if metric.key == ("throughput", "") and metric.limit:
            share = metric.value / (metric.limit * clock / latest.clock_sm_max_hertz)
            return (f"The throughput is {share:.0%} of the peak at this clock.",)
    return ()


def _with_link_limit(metric: Measurement, samples: Sequence[DeviceSample]) -> Measurement:
    """A metric with the limit of its link: the fastest state that was seen, because an idle link saves power."""
    source = metric.limit_source
    if source == "pcie":
        links = [
            (s.pcie_generation, s.pcie_width, _PCIE_BYTES_PER_LANE[int(s.pcie_generation)] * s.pcie_width)
            for s in samples
            if s.pcie_generation in _PCIE_BYTES_PER_LANE and s.pcie_width
        ]
        if links:
            generation, width, limit = max(links, key=lambda link: link[2])
            link = f"PCIe {generation:.0f} x{width:.0f} during the run"
            return replace(metric, limit=limit / 1e9, limit_source=link)
    elif source == "nvlink":
        rates = [sample.nvlink_bytes_per_second for sample in samples if sample.nvlink_bytes_per_second]
        if rates:
            return replace(metric, limit=max(rates) / 1e9, limit_source="NVLink, all links in one direction")
    else:
        return metric
    return replace(metric, limit_source="")


def _measured(
    metric: WorkloadMetric, repetitions: int, value: float | None, limit: tuple[float | None, str] = (None, "")
) -> Measurement | None:
    if value is None:
        return None
    return Measurement(metric, round(value, 2), repetitions, limit[0], "" if limit[0] is None else limit[1])


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _activity(values: Iterable[float | None]) -> tuple[int, float | None]:
    """The number of samples that have a value, and their mean: the share of the run in which the units were active."""
    known = [value for value in values if value is not None]
    return len(known), mean(known) if known else None


def _scaled(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor
