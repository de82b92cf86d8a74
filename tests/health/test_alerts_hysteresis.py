"""Alerts do not flicker: a condition must hold before it is an alert, and a standing alert has a margin."""

from collections.abc import Iterable
from typing import Any

import pytest

from gpumon.core.model import Device, DeviceEvent, DeviceState, Frame
from gpumon.health.alerts import ALERT_RULES, AlertHistory, Severity, check
from gpumon.health.alerts.model import AlertFinding
from gpumon.health.alerts.rule import DEFAULT_THRESHOLDS, HOLD_SECONDS
from tests.builders import device, frame

SLOWDOWN = device().readings["temperature_slowdown_celsius"]
LIMIT = SLOWDOWN - DEFAULT_THRESHOLDS.temperature_margin_celsius


def at(second: float, *devices: Device, **changes: Any) -> Frame:  # noqa: ANN401
    return frame(monotonic_seconds=1000.0 + second, time_seconds=1_800_000_000.0 + second, devices=devices, **changes)


def hot(celsius: float) -> Device:
    return device(readings={"temperature_celsius": celsius})


def begins(history: AlertHistory, frames: Iterable[Frame]) -> list[float]:
    """The seconds at which alerts above info begin."""
    seconds = []
    for moment in frames:
        history.check(moment)
        seconds += [moment.monotonic_seconds - 1000 for _, has_begun in history.changes if has_begun]
    return seconds


@pytest.mark.parametrize("interval", [0.25, 1.0, 5.0])
def test_a_condition_must_hold_before_it_is_an_alert(interval: float) -> None:
    steps = [interval * step for step in range(int(60 / interval))]
    frames = [at(second, hot(LIMIT if second >= 10 else 40), interval_seconds=interval) for second in steps]
    (begin,) = begins(AlertHistory(), frames)
    assert begin == next(second for second in steps if second >= 10 + HOLD_SECONDS)


@pytest.mark.parametrize("readings", [{}, {"temperature_celsius": LIMIT}])
def test_one_sample_is_no_alert(readings: dict[str, float]) -> None:
    frames = [at(second, device(readings=readings if second == 10 else {})) for second in range(60)]
    assert begins(AlertHistory(), frames) == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("period", [2, 3, 5, 8, 14, 20, 40, 90, 200])
@pytest.mark.parametrize("begin", [0, 7])
@pytest.mark.parametrize(
    ("metric", "above", "below"),
    [
        ("temperature_celsius", LIMIT, LIMIT - 1),
        ("temperature_memory_celsius", 95.0, 94.0),
        ("memory_unattributed_bytes", 1.51e9, 1.49e9),
    ],
)
def test_a_value_that_oscillates_around_its_threshold_is_at_most_one_alert(
    metric: str, above: float, below: float, begin: int, period: int
) -> None:
    def value(second: int) -> float:
        return above if (second + begin) % period < period / 2 else below

    frames = [at(second, device(readings={metric: value(second)})) for second in range(600)]
    assert {bool(check(moment)) for moment in frames} == {True, False}, "the value crosses the threshold"
    history = AlertHistory()
    assert len(begins(history, frames)) == 1
    assert not history.ended


def test_the_margin_is_only_for_the_device_that_has_the_alert() -> None:
    history = AlertHistory()
    near = {"temperature_celsius": LIMIT - 1}
    history.check(at(0, hot(LIMIT), device(1, readings=near)))
    for second in range(1, 60):
        alerts = history.check(at(second, hot(LIMIT - 1), device(1, readings=near)))
    assert [alert.device_index for alert in alerts] == [0]


def test_what_one_sample_proves_is_an_alert_at_once() -> None:
    history = AlertHistory()
    history.check(at(0, device(0), device(1)))
    xid = DeviceEvent(device(1).key, 31, 1_800_000_001.0, 1001.0)
    alerts = history.check(at(1, device(0, state=DeviceState.LOST), device(1), events=(xid,)))
    assert [alert.id for alert in alerts] == ["gpu_lost", "xid-31"]


def test_the_first_frame_shows_what_a_one_shot_command_shows() -> None:
    moment = at(0, hot(LIMIT), device(1, throttle_reasons=("hw_thermal_slowdown",)))
    assert AlertHistory().check(moment) == check(moment)
    assert len(check(moment)) == 2


def test_a_recording_has_the_same_alerts_at_every_speed() -> None:
    """Only the times in the frames count, not when the frames arrive; a rewind begins again."""
    frames = [at(second, hot(LIMIT if second % 20 < 9 else 40)) for second in range(5, 200)]
    history = AlertHistory()
    first = begins(history, frames)
    history.clear()
    assert begins(history, frames) == first != []


def test_every_margin_is_of_a_threshold_and_keeps_an_alert() -> None:
    for rule in ALERT_RULES:
        relaxed = rule.thresholds_while_standing(DEFAULT_THRESHOLDS)
        assert (relaxed != DEFAULT_THRESHOLDS) is bool(rule.margins)
    assert sum(bool(rule.margins) for rule in ALERT_RULES) >= 8


def test_what_is_reported_from_outside_stands_while_it_is_reported() -> None:
    history = AlertHistory()
    finding = AlertFinding("out_of_memory", Severity.WARNING, "It is full.", subject="PID 7", age_seconds=5.0)
    gpu = device()
    (alert,) = history.check(at(0, gpu), [(gpu, finding)])
    assert (alert.key, alert.since_seconds) == ((gpu.key, "out_of_memory", "PID 7"), 1_799_999_995)
    assert len(history.check(at(1, gpu), [(gpu, finding)])) == 1
    assert history.check(at(2, gpu)) == []
    assert [ended.alert.subject for ended in history.ended] == ["PID 7"]
