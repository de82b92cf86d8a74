"""Rules over errors of memory, and over what the driver tells as an Xid."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.metrics import Unit
from gpumon.core.model import Device
from gpumon.core.units import age_text
from gpumon.core.xids import xid_text
from gpumon.diagnosis.health.alert import Figure, Finding, Severity, figures
from gpumon.diagnosis.health.past import Past
from gpumon.diagnosis.health.rule import Rule
from gpumon.diagnosis.health.thresholds import Thresholds
from gpumon.diagnosis.known import KnownError

_HOUR: Final = 3600.0
_LEAST_RATE_SECONDS: Final = 600.0
"""Over less time than that a rate of errors is no rate."""
_RESET: Final = "End the work on it and reset the GPU (sudo nvidia-smi --gpu-reset -i {index}), or reboot."
_ECC: Final = (
    "ecc_corrected_volatile_count", "ecc_corrected_aggregate_count", "ecc_uncorrected_volatile_count",
    "ecc_uncorrected_aggregate_count",
)  # fmt: skip
_ROWS: Final = (
    "remapped_rows_correctable_count", "remapped_rows_uncorrectable_count", "remapped_rows_pending",
    "remapped_rows_failure",
)  # fmt: skip
_CRITICAL_XIDS: Final = frozenset({48, 62, 64, 74, 79, 95, 110, 119, 120, 140, 143, 149, 154, 158, 171, 172})
"""The GPU, or the machine, must be reset before it can be relied on."""
_HARMLESS_XIDS: Final = frozenset({43, 45, 63, 92, 121})
"""A program has ended, or the chip has helped itself."""


def uncorrected(device: Device, past: Past, _: Thresholds) -> Iterator[Finding]:
    """Memory errors that could not be corrected: since the driver was loaded, or in an earlier time."""
    now, ever = device.get("ecc_uncorrected_volatile_count"), device.get("ecc_uncorrected_aggregate_count")
    found = figures(device, *_ECC, *_ROWS) if now or ever else ()
    counter = past.counters.get("ecc_uncorrected_aggregate_count")
    rise = 0.0 if counter is None else counter.rise(past.now)
    if now or rise:
        detail = f"GPU {device.index} has had {now or rise:.0f} memory errors that could not be corrected."
        action = (
            f"Results since then are doubtful. {_RESET.format(index=device.index)} If they return, replace the board."
        )
        yield Finding("ecc_uncorrected", Severity.CRITICAL, detail, action, found)
    elif ever:
        detail = (
            f"GPU {device.index} has had {ever:.0f} memory errors that could not be corrected since it was made, "
            "none of them since the driver was loaded."
        )
        yield Finding("ecc_uncorrected_before", Severity.INFO, detail, "Nothing, as long as none is added.", found)


def corrected_rising(device: Device, past: Past, limits: Thresholds) -> Iterator[Finding]:
    """Corrected memory errors that become more while somebody watches."""
    counter = past.counters.get("ecc_corrected_volatile_count")
    if counter is None or not (rise := counter.rise(past.now)):
        return
    rate = counter.rate(past.now, _LEAST_RATE_SECONDS) * _HOUR
    severity = Severity.WARNING if rate >= limits.ecc_corrected_per_hour else Severity.INFO
    detail = (
        f"GPU {device.index} has corrected {rise:.0f} memory errors in {age_text(past.now - counter.begun_seconds)}; "
        "results are not affected."
    )
    action = (
        "A few are normal. If they become ever more, have the board tested before some come that it cannot correct."
    )
    yield Finding("ecc_corrected_rising", severity, detail, action, figures(device, *_ECC, *_ROWS))


def remapping(device: Device, _: Past, __: Thresholds) -> Iterator[Finding]:
    """Rows of memory that wait to be replaced, or could not be."""
    if device.get("remapped_rows_failure"):
        detail = f"GPU {device.index} could not replace a bad row of its memory."
        action = "Take it out of use and have the board replaced."
        yield Finding("remap_failed", Severity.CRITICAL, detail, action, figures(device, *_ROWS, *_ECC))
    if device.get("remapped_rows_pending"):
        detail = f"GPU {device.index} waits for a reset, which replaces a bad row of its memory."
        yield Finding(
            "remap_pending",
            Severity.WARNING,
            detail,
            _RESET.format(index=device.index),
            figures(device, *_ROWS, *_ECC),
        )


def xids(device: Device, past: Past, _: Thresholds) -> Iterator[Finding]:
    """Errors that the driver has told of lately."""
    for number, seen in past.xids.items():
        often = "" if seen.count == 1 else f", {seen.count} times"
        known = _known(number)
        meaning = "" if known is None else known.summary
        detail = f"GPU {device.index}: {xid_text(number)}{often}. {meaning}".rstrip()
        found = (Figure("Times seen", seen.count, Unit.COUNT), *figures(device, *_ECC, *_ROWS))
        yield Finding(f"xid-{number}", xid_severity(number), detail, xid_action(number), found)


def xid_action(number: int) -> str:
    """What to do about an Xid: as the catalogue has it, or in general."""
    known = _known(number)
    if known is not None and known.fixes:
        return f"{known.fixes[0].text} {known.fixes[0].code}".rstrip()
    severity = xid_severity(number)
    if severity is Severity.CRITICAL:
        return "End the work on the GPU and reset it, or reboot; if it comes again, have the board tested."
    if severity is Severity.INFO:
        return "Nothing for the GPU; the log of the program that ran there says more."
    return "Look at the log of the program that ran there; compute-sanitizer finds wrong memory accesses."


def _known(number: int) -> KnownError | None:
    from gpumon.diagnosis.catalogue import BY_ID  # it is long to load, and an Xid is rare

    return BY_ID.get(f"xid-{number}")


def xid_severity(number: int) -> Severity:
    """How much an Xid matters."""
    if number in _CRITICAL_XIDS:
        return Severity.CRITICAL
    return Severity.INFO if number in _HARMLESS_XIDS else Severity.WARNING


XID_RULES: Final = (Rule("Errors that the driver tells (Xid)", xids, clear_seconds=0.0),)
ERROR_RULES: Final = (
    Rule("Memory errors, not corrected", uncorrected, ("ecc_uncorrected_volatile_count",), clear_seconds=0.0),
    Rule("Memory errors, corrected, rising", corrected_rising, ("ecc_corrected_volatile_count",), clear_seconds=0.0),
    Rule("Rows of memory to be replaced", remapping, ("remapped_rows_pending", "remapped_rows_failure"), 0.0),
)
