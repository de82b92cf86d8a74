"""Rules for memory errors, and for the errors that the driver reports as Xids."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gpumon.core.metrics import Unit
from gpumon.core.model import Device
from gpumon.core.units import age_text, counted, times_text
from gpumon.core.xids import xid_text
from gpumon.health.alerts.model import AlertFinding, EvidenceItem, Severity, evidence_of
from gpumon.health.alerts.rule import AlertRule, Thresholds
from gpumon.health.alerts.tracking import DeviceTracker

if TYPE_CHECKING:
    from gpumon.errors.entry import KnownError

OTHER_XID: Final = "xid-other"
"""The entry of Xids that have none."""
_HOUR: Final = 3600.0
_MIN_RATE_SECONDS: Final = 600.0
"""A rate of memory errors is averaged over at least this time."""
_RESET: Final = "Stop the jobs on this GPU and reset it (sudo nvidia-smi --gpu-reset -i {index}), or reboot."
_ECC: Final = (
    "ecc_corrected_volatile_count", "ecc_corrected_aggregate_count", "ecc_uncorrected_volatile_count",
    "ecc_uncorrected_aggregate_count",
)  # fmt: skip
_ROWS: Final = (
    "remapped_rows_correctable_count", "remapped_rows_uncorrectable_count", "remapped_rows_pending",
    "remapped_rows_failure",
)  # fmt: skip
_XID: Final = "xid-"
_CRITICAL_XIDS: Final = frozenset({
    46, 48, 54, 57, 58, 59, 61, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 149, 151, 154, 155, 156,
    158, 167, 169, 171, 172, 173, 175,
})  # fmt: skip
"""The GPU or the host needs a reset before it can be relied on."""
_HARMLESS_XIDS: Final = frozenset({
    37, 38, 43, 44, 45, 56, 63, 66, 67, 92, 93, 106, 107, 121, 141, 152, 153, 160, 162, 163, 164, 165,
    168, 176,
})  # fmt: skip
"""A program was terminated, or the GPU recovered without help."""


def _uncorrected(device: Device, tracker: DeviceTracker, _: Thresholds) -> Iterator[AlertFinding]:
    """Uncorrectable memory errors, since the driver was loaded or before."""
    volatile, aggregate = device.get("ecc_uncorrected_volatile_count"), device.get("ecc_uncorrected_aggregate_count")
    evidence = evidence_of(device, *_ECC, *_ROWS) if volatile or aggregate else ()
    counter = tracker.counters.get("ecc_uncorrected_aggregate_count")
    rise = 0.0 if counter is None else counter.rise(tracker.now)
    if volatile or rise:
        errors = counted(int(volatile or rise), "uncorrectable memory error")
        detail = f"GPU {device.index} has had {errors} since the driver was loaded."
        action = (
            f"Do not trust results computed since then. {_RESET.format(index=device.index)} "
            "If the errors return, have the board replaced."
        )
        yield AlertFinding("ecc_uncorrected", Severity.CRITICAL, detail, action, evidence)
    elif aggregate:
        detail = (
            f"GPU {device.index} has had {counted(int(aggregate), 'uncorrectable memory error')} in its lifetime, "
            "none of them since the driver was loaded."
        )
        action = "Nothing to fix unless more errors occur."
        yield AlertFinding("ecc_uncorrected_before", Severity.INFO, detail, action, evidence)


def _corrected_rising(device: Device, tracker: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Corrected memory errors that increase."""
    counter = tracker.counters.get("ecc_corrected_volatile_count")
    if counter is None or not (rise := counter.rise(tracker.now)):
        return
    rate = counter.rate(tracker.now, _MIN_RATE_SECONDS) * _HOUR
    severity = Severity.WARNING if rate >= thresholds.ecc_corrected_per_hour else Severity.INFO
    seconds = age_text(tracker.now - counter.rest_seconds)
    detail = (
        f"GPU {device.index} has corrected {counted(int(rise), 'memory error')} in {seconds}. Results are not affected."
    )
    action = "A few are normal. If the rate increases, have the board tested before uncorrectable errors occur."
    yield AlertFinding("ecc_corrected_rising", severity, detail, action, evidence_of(device, *_ECC, *_ROWS))


def _row_remapping(device: Device, _: DeviceTracker, __: Thresholds) -> Iterator[AlertFinding]:
    """Memory rows whose remapping is pending or has failed."""
    evidence = evidence_of(device, *_ROWS, *_ECC)
    if device.get("remapped_rows_failure"):
        detail = f"GPU {device.index} failed to remap a bad row of its memory."
        action = "Take the GPU out of service and have the board replaced."
        yield AlertFinding("remap_failed", Severity.CRITICAL, detail, action, evidence)
    if device.get("remapped_rows_pending"):
        detail = f"GPU {device.index} needs a reset to remap a bad row of its memory."
        action = _RESET.format(index=device.index)
        yield AlertFinding("remap_pending", Severity.WARNING, detail, action, evidence)


def _xids(device: Device, tracker: DeviceTracker, _: Thresholds) -> Iterator[AlertFinding]:
    """Recent Xids."""
    for number, xid in tracker.xids.items():
        times = "" if xid.count == 1 else f", {times_text(xid.count)}"
        detail = f"GPU {device.index}: {xid_text(number)}{times}. {_known_xid(number).summary}"
        evidence = (EvidenceItem("Count", xid.count, Unit.COUNT), *evidence_of(device, *_ECC, *_ROWS))
        action = xid_action(number, device.pci_bus_id or "")
        yield AlertFinding(f"{_XID}{number}", xid_severity(number), detail, action, evidence)


def xid_plural(alert_id: str) -> str | None:
    """The clause for several GPUs with the same Xid, or None for another alert."""
    number = alert_id.removeprefix(_XID)
    is_xid = alert_id.startswith(_XID) and number.isdecimal()
    return f"have reported {xid_text(int(number))}" if is_xid else None


def xid_action(number: int, bus: str) -> str:
    """What to do about an Xid: the first fix of the catalogue.

    The bus ID may have its function; it is empty if it is not known.
    """
    from gpumon.errors.rank import case_of, fixes_of  # late, as below: few hosts have an Xid

    error = _known_xid(number)
    first = fixes_of(error, case_of(error, values={"bus": bus.removesuffix(".0")}))[0]
    return f"{first.text} {first.code}".rstrip()


def _known_xid(number: int) -> "KnownError":
    from gpumon.errors.load import ERRORS

    return ERRORS.get(f"{_XID}{number}") or ERRORS[OTHER_XID]


def xid_severity(number: int) -> Severity:
    """How serious an Xid is."""
    if number in _CRITICAL_XIDS:
        return Severity.CRITICAL
    return Severity.INFO if number in _HARMLESS_XIDS else Severity.WARNING


XID_RULE: Final = AlertRule("Errors reported by the driver (Xid)", _xids, {}, hold_seconds=0.0, clear_seconds=0.0)
ERROR_RULES: Final = (
    AlertRule(
        "Uncorrectable memory errors",
        _uncorrected,
        {
            "ecc_uncorrected": "have had uncorrectable memory errors since the driver was loaded",
            "ecc_uncorrected_before": "have had uncorrectable memory errors, none of them since the driver was loaded",
        },
        ("ecc_uncorrected_volatile_count",),
        hold_seconds=0.0,
        clear_seconds=0.0,
    ),
    AlertRule(
        "Rising count of corrected memory errors",
        _corrected_rising,
        {"ecc_corrected_rising": "have more and more corrected memory errors"},
        ("ecc_corrected_volatile_count",),
        hold_seconds=0.0,
        clear_seconds=0.0,
    ),
    AlertRule(
        "Row remapping",
        _row_remapping,
        {
            "remap_failed": "failed to remap a bad row of their memory",
            "remap_pending": "need a reset to remap a bad row of their memory",
        },
        ("remapped_rows_pending", "remapped_rows_failure"),
        hold_seconds=0.0,
        clear_seconds=0.0,
    ),
)
