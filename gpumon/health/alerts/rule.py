"""What an alert rule is, the thresholds that the rules compare with, and the texts of alerts in `alerts.txt`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Final, NamedTuple

from gpumon.core.device_use import BUSY_PERCENT, HELD_BYTES, NO_WORK_PERCENT, UNATTRIBUTED_PERCENT, is_busy
from gpumon.core.model import Device
from gpumon.core.text import safe_text
from gpumon.core.text_table import table
from gpumon.health.alerts.model import AlertFinding, Severity, evidence_of
from gpumon.health.alerts.tracking import DeviceTracker

HOLD_SECONDS: Final = 3.0
"""A condition that holds for less time than this is no alert: values near a threshold cross it for single samples."""
CLEAR_SECONDS: Final = 15.0
"""A condition that is absent for less time than this and then returns is one alert."""
_MAX_THRESHOLD: Final = 1e9


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rules compare with: the table ``[alerts]`` of the configuration file. Each name ends in its unit.

    Attributes:
        temperature_margin_celsius: A GPU is hot when it is this close to its slowdown temperature, or closer.
        temperature_memory_celsius: GPU memory is hot from this temperature on.
        busy_percent: A GPU is busy from this utilization on.
        sustained_seconds: How long a busy GPU must run at a low clock, at a set clock, or over a slow link.
        clock_low_percent: The SM clock is low below this share of its maximum.
        idle_percent: A GPU is idle up to this utilization.
        idle_memory_gib: Memory in use from which an idle GPU is reported.
        idle_seconds: How long a GPU must be idle with that memory.
        sm_idle_percent: The streaming multiprocessors have no work up to this SM activity.
        sm_idle_seconds: How long a GPU must be busy without SM work.
        memory_unattributed_percent: Share of the memory from which unattributed memory is reported.
        ecc_corrected_per_hour: Rate of corrected memory errors from which they are a warning.
        pcie_replays_per_minute: Rate of PCIe replays from which they are a warning.
        xid_minutes: How long an Xid is reported after it occurred.
        leak_minutes: How long the memory of a process must grow; at most ten minutes are remembered.
        leak_growth_mib: How much the memory of a process must grow in that time.
        leak_warning_hours: A process that fills the memory within this time is a warning.
        leak_horizon_hours: A process that takes longer than this to fill the memory is not reported.
        hang_seconds: How long a training job must hang.
    """

    temperature_margin_celsius: float = 3.0
    temperature_memory_celsius: float = 95.0
    busy_percent: float = BUSY_PERCENT
    sustained_seconds: float = 30.0
    clock_low_percent: float = 50.0
    idle_percent: float = 2.0
    idle_memory_gib: float = HELD_BYTES / (1 << 30)
    idle_seconds: float = 30.0
    sm_idle_percent: float = NO_WORK_PERCENT
    sm_idle_seconds: float = 30.0
    memory_unattributed_percent: float = UNATTRIBUTED_PERCENT
    ecc_corrected_per_hour: float = 60.0
    pcie_replays_per_minute: float = 8.0
    xid_minutes: float = 60.0
    leak_minutes: float = 5.0
    leak_growth_mib: float = 256.0
    leak_warning_hours: float = 1.0
    leak_horizon_hours: float = 24.0
    hang_seconds: float = 30.0

    @classmethod
    def of(cls, table: Mapping[str, object]) -> "Thresholds":
        """The thresholds of a table of names and numbers; a threshold that is not in it keeps its default.

        Raises:
            ValueError: A name is not known, or a value is not a number in range.
        """
        names = [field.name for field in fields(cls)]
        chosen: dict[str, float] = {}
        for name, value in table.items():
            if name not in names:
                similar = get_close_matches(name, names, n=1)
                hint = f"; did you mean {similar[0]}?" if similar else "."
                raise ValueError(f"there is no threshold {safe_text(name, 40)!r}{hint}")
            chosen[name] = _checked_number(name, value)
        return cls(**chosen)


def _checked_number(name: str, value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MAX_THRESHOLD:
        return float(value)
    raise ValueError(f"{name} must be a number from 0 to {_MAX_THRESHOLD:.0f}, not {safe_text(repr(value), 40)}.")


DEFAULT_THRESHOLDS: Final = Thresholds()

RuleCheck = Callable[[Device, DeviceTracker, Thresholds], Iterator[AlertFinding]]


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One condition that is checked on every device: a row of `alerts.txt`.

    Attributes:
        label: The condition in a few words.
        check: Finds the condition; depends only on its arguments.
        plurals: The alerts that the rule raises: id, and the clause that follows "GPUs 0-3" when several devices have
            the alert.
        needs: Metrics, or fields of a device, without which the rule cannot be checked.
        hold_seconds: An alert begins when its condition has been found for this long, with breaks shorter than
            ``clear_seconds``; 0 for what one sample proves. One-shot commands and the first frame do not wait for it.
        clear_seconds: An alert ends when its condition has been absent for this long.
        margins: By how much thresholds change while the alert stands, so that a value near one does not end it.
        busy_only: Whether the condition is possible on busy devices only.
    """

    label: str
    check: RuleCheck
    plurals: Mapping[str, str]
    needs: tuple[str, ...] = ()
    hold_seconds: float = HOLD_SECONDS
    clear_seconds: float = CLEAR_SECONDS
    margins: Mapping[str, float] = field(default_factory=dict)
    busy_only: float = False

    def thresholds_while_standing(self, thresholds: Thresholds) -> Thresholds:
        """What the rule compares with on a device that has the alert."""
        if not self.margins:
            return thresholds
        changed = {name: max(0.0, getattr(thresholds, name) + change) for name, change in self.margins.items()}
        return replace(thresholds, **changed)

    def is_checkable(self, device: Device, thresholds: Thresholds, *, has_readings: bool) -> bool:
        """Whether the rule can be checked on a device now, whose readings may be those of another moment."""
        return not self.needs or (has_readings and self.missing_need(device, thresholds) is None)

    def missing_need(self, device: Device, thresholds: Thresholds) -> str | None:
        """The first need that is missing on a device to which the rule applies, or None."""
        if not self.busy_only or is_busy(device, thresholds.busy_percent):
            for name in self.needs:
                if name not in device.readings and getattr(device, name, None) is None:
                    return name
        return None


class AlertText(NamedTuple):
    """The texts of an alert, an indented row of `alerts.txt`; ``after`` names the threshold of its duration."""

    severity: Severity
    after: str
    clause: str
    detail: str
    action: str
    shown: tuple[str, ...]


class RuleRow(NamedTuple):
    """A rule in `alerts.txt`, with the texts of its alerts by their ids."""

    label: str
    condition: str
    needs: tuple[str, ...]
    options: Mapping[str, float]
    texts: dict[str, AlertText]


def _rows() -> Iterator[RuleRow]:
    """The rules, each with the texts that follow it."""
    names: dict[str, str] = {}
    rule: RuleRow | None = None
    for line in table("gpumon.health.alerts", "alerts"):
        if line.startswith("$"):
            name, _, names[name] = line.partition(" = ")
            continue
        row = line
        for name, text in names.items():
            row = row.replace(name, text)
        first, *cells = [cell.strip() for cell in row.split("::")]
        if row.startswith(" "):
            assert rule is not None
            alert_id, severity, *after = first.split()
            clause, detail, action, shown = (*cells, "")[:4]
            rule.texts[alert_id] = AlertText(
                Severity(severity), after[-1] if after else "", clause, detail, action, tuple(shown.split())
            )
            continue
        if rule is not None:
            yield rule
        condition, needs, options = (*cells, "", "")[:3]
        numbers = dict(option.split("=") for option in options.split())
        rule = RuleRow(first, condition, tuple(needs.split()), {key: float(text) for key, text in numbers.items()}, {})
    assert rule is not None
    yield rule


RULE_ROWS: Final = tuple(_rows())
ALERT_TEXTS: Final[Mapping[str, AlertText]] = {name: text for row in RULE_ROWS for name, text in row.texts.items()}


def finding_of(alert_id: str, device: Device | None, thresholds: Thresholds, **values: object) -> AlertFinding:
    """The finding of an alert on a device, or on none, with its texts; ``values`` are named in them."""
    text = ALERT_TEXTS[alert_id]
    known = values if device is None else {**device.readings, "index": device.index, **values}
    return AlertFinding(
        alert_id,
        text.severity,
        text.detail.format_map(known),
        text.action.format_map(known),
        () if device is None else evidence_of(device, *text.shown),
        after_seconds=getattr(thresholds, text.after) if text.after else 0.0,
    )
