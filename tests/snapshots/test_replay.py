"""The replay of a history: levels, the peak and its stacks, wherever the history starts and ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.snapshots.model import Amount, Snapshot
from gpumon.snapshots.replay import COLUMNS
from gpumon.snapshots.stack_tree import Measure
from tests.snapshots.files import block, device_of, event, loaded, segment

EARLIER = "allocated before the history began"


def names(snapshot: Snapshot, measure: Measure) -> dict[str, Amount]:
    """What each allocating function has."""
    result: dict[str, Amount] = {}
    for use in snapshot.devices[0].uses:
        amount = measure.of(use)
        if amount.blocks:
            name = snapshot.frames_of(use.stack)[0].name
            result[name] = result.get(name, Amount()) + amount
    return result


def timed(*events: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The trace of device 0, an event a millisecond."""
    return [[{**event, "time_us": 1_000_000_000 + 1000 * number} for number, event in enumerate(events)]]


def test_the_peak_and_who_was_there() -> None:
    traces = timed(
        event("segment_alloc", 0, 4096),
        event("alloc", 0, 1000, "a"),
        event("alloc", 1000, 2000, "b"),
        event("free_requested", 0, 1000),
        event("free_completed", 0, 1000),
        event("alloc", 3000, 100, "c"),
        event("free_requested", 1000, 2000),
        event("free_completed", 1000, 2000),
    )
    held = [block(0, 3000, "inactive"), block(3000, 512, "active_allocated", "c", requested_size=100)]
    snapshot = loaded({"segments": [segment(*held, total_size=4096)], "device_traces": traces})
    history = snapshot.devices[0].history
    assert history is not None
    assert history.peak == Amount(3000, 2)
    assert history.peak_event == 2
    assert history.peak_seconds == pytest.approx(0.002)
    assert (history.peak_reserved_bytes, history.earlier_bytes) == (4096, 0)
    assert history.begin_seconds == 1000
    assert history.duration_seconds == pytest.approx(0.007)
    assert names(snapshot, Measure.PEAK) == {"a": Amount(1000, 1), "b": Amount(2000, 1)}
    assert names(snapshot, Measure.NOW) == {"c": Amount(100, 1)}
    assert names(snapshot, Measure.EVER) == {"a": Amount(1000, 1), "b": Amount(2000, 1), "c": Amount(100, 1)}
    assert snapshot.devices[0].notes == ()


def test_a_ring_that_begins_in_the_middle() -> None:
    """Two blocks are older than the history: one is freed in it, one stays; its block has kept its stack."""
    traces = timed(
        event("alloc", 5000, 50, "new"),
        event("free_requested", 100, 700, "whoever frees"),
        event("alloc", 6000, 60, "new"),
    )
    held = [block(0, 100, "active_allocated", "kept"), block(5000, 50), block(6000, 60)]
    snapshot = loaded({"segments": [segment(*held, total_size=8192)], "device_traces": traces})
    history = snapshot.devices[0].history
    assert history is not None
    assert history.earlier_bytes == 800
    assert history.peak == Amount(850, 3)
    assert history.by_event.allocated[-1].mean == 210
    assert (history.by_event.reserved[0].low, history.by_event.reserved[-1].high) == (8192, 8192)
    assert names(snapshot, Measure.PEAK) == {"kept": Amount(100, 1), EARLIER: Amount(700, 1), "new": Amount(50, 1)}
    assert names(snapshot, Measure.NOW) == {"kept": Amount(100, 1), "new": Amount(110, 2)}


def test_the_peak_may_lie_before_the_first_event() -> None:
    """The history begins while a great block is freed, and rises no more to where it was."""
    steps = [event("alloc", 5000 + number, 1, "new") for number in range(5000)]
    traces = timed(event("free_requested", 100, 70_000), *steps)
    held = [block(5000 + number, 1, "active_allocated", "new") for number in range(5000)]
    snapshot = loaded({"segments": [segment(*held)], "device_traces": traces})
    history = snapshot.devices[0].history
    assert history is not None
    assert (history.earlier_bytes, history.peak, history.peak_event) == (70_000, Amount(70_000, 1), 0)
    assert names(snapshot, Measure.PEAK) == {EARLIER: Amount(70_000, 1)}
    assert history.by_event.allocated[0].low == 0
    assert history.by_event.allocated[0].high == 70_000


def test_a_history_that_leaves_out_free_requested() -> None:
    traces = timed(event("alloc", 0, 10, "a"), event("free_completed", 0, 10), event("alloc", 0, 10, "b"))
    snapshot = loaded({"segments": [segment(block(0, 10))], "device_traces": traces})
    assert snapshot.devices[0].history is not None
    assert snapshot.devices[0].history.peak == Amount(10, 1)
    assert snapshot.devices[0].notes == ()


def test_what_waits_for_a_stream_when_the_history_begins_is_not_allocated() -> None:
    traces = timed(event("free_completed", 500, 70), event("alloc", 0, 10, "a"), event("free_requested", 0, 10))
    history = device_of({"segments": [], "device_traces": traces}).history
    assert history is not None
    assert (history.earlier_bytes, history.peak) == (0, Amount(10, 1))


def test_expandable_segments_grow_and_shrink() -> None:
    traces = timed(
        event("segment_map", 0, 2000),
        event("alloc", 0, 10, "a"),
        event("segment_map", 2000, 2000),
        event("segment_unmap", 2000, 2000),
    )
    history = device_of({"segments": [segment(block(0, 10), total_size=2000)], "device_traces": traces}).history
    assert history is not None
    reserved = history.by_event.reserved
    assert (reserved[0].low, max(item.high for item in reserved), reserved[-1].mean) == (0, 4000, 2000)


def test_out_of_memory() -> None:
    oom = {"action": "oom", "device_free": 77, "size": 5 << 30, "stream": 0, "time_us": 1_000_002_000}
    trace = [*timed(event("alloc", 0, 10, "a"))[0], {**oom, "frames": event("", 0, 0, "greedy")["frames"]}]
    snapshot = loaded({"segments": [segment(block(0, 10))], "device_traces": [trace]})
    history = snapshot.devices[0].history
    assert history is not None
    (result,) = history.ooms
    assert result.seconds == pytest.approx(0.002)
    assert (result.event, result.bytes, result.free_bytes) == (1, 5 << 30, 77)
    assert snapshot.frames_of(result.stack)[0].name == "greedy"


def test_a_history_that_ended_before_the_snapshot() -> None:
    traces = timed(event("free_requested", 0, 1000), event("alloc", 5000, 50, "gone"))
    device = device_of({"segments": [segment(block(0, 10))], "device_traces": traces})
    assert device.history is not None
    assert device.history.earlier_bytes == 1000
    assert "History and segments differ" in device.notes[0]
    assert min(item.low for item in device.history.by_time.allocated) >= 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 100)), min_size=1, max_size=60))
def test_levels_add_up(steps: list[tuple[int, int]]) -> None:
    """Against a plain count: the peak is the sum of its stacks, and the series ends at the last level."""
    held: dict[int, int] = {}
    events, levels = [], [0]
    for address, size in steps:
        if address in held:
            events.append(event("free_requested", address, held.pop(address)))
        else:
            held[address] = size
            events.append(event("alloc", address, size, f"f{address}"))
        levels.append(sum(held.values()))
    blocks = [block(address, size) for address, size in held.items()]
    device = device_of({"segments": [segment(*blocks)], "device_traces": timed(*events)})
    history = device.history
    assert history is not None
    assert history.peak.bytes == max(levels) == sum(use.peak.bytes for use in device.uses)
    for series in (history.by_time.allocated, history.by_event.allocated):
        assert len(series) == COLUMNS
        assert (series[-1].mean, max(item.high for item in series)) == (levels[-1], max(levels))
        assert all(item.low <= item.mean <= item.high for item in series)


def test_the_largest_allocations() -> None:
    events = [event("alloc", number, 10 * number, "a") for number in range(1, 30)]
    device = device_of({"segments": [], "device_traces": timed(*events, event("free_requested", 29, 290))}, 3)
    assert device.history is not None
    assert [item.bytes for item in device.history.largest] == [270, 280, 290]
    assert [item.end_seconds for item in device.history.largest] == [None, None, pytest.approx(0.029)]
