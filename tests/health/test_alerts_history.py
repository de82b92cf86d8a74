"""Alerts over time: since when they stand, that they do not flicker, what takes time to see, and what is over."""

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.frames import decode
from gpumon.core.model import Device, DeviceEvent, DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.health.alerts import Alert, AlertHistory, Severity, Thresholds, check
from gpumon.streams.replay import DEMO
from tests.builders import device, frame, process

GIB = 1 << 30
HOT: dict[str, Any] = {"throttle_reasons": ("hw_slowdown",)}


def at(second: float, *devices: Device, **changes: Any) -> Frame:  # noqa: ANN401
    """A frame of a second of the monotonic clock; Unix times have another origin."""
    return frame(monotonic_seconds=1000.0 + second, time_seconds=1_800_000_000.0 + second, devices=devices, **changes)


def since(alert: Alert) -> float:
    """Second at which an alert was first seen."""
    return alert.since_seconds - 1_800_000_000.0


def alert_starts(history: AlertHistory, frames: Iterable[Frame]) -> list[tuple[float, str]]:
    """Every beginning of an alert: the second at which it was first shown, and its name."""
    seen: set[str] = set()
    starts = []
    for moment in frames:
        standing = {alert.id for alert in history.check(moment)}
        starts += [(moment.monotonic_seconds - 1000.0, name) for name in sorted(standing - seen)]
        seen = standing
    return starts


def seconds(last: int, **changes: Any) -> Iterator[Frame]:  # noqa: ANN401
    """A frame a second of one device that stays as it is."""
    return (at(second, device(**changes)) for second in range(last + 1))


def test_what_comes_and_goes_is_one_alert() -> None:
    history = AlertHistory()
    changes = 0
    for second in range(60):
        (alert,) = history.check(at(second, device(**(HOT if second % 10 == 0 else {}))))
        changes += len(history.changes)
        assert since(alert) == 0
    assert changes == 1


def test_it_ends_when_it_has_not_been_seen_for_a_while_and_comes_anew() -> None:
    history = AlertHistory()
    history.check(at(0, device(**HOT)))
    assert [len(history.check(at(second, device()))) for second in (1, 14, 15, 16)] == [1, 1, 0, 0]
    (ended,) = history.ended
    assert (since(ended.alert), ended.ended_seconds - 1_800_000_000) == (0, 15)
    assert history.check(at(40, device(**HOT))) == []
    (alert,) = history.check(at(43, device(**HOT)))
    assert since(alert) == 40
    assert len(history.ended) == 1


def test_a_missing_value_neither_begins_nor_ends_an_alert_at_once() -> None:
    history = AlertHistory()
    unknown = device(throttle_reasons=None)
    assert history.check(at(0, unknown)) == []
    for second in range(1, 5):
        history.check(at(second, device(**HOT)))
    assert [len(history.check(at(second, unknown))) for second in (5, 33, 63, 64)] == [1, 1, 1, 0]


def test_old_values_neither_begin_nor_end_an_alert_at_once() -> None:
    history = AlertHistory()
    assert history.check(at(0, device(age_seconds=9.0, **HOT))) == []
    for second in range(1, 5):
        history.check(at(second, device(**HOT)))
    assert len(history.check(at(30, device(age_seconds=29.0)))) == 1
    assert [alert.id for alert in history.check(at(31, device(state=DeviceState.LOST)))] == ["gpu_lost", "hw_slowdown"]


def test_info_about_a_device_that_is_lost_ends_at_once() -> None:
    history = AlertHistory()
    history.check(at(0, device(throttle_reasons=("sw_power_cap",))))
    lost = device(state=DeviceState.LOST)
    ids = [[alert.id for alert in history.check(at(second, lost))] for second in (1, 15)]
    assert ids == [["gpu_lost"], ["gpu_lost"]]


def test_a_device_that_answers_again_is_lost_no_more() -> None:
    history = AlertHistory()
    history.check(at(0, device(state=DeviceState.LOST)))
    assert history.check(at(1, device())) == []
    assert [ended.alert.id for ended in history.ended] == ["gpu_lost"]


def test_changes_are_told_once_and_information_is_none() -> None:
    history = AlertHistory()
    history.check(at(0, device(throttle_reasons=("sw_power_cap",))))
    assert history.changes == []
    history.check(at(1, device(**HOT)))
    assert history.changes == [], "it has not held for long enough"
    history.check(at(4, device(**HOT)))
    assert [(alert.id, begun) for alert, begun in history.changes] == [("hw_slowdown", True)]
    history.check(at(5, device(**HOT)))
    assert history.changes == []
    history.check(at(40, device()))
    assert [(alert.id, begun) for alert, begun in history.changes] == [("hw_slowdown", False)]
    assert [ended.alert.id for ended in history.ended] == ["hw_slowdown"]


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
    history = AlertHistory()
    assert alert_starts(history, seconds(after + 5, readings=readings)) == [(after, name)]
    standing = history.check(at(after + 6, device(readings=readings)))
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
    assert alert_starts(AlertHistory(), seconds(90, **changes)) == []


def test_low_clocks_with_a_reason_are_told_by_their_reason() -> None:
    slow = {"utilization_gpu_percent": 99, "clock_sm_hertz": 345e6}
    capped = alert_starts(AlertHistory(), seconds(60, readings=slow, throttle_reasons=("sw_power_cap",)))
    assert capped == [(0, "power_cap")]
    chosen = alert_starts(AlertHistory(), seconds(60, readings=slow, throttle_reasons=("applications_clocks_setting",)))
    assert chosen == [(30, "clocks_set")]


def test_a_gpu_that_works_now_and_then_is_not_idle() -> None:
    frames = (at(second, device(readings={"utilization_gpu_percent": 80 * (second % 5 == 0)})) for second in range(90))
    assert alert_starts(AlertHistory(), frames) == []


def test_a_gpu_that_works_again_is_soon_not_idle_any_more() -> None:
    history = AlertHistory()
    (alert,) = [history.check(moment) for moment in seconds(40, readings={"utilization_gpu_percent": 0})][-1]
    assert alert.severity is Severity.INFO
    assert "69.3 GiB of its memory is in use" in alert.detail
    assert "PID 4000 (python train.py" in alert.detail
    assert history.check(at(44, device())) == []
    assert not history.ended, "an alert that was information is not kept"


def test_copies_are_told_as_copies_where_their_traffic_is_read() -> None:
    copying = {"utilization_gpu_percent": 99, "sm_activity_percent": 0.0, "pcie_receive_bytes_per_second": 55.3e9}
    history = AlertHistory()
    (alert,) = [history.check(moment) for moment in seconds(40, readings=copying)][-1]
    assert (alert.id, alert.severity) == ("busy_without_sm", Severity.INFO)
    assert alert.detail.endswith("It copies over PCIe at 55.3 GB/s.")


# Counters


def counting(metric: str, values: Iterable[tuple[float, float]]) -> list[Frame]:
    """Frames in which a counter stands at a value from a second on."""
    return [at(second, device(readings={metric: value})) for second, value in values]


def test_pcie_replays_are_a_matter_of_their_rate() -> None:
    few = [(second, 100 + second // 20) for second in range(0, 300, 10)]
    many = [(second, 100 + second) for second in range(0, 300, 10)]
    assert alert_starts(AlertHistory(), counting("pcie_replay_count", few)) == []
    assert alert_starts(AlertHistory(), counting("pcie_replay_count", many)) == [(10, "pcie_replays")]


def test_a_counter_that_is_at_rest_again_is_no_alert() -> None:
    history = AlertHistory()
    frames = counting("pcie_replay_count", [(0, 0), (10, 50), (20, 50), (900, 50)])
    assert [len(history.check(moment)) for moment in frames] == [0, 1, 1, 0]
    (alert,) = history.check(counting("pcie_replay_count", [(910, 70)])[0])
    assert "20 PCIe replays" in alert.detail, "the rise before the rest does not count"


def test_a_counter_that_begins_anew_has_not_risen() -> None:
    frames = counting("pcie_replay_count", [(0, 900), (10, 3), (20, 3)])
    assert alert_starts(AlertHistory(), frames) == []


def test_uncorrected_errors_that_come_while_we_watch_are_critical_even_if_only_the_total_is_told() -> None:
    frames = counting("ecc_uncorrected_aggregate_count", [(0, 2), (10, 3)])
    history = AlertHistory()
    assert [alert.severity for alert in history.check(frames[0])] == [Severity.INFO]
    assert "critical" in {alert.severity.value for alert in history.check(frames[1])}


def test_a_link_that_goes_down_is_told_though_all_gpus_have_fewer() -> None:
    def links(second: float, count: int) -> Frame:
        return at(second, *(device(place, readings={"nvlink_links_count": count}) for place in (0, 1)))

    history = AlertHistory()
    assert history.check(links(0, 18)) == []
    assert [alert.id for alert in history.check(links(10, 0))] == ["nvlink_down"] * 2


def test_an_xid_stands_for_its_time_and_counts() -> None:
    history = AlertHistory(Thresholds.of({"xid_minutes": 2}))
    hit = DeviceEvent(device().key, 31, 0.0, 1000.0)
    history.check(at(0, device(), events=(hit,)))
    (alert,) = history.check(at(60, device(), events=(replace(hit, monotonic_seconds=1060.0),)))
    assert "2 times" in alert.detail
    assert since(alert) == 0
    assert [len(history.check(at(second, device()))) for second in (120, 179, 181)] == [1, 1, 0]
    assert [ended.alert.id for ended in history.ended] == ["xid-31"]


# Memory that only grows


def growing(held: Iterable[float], free: float = 40.0, **changes: Any) -> list[Frame]:  # noqa: ANN401
    """A frame every ten seconds of a process that holds the given GiB, on a GPU with ``free`` GiB."""
    return [
        at(
            place * 10,
            device(
                processes=(process(memory_bytes=int(gib * GIB), **changes),),
                readings={"memory_free_bytes": (free - gib) * GIB},
            ),
        )
        for place, gib in enumerate(held)
    ]


def leaks(frames: Iterable[Frame], **thresholds: float) -> list[tuple[float, str]]:
    return alert_starts(AlertHistory(Thresholds.of(thresholds)), frames)


def test_memory_that_only_grows_is_told_with_the_time_that_is_left() -> None:
    history = AlertHistory()
    frames = growing((10 + 0.05 * place for place in range(61)), free=25.1)
    assert leaks(frames) == [(300, "memory_leak")]
    (alert,) = [history.check(moment) for moment in frames][-1]
    assert (alert.severity, alert.subject) == (Severity.WARNING, "PID 4000")
    assert "has grown by 3.00 GiB in 10m. At this rate, the GPU is out of memory in about 40m." in alert.detail


def test_a_leak_is_told_after_all_that_is_remembered_if_it_is_to_be_told_later() -> None:
    frames = growing((10 + 0.05 * place for place in range(90)), free=25.1)
    assert leaks(frames, leak_minutes=60.0) == [(600, "memory_leak")]


def test_a_leak_that_leaves_much_time_is_information_and_one_that_leaves_days_is_nothing() -> None:
    slow = growing((10 + 0.005 * place for place in range(120)), free=30)
    history = AlertHistory()
    (alert,) = [history.check(moment) for moment in slow][-1]
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


def test_another_process_with_the_same_pid_has_not_grown() -> None:
    frames = growing((10 + 0.05 * place for place in range(25)), age_seconds=500.0)
    frames += [
        replace(moment, monotonic_seconds=moment.monotonic_seconds + 250)
        for moment in growing((12 + 0.05 * place for place in range(25)), age_seconds=5.0)
    ]
    assert leaks(frames) == []


# The bundled recording


def recording() -> list[Frame]:
    return [decode(line) for line in gzip.open(DEMO)]


def test_nothing_above_information_on_the_recording_of_a_healthy_machine_under_load() -> None:
    history = AlertHistory()
    seen: dict[tuple[str, int | None], str] = {}
    for moment in recording():
        assert {alert.severity for alert in check(moment)} <= {Severity.INFO}
        for alert in history.check(moment):
            assert alert.severity is Severity.INFO, alert
            seen[alert.id, alert.device_index] = alert.detail
    assert not history.ended
    assert {place for name, place in seen if name == "power_cap"} == {0, 6, 7}
    assert {place for name, place in seen if name == "idle_memory"} == {5, 7}, "a notebook, and a rank that hangs"
    assert "is idle, but 52.5 GiB of its memory is in use, most of it by PID" in seen["idle_memory", 5]
    assert "busy_without_sm" not in {name for name, _ in seen}, "the kernel in which a rank waits is work"


# Limits and texts


def test_a_degraded_link_names_both_links() -> None:
    history = AlertHistory()
    narrow = {"utilization_gpu_percent": 99, "pcie_width": 8, "pcie_generation": 4}
    (alert,) = [history.check(moment) for moment in seconds(30, readings=narrow)][-1]
    assert alert.detail == "GPU 0 uses PCIe gen 4 x8 under load, but supports gen 5 x16."


def test_an_nvlink_alert_names_what_it_compares_with() -> None:
    history = AlertHistory()
    history.check(at(0, device(readings={"nvlink_links_count": 18})))
    (alert,) = history.check(at(1, device(readings={"nvlink_links_count": 17})))
    assert alert.detail == "GPU 0 has 17 NVLink links up, compared with 18 before."
    pair = (device(0, readings={"nvlink_links_count": 17}), device(1, readings={"nvlink_links_count": 18}))
    (alert,) = AlertHistory().check(at(0, *pair))
    assert alert.detail.endswith("compared with 18 on other GPUs of the same product.")


@pytest.mark.parametrize(("rate", "words"), [(0.99e9, "a kernel is stuck"), (1e9, "copies over PCIe at 1.00 GB/s")])
def test_traffic_from_which_a_busy_gpu_copies(rate: float, words: str) -> None:
    history = AlertHistory()
    readings = {"utilization_gpu_percent": 99, "sm_activity_percent": 0.0, "pcie_transmit_bytes_per_second": rate}
    (alert,) = [history.check(moment) for moment in seconds(30, readings=readings)][-1]
    assert words in alert.detail


@pytest.mark.parametrize(("mebibytes", "is_reported"), [(63, False), (64, True)])
def test_unattributed_memory_below_the_bookkeeping_of_the_driver(mebibytes: int, is_reported: bool) -> None:
    small = device(readings={"memory_total_bytes": GIB, "memory_unattributed_bytes": mebibytes << 20})
    assert bool(check(at(0, small))) is is_reported


@pytest.mark.parametrize(("limit", "words"), [(700.0, " of 700 W"), (None, "")])
def test_the_power_limit_is_named_where_it_is_known(limit: float | None, words: str) -> None:
    capped = device(throttle_reasons=("sw_power_cap",), readings={"power_limit_watts": limit})
    (alert,) = check(at(0, capped))
    assert alert.detail == f"GPU 0 runs at its power limit{words}, which is normal under full load."


@pytest.mark.parametrize(("hertz", "ids"), [(989e6, ["clock_low"]), (990e6, [])])
def test_a_low_clock_is_below_half_of_the_maximum(hertz: float, ids: list[str]) -> None:
    history = AlertHistory()
    readings = {"utilization_gpu_percent": 99, "clock_sm_hertz": hertz}
    alerts = [history.check(moment) for moment in seconds(30, readings=readings)][-1]
    assert [alert.id for alert in alerts] == ids
    assert all("989 of 1980 MHz" in alert.detail for alert in alerts)


@pytest.mark.parametrize(("errors", "severity"), [(9, Severity.INFO), (10, Severity.WARNING)])
def test_corrected_errors_are_counted_per_hour_over_ten_minutes_at_least(errors: int, severity: Severity) -> None:
    history = AlertHistory()
    moments = counting("ecc_corrected_volatile_count", [(0, 0), (60, errors)])
    (alert,) = [history.check(moment) for moment in moments][-1]
    assert (alert.id, alert.severity) == ("ecc_corrected_rising", severity)


def test_a_rate_that_falls_below_its_threshold_leaves_a_warning() -> None:
    history = AlertHistory()
    moments = counting("ecc_corrected_volatile_count", [(0, 0), (10, 10), (609, 10)])
    severities = [[alert.severity for alert in history.check(moment)] for moment in moments]
    assert severities == [[], [Severity.WARNING], [Severity.WARNING]]
    assert [alert.severity for alert in check(moments[-1])] == []


def test_information_does_not_flicker_and_ends_with_the_driver() -> None:
    history = AlertHistory()
    capped = device(throttle_reasons=("sw_power_cap",))
    history.check(at(0, capped))
    assert [alert.id for alert in history.check(at(10, device()))] == ["power_cap"]
    gone = Problem(ProblemCode.DRIVER_NOT_LOADED, "The driver is not loaded.", "Load it.")
    assert [alert.id for alert in history.check(at(11, device(), problems={"driver": gone}))] == ["driver"]


@pytest.mark.parametrize(
    ("seconds_apart", "interval", "is_shown"), [(30, 1, True), (31, 1, False), (60, 20, True), (61, 20, False)]
)
def test_a_condition_does_not_hold_across_a_long_gap(seconds_apart: float, interval: float, is_shown: bool) -> None:
    narrow = device(readings={"pcie_width": 8, "utilization_gpu_percent": 99})
    moments = [at(second, narrow, interval_seconds=interval) for second in (0, seconds_apart)]
    assert bool(alert_starts(AlertHistory(), moments)) is is_shown
