"""Alerts over time: since when they stand, that they do not flicker, what takes time to see, and what is over."""

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.frames import decode
from gpumon.core.model import Device, DeviceEvent, DeviceState, Frame
from gpumon.diagnosis.health import Alert, HealthHistory, Severity, Thresholds, check
from gpumon.streams.replay import DEMO
from tests.builders import device, frame, process

GIB = 1 << 30
HOT: dict[str, Any] = {"throttle_reasons": ("hw_slowdown",)}


def at(second: float, *devices: Device, **changes: Any) -> Frame:  # noqa: ANN401
    """A frame of a second of the machine's clock; its labels begin elsewhere."""
    return frame(monotonic_seconds=1000.0 + second, time_seconds=1_800_000_000.0 + second, devices=devices, **changes)


def since(alert: Alert) -> float:
    """Second at which an alert was first seen."""
    return alert.since_seconds - 1_800_000_000.0


def told(health: HealthHistory, frames: Iterable[Frame]) -> list[tuple[float, str]]:
    """Every beginning of an alert: the second at which it was first shown, and its name."""
    seen: set[str] = set()
    found = []
    for each in frames:
        standing = {alert.id for alert in health.check(each)}
        found += [(each.monotonic_seconds - 1000.0, name) for name in sorted(standing - seen)]
        seen = standing
    return found


def seconds(last: int, **changes: Any) -> Iterator[Frame]:  # noqa: ANN401
    """A frame a second of one device that stays as it is."""
    return (at(second, device(**changes)) for second in range(last + 1))


def test_alerts_remember_since_when_they_stand() -> None:
    health = HealthHistory()
    for second in range(0, 30, 5):
        (alert,) = health.check(at(second, device(**HOT)))
        assert since(alert) == 0


def test_what_comes_and_goes_is_one_alert() -> None:
    health = HealthHistory()
    changes = 0
    for second in range(60):
        (alert,) = health.check(at(second, device(**(HOT if second % 10 == 0 else {}))))
        changes += len(health.changes)
        assert since(alert) == 0
    assert changes == 1


def test_it_ends_when_it_has_not_been_seen_for_a_while_and_comes_anew() -> None:
    health = HealthHistory()
    health.check(at(0, device(**HOT)))
    assert [len(health.check(at(second, device()))) for second in (1, 14, 15, 16)] == [1, 1, 0, 0]
    (ended,) = health.over
    assert (since(ended.alert), ended.ended_seconds - 1_800_000_000) == (0, 15)
    (alert,) = health.check(at(40, device(**HOT)))
    assert since(alert) == 40
    assert len(health.over) == 1


def test_a_missing_value_neither_begins_nor_ends_an_alert_at_once() -> None:
    health = HealthHistory()
    unknown = device(throttle_reasons=None)
    assert health.check(at(0, unknown)) == []
    health.check(at(1, device(**HOT)))
    assert [len(health.check(at(second, unknown))) for second in (2, 30, 60, 61)] == [1, 1, 1, 0]


def test_old_values_neither_begin_nor_end_an_alert_at_once() -> None:
    health = HealthHistory()
    assert health.check(at(0, device(age_seconds=9.0, **HOT))) == []
    health.check(at(1, device(**HOT)))
    assert len(health.check(at(30, device(age_seconds=29.0)))) == 1
    assert [alert.id for alert in health.check(at(31, device(state=DeviceState.LOST)))] == ["gpu_lost", "hw_slowdown"]


def test_notes_about_a_device_that_is_lost_go_soon() -> None:
    health = HealthHistory()
    health.check(at(0, device(throttle_reasons=("sw_power_cap",))))
    lost = device(state=DeviceState.LOST)
    ids = [[alert.id for alert in health.check(at(second, lost))] for second in (1, 15)]
    assert ids == [["gpu_lost", "power_cap"], ["gpu_lost"]]


def test_a_device_that_answers_again_is_lost_no_more() -> None:
    health = HealthHistory()
    health.check(at(0, device(state=DeviceState.LOST)))
    assert health.check(at(1, device())) == []
    assert [ended.alert.id for ended in health.over] == ["gpu_lost"]


def test_an_alert_does_not_become_softer_while_it_stands() -> None:
    health = HealthHistory()
    limits = health.limits
    rising = [at(0, device(readings={"ecc_corrected_volatile_count": 0}))]
    rising += [at(10, device(readings={"ecc_corrected_volatile_count": limits.ecc_corrected_per_hour}))]
    assert [alert.severity for each in rising for alert in health.check(each)] == [Severity.WARNING]
    later = at(500, device(readings={"ecc_corrected_volatile_count": limits.ecc_corrected_per_hour}))
    assert [alert.severity for alert in health.check(later)] == [Severity.WARNING]


def test_changes_are_told_once_and_information_is_none() -> None:
    health = HealthHistory()
    health.check(at(0, device(throttle_reasons=("sw_power_cap",))))
    assert health.changes == []
    health.check(at(1, device(**HOT)))
    assert [(alert.id, begun) for alert, begun in health.changes] == [("hw_slowdown", True)]
    health.check(at(2, device(**HOT)))
    assert health.changes == []
    health.check(at(40, device()))
    assert [(alert.id, begun) for alert, begun in health.changes] == [("hw_slowdown", False)]
    assert [ended.alert.id for ended in health.over] == ["hw_slowdown"]


def test_an_earlier_moment_begins_anew() -> None:
    health = HealthHistory()
    health.check(at(100, device(**HOT)))
    (alert,) = health.check(at(50, device(**HOT)))
    assert since(alert) == 50
    assert not health.over


def test_frames_as_seldom_as_they_are_meant_to_be_are_no_gap() -> None:
    narrow = device(readings={"pcie_width": 8, "utilization_gpu_percent": 99})
    every_minute = [at(second, narrow, interval_seconds=60.0) for second in (0, 60)]
    assert told(HealthHistory(), every_minute) == [(60, "pcie_degraded")]
    assert told(HealthHistory(), [replace(each, interval_seconds=1.0) for each in every_minute]) == []


# What must hold for some time


@pytest.mark.parametrize(
    ("readings", "name", "after"),
    [
        ({"utilization_gpu_percent": 99, "pcie_width": 8}, "pcie_degraded", 30),
        ({"utilization_gpu_percent": 99, "pcie_generation": 1}, "pcie_degraded", 30),
        ({"utilization_gpu_percent": 99, "clock_sm_hertz": 345e6}, "clock_low", 30),
        ({"utilization_gpu_percent": 0}, "idle_memory", 30),
        ({"utilization_gpu_percent": 99, "sm_activity_percent": 0}, "busy_without_sm", 30),
    ],
)
def test_what_must_hold_for_some_time(readings: dict[str, float], name: str, after: int) -> None:
    health = HealthHistory()
    assert told(health, seconds(after + 5, readings=readings)) == [(after, name)]
    standing = health.check(at(after + 6, device(readings=readings)))
    assert [since(alert) for alert in standing] == [0]
    assert all(alert.evidence and alert.action for alert in standing)


@pytest.mark.parametrize(
    "changes",
    [
        {"readings": {"utilization_gpu_percent": 50, "pcie_width": 8}},
        {"readings": {"utilization_gpu_percent": 10, "pcie_generation": 1}},
        {"readings": {"utilization_gpu_percent": 99, "pcie_width": None, "pcie_generation": None}},
        {"readings": {"utilization_gpu_percent": 50, "clock_sm_hertz": 345e6}},
        {"readings": {"utilization_gpu_percent": 99, "clock_sm_hertz": 345e6}, "throttle_reasons": None},
        {"readings": {"utilization_gpu_percent": 0, "memory_used_bytes": GIB - 1}},
        {"readings": {"utilization_gpu_percent": 3}},
        {"readings": {"utilization_gpu_percent": None}},
        {"readings": {"utilization_gpu_percent": 99, "sm_activity_percent": 4}},
        {"readings": {"utilization_gpu_percent": 99}},
    ],
)
def test_what_is_no_reason_for_an_alert_however_long_it_holds(changes: dict[str, Any]) -> None:
    assert told(HealthHistory(), seconds(90, **changes)) == []


def test_low_clocks_with_a_reason_are_told_by_their_reason() -> None:
    slow = {"utilization_gpu_percent": 99, "clock_sm_hertz": 345e6}
    capped = told(HealthHistory(), seconds(60, readings=slow, throttle_reasons=("sw_power_cap",)))
    assert capped == [(0, "power_cap")]
    chosen = told(HealthHistory(), seconds(60, readings=slow, throttle_reasons=("applications_clocks_setting",)))
    assert chosen == [(30, "clocks_set")]


def test_a_gpu_that_works_now_and_then_is_not_idle() -> None:
    frames = (at(second, device(readings={"utilization_gpu_percent": 80 * (second % 5 == 0)})) for second in range(90))
    assert told(HealthHistory(), frames) == []


def test_a_gpu_that_works_again_is_soon_not_idle_any_more() -> None:
    health = HealthHistory()
    (alert,) = [health.check(each) for each in seconds(40, readings={"utilization_gpu_percent": 0})][-1]
    assert alert.severity is Severity.INFO
    assert "holds 69.3 GiB" in alert.detail
    assert "PID 4000 (python train.py" in alert.detail
    assert health.check(at(44, device())) == []
    assert not health.over, "notes that are over tell nothing"


def test_copies_are_told_as_copies_where_their_traffic_is_read() -> None:
    copying = {"utilization_gpu_percent": 99, "sm_activity_percent": 0.0, "pcie_receive_bytes_per_second": 55.3e9}
    health = HealthHistory()
    (alert,) = [health.check(each) for each in seconds(40, readings=copying)][-1]
    assert (alert.id, alert.severity) == ("busy_without_sm", Severity.INFO)
    assert alert.detail.endswith("it copies over PCIe at 55.3 GB/s.")


# Counters


def counting(metric: str, values: Iterable[tuple[float, float]]) -> list[Frame]:
    """Frames in which a counter stands at a value from a second on."""
    return [at(second, device(readings={metric: value})) for second, value in values]


def test_pcie_replays_are_a_matter_of_their_rate() -> None:
    few = [(second, 100 + second // 20) for second in range(0, 300, 10)]
    many = [(second, 100 + second) for second in range(0, 300, 10)]
    assert told(HealthHistory(), counting("pcie_replay_count", few)) == []
    assert told(HealthHistory(), counting("pcie_replay_count", many)) == [(10, "pcie_replays")]


def test_a_counter_that_is_at_rest_again_is_no_alert() -> None:
    health = HealthHistory()
    frames = counting("pcie_replay_count", [(0, 0), (10, 50), (20, 50), (900, 50)])
    assert [len(health.check(each)) for each in frames] == [0, 1, 1, 0]
    (alert,) = health.check(counting("pcie_replay_count", [(910, 70)])[0])
    assert "20 PCIe packets again" in alert.detail, "what was before the rest is another story"


def test_a_counter_that_begins_anew_has_not_risen() -> None:
    frames = counting("pcie_replay_count", [(0, 900), (10, 3), (20, 3)])
    assert told(HealthHistory(), frames) == []


def test_uncorrected_errors_that_come_while_we_watch_are_critical_even_if_only_the_total_is_told() -> None:
    frames = counting("ecc_uncorrected_aggregate_count", [(0, 2), (10, 3)])
    health = HealthHistory()
    assert [alert.severity for alert in health.check(frames[0])] == [Severity.INFO]
    assert "critical" in {alert.severity.value for alert in health.check(frames[1])}


def test_a_few_corrected_errors_are_information() -> None:
    health = HealthHistory()
    frames = counting("ecc_corrected_volatile_count", [(0, 5), (10, 6)])
    (alert,) = [health.check(each) for each in frames][-1]
    assert (alert.id, alert.severity) == ("ecc_corrected_rising", Severity.INFO)


def test_a_link_that_goes_down_is_told_though_all_gpus_have_fewer() -> None:
    def links(second: float, count: int) -> Frame:
        return at(second, *(device(place, readings={"nvlink_links_count": count}) for place in (0, 1)))

    health = HealthHistory()
    assert health.check(links(0, 18)) == []
    assert [alert.id for alert in health.check(links(10, 0))] == ["nvlink_down"] * 2


def test_an_xid_stands_for_its_time_and_counts() -> None:
    health = HealthHistory(Thresholds.of({"xid_minutes": 2}))
    hit = DeviceEvent(device().key, 31, 0.0, 1000.0)
    health.check(at(0, device(), events=(hit,)))
    (alert,) = health.check(at(60, device(), events=(replace(hit, monotonic_seconds=1060.0),)))
    assert "2 times" in alert.detail
    assert since(alert) == 0
    assert [len(health.check(at(second, device()))) for second in (120, 179, 181)] == [1, 1, 0]
    assert [ended.alert.id for ended in health.over] == ["xid-31"]


# Memory that only grows


def growing(held: Iterable[float], free: float = 40.0, **changes: Any) -> list[Frame]:  # noqa: ANN401
    """A frame every ten seconds of a process that holds so many GiB, as long as they have room."""
    return [
        at(
            place * 10,
            device(
                processes=(process(memory_bytes=int(each * GIB), **changes),),
                readings={"memory_free_bytes": (free - each) * GIB},
            ),
        )
        for place, each in enumerate(held)
    ]


def leaks(frames: Iterable[Frame], **thresholds: float) -> list[tuple[float, str]]:
    return told(HealthHistory(Thresholds.of(thresholds)), frames)


def test_memory_that_only_grows_is_told_with_the_time_that_is_left() -> None:
    health = HealthHistory()
    frames = growing((10 + 0.05 * place for place in range(61)), free=25.1)
    assert leaks(frames) == [(300, "memory_leak")]
    (alert,) = [health.check(each) for each in frames][-1]
    assert (alert.severity, alert.subject) == (Severity.WARNING, "PID 4000")
    assert "has grown by 3.00 GiB in 10m and goes on; at that rate none is left in about 40m." in alert.detail


def test_a_leak_is_told_after_all_that_is_remembered_if_it_is_to_be_told_later() -> None:
    frames = growing((10 + 0.05 * place for place in range(90)), free=25.1)
    assert leaks(frames, leak_minutes=60.0) == [(600, "memory_leak")]


def test_a_leak_that_leaves_much_time_is_information_and_one_that_leaves_days_is_nothing() -> None:
    slow = growing((10 + 0.005 * place for place in range(120)), free=30)
    health = HealthHistory()
    (alert,) = [health.check(each) for each in slow][-1]
    assert (alert.id, alert.severity) == ("memory_leak", Severity.INFO)
    assert leaks(growing((10 + 0.005 * place for place in range(120)), free=130)) == []


@pytest.mark.parametrize(
    "held",
    [
        [10.0] * 61,
        [min(10 + place, 30.0) for place in range(61)],
        [10.0 + 20 * (place > 30) for place in range(61)],
        [10 + 0.5 * (place % 20) for place in range(61)],
        [10 + 0.05 * place - 2.0 * (place % 7 == 0) for place in range(61)],
        [40 - 0.1 * place for place in range(61)],
        [10 + 0.001 * place for place in range(61)],
    ],
    ids=["still", "warm-up", "one step", "saw", "gives back", "shrinks", "next to nothing"],
)
def test_memory_that_does_not_leak(held: list[float]) -> None:
    assert leaks(growing(held, free=60)) == []


def test_a_leak_in_steps_is_a_leak() -> None:
    assert leaks(growing(10 + 0.6 * (place // 6) for place in range(61))) != []


def test_another_process_with_the_same_pid_has_not_grown() -> None:
    frames = growing((10 + 0.05 * place for place in range(25)), age_seconds=500.0)
    frames += [
        replace(each, monotonic_seconds=each.monotonic_seconds + 250)
        for each in growing((12 + 0.05 * place for place in range(25)), age_seconds=5.0)
    ]
    assert leaks(frames) == []


def test_a_process_whose_memory_is_not_told_does_not_leak() -> None:
    frames = [at(place * 10, device(processes=(process(memory_bytes=None),))) for place in range(61)]
    assert leaks(frames) == []


# The bundled recording


def recording() -> list[Frame]:
    return [decode(line) for line in gzip.open(DEMO)]


def test_nothing_above_information_on_the_recording_of_a_healthy_machine_under_load() -> None:
    health = HealthHistory()
    seen: dict[tuple[str, int | None], str] = {}
    for each in recording():
        assert {alert.severity for alert in check(each)} <= {Severity.INFO}
        for alert in health.check(each):
            assert alert.severity is Severity.INFO, alert
            seen[alert.id, alert.device_index] = alert.detail
    assert not health.over
    assert {place for name, place in seen if name == "power_cap"} == {0, 1, 5}
    assert {place for name, place in seen if name == "idle_memory"} == {6}
    assert "is idle and holds 1.61 GiB of memory, most of it PID" in seen["idle_memory", 6]
    assert "busy_without_sm" not in {name for name, _ in seen}, "SM activity is not in it, and is not guessed"


def test_the_copies_of_the_recording_are_information_where_sm_activity_is_read() -> None:
    """What a chip's counters tell of copies, beside everything else that was recorded of them."""
    health = HealthHistory()
    seen: dict[str, Alert] = {}
    for each in recording():
        devices = list(each.devices)
        devices[6] = replace(devices[6], readings={**devices[6].readings, "sm_activity_percent": 0.0})
        seen |= {alert.id: alert for alert in health.check(replace(each, devices=tuple(devices)))}
    alert = seen["busy_without_sm"]
    assert (alert.severity, alert.device_index) == (Severity.INFO, 6)
    assert "multiprocessors have work for 0 % of the time" in alert.detail
    assert {alert.severity for alert in seen.values()} == {Severity.INFO}


def test_what_cannot_be_seen_meanwhile_was_not_seen_all_the_time() -> None:
    narrow = {"pcie_width": 8, "utilization_gpu_percent": 99}
    health = HealthHistory()
    for second in range(46):
        seen = second in {0, 44, 45}
        readings = narrow if seen else {"pcie_width": None, "utilization_gpu_percent": 99}
        found = health.check(at(second, device(readings=readings)))
        assert "pcie_degraded" not in {alert.id for alert in found}, second
