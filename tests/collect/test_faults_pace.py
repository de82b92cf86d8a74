"""A driver that is slow, restarts or fails for a moment: the interval is shown; the failure is at most one event."""

from itertools import pairwise

import pytest

from gpumon.core.episodes import HistoryEventKind
from gpumon.core.model import Frame
from gpumon.core.problems import ProblemCode
from gpumon.core.store import Store
from gpumon.health.alerts import AlertHistory
from gpumon.session.pace import source_text
from tests.collect.conftest import Live
from tests.collect.test_faults import all_ok, states

pytestmark = pytest.mark.xdist_group("clock")


def device_events(frames: list[Frame], index: int) -> list[tuple[HistoryEventKind, str]]:
    """What is in the list of events of a device after these frames."""
    store = Store()
    for frame in frames:
        store.apply(frame)
    history = store.of_device(frames[-1].devices[index].key)
    assert history is not None
    return [(event.kind, event.text) for event in history.events]


def alerts_that_come(frames: list[Frame], index: int) -> list[str]:
    """The alerts of a device and of the host, once per appearance."""
    health, shown, came = AlertHistory(), set[str](), []
    key = frames[-1].devices[index].key
    for frame in frames:
        now = {alert.id for alert in health.check(frame) if alert.device_key in {None, key}}
        came += sorted(now - shown)
        shown = now
    return came


def test_a_slow_driver_stretches_the_period_and_the_title_says_so(live: Live) -> None:
    watched = live(fault="slow=40000")
    frames = [watched.until(all_ok(3)) for _ in range(4)]
    assert all(later.monotonic_seconds - frame.monotonic_seconds > 0.2 for frame, later in pairwise(frames))
    assert {frame.interval_seconds for frame in frames} == {0.1}, "the requested interval is still shown"
    text = source_text(watched.stream, frames[-1], paused=False)
    assert text.startswith("live 0.1s, a sample takes ")


def test_settings_reach_a_collector_that_has_no_time_to_sleep(live: Live) -> None:
    watched = live(fault="slow=20000")
    watched.until(all_ok(3))
    watched.stream.set_call_stats(True)
    frame = watched.until(lambda frame: bool(frame.sweep.calls_by_name))
    assert {cost.longest_seconds >= 0.02 for cost in frame.sweep.calls_by_name} == {True}
    watched.stream.set_interval(0.2)
    watched.until(lambda frame: frame.interval_seconds == 0.2)


def test_calls_are_counted_only_on_request(live: Live) -> None:
    watched = live()
    watched.until(all_ok(3))
    assert not any(frame.sweep.calls_by_name for frame in watched.collect(0.3))
    watched.stream.set_call_stats(True)
    frame = watched.until(lambda frame: bool(frame.sweep.calls_by_name))
    costs = {cost.call: cost for cost in frame.sweep.calls_by_name}
    power = costs["nvmlDeviceGetPowerUsage"]
    assert power.count >= 3
    assert 0 < power.longest_seconds <= power.seconds
    assert sum(cost.count for cost in costs.values()) <= frame.sweep.calls
    watched.stream.set_call_stats(False)
    watched.until(lambda frame: not frame.sweep.calls_by_name)


def test_a_restart_of_the_driver_is_one_event(live: Live) -> None:
    watched = live()
    watched.until(all_ok(3))
    watched.fault("uninit")
    watched.until(lambda frame: "driver" in frame.problems)
    watched.until(all_ok(3))
    frames = watched.frames + watched.collect(1)
    assert sum("driver" in frame.problems for frame in frames) <= 2
    assert device_events(frames, 1) == [(HistoryEventKind.DRIVER, "The driver was restarted.")]
    assert watched.stream.replaced == 0


def test_a_driver_that_answers_unknown_for_a_while_costs_the_values_and_one_alert(live: Live) -> None:
    watched = live()
    watched.until(all_ok(3))
    watched.fault("unknown")
    frames = watched.collect(3)
    stale = [frame for frame in frames if frame.devices and frame.devices[0].is_stale("power_watts")]
    assert 1 <= len(stale) <= 2
    assert all(frame.devices[0].is_stale("processes") and frame.devices[0].get("power_watts") for frame in stale)
    assert all("power_watts" not in device.readings for device in frames[-1].devices)
    assert all(device.problems["power_watts"].code is not ProblemCode.NOT_READ for device in frames[-1].devices)
    watched.heal()
    watched.until(all_ok(3))
    came = alerts_that_come(watched.frames, 1)
    assert len(came) == len(set(came)), "none comes twice"
    assert watched.stream.replaced == 0


def test_calls_that_fail_now_and_then_leave_the_last_value_twice_at_most(live: Live) -> None:
    watched = live()
    watched.until(all_ok(3))
    watched.fault("flaky:1:power=0.5,flaky:1:util=0.5,flaky:1:temp=0.5,flaky:1:clock=0.5")
    frames = watched.collect(4)
    assert all(states(frame) == ["ok", "ok", "ok"] for frame in frames)
    shown = ""
    last = None
    for frame in frames:
        device = frame.devices[1]
        value = device.get("power_watts")
        is_stale = device.is_stale("power_watts")
        assert (value is None or is_stale) == ("power_watts" in device.problems)
        assert not is_stale or value == last or last is None
        shown += "-" if value is None else "s" if is_stale else "v"
        last = value
    assert "v" in shown
    assert "s" in shown
    assert "sss" not in shown
    assert all(shown[place - 2 : place] in {"ss", "s-", "--"} for place in range(2, len(shown)) if shown[place] == "-")
    assert device_events(frames, 1) == []
    came = alerts_that_come(frames, 1)
    assert len(came) == len(set(came)), "none comes twice"
    assert watched.stream.replaced == 0


def test_a_device_that_fails_now_and_then_in_everything_comes_back_by_itself(live: Live) -> None:
    watched = live()
    watched.until(all_ok(3))
    watched.fault("flaky:1=0.5")
    frames = watched.collect(3)
    assert all([states(frame)[0], states(frame)[2]] == ["ok", "ok"] for frame in frames)
    came = alerts_that_come(frames, 1)
    assert len(came) <= 2, "none flaps"
    watched.heal()
    watched.until(all_ok(3))
