"""Checks of the GPUs: whether they respond, their memory, clocks, and links, their modes, and who else uses them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gpumon.core.device_use import LOADED_PERCENT, is_busy, is_much_unattributed
from gpumon.core.model import ComputeMode, Device, DeviceState, Frame, Switch
from gpumon.core.throttle_reasons import FAULT_REASONS, POWER_CAP, THROTTLE_REASONS
from gpumon.core.units import bytes_text, counted, times_text
from gpumon.core.xids import xid_text
from gpumon.health.alerts import Severity, Thresholds, is_link_degraded
from gpumon.health.alerts.errors import xid_action, xid_severity
from gpumon.health.alerts.links import link_text
from gpumon.health.alerts.rule import ALERT_TEXTS
from gpumon.health.alerts.rules import XID_SEARCH
from gpumon.health.alerts.thermal import clock_text, is_clock_low, is_near_slowdown
from gpumon.health.checks import CheckResult, fail, ok, skip, warn
from gpumon.health.doctor.check import DoctorCheck, Gpus, gpus_text, joined
from gpumon.health.doctor.facts import DriverFiles, Environment, KernelErrors

_THRESHOLDS: Final = Thresholds(busy_percent=LOADED_PERCENT, clock_low_percent=60.0)
"""The doctor sees one moment, so it looks at GPUs that the alerts do not call busy, and at less low clocks."""
_RESET: Final = "Stop the jobs on the GPU and reset it (sudo nvidia-smi --gpu-reset -i N), or reboot."
_REPLACE: Final = "Take the GPU out of service and have the board replaced."
_RESET_CLOCKS: Final = "To reset the clocks to their defaults: sudo nvidia-smi -rgc and sudo nvidia-smi -rac."
_DEFAULT_MODE: Final = "To allow all processes again: sudo nvidia-smi -c DEFAULT."
_HOLDER_FIX: Final = ALERT_TEXTS["memory_unattributed"].action
_HOT_FIX: Final = ALERT_TEXTS["temperature_high"].action
_NOT_REPORTED: Final = "The GPUs or their driver do not report this."


def is_responding(device: Device) -> bool:
    """Whether the driver knows a GPU and reads something from it; calls may fail without a sign that it is lost."""
    return device.state is DeviceState.OK and (
        device.name is not None or any(device.get(metric) is not None for metric in device.readings)
    )


def responding(frame: Frame) -> CheckResult:
    """Every GPU responds."""
    problem = frame.problems.get("driver")
    if problem is not None or not frame.gpus:
        return skip(problem.reason if problem else "The driver reports no GPU.")
    silent = [device for device in frame.gpus if not is_responding(device)]
    if not silent:
        names = sorted({device.name or "unknown name" for device in frame.gpus})
        return ok(f"{counted(len(frame.gpus), 'GPU')}: {', '.join(names)}")
    states = ", ".join(
        f"{gpus_text([device])} {'reports nothing' if device.state is DeviceState.OK else f'is {device.state.value}'}"
        for device in silent
    )
    problems = [
        problem for device in silent if (problem := device.problems.get("state") or device.problems.get("name"))
    ]
    return fail(
        joined((f"{states}.", *(problem.reason for problem in problems))),
        joined(problem.remedy for problem in problems) or XID_SEARCH,
    )


def persistence(gpus: Gpus, files: DriverFiles) -> CheckResult:
    """The driver stays loaded while no process uses a GPU."""
    off = [device for device in gpus.devices if device.persistence_mode is Switch.DISABLED]
    if off and not files.has_persistence_daemon:
        return warn(
            f"Persistence mode is off on {gpus_text(off)}. The first use after a pause takes seconds, and settings "
            "are lost.",
            "sudo nvidia-smi -pm 1, or start nvidia-persistenced.",
        )
    return _ok_where_known(gpus.devices, lambda device: device.persistence_mode is not None, "on")


def ecc(gpus: Gpus) -> CheckResult:
    """The ECC mode does not change at the next reset, and there are no uncorrectable errors."""
    broken = [device for device in gpus.devices if device.get("ecc_uncorrected_volatile_count")]
    if broken:
        return fail(f"Uncorrectable memory errors on {gpus_text(broken)}. Do not trust results.", _RESET)
    pending = [device for device in gpus.devices if device.ecc_mode != device.ecc_mode_pending]
    if pending:
        return warn(f"The ECC mode changes at the next reset: {gpus_text(pending)}.", _RESET)
    off = [device for device in gpus.devices if device.ecc_mode is Switch.DISABLED]
    text = f"off on {gpus_text(off)}, no change pending" if off else "on, no uncorrectable errors"
    return _ok_where_known(gpus.devices, lambda device: device.ecc_mode is not None, text)


_REPAIRS: Final = {
    "remapped_rows_pending": "Remapping a bad row of memory",
    "retired_pages_pending": "Retiring a bad page of memory",  # before Ampere
}


def row_remapping(gpus: Gpus) -> CheckResult:
    """No memory row needs to be remapped, and no page to be retired."""
    failed = [device for device in gpus.devices if device.get("remapped_rows_failure")]
    if failed:
        return fail(f"Remapping a bad row of memory failed: {gpus_text(failed)}.", _REPLACE)
    for metric, repair in _REPAIRS.items():
        pending = [device for device in gpus.devices if device.get(metric)]
        if pending:
            return warn(f"{repair} needs a reset: {gpus_text(pending)}.", _RESET)
    known = (metric for device in gpus.devices for metric in _REPAIRS if device.get(metric) is not None)
    return ok("none pending") if any(known) else skip(_NOT_REPORTED)


def xids(errors: KernelErrors) -> CheckResult:
    """The kernel log has no GPU error since boot."""
    if not errors.xids:
        return ok("none in the kernel log since boot")
    numbers = list(dict.fromkeys(number for _, number in errors.xids))
    summary = "; ".join(_xid_summary(number, errors.xids) for number in numbers)
    worst = min(numbers, key=lambda number: xid_severity(number).rank)
    if xid_severity(worst) is Severity.INFO:
        return ok(f"only harmless ones since boot: {summary}")
    finding = fail if xid_severity(worst) is Severity.CRITICAL else warn
    bus = next(bus for bus, number in errors.xids if number == worst)
    return finding(f"Since boot: {summary}.", xid_action(worst, bus))


def pcie(gpus: Gpus) -> CheckResult:
    """Under load, the PCIe link has its full width and speed. An idle link saves power, so it shows nothing."""
    busy = [device for device in gpus.devices if is_busy(device, LOADED_PERCENT)]
    degraded = [device for device in busy if is_link_degraded(device, _THRESHOLDS)]
    if degraded:
        links = [
            f"{gpus_text([device])} uses PCIe {link_text(device, is_maximum=False)} under load, but supports "
            f"{link_text(device, is_maximum=True)}"
            for device in degraded
        ]
        return warn(f"{'; '.join(links)}.", ALERT_TEXTS["pcie_degraded"].action)
    if not busy:
        return skip(
            "No GPU is busy, and an idle link saves power. Check again under load, such as gpumon run transfer."
        )
    known = [device for device in busy if device.get("pcie_width") is not None]
    return ok(f"full width and speed on {gpus_text(known)}") if known else skip(_NOT_REPORTED)


def throttling(gpus: Gpus) -> CheckResult:
    """Neither heat nor the power supply throttles a GPU, or is about to."""
    known = [device for device in gpus.devices if device.throttle_reasons is not None]
    for reason in (THROTTLE_REASONS[name] for name in THROTTLE_REASONS if name in FAULT_REASONS):
        throttled = [device for device in known if reason.id in (device.throttle_reasons or ())]
        if throttled:
            return warn(f"{gpus_text(throttled)} throttled by {reason.fault}.", reason.fix)
    hot = [device for device in gpus.devices if is_near_slowdown(device, _THRESHOLDS)]
    if hot:
        degrees = hot[0].get("temperature_celsius")
        return warn(f"{gpus_text(hot)} near the slowdown temperature: {degrees:.0f} °C.", _HOT_FIX)
    capped = [device for device in known if POWER_CAP in (device.throttle_reasons or ())]
    text = f"none; {gpus_text(capped)} at the power limit, which is normal under full load" if capped else "none"
    return ok(text) if known else skip(_NOT_REPORTED)


def clocks(gpus: Gpus) -> CheckResult:
    """The clocks are neither set by a user nor locked."""
    given = [device for device in gpus.devices if "applications_clocks_setting" in (device.throttle_reasons or ())]
    if given:
        return warn(f"A user has set application clocks: {gpus_text(given)}.", _RESET_CLOCKS)
    busy = [
        device for device in gpus.devices if is_busy(device, LOADED_PERCENT) and device.throttle_reasons is not None
    ]
    # One sample of a busy GPU may show a clock of an idle moment before, with the reason for it.
    low = [device for device in busy if is_clock_low(device, _THRESHOLDS) and "gpu_idle" not in _reasons(device)]
    if low:
        return warn(
            f"SM clock {clock_text(low[0])} under load on {gpus_text(low)}, and the driver reports no reason. The "
            "clocks may be locked.",
            _RESET_CLOCKS,
        )
    if busy:
        return ok(f"not limited on {gpus_text(busy)}")
    return skip("No application clocks are set. Locked clocks can only be detected under load.")


def mig(gpus: Gpus) -> CheckResult:
    """No GPU is split into MIG instances, which a program must name one by one."""
    pending = [device for device in gpus.devices if device.mig_mode != device.mig_mode_pending]
    if pending:
        return warn(f"The MIG mode changes at the next reset: {gpus_text(pending)}.", "Reset the GPU, or reboot.")
    split = [device for device in gpus.devices if device.mig_mode is Switch.ENABLED]
    if split:
        return warn(
            f"MIG is on for {gpus_text(split)}. A program can use one instance at most.",
            "Name one in CUDA_VISIBLE_DEVICES (nvidia-smi -L lists them), or turn MIG off: sudo nvidia-smi -mig 0.",
        )
    return ok("off") if any(device.mig_mode is not None for device in gpus.devices) else skip(_NOT_REPORTED)


def compute_mode(gpus: Gpus) -> CheckResult:
    """Processes may compute on the GPUs."""
    closed = [device for device in gpus.devices if device.compute_mode is ComputeMode.PROHIBITED]
    if closed:
        return fail(f"No process may use {gpus_text(closed)} (compute mode PROHIBITED).", _DEFAULT_MODE)
    exclusive = {ComputeMode.EXCLUSIVE_PROCESS, ComputeMode.EXCLUSIVE_THREAD}
    single = [device for device in gpus.devices if device.compute_mode in exclusive]
    if single:
        return warn(f"One process at a time may use {gpus_text(single)} (compute mode EXCLUSIVE).", _DEFAULT_MODE)
    return ok("default") if any(device.compute_mode is not None for device in gpus.devices) else skip(_NOT_REPORTED)


def other_users(gpus: Gpus, environment: Environment) -> CheckResult:
    """No other user has processes on the GPUs."""
    known = [device for device in gpus.devices if device.processes is not None]
    foreign = {
        device.index: [process for process in device.processes or () if process.user not in {None, environment.user}]
        for device in known
    }
    shared = [device for device in known if foreign[device.index]]
    if shared:
        processes = [process for group in foreign.values() for process in group]
        users = ", ".join(sorted({process.user or "" for process in processes}))
        return warn(
            f"{counted(len({process.pid for process in processes}), 'process')} of {users} on {gpus_text(shared)}.",
            "Choose other GPUs with CUDA_VISIBLE_DEVICES, or coordinate with these users.",
        )
    unknown = sum(process.user is None for device in known for process in device.processes or ())
    if unknown:
        return ok(f"no visible process; the user of {counted(unknown, 'process')} is unknown")
    return ok("none") if known else skip(_NOT_REPORTED)


def unattributed_memory(gpus: Gpus) -> CheckResult:
    """A visible process owns all memory in use."""
    held = [device for device in gpus.devices if is_much_unattributed(device)]
    if held:
        amounts = ", ".join(
            f"{bytes_text(device.get('memory_unattributed_bytes'))} on {gpus_text([device])}" for device in held
        )
        return warn(
            f"Unattributed memory, which no visible process owns: {amounts}.", ALERT_TEXTS["memory_unattributed"].action
        )
    known = [device for device in gpus.devices if device.get("memory_unattributed_bytes") is not None]
    return ok(f"none ({gpus_text(known)})") if known else skip(_NOT_REPORTED)


def _xid_summary(number: int, xids: Sequence[tuple[str, int]]) -> str:
    buses = [bus for bus, xid in xids if xid == number]
    where = ", ".join(sorted(set(buses)))
    return f"{xid_text(number)} ({where}{'' if len(buses) == 1 else f', {times_text(len(buses))}'})"


def _reasons(device: Device) -> tuple[str, ...]:
    return device.throttle_reasons or ()


def _ok_where_known(devices: Iterable[Device], is_known: Callable[[Device], bool], text: str) -> CheckResult:
    """OK for the devices that report the value; skipped if none does."""
    known = [device for device in devices if is_known(device)]
    return ok(f"{text} ({gpus_text(known)})") if known else skip(_NOT_REPORTED)


DEVICE_CHECKS: Final = (
    DoctorCheck("gpu.answers", responding, (Frame,)),
    DoctorCheck("gpu.persistence", persistence, (Gpus, DriverFiles)),
    DoctorCheck("gpu.ecc", ecc, (Gpus,)),
    DoctorCheck("gpu.row_remap", row_remapping, (Gpus,)),
    DoctorCheck("gpu.xid", xids, (KernelErrors,)),
    DoctorCheck("gpu.pcie", pcie, (Gpus,)),
    DoctorCheck("gpu.slowdown", throttling, (Gpus,)),
    DoctorCheck("gpu.clocks", clocks, (Gpus,)),
    DoctorCheck("gpu.mig", mig, (Gpus,)),
    DoctorCheck("gpu.compute_mode", compute_mode, (Gpus,)),
    DoctorCheck("gpu.other_users", other_users, (Gpus, Environment)),
    DoctorCheck("gpu.unowned_memory", unattributed_memory, (Gpus,)),
)
