"""What deserves attention, and what does not."""

import pytest

from gpumon.core.model import Device, DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.diagnosis.health import HealthHistory, Severity, check, merged_alerts
from tests.builders import device, frame

LOST = Problem(ProblemCode.GPU_LOST, "The GPU has fallen off the bus.")
GONE = Problem(ProblemCode.DRIVER_NOT_LOADED, "The NVIDIA kernel driver is not loaded.", "Load it.")


def ids(*devices: Device) -> list[str]:
    return [alert.id for alert in check(frame(devices=devices))]


def test_a_healthy_machine_has_no_alerts() -> None:
    assert check(frame()) == []


def test_being_at_the_power_limit_is_healthy() -> None:
    busy = device(readings={"power_watts": 700.0}, throttle_reasons=("sw_power_cap", "gpu_idle", "sync_boost"))
    assert ids(busy) == []


@pytest.mark.parametrize(
    "reason", ["hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"]
)
def test_slowdowns_by_hardware_are_warnings(reason: str) -> None:
    (alert,) = check(frame(devices=(device(throttle_reasons=("sw_power_cap", reason)),)))
    assert (alert.id, alert.severity, alert.device_key) == (reason, Severity.WARNING, device().key)
    assert alert.action


@pytest.mark.parametrize(("celsius", "found"), [(88, []), (89, ["temperature_high"]), (95, ["temperature_high"])])
def test_temperature_near_the_slowdown(celsius: float, found: list[str]) -> None:
    assert ids(device(readings={"temperature_celsius": celsius})) == found


def test_unknown_thresholds_warn_of_nothing() -> None:
    assert ids(device(readings={"temperature_celsius": 120, "temperature_slowdown_celsius": None})) == []


@pytest.mark.parametrize(("mebibytes", "found"), [(64, []), (1400, []), (1500, ["memory_unattributed"]), (None, [])])
def test_memory_that_nobody_owns(mebibytes: int | None, found: list[str]) -> None:
    """An alert from a hundredth of the memory on."""
    held = None if mebibytes is None else mebibytes << 20
    assert ids(device(readings={"memory_unattributed_bytes": held})) == found


def test_a_lost_device_says_only_that() -> None:
    lost = device(1, state=DeviceState.LOST, throttle_reasons=("hw_slowdown",), problems={"state": LOST})
    (alert,) = check(frame(devices=(device(0), lost)))
    assert (alert.id, alert.severity) == ("gpu_lost", Severity.CRITICAL)
    assert "GPU 1" in alert.detail
    assert LOST.reason in alert.detail


@pytest.mark.parametrize(("age", "words"), [(95.0, "95s old"), (None, "never read")])
def test_an_unresponsive_device_says_how_old_its_values_are(age: float | None, words: str) -> None:
    (alert,) = check(frame(devices=(device(state=DeviceState.UNRESPONSIVE, age_seconds=age),)))
    assert alert.id == "gpu_unresponsive"
    assert words in alert.detail


def test_a_driver_that_is_gone_is_one_alert_not_one_a_device() -> None:
    lost = tuple(device(index, state=DeviceState.LOST) for index in range(8))
    (alert,) = check(frame(devices=lost, problems={"driver": GONE}))
    assert (alert.id, alert.detail, alert.action, alert.device_key) == ("driver", GONE.reason, GONE.remedy, None)


def test_the_worst_comes_first() -> None:
    warm = device(0, throttle_reasons=("hw_slowdown",))
    assert ids(warm, device(1, state=DeviceState.LOST, problems={"state": LOST})) == ["gpu_lost", "hw_slowdown"]


def test_alerts_remember_since_when_they_stand() -> None:
    history = HealthHistory()
    hot = device(throttle_reasons=("hw_slowdown",))
    assert [alert.since_seconds for alert in history.check(frame(time_seconds=10, devices=(hot,)))] == [10]
    assert [alert.since_seconds for alert in history.check(frame(time_seconds=20, devices=(hot,)))] == [10]
    assert history.check(frame(time_seconds=30, devices=(device(),))) == []
    assert [alert.since_seconds for alert in history.check(frame(time_seconds=40, devices=(hot,)))] == [40]


def test_alike_alerts_of_several_devices_become_one() -> None:
    lost = [device(index, state=DeviceState.LOST, problems={"state": LOST}) for index in (0, 1, 2, 5)]
    hot = device(7, throttle_reasons=("hw_thermal_slowdown",))
    alerts = check(frame(devices=(*lost, hot)))
    assert len(alerts) == 5
    assert [alert.detail for alert in merged_alerts(alerts)] == [
        "GPUs 0-2, 5 are lost.",
        "GPU 7 runs slower than it could: too hot.",
    ]
    assert merged_alerts(alerts)[0].action == alerts[0].action


def test_a_merged_alert_stands_since_the_first() -> None:
    health = HealthHistory()
    lost = [device(index, state=DeviceState.LOST, problems={"state": LOST}) for index in range(2)]
    health.check(frame(time_seconds=100.0, devices=(lost[0], device(1))))
    (alert,) = merged_alerts(health.check(frame(time_seconds=160.0, devices=tuple(lost))))
    assert alert.since_seconds == 100.0


def test_a_reason_for_a_missing_version_is_no_alert() -> None:
    assert check(frame(cuda_driver_version=None, problems={"cuda_driver_version": GONE})) == []
