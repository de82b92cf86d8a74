"""What a GPU's own figures say about a result: clocks, power and throttle reasons while it was measured.

A workload sees only what torch shows it. Here its figures get the limits that NVML knows, and its verdict the reasons.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from gpumon.core.model import Device

_BUSY_PERCENT: Final = 50
_OFTEN: Final = 0.2
"""A throttle reason that held in this share of the busy moments is told."""
_FAULTS: Final = {
    "hw_thermal_slowdown": "the chip was too hot",
    "sw_thermal_slowdown": "the chip was near its temperature limit",
    "hw_power_brake_slowdown": "the power supply told it to slow down",
    "hw_slowdown": "the hardware slowed it down (heat, power supply or a fault)",
}
_PCIE_BYTES_PER_LANE: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes a second of one lane in one direction, line coding apart."""


class DeviceSample(NamedTuple):
    """A GPU at a moment of a run; what was not measured is None."""

    time_seconds: float
    utilization_percent: float | None
    power_watts: float | None
    power_limit_watts: float | None
    clock_hertz: float | None
    clock_max_hertz: float | None
    temperature_celsius: float | None
    memory_used_bytes: float | None
    pcie_generation: float | None
    pcie_width: float | None
    nvlink_bytes_per_second: float | None
    throttle_reasons: tuple[str, ...]


class Judgement(NamedTuple):
    """What a GPU's figures add to a result.

    Attributes:
        figures: All figures, those of the workload with their limits first.
        sentences: What is to be said besides.
        is_slowed_by_fault: Whether the chip was slowed by something that is not normal under load.
    """

    figures: tuple[Mapping[str, Any], ...]
    sentences: tuple[str, ...] = ()
    is_slowed_by_fault: bool = False


def sample_of(device: Device, time_seconds: float) -> DeviceSample:
    """What is kept of a device while something runs on it."""
    return DeviceSample(
        time_seconds,
        device.get("utilization_gpu_percent"),
        device.get("power_watts"),
        device.get("power_limit_watts"),
        device.get("clock_sm_hertz"),
        device.get("clock_sm_max_hertz"),
        device.get("temperature_celsius"),
        device.get("memory_used_bytes"),
        device.get("pcie_generation"),
        device.get("pcie_width"),
        device.get("nvlink_bytes_per_second"),
        device.throttle_reasons or (),
    )


def judge(figures: Sequence[Mapping[str, Any]], samples: Sequence[DeviceSample]) -> Judgement:
    """Puts a workload's figures beside what its GPU did meanwhile.

    Args:
        figures: The workload's.
        samples: Its GPU from the beginning of the work to its end, in order.
    """
    limited = tuple(_with_link_limit(figure, samples) for figure in figures)
    busy = [each for each in samples if (each.utilization_percent or 0) >= _BUSY_PERCENT]
    if not busy:
        return Judgement(limited)
    reasons = Counter(reason for each in busy for reason in each.throttle_reasons)
    often = {reason for reason, count in reasons.items() if count >= _OFTEN * len(busy)}
    faults = [words for reason, words in _FAULTS.items() if reason in often]
    clock, power = _median(each.clock_hertz for each in busy), _median(each.power_watts for each in busy)
    latest = busy[-1]
    own = (
        _figure("sm_clock", "MHz", len(busy), _scaled(clock, 1e6), (_scaled(latest.clock_max_hertz, 1e6), "maximum")),
        _figure("power", "W", len(busy), power, (latest.power_limit_watts, "power limit in force")),
        _figure("temperature", "°C", len(busy), _most(each.temperature_celsius for each in busy)),
    )
    sentences = _clock_sentences(clock, latest, faults, is_capped="sw_power_cap" in often)
    sentences += _share_sentences(limited, clock, latest)
    return Judgement(limited + tuple(each for each in own if each is not None), sentences, bool(faults))


def _clock_sentences(
    clock: float | None, latest: DeviceSample, faults: Sequence[str], *, is_capped: bool
) -> tuple[str, ...]:
    """How fast the chip ran, and why not faster."""
    if clock is None or latest.clock_max_hertz is None:
        slowed = f"It was slowed down because {' and '.join(faults)}: that is not normal; look at cooling and power."
        return (slowed,) if faults else ()
    ran = f"{clock / 1e6:.0f} of {latest.clock_max_hertz / 1e6:.0f} MHz"
    if faults:
        return (f"It ran at {ran} because {' and '.join(faults)}: that is not normal; look at cooling and power.",)
    if is_capped and latest.power_limit_watts is not None:
        return (f"Power-capped at {latest.power_limit_watts:.0f} W, {ran}: normal for a chip under full load.",)
    return (f"It ran at {ran}.",)


def _share_sentences(
    figures: Sequence[Mapping[str, Any]], clock: float | None, latest: DeviceSample
) -> tuple[str, ...]:
    """How near the throughput came to what the chip can do at the clock that it had."""
    if not clock or not latest.clock_max_hertz:
        return ()
    for figure in figures:
        if figure["name"] == "throughput" and figure.get("limit"):
            share = figure["value"] / (figure["limit"] * clock / latest.clock_max_hertz)
            return (f"That is {share:.0%} of what the chip can do at this clock.",)
    return ()


def _with_link_limit(figure: Mapping[str, Any], samples: Sequence[DeviceSample]) -> Mapping[str, Any]:
    """A figure with the limit of the link that it went over, the fastest state that was seen: an idle link sleeps."""
    source = figure.get("limit_source")
    if source == "pcie":
        links = [
            (each.pcie_generation, each.pcie_width, _PCIE_BYTES_PER_LANE[int(each.pcie_generation)] * each.pcie_width)
            for each in samples
            if each.pcie_generation in _PCIE_BYTES_PER_LANE and each.pcie_width
        ]
        if links:
            generation, width, limit = max(links, key=lambda link: link[2])
            return {
                **figure,
                "limit": limit / 1e9,
                "limit_source": f"PCIe {generation:.0f} x{width:.0f} during the run",
            }
    elif source == "nvlink":
        rates = [each.nvlink_bytes_per_second for each in samples if each.nvlink_bytes_per_second]
        if rates:
            return {**figure, "limit": max(rates) / 1e9, "limit_source": "NVLink, all links in one direction"}
    else:
        return figure
    return {**figure, "limit_source": ""}


def _figure(
    name: str, unit: str, repetitions: int, value: float | None, limit: tuple[float | None, str] = (None, "")
) -> dict[str, Any] | None:
    if value is None:
        return None
    return {
        "name": name,
        "value": round(value, 2),
        "unit": unit,
        "repetitions": repetitions,
        "limit": limit[0],
        "limit_source": "" if limit[0] is None else limit[1],
    }


def _median(values: Iterable[float | None]) -> float | None:
    found = [each for each in values if each is not None]
    return median(found) if found else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value / by
