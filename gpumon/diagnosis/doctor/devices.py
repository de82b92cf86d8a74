"""Checks of the GPUs themselves: whether they answer, their memory, their clocks and links."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gpumon.core.model import Device, DeviceState, Frame, Switch
from gpumon.core.units import megahertz_text
from gpumon.core.xids import xid_text
from gpumon.diagnosis.checks import Finding, fail, ok, skip, warn
from gpumon.diagnosis.doctor.facts import DriverFiles, KernelErrors
from gpumon.diagnosis.doctor.rule import Gpus, Rule
from gpumon.diagnosis.doctor.wording import counted, gpus_text, sentences
from gpumon.diagnosis.health.alert import Severity
from gpumon.diagnosis.health.errors import xid_action, xid_severity
from gpumon.diagnosis.health.heat import SLOWDOWNS

_BUSY_PERCENT: Final = 50
_LOW_CLOCK: Final = 0.6
"""Under load and with no reason told, a clock below this share of the maximum is most likely locked."""
_EXPLAINS_A_CLOCK: Final = frozenset({*SLOWDOWNS, "sw_power_cap", "sync_boost", "gpu_idle"})
_ORDER: Final = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
_RESET: Final = "End the work on it and reset the GPU (sudo nvidia-smi --gpu-reset -i N), or reboot."
_REPLACE: Final = "Take the GPU out of use and have the board replaced."
_LINK: Final = (
    "Reseat the card and its riser, and look at the slot's settings in the firmware; sudo lspci -vv tells more."
)
_FREE_CLOCKS: Final = "If that is not meant: sudo nvidia-smi -rgc and sudo nvidia-smi -rac give the clocks free."


def answering(frame: Frame) -> Finding:
    """Every GPU answers."""
    problem = frame.problems.get("driver")
    if problem is not None or not frame.gpus:
        return skip(problem.reason if problem else "The driver shows no GPU.")
    silent = [device for device in frame.gpus if device.state is not DeviceState.OK]
    if not silent:
        names = sorted({device.name or "of unknown name" for device in frame.gpus})
        return ok(f"{counted(len(frame.gpus), 'GPU')}: {', '.join(names)}")
    reasons = (device.problems.get("state") for device in silent)
    states = ", ".join(f"{gpus_text([device])} is {device.state.value}" for device in silent)
    known = [reason for reason in reasons if reason is not None]
    return fail(
        sentences((f"{states}.", *(each.reason for each in known))),
        sentences(each.remedy for each in known) or "Look for an Xid in the kernel log (dmesg | grep -i xid).",
    )


def persistence(gpus: Gpus, files: DriverFiles) -> Finding:
    """The driver stays loaded while nobody uses a GPU."""
    off = [device for device in gpus.devices if device.persistence_mode is Switch.DISABLED]
    if off and not files.has_persistence_daemon:
        return warn(
            f"It is off on {gpus_text(off)}: the first use after a pause takes seconds, and settings are lost.",
            "sudo nvidia-smi -pm 1, or start nvidia-persistenced.",
        )
    return _all_known(gpus.devices, lambda device: device.persistence_mode is not None, "on")


def ecc(gpus: Gpus) -> Finding:
    """ECC stays as it is, and has found no error that it could not correct."""
    broken = [device for device in gpus.devices if device.get("ecc_uncorrected_volatile_count")]
    if broken:
        return fail(f"Memory errors that could not be corrected: {gpus_text(broken)}. Results are doubtful.", _RESET)
    pending = [device for device in gpus.devices if device.ecc_mode != device.ecc_mode_pending]
    if pending:
        return warn(f"The ECC mode changes at the next reset: {gpus_text(pending)}.", _RESET)
    off = [device for device in gpus.devices if device.ecc_mode is Switch.DISABLED]
    text = f"off on {gpus_text(off)}, and no change waits" if off else "on, no error that was not corrected"
    return _all_known(gpus.devices, lambda device: device.ecc_mode is not None, text)


def rows(gpus: Gpus) -> Finding:
    """No row of memory waits to be replaced."""
    failed = [device for device in gpus.devices if device.get("remapped_rows_failure")]
    if failed:
        return fail(f"A bad row of memory could not be replaced: {gpus_text(failed)}.", _REPLACE)
    waiting = [device for device in gpus.devices if device.get("remapped_rows_pending")]
    if waiting:
        return warn(f"A bad row of memory waits for a reset to be replaced: {gpus_text(waiting)}.", _RESET)
    return _all_known(gpus.devices, lambda device: device.get("remapped_rows_pending") is not None, "none waits")


def xids(errors: KernelErrors) -> Finding:
    """The kernel log tells of no error of a GPU since boot."""
    if not errors.xids:
        return ok("none in the kernel log since boot")
    numbers = list(dict.fromkeys(number for _, number in errors.xids))
    told = "; ".join(_told(number, errors.xids) for number in numbers)
    worst = min(numbers, key=lambda number: _ORDER.index(xid_severity(number)))
    if xid_severity(worst) is Severity.INFO:
        return ok(f"only harmless ones since boot: {told}")
    finding = fail if xid_severity(worst) is Severity.CRITICAL else warn
    return finding(f"Since boot: {told}.", xid_action(worst))


def pcie(gpus: Gpus) -> Finding:
    """Under load the PCIe link is as wide and fast as it can be; an idle one sleeps, and tells nothing."""
    busy = [device for device in gpus.devices if _is_busy(device)]
    narrow = [device for device in busy if _is_below(device, "pcie_width")]
    slow = [device for device in busy if _is_below(device, "pcie_generation")]
    if narrow or slow:
        told = [
            f"{gpus_text([device])} works over {_link(device, '')} of {_link(device, '_max')}"
            for device in gpus.devices
            if device in narrow or device in slow
        ]
        return warn(f"{'; '.join(told)}.", _LINK)
    if not busy:
        return skip("No GPU is busy, and an idle link sleeps. Look while something runs, such as gpumon run transfer.")
    known = [device for device in busy if device.get("pcie_width") is not None]
    return ok(f"full width and speed on {gpus_text(known)}") if known else skip("The driver does not tell it here.")


def slowdown(gpus: Gpus) -> Finding:
    """Neither heat nor the power supply lowers the clocks now."""
    known = [device for device in gpus.devices if device.throttle_reasons is not None]
    for reason, (words, action) in SLOWDOWNS.items():
        slowed = [device for device in known if reason in (device.throttle_reasons or ())]
        if slowed:
            return warn(f"{gpus_text(slowed)}: {words}.", action)
    capped = [device for device in known if "sw_power_cap" in (device.throttle_reasons or ())]
    text = f"none; {gpus_text(capped)} at the power limit, as is healthy under full load" if capped else "none"
    return ok(text) if known else skip("The driver does not tell it here.")


def clocks(gpus: Gpus) -> Finding:
    """Nobody has set or locked the clocks."""
    given = [device for device in gpus.devices if "applications_clocks_setting" in (device.throttle_reasons or ())]
    if given:
        return warn(f"Somebody has set application clocks: {gpus_text(given)}.", _FREE_CLOCKS)
    busy = [device for device in gpus.devices if _is_busy(device) and device.throttle_reasons is not None]
    held = [device for device in busy if _is_held(device)]
    if held:
        clock, most = held[0].get("clock_sm_hertz"), held[0].get("clock_sm_max_hertz")
        text = (
            f"{gpus_text(held)} works at {megahertz_text(clock)} of {megahertz_text(most)} MHz, and no reason is told."
        )
        return warn(f"{text} The clocks may be locked.", _FREE_CLOCKS)
    if busy:
        return ok(f"free on {gpus_text(busy)}")
    return skip("No application clocks are set; whether clocks are locked only shows under load.")


def _told(number: int, xids: Sequence[tuple[str, int]]) -> str:
    times = sum(each == number for _, each in xids)
    where = ", ".join(sorted({bus for bus, each in xids if each == number}))
    return f"{xid_text(number)} ({where}{'' if times == 1 else f', {times} times'})"


def _is_busy(device: Device) -> bool:
    return (device.get("utilization_gpu_percent") or 0) >= _BUSY_PERCENT


def _is_below(device: Device, metric: str) -> bool:
    now, most = device.get(metric), device.get(f"{metric}_max")
    return now is not None and most is not None and now < most


def _is_held(device: Device) -> bool:
    clock, most = device.get("clock_sm_hertz"), device.get("clock_sm_max_hertz")
    is_explained = not _EXPLAINS_A_CLOCK.isdisjoint(device.throttle_reasons or ())
    return clock is not None and most is not None and clock < _LOW_CLOCK * most and not is_explained


def _link(device: Device, which: str) -> str:
    """A link such as ``gen 5 x16``: what it is now, or what it can be (``_max``)."""
    generation, width = device.get(f"pcie_generation{which}"), device.get(f"pcie_width{which}")
    return f"gen {'?' if generation is None else int(generation)} x{'?' if width is None else int(width)}"


def _all_known(devices: Iterable[Device], is_known: Callable[[Device], bool], text: str) -> Finding:
    """Well, where it is known of a device at least."""
    known = [device for device in devices if is_known(device)]
    return ok(f"{text} ({gpus_text(known)})") if known else skip("The chips or their driver do not tell it.")


DEVICE_RULES: Final = (
    Rule("gpu.answers", answering, (Frame,)),
    Rule("gpu.persistence", persistence, (Gpus, DriverFiles)),
    Rule("gpu.ecc", ecc, (Gpus,)),
    Rule("gpu.row_remap", rows, (Gpus,)),
    Rule("gpu.xid", xids, (KernelErrors,)),
    Rule("gpu.pcie", pcie, (Gpus,)),
    Rule("gpu.slowdown", slowdown, (Gpus,)),
    Rule("gpu.clocks", clocks, (Gpus,)),
)
