"""The marks on the overview agree with the alerts, with the user's thresholds."""

from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.model import Device
from gpumon.core.store import Store
from gpumon.health.alerts import DEFAULT_THRESHOLDS, AlertHistory, Thresholds
from gpumon.present.device_table import DEVICE_COLUMNS, device_rows
from gpumon.present.paint.line import Role, Span
from gpumon.present.text.status import status_text
from gpumon.session.view_state import ViewState
from tests.builders import READINGS, device, frame
from tests.present.helpers import only_span

TOTAL = READINGS["memory_total_bytes"]


def cell(heading: str, shown: Device, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> Span:
    """A cell of the overview."""
    (row,) = device_rows(ViewState(Store(), frame(devices=(shown,)), (), "", thresholds=thresholds))
    (column,) = [column for column in DEVICE_COLUMNS if column.heading == heading]
    return only_span(column.cell(row, 20))


def alerts_of(shown: Device, thresholds: Thresholds) -> set[str]:
    """The alerts that stand after the condition has held for a minute."""
    history = AlertHistory(thresholds)
    for second in range(0, 61, 20):
        alerts = history.check(frame(monotonic_seconds=100.0 + second, devices=(shown,)))
    return {alert.id for alert in alerts}


def assert_agreement(alert_id: str, heading: str, thresholds: Thresholds, *, is_marked: bool, **changes: Any) -> None:  # noqa: ANN401
    shown = device(**changes)
    span = cell(heading, shown, thresholds)
    assert (span.text.startswith("!"), span.role in (Role.WARNING, Role.ERROR)) == (is_marked, is_marked)
    assert (alert_id in alerts_of(shown, thresholds)) is is_marked


@pytest.mark.parametrize(
    ("margin", "celsius", "is_marked"),
    [(3, 80, False), (3, 88, False), (3, 89, True), (3, 95, True), (12, 79, False), (12, 80, True), (12, 86, True)],
)
def test_the_temperature_mark_uses_the_margin_of_the_alerts(margin: float, celsius: float, is_marked: bool) -> None:
    thresholds = Thresholds.of({"temperature_margin_celsius": margin})
    readings = {"temperature_celsius": celsius, "temperature_slowdown_celsius": 92}
    assert_agreement("temperature_high", "Temp", thresholds, is_marked=is_marked, readings=readings)


def test_a_temperature_without_a_slowdown_temperature_is_not_marked() -> None:
    readings = {"temperature_celsius": 99, "temperature_slowdown_celsius": None}
    assert_agreement("temperature_high", "Temp", DEFAULT_THRESHOLDS, is_marked=False, readings=readings)


@pytest.mark.parametrize(
    ("readings", "is_marked"),
    [
        ({"utilization_gpu_percent": 89, "pcie_width": 8}, False),
        ({"utilization_gpu_percent": 90, "pcie_width": 16}, False),
        ({"utilization_gpu_percent": 90, "pcie_width": 8}, True),
        ({"utilization_gpu_percent": 90, "pcie_generation": 4}, True),
        ({"utilization_gpu_percent": 90, "pcie_width": 8, "pcie_width_max": None}, False),
    ],
)
def test_the_pcie_mark_needs_a_busy_gpu_as_the_alert_does(readings: dict[str, float], is_marked: bool) -> None:
    assert_agreement("pcie_degraded", "PCIe", DEFAULT_THRESHOLDS, is_marked=is_marked, readings=readings)


@pytest.mark.parametrize(
    ("busy", "activity", "limit", "is_shown"),
    [(90, 1.0, 1, True), (90, 1.1, 1, False), (89, 0.0, 1, False), (90, 2.0, 2, True), (90, None, 1, False)],
)
def test_no_sm_work_has_one_definition(busy: float, activity: float | None, limit: float, is_shown: bool) -> None:
    shown = device(readings={"utilization_gpu_percent": busy, "sm_activity_percent": activity})
    thresholds = Thresholds.of({"sm_idle_percent": limit})
    assert (cell("State", shown, thresholds).text == "no SM work") is is_shown
    assert ("busy_without_sm" in alerts_of(shown, thresholds)) is is_shown


@pytest.mark.parametrize(("share", "is_marked"), [(0.949, False), (0.951, True), (0.98, True)])
def test_memory_that_is_nearly_full_is_marked(share: float, is_marked: bool) -> None:
    span = cell("Memory GiB", device(readings={"memory_used_bytes": share * TOTAL}))
    assert (span.text.startswith("!"), span.role in (Role.WARNING, Role.ERROR)) == (is_marked, is_marked)


@pytest.mark.parametrize("reason", ["hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown"])
def test_the_state_of_a_throttled_gpu_is_marked(reason: str) -> None:
    assert_agreement(reason, "State", DEFAULT_THRESHOLDS, is_marked=True, throttle_reasons=(reason,))


def test_the_text_report_uses_the_thresholds_of_the_user() -> None:
    shown = frame(devices=(device(readings={"temperature_celsius": 85}),))
    assert "!85°" not in status_text(shown)
    assert "!85°" in status_text(replace(shown), Thresholds.of({"temperature_margin_celsius": 10}))
