"""Conditions of memory errors, and of the errors that the driver reports as Xids."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gpumon.core.metrics import Unit
from gpumon.core.model import Device
from gpumon.core.units import age_text, counted, times_text
from gpumon.core.xids import xid_text
from gpumon.health.alerts.model import AlertFinding, EvidenceItem, Severity
from gpumon.health.alerts.rule import ALERT_TEXTS, Thresholds, finding_of
from gpumon.health.alerts.tracking import DeviceTracker

if TYPE_CHECKING:
    from gpumon.errors.entry import KnownError

OTHER_XID: Final = "xid-other"
"""The entry of Xids that have none."""
_HOUR: Final = 3600.0
_MIN_RATE_SECONDS: Final = 600.0
"""A rate of memory errors is averaged over at least this time."""
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


def uncorrected(device: Device, tracker: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Uncorrectable memory errors, since the driver was loaded or before."""
    volatile, aggregate = device.get("ecc_uncorrected_volatile_count"), device.get("ecc_uncorrected_aggregate_count")
    counter = tracker.counters.get("ecc_uncorrected_aggregate_count")
    recent = volatile or (0.0 if counter is None else counter.rise(tracker.now))
    if recent or aggregate:
        name = "ecc_uncorrected" if recent else "ecc_uncorrected_before"
        errors = counted(int(recent or aggregate or 0), "uncorrectable memory error")
        yield finding_of(name, device, thresholds, errors=errors)


def corrected_rising(device: Device, tracker: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Corrected memory errors that increase."""
    counter = tracker.counters.get("ecc_corrected_volatile_count")
    if counter is None or not (rise := counter.rise(tracker.now)):
        return
    errors, time = counted(int(rise), "memory error"), age_text(tracker.now - counter.rest_seconds)
    finding = finding_of("ecc_corrected_rising", device, thresholds, errors=errors, time=time)
    is_fast = counter.rate(tracker.now, _MIN_RATE_SECONDS) * _HOUR >= thresholds.ecc_corrected_per_hour
    yield finding._replace(severity=Severity.WARNING) if is_fast else finding


def row_remapping(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Memory rows whose remapping is pending or has failed."""
    if device.get("remapped_rows_failure"):
        yield finding_of("remap_failed", device, thresholds)
    if device.get("remapped_rows_pending"):
        yield finding_of("remap_pending", device, thresholds)


def xids(device: Device, tracker: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Recent Xids."""
    for number, xid in tracker.xids.items():
        times = "" if xid.count == 1 else f", {times_text(xid.count)}"
        action, summary = xid_action(number, device.pci_bus_id or ""), _known_xid(number).summary
        texts = {"xid": xid_text(number), "times": times, "summary": summary, "action": action}
        finding = finding_of("xid", device, thresholds, **texts)
        evidence = (EvidenceItem("Count", xid.count, Unit.COUNT), *finding.evidence)
        yield finding._replace(id=f"{_XID}{number}", severity=xid_severity(number), evidence=evidence)


def xid_plural(alert_id: str) -> str | None:
    """The clause for several GPUs with the same Xid, or None for another alert."""
    number = alert_id.removeprefix(_XID)
    is_xid = alert_id.startswith(_XID) and number.isdecimal()
    return ALERT_TEXTS["xid"].clause.format(xid=xid_text(int(number))) if is_xid else None


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
