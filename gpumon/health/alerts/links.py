"""Conditions of PCIe and NVLink."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.device_use import is_busy
from gpumon.core.model import Device
from gpumon.health.alerts.model import AlertFinding
from gpumon.health.alerts.rule import Thresholds, finding_of
from gpumon.health.alerts.tracking import DeviceTracker

_MINUTE: Final = 60.0


def is_link_degraded(device: Device, thresholds: Thresholds) -> bool:
    """Whether a busy device uses a slower or narrower PCIe link than it supports; an idle link saves power.

    Decides the alert, the mark on the overview, and the doctor's check.
    """
    is_degraded = _is_below_maximum(device, "pcie_generation") or _is_below_maximum(device, "pcie_width")
    return is_degraded and is_busy(device, thresholds.busy_percent)


def _is_below_maximum(device: Device, metric: str) -> bool:
    value, maximum = device.get(metric), device.get(f"{metric}_max")
    return value is not None and maximum is not None and value < maximum


def link_text(device: Device, *, is_maximum: bool) -> str:
    """The PCIe link in use, or the fastest possible one: ``gen 5 x16``."""
    ending = "_max" if is_maximum else ""
    generation, width = device.get(f"pcie_generation{ending}"), device.get(f"pcie_width{ending}")
    parts = ("" if generation is None else f"gen {generation:.0f}", "" if width is None else f"x{width:.0f}")
    return " ".join(part for part in parts if part)


def degraded_link(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """A PCIe link that is slower than possible while the GPU is busy."""
    if is_link_degraded(device, thresholds):
        link, fastest = link_text(device, is_maximum=False), link_text(device, is_maximum=True)
        yield finding_of("pcie_degraded", device, thresholds, link=link, fastest=fastest)


def replays(device: Device, tracker: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """PCIe packets that are sent again."""
    counter = tracker.counters.get("pcie_replay_count")
    if counter is not None and (rise := counter.rise(tracker.now)):
        rate = counter.rate(tracker.now, _MINUTE) * _MINUTE
        if rate >= thresholds.pcie_replays_per_minute:
            yield finding_of("pcie_replays", device, thresholds, rise=rise, rate=rate)


def nvlink_down(device: Device, tracker: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Fewer NVLink links than before, or than other GPUs of the same product have."""
    links = device.get("nvlink_links_count")
    # A card without an NVLink bridge has no links, whatever other cards of its product have.
    expected = max(tracker.max_nvlinks, tracker.max_nvlinks_of_product if links else 0.0)
    if links is not None and links < expected:
        reference = "before" if expected == tracker.max_nvlinks else "on other GPUs of the same product"
        yield finding_of("nvlink_down", device, thresholds, expected=expected, reference=reference)
