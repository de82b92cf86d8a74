"""Rules over PCIe and NVLink."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.model import Device
from gpumon.diagnosis.health.alert import Finding, Severity, figures
from gpumon.diagnosis.health.past import Past
from gpumon.diagnosis.health.rule import Rule, is_busy
from gpumon.diagnosis.health.thresholds import Thresholds

_MINUTE: Final = 60.0
_PCIE_ACTION: Final = (
    "Reseat the card and its riser, then look at the slot's settings in the firmware; "
    "sudo lspci -vv tells what slot and card can do (LnkCap) and do (LnkSta)."
)
_PCIE: Final = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max", "pcie_replay_count")


def degraded_under_load(device: Device, _: Past, limits: Thresholds) -> Iterator[Finding]:
    """A PCIe link that is slower than it could be while the GPU works; an idle one may sleep."""
    if not is_busy(device, limits):
        return
    generation, best = device.get("pcie_generation"), device.get("pcie_generation_max")
    width, widest = device.get("pcie_width"), device.get("pcie_width_max")
    is_slow = generation is not None and best is not None and generation < best
    is_narrow = width is not None and widest is not None and width < widest
    if not (is_slow or is_narrow):
        return
    detail = f"GPU {device.index} works over PCIe {_link(generation, width)}, and could have {_link(best, widest)}."
    found = figures(device, "utilization_gpu_percent", *_PCIE)
    yield Finding("pcie_degraded", Severity.WARNING, detail, _PCIE_ACTION, found, "", limits.sustained_seconds)


def _link(generation: float | None, width: float | None) -> str:
    """A link such as ``gen 5 x16``."""
    parts = ("" if generation is None else f"gen {generation:.0f}", "" if width is None else f"x{width:.0f}")
    return " ".join(part for part in parts if part)


def replaying(device: Device, past: Past, limits: Thresholds) -> Iterator[Finding]:
    """PCIe packets that have to be sent again and again."""
    counter = past.counters.get("pcie_replay_count")
    if counter is None or not (rise := counter.rise(past.now)):
        return
    rate = counter.rate(past.now, _MINUTE) * _MINUTE
    if rate >= limits.pcie_replays_per_minute:
        detail = f"GPU {device.index} had to send {rise:.0f} PCIe packets again, {rate:.0f} a minute: a bad link."
        yield Finding("pcie_replays", Severity.WARNING, detail, _PCIE_ACTION, figures(device, *_PCIE))


def nvlink_down(device: Device, past: Past, _: Thresholds) -> Iterator[Finding]:
    """Fewer NVLink links than it had, or than GPUs of its kind beside it have."""
    links = device.get("nvlink_links_count")
    if links is None:
        return
    expected = max(past.most_nvlinks, past.most_nvlinks_alike if links else 0.0)  # a card without a bridge has none
    if links >= expected:
        return
    had = "it had" if expected == past.most_nvlinks else "GPUs of its kind have"
    detail = f"GPU {device.index} has {links:.0f} NVLink links up where {had} {expected:.0f}."
    action = (
        "See nvidia-smi nvlink -s, and on machines with NVSwitch the log of the fabric manager; then reset or reboot."
    )
    found = figures(device, "nvlink_links_count", "nvlink_bytes_per_second")
    yield Finding("nvlink_down", Severity.WARNING, detail, action, found)


LINK_RULES: Final = (
    Rule(
        "PCIe link slower than it could be, under load",
        degraded_under_load,
        ("utilization_gpu_percent", "pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max"),
    ),
    Rule("PCIe packets sent again", replaying, ("pcie_replay_count",)),
    Rule("NVLink links down", nvlink_down, ("nvlink_links_count",)),
)
