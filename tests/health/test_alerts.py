"""Which values raise an alert at one moment, and which do not."""

from pathlib import Path

import pytest

from gpumon.core.model import Device, DeviceEvent, DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.throttle_reasons import FAULT_REASONS, THROTTLE_LABELS, THROTTLE_REASONS
from gpumon.core.xids import XID_MEANINGS
from gpumon.errors.entry import ContextState
from gpumon.errors.explain import explain_text
from gpumon.errors.load import ERRORS
from gpumon.health import alerts as alerts_package
from gpumon.health.alerts import (
    ALERT_RULES,
    JOB_HANGS,
    OUT_OF_MEMORY,
    Alert,
    AlertHistory,
    Severity,
    Thresholds,
    check,
    merged_alerts,
    skipped_rules,
)
from gpumon.health.alerts.errors import xid_severity
from gpumon.health.alerts.rule import ALERT_TEXTS
from gpumon.health.alerts.rules import plural_clause
from tests.builders import device, frame, process

LOST = Problem(ProblemCode.GPU_LOST, "The GPU has fallen off the bus.")
GONE = Problem(ProblemCode.DRIVER_NOT_LOADED, "The NVIDIA kernel driver is not loaded.", "Load it.")


def alerts_of(*devices: Device) -> list[Alert]:
    return check(frame(devices=devices))


def ids(*devices: Device) -> list[str]:
    return [alert.id for alert in alerts_of(*devices)]


def test_a_healthy_machine_has_no_alerts() -> None:
    assert check(frame()) == []


def test_being_at_the_power_limit_is_information() -> None:
    busy = device(readings={"power_watts": 700.0}, throttle_reasons=("sw_power_cap", "gpu_idle", "sync_boost"))
    (alert,) = alerts_of(busy)
    assert (alert.id, alert.severity) == ("power_cap", Severity.INFO)
    assert "normal" in alert.detail
    assert ("Power", "700.0 W") in [(item.label, item.text) for item in alert.evidence]


@pytest.mark.parametrize(
    "reason", ["hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"]
)
def test_slowdowns_by_hardware_are_warnings(reason: str) -> None:
    alert, cap = alerts_of(device(throttle_reasons=("sw_power_cap", reason)))
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
    """An alert from one percent of the memory on."""
    held = None if mebibytes is None else mebibytes << 20
    assert ids(device(readings={"memory_unattributed_bytes": held})) == said


def test_a_lost_device_says_only_that() -> None:
    lost = device(1, state=DeviceState.LOST, throttle_reasons=("hw_slowdown",), problems={"state": LOST})
    (alert,) = alerts_of(device(0), lost)
    assert (alert.id, alert.severity) == ("gpu_lost", Severity.CRITICAL)
    assert "GPU 1" in alert.detail
    assert LOST.reason in alert.detail


@pytest.mark.parametrize(("age", "words"), [(95.0, "Its values are 95s old."), (None, "It has never been read.")])
def test_an_unresponsive_device_says_how_old_its_values_are(age: float | None, words: str) -> None:
    (alert,) = alerts_of(device(state=DeviceState.UNRESPONSIVE, age_seconds=age))
    assert alert.id == "gpu_unresponsive"
    assert words in alert.detail


def test_an_excluded_device_is_a_warning() -> None:
    (alert,) = alerts_of(device(state=DeviceState.EXCLUDED, age_seconds=None, problems={"state": LOST}))
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
    assert [(alert.id, alert.severity.value) for alert in alerts_of(device(readings=readings))] == said


@pytest.mark.parametrize(
    ("links", "said"), [((18, 18, 18), []), ((18, 16, 18), ["nvlink_down"]), ((18, 0, 18), []), ((None, None, 18), [])]
)
def test_nvlink_links_are_compared_with_gpus_of_the_same_kind(links: tuple[int | None, ...], said: list[str]) -> None:
    """A card without an NVLink bridge has no links, whatever other cards have, and nothing is wrong with it."""
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


@pytest.mark.sampled(10)
@pytest.mark.parametrize("number", [*XID_MEANINGS, 999])
def test_a_live_xid_and_its_line_in_a_log_are_explained_alike(number: int) -> None:
    (alert,) = check(frame(events=(DeviceEvent(device(1).key, number, 0.0, 100.0),)))
    bus = (device(1).pci_bus_id or "").removesuffix(".0")
    (match,) = explain_text(f"kernel: NVRM: Xid (PCI:{bus}): {number}, pid=77, name=python3, Ch 8").matches
    assert match.error.summary in alert.detail
    assert alert.action == f"{match.fixes[0].text} {match.fixes[0].code}".rstrip()


def test_a_reset_after_an_xid_names_the_gpu_that_reported_it() -> None:
    (alert,) = check(frame(events=(DeviceEvent(device(1).key, 46, 0.0, 100.0),)))
    assert alert.action.endswith(f"--gpu-reset -i {device(1).pci_bus_id}")


@pytest.mark.parametrize("number", sorted(set(XID_MEANINGS) - {149, 154}))
def test_the_severity_of_an_xid_fits_its_entry(number: int) -> None:
    """An Xid is critical if the GPU needs a reset; the action of 149 and 154 is known only from the line."""
    entry = ERRORS[f"xid-{number}"]
    assert (entry.context is ContextState.RESET) == (xid_severity(number) is Severity.CRITICAL)
    is_harmless = entry.context is ContextState.ALIVE or entry.is_echo
    assert is_harmless == (xid_severity(number) is Severity.INFO)


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
    alerts = alerts_of(*lost, hot)
    assert len(alerts) == 5
    assert [alert.detail for alert in merged_alerts(alerts)] == [
        "GPUs 0-2, 5 are lost.",
        "GPU 7 is throttled by a high temperature (hardware thermal slowdown).",
    ]
    assert merged_alerts(alerts)[0].action == alerts[0].action


def test_rules_that_lack_a_figure_say_why() -> None:
    why = Problem(ProblemCode.NOT_SUPPORTED, "Chips before Hopper do not show it.")
    blind = device(3, readings={"utilization_gpu_percent": 99}, problems={"sm_activity_percent": why})
    skipped = {rule.rule.label: rule for rule in skipped_rules(frame(devices=(device(0), blind)))}
    assert skipped["Busy without SM work"].indices == (3,), "the rule does not apply to an idle GPU"
    assert skipped["Busy without SM work"].reason == why.reason
    assert skipped["PCIe replays"].indices == (0, 3)
    assert "At the power limit" not in skipped
    assert len(skipped) < len(ALERT_RULES)


def test_thresholds_can_be_set() -> None:
    warm = frame(devices=(device(readings={"temperature_celsius": 80}),))
    assert check(warm) == []
    assert [alert.id for alert in check(warm, Thresholds.of({"temperature_margin_celsius": 15}))] == [
        "temperature_high"
    ]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"idle_second": 3}, r"did you mean idle_seconds\?"),
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


# What every alert needs


def alert_ids() -> frozenset[str]:
    """The IDs of all alerts of devices, but those of Xids."""
    return FAULT_REASONS | ALERT_TEXTS.keys() - {"throttled", "xid", OUT_OF_MEMORY, JOB_HANGS}


def test_every_row_of_the_texts_belongs_to_a_condition() -> None:
    code = "".join(path.read_text() for path in Path(alerts_package.__file__).parent.glob("*.py"))
    assert {alert_id for alert_id in ALERT_TEXTS if f'"{alert_id}"' not in code} == set()


def test_every_alert_has_a_clause_for_several_devices() -> None:
    assert len(alert_ids()) > 20
    assert {alert_id for alert_id in alert_ids() if plural_clause(alert_id) is None} == set()
    assert {alert_id for rule in ALERT_RULES for alert_id in rule.plurals} == alert_ids()
    assert plural_clause("xid-79") == "have reported Xid 79: GPU has fallen off the bus"
    assert plural_clause("driver") is None, "an alert of the host is never merged"
    assert plural_clause("xid-x") is None


@pytest.mark.parametrize("alert_id", sorted(alert_ids() | {"xid-31", OUT_OF_MEMORY}))
def test_every_alert_of_several_devices_is_merged(alert_id: str) -> None:
    pair = [Alert(alert_id, Severity.WARNING, f"GPU {index}", device_index=index) for index in range(2)]
    (merged,) = merged_alerts(pair)
    assert merged.detail == f"GPUs 0-1 {plural_clause(alert_id)}."


def test_two_alerts_of_one_device_are_not_merged() -> None:
    leaks = [Alert("memory_leak", Severity.INFO, subject, device_index=3, subject=subject) for subject in ("a", "b")]
    assert merged_alerts(leaks) == leaks


def test_every_throttle_reason_is_complete() -> None:
    for reason in THROTTLE_REASONS.values():
        assert reason.label == THROTTLE_LABELS[reason.id]
        assert 0 < len(reason.label) <= 13
        assert bool(reason.fault) == bool(reason.fix)
    assert list(THROTTLE_REASONS)[: len(FAULT_REASONS)] == [*filter(FAULT_REASONS.__contains__, THROTTLE_REASONS)]


@pytest.mark.parametrize(("state", "age"), [(DeviceState.LOST, 9.0), (DeviceState.UNRESPONSIVE, 95.0)])
def test_a_device_that_does_not_respond_has_an_alert_as_old_as_its_values(state: DeviceState, age: float) -> None:
    silent = device(state=state, age_seconds=age)
    (alert,) = check(frame(time_seconds=1000.0, devices=(silent,)))
    assert alert.since_seconds == 1000.0 - age
    (alert,) = AlertHistory().check(frame(time_seconds=1000.0, devices=(silent,)))
    assert alert.since_seconds == 1000.0 - age


# Where alerts begin


@pytest.mark.parametrize(
    ("megabytes", "ids_"), [(1023, []), (1024, ["idle_memory"])], ids=["below a gibibyte", "a gibibyte"]
)
def test_memory_from_which_an_idle_gpu_is_reported(megabytes: int, ids_: list[str]) -> None:
    idle = device(readings={"utilization_gpu_percent": 2, "memory_used_bytes": megabytes << 20}, processes=())
    now = {"idle_seconds": 0}
    assert [alert.id for alert in check(frame(devices=(idle,)), Thresholds.of(now))] == ids_


def test_the_largest_process_of_an_idle_gpu_is_named() -> None:
    holders = (process(1, memory_bytes=5), process(2, memory_bytes=9), process(3, memory_bytes=None))
    idle = device(readings={"utilization_gpu_percent": 0}, processes=holders)
    (alert,) = check(frame(devices=(idle,)), Thresholds.of({"idle_seconds": 0}))
    assert "most of it by PID 2 (" in alert.detail
