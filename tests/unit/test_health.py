"""What deserves attention at one moment, and what does not."""

import pytest

from gpumon.core.model import Device, DeviceEvent, DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.diagnosis.health import (
    RULES,
    Alert,
    HealthHistory,
    Severity,
    Thresholds,
    check,
    merged_alerts,
    unchecked,
)
from tests.builders import device, frame

LOST = Problem(ProblemCode.GPU_LOST, "The GPU has fallen off the bus.")
GONE = Problem(ProblemCode.DRIVER_NOT_LOADED, "The NVIDIA kernel driver is not loaded.", "Load it.")


def found(*devices: Device) -> list[Alert]:
    return check(frame(devices=devices))


def ids(*devices: Device) -> list[str]:
    return [alert.id for alert in found(*devices)]


def test_a_healthy_machine_has_no_alerts() -> None:
    assert check(frame()) == []


def test_being_at_the_power_limit_is_information() -> None:
    busy = device(readings={"power_watts": 700.0}, throttle_reasons=("sw_power_cap", "gpu_idle", "sync_boost"))
    (alert,) = found(busy)
    assert (alert.id, alert.severity) == ("power_cap", Severity.INFO)
    assert "healthy" in alert.detail
    assert ("Power", "700.0 W") in [(each.label, each.text) for each in alert.evidence]


@pytest.mark.parametrize(
    "reason", ["hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"]
)
def test_slowdowns_by_hardware_are_warnings(reason: str) -> None:
    alert, cap = found(device(throttle_reasons=("sw_power_cap", reason)))
    assert (alert.id, alert.severity, alert.device_key) == (reason, Severity.WARNING, device().key)
    assert alert.action
    assert cap.severity is Severity.INFO


def test_of_slowdowns_told_together_the_one_with_the_cause_is_told() -> None:
    assert ids(device(throttle_reasons=("hw_slowdown", "hw_power_brake_slowdown"))) == ["hw_power_brake_slowdown"]


@pytest.mark.parametrize(("celsius", "said"), [(88, []), (89, ["temperature_high"]), (95, ["temperature_high"])])
def test_temperature_near_the_slowdown(celsius: float, said: list[str]) -> None:
    assert ids(device(readings={"temperature_celsius": celsius})) == said


def test_unknown_thresholds_warn_of_nothing() -> None:
    assert ids(device(readings={"temperature_celsius": 120, "temperature_slowdown_celsius": None})) == []


@pytest.mark.parametrize(("celsius", "said"), [(94, []), (95, ["temperature_memory_high"]), (None, [])])
def test_temperature_of_the_memory(celsius: float | None, said: list[str]) -> None:
    assert ids(device(readings={"temperature_memory_celsius": celsius})) == said


@pytest.mark.parametrize(("mebibytes", "said"), [(64, []), (1400, []), (1500, ["memory_unattributed"]), (None, [])])
def test_memory_that_nobody_owns(mebibytes: int | None, said: list[str]) -> None:
    """An alert from a hundredth of the memory on."""
    held = None if mebibytes is None else mebibytes << 20
    assert ids(device(readings={"memory_unattributed_bytes": held})) == said


def test_a_lost_device_says_only_that() -> None:
    lost = device(1, state=DeviceState.LOST, throttle_reasons=("hw_slowdown",), problems={"state": LOST})
    (alert,) = found(device(0), lost)
    assert (alert.id, alert.severity) == ("gpu_lost", Severity.CRITICAL)
    assert "GPU 1" in alert.detail
    assert LOST.reason in alert.detail


@pytest.mark.parametrize(("age", "words"), [(95.0, "95s old"), (None, "never read")])
def test_an_unresponsive_device_says_how_old_its_values_are(age: float | None, words: str) -> None:
    (alert,) = found(device(state=DeviceState.UNRESPONSIVE, age_seconds=age))
    assert alert.id == "gpu_unresponsive"
    assert words in alert.detail


def test_an_excluded_device_is_a_warning() -> None:
    (alert,) = found(device(state=DeviceState.EXCLUDED, age_seconds=None, problems={"state": LOST}))
    assert (alert.id, alert.severity) == ("gpu_excluded", Severity.WARNING)


def test_a_driver_that_is_gone_is_one_alert_not_one_a_device() -> None:
    lost = tuple(device(index, state=DeviceState.LOST) for index in range(8))
    (alert,) = check(frame(devices=lost, problems={"driver": GONE}))
    assert (alert.id, alert.detail, alert.action, alert.device_key) == ("driver", GONE.reason, GONE.remedy, None)


def test_a_reason_for_a_missing_version_is_no_alert() -> None:
    assert check(frame(cuda_driver_version=None, problems={"cuda_driver_version": GONE})) == []


def test_the_worst_comes_first() -> None:
    capped = device(0, throttle_reasons=("sw_power_cap",))
    warm = device(1, throttle_reasons=("hw_slowdown",))
    lost = device(2, state=DeviceState.LOST, problems={"state": LOST})
    assert ids(capped, warm, lost) == ["gpu_lost", "hw_slowdown", "power_cap"]


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        ({}, []),
        ({"ecc_uncorrected_volatile_count": 0.0, "ecc_uncorrected_aggregate_count": 0.0}, []),
        ({"ecc_uncorrected_volatile_count": 1.0}, [("ecc_uncorrected", "critical")]),
        (
            {"ecc_uncorrected_volatile_count": 0.0, "ecc_uncorrected_aggregate_count": 3.0},
            [("ecc_uncorrected_before", "info")],
        ),
        ({"ecc_corrected_volatile_count": 500.0}, []),
        ({"remapped_rows_pending": 1.0, "remapped_rows_failure": 0.0}, [("remap_pending", "warning")]),
        ({"remapped_rows_pending": 0.0, "remapped_rows_failure": 1.0}, [("remap_failed", "critical")]),
        ({"remapped_rows_pending": 0.0, "remapped_rows_failure": 0.0, "remapped_rows_correctable_count": 2.0}, []),
        ({"pcie_replay_count": 900.0}, []),
    ],
)
def test_errors_of_memory_and_link(readings: dict[str, float], said: list[tuple[str, str]]) -> None:
    """A count alone says nothing of whether it rises, for which one moment is not enough."""
    assert [(alert.id, alert.severity.value) for alert in found(device(readings=readings))] == said


@pytest.mark.parametrize(
    ("links", "said"),
    [((18, 18, 18), []), ((18, 16, 18), ["nvlink_down"]), ((18, 0, 18), []), ((None, None, 18), [])],
)
def test_nvlink_links_are_compared_with_gpus_of_the_same_kind(links: tuple[int | None, ...], said: list[str]) -> None:
    """A card without a bridge beside cards that have one has no link, and nothing is wrong with it."""
    assert ids(*(device(place, readings={"nvlink_links_count": up}) for place, up in enumerate(links))) == said


def test_nvlink_links_are_not_compared_with_other_products() -> None:
    other = device(1, name="NVIDIA A100", readings={"nvlink_links_count": 12})
    assert ids(device(0, readings={"nvlink_links_count": 18}), other) == []


@pytest.mark.parametrize(
    ("number", "severity"),
    [(79, "critical"), (119, "critical"), (48, "critical"), (31, "warning"), (999, "warning"), (45, "info")],
)
def test_xids_are_told_at_once_and_explained(number: int, severity: str) -> None:
    hit = DeviceEvent(device(1).key, number, 0.0, 100.0)
    (alert,) = check(frame(events=(hit, hit)))
    assert (alert.id, alert.severity.value, alert.device_index) == (f"xid-{number}", severity, 1)
    assert f"Xid {number}" in alert.detail
    assert "2 times" in alert.detail
    assert alert.action.strip()


def test_an_xid_of_a_lost_device_is_told_beside_its_loss() -> None:
    lost = device(0, state=DeviceState.LOST, problems={"state": LOST})
    events = (DeviceEvent(lost.key, 79, 0.0, 100.0),)
    assert [alert.id for alert in check(frame(devices=(lost,), events=events))] == ["gpu_lost", "xid-79"]


def test_what_takes_time_to_see_is_not_told_of_one_moment() -> None:
    idle = device(0, readings={"utilization_gpu_percent": 0})
    narrow = device(1, readings={"utilization_gpu_percent": 99, "pcie_width": 8})
    copying = device(2, readings={"utilization_gpu_percent": 99, "sm_activity_percent": 0})
    assert ids(idle, narrow, copying) == []


def test_alike_alerts_of_several_devices_become_one() -> None:
    lost = [device(index, state=DeviceState.LOST, problems={"state": LOST}) for index in (0, 1, 2, 5)]
    hot = device(7, throttle_reasons=("hw_thermal_slowdown",))
    alerts = found(*lost, hot)
    assert len(alerts) == 5
    assert [alert.detail for alert in merged_alerts(alerts)] == [
        "GPUs 0-2, 5 are lost.",
        "GPU 7 runs slower than it could: too hot.",
    ]
    assert merged_alerts(alerts)[0].action == alerts[0].action


def test_a_merged_alert_stands_since_the_first_and_is_as_bad_as_the_worst() -> None:
    health = HealthHistory()
    lost = [device(index, state=DeviceState.LOST, problems={"state": LOST}) for index in range(2)]
    health.check(frame(time_seconds=100.0, devices=(lost[0], device(1))))
    (alert,) = merged_alerts(health.check(frame(time_seconds=160.0, devices=tuple(lost))))
    assert alert.since_seconds == 100.0
    mixed = [Alert("power_cap", severity, "", device_index=place) for place, severity in enumerate(Severity)]
    assert merged_alerts(mixed)[0].severity is Severity.CRITICAL


def test_rules_that_lack_a_figure_say_why() -> None:
    why = Problem(ProblemCode.NOT_SUPPORTED, "Chips before Hopper do not show it.")
    blind = device(3, readings={"utilization_gpu_percent": 99}, problems={"sm_activity_percent": why})
    told = {each.rule.label: each for each in unchecked(frame(devices=(device(0), blind)))}
    assert told["Busy without work for its multiprocessors"].indices == (3,), "of an idle one it is no question"
    assert told["Busy without work for its multiprocessors"].why == why.reason
    assert told["PCIe packets sent again"].indices == (0, 3)
    assert "At the power limit" not in told
    assert len(told) < len(RULES)


def test_thresholds_can_be_set() -> None:
    warm = frame(devices=(device(readings={"temperature_celsius": 80}),))
    assert check(warm) == []
    assert [alert.id for alert in check(warm, Thresholds.of({"temperature_margin_celsius": 15}))] == [
        "temperature_high"
    ]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"idle_second": 3}, "near it is idle_seconds"),
        ({"idle_seconds": "3"}, "idle_seconds must be a number from 0 to 1000000000, not '3'"),
        ({"idle_seconds": True}, "must be a number .*, not True"),
        ({"idle_seconds": -1}, "from 0 to 1000000000"),
        ({"idle_seconds": float("nan")}, "from 0 to 1000000000"),
        ({"idle_seconds": float("inf")}, "from 0 to 1000000000"),
        ({"idle_seconds": 10**400}, "from 0 to 1000000000"),
        ({"\x1b[2J": 1}, "no threshold"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(table: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        Thresholds.of(table)
    assert str(refused.value).isprintable()
