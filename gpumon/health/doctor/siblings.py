"""GPUs of one product on one host are alike: one that differs has a fault, or was set up differently."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Final

from gpumon.core.model import Device
from gpumon.core.units import bytes_text, counted
from gpumon.core.workload_metrics import Better, Measurement
from gpumon.health.alerts.rule import ALERT_TEXTS
from gpumon.health.checks import CheckResult, fail, ok, skip, warn
from gpumon.health.doctor.check import DoctorCheck, Gpus, gpus_text, joined

_SETTINGS_FIX: Final = "Compare the settings with nvidia-smi -q, and give all GPUs the same ones."
_MIN_SHARE: Final = 0.9
"""Healthy GPUs of one product differ by a few percent in a short run."""

Value = float | str
"""What is compared."""


def _reading(metric: str) -> Callable[[Device], Value | None]:
    return lambda device: device.get(metric)


def _switch(attribute: str) -> Callable[[Device], Value | None]:
    def read(device: Device) -> Value | None:
        switch = getattr(device, attribute)
        return None if switch is None else str(switch.value)

    return read


_COMPARED: Final[tuple[tuple[str, Callable[[Device], Value | None], Callable[[Value], str], str], ...]] = (
    ("NVLink links up", _reading("nvlink_links_count"), "{:.0f}".format, ALERT_TEXTS["nvlink_down"].action),
    ("PCIe lanes", _reading("pcie_width"), "x{:.0f}".format, ALERT_TEXTS["pcie_degraded"].action),
    ("highest PCIe generation", _reading("pcie_generation_max"), "{:.0f}".format, ALERT_TEXTS["pcie_degraded"].action),
    ("power limit", _reading("power_limit_watts"), "{:.0f} W".format, _SETTINGS_FIX),
    ("memory", _reading("memory_total_bytes"), lambda value: bytes_text(float(value)), _SETTINGS_FIX),
    ("ECC", _switch("ecc_mode"), str, _SETTINGS_FIX),
    ("MIG", _switch("mig_mode"), str, _SETTINGS_FIX),
    ("persistence mode", _switch("persistence_mode"), str, _SETTINGS_FIX),
    ("VBIOS", lambda device: device.vbios_version, str, _SETTINGS_FIX),
)
"""What all GPUs of a product share: name, how it is read and written, and how to fix a difference."""


def alike(gpus: Gpus) -> CheckResult:
    """No GPU differs from the others of its product in its links, limits and modes, whatever their load."""
    groups = [group for group in _products(gpus.devices) if len(group) > 1]
    if not groups:
        return skip("No two GPUs are of the same product.")
    differences, fixes = [], []
    for group in groups:
        for name, read, text, fix in _COMPARED:
            values = [(device, value) for device in group if (value := read(device)) is not None]
            if not values:
                continue
            usual = _usual([value for _, value in values])
            for value in dict.fromkeys(value for _, value in values if value != usual):
                odd = [device for device, its_value in values if its_value == value]
                differences.append(f"{name}: {text(value)} on {gpus_text(odd)}, {text(usual)} on the others.")
                fixes.append(fix)
    if differences:
        return warn(joined(differences), joined(fixes))
    return ok(f"{counted(sum(map(len, groups)), 'GPU')} have the same links, limits and modes")


def performance(
    results: Mapping[str, Sequence[Measurement]], failures: Sequence[str], warnings: Sequence[str] = ()
) -> CheckResult:
    """A workload is right on every GPU, and no GPU is much slower than the median.

    Args:
        results: What the workload measured, by name of the GPU.
        failures: Sentences about the runs that failed.
        warnings: Sentences about GPUs that were right, but throttled or slow.
    """
    if failures:
        return fail(joined(failures), "Check for an Xid (dmesg | grep -i xid), then reset the GPU or reboot.")
    slow = [*warnings]
    by_key: dict[tuple[str, str], dict[str, Measurement]] = {}
    for name, measurements in results.items():
        for item in measurements:
            if item.metric.better is Better.HIGHER:
                by_key.setdefault(item.key, {})[name] = item
    for group in by_key.values():
        middle = median(item.value for item in group.values())
        for name, item in group.items():
            if item.value < _MIN_SHARE * middle:
                where = f" ({item.case})" if item.case else ""
                slow.append(f"{name} has {item.value / middle:.0%} of the median {item.metric.label}{where}.")
    if slow:
        return warn(joined(slow), "Look at its temperature, clocks and links while it works: gpumon status --gpu N.")
    alike = f", none below {_MIN_SHARE:.0%} of the median" if len(results) > 1 else ""
    return ok(f"right on {', '.join(results)}{alike}")


def _products(devices: Sequence[Device]) -> list[list[Device]]:
    ordered = sorted(devices, key=lambda device: device.name or "")
    return [list(group) for _, group in groupby(ordered, key=lambda device: device.name or "")]


def _usual(values: Sequence[Value]) -> Value:
    """The most frequent value; of equally frequent ones the highest, because faults lower a value."""
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value))


SIBLING_CHECKS: Final = (DoctorCheck("gpu.alike", alike, (Gpus,)),)
