"""Rules for PCIe and NVLink."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.device_use import is_busy
from gpumon.core.model import Device
from gpumon.health.alerts.model import AlertFinding, Severity, evidence_of
from gpumon.health.alerts.rule import BUSY_MARGIN, AlertRule, Thresholds
from gpumon.health.alerts.tracking import DeviceTracker

_MINUTE: Final = 60.0
LINK_FIX: Final = (
    "Reseat the card and its riser, then check the slot's settings in the firmware. "
    "sudo lspci -vv shows what the slot and the card support (LnkCap) and use (LnkSta)."
)
_EVIDENCE: Final = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max", "pcie_replay_count")


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


def _degraded_link(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """A PCIe link that is slower than possible while the GPU is busy."""
    if not is_link_degraded(device, thresholds):
        return
    current, maximum = link_text(device, is_maximum=False), link_text(device, is_maximum=True)
    detail = f"GPU {device.index} uses PCIe {current} under load, but supports {maximum}."
    evidence = evidence_of(device, "utilization_gpu_percent", *_EVIDENCE)
    yield AlertFinding("pcie_degraded", Severity.WARNING, detail, LINK_FIX, evidence, "", thresholds.sustained_seconds)


def _replays(device: Device, tracker: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """PCIe packets that are sent again."""
    counter = tracker.counters.get("pcie_replay_count")
    if counter is None or not (rise := counter.rise(tracker.now)):
        return
    rate = counter.rate(tracker.now, _MINUTE) * _MINUTE
    if rate >= thresholds.pcie_replays_per_minute:
        detail = (
            f"GPU {device.index} has had {rise:.0f} PCIe replays, {rate:.0f} per minute: "
            "packets arrive damaged and are sent again."
        )
        yield AlertFinding("pcie_replays", Severity.WARNING, detail, LINK_FIX, evidence_of(device, *_EVIDENCE))


def _nvlink_down(device: Device, tracker: DeviceTracker, _: Thresholds) -> Iterator[AlertFinding]:
    """Fewer NVLink links than before, or than other GPUs of the same product have."""
    links = device.get("nvlink_links_count")
    if links is None:
        return
    # A card without an NVLink bridge has no links, whatever other cards of its product have.
    expected = max(tracker.max_nvlinks, tracker.max_nvlinks_of_product if links else 0.0)
    if links >= expected:
        return
    reference = "before" if expected == tracker.max_nvlinks else "on other GPUs of the same product"
    detail = f"GPU {device.index} has {links:.0f} NVLink links up, compared with {expected:.0f} {reference}."
    action = "Check nvidia-smi nvlink -s and, with NVSwitch, the fabric manager's log. Then reset the GPU or reboot."
    evidence = evidence_of(device, "nvlink_links_count", "nvlink_bytes_per_second")
    yield AlertFinding("nvlink_down", Severity.WARNING, detail, action, evidence)


LINK_RULES: Final = (
    AlertRule(
        "Degraded PCIe link under load",
        _degraded_link,
        {"pcie_degraded": "use a slower PCIe link under load than they support"},
        ("utilization_gpu_percent", "pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max"),
        margins=BUSY_MARGIN,
    ),
    AlertRule(
        "PCIe replays",
        _replays,
        {"pcie_replays": "have many PCIe replays: packets arrive damaged and are sent again"},
        ("pcie_replay_count",),
        hold_seconds=0.0,
        margins={"pcie_replays_per_minute": -2.0},
    ),
    AlertRule(
        "NVLink links down",
        _nvlink_down,
        {"nvlink_down": "have NVLink links down"},
        ("nvlink_links_count",),
        hold_seconds=0.0,
    ),
)
