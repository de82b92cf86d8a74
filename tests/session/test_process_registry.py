"""What is kept of processes in addition to frames: origins, read once, and recent values."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from gpumon.core.model import Frame, Process
from gpumon.operations.device_holders import DeviceHolder, Holders
from gpumon.operations.process_details import ProcessOrigin
from gpumon.session import process_registry
from gpumon.session.process_registry import MAX_POINTS, POINT_SECONDS, SEARCH_SECONDS, ProcessRegistry
from tests import builders

Reads = list[list[int]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """The PIDs of each batch of origins that was read."""
    batches: Reads = []

    def read_all(wanted: list[tuple[int, int, str]]) -> dict[tuple[int, int], ProcessOrigin]:
        batches.append([pid for pid, _, _ in wanted])
        return {(pid, ticks): ProcessOrigin(job=str(pid)) for pid, ticks, _ in wanted}

    monkeypatch.setattr(process_registry, "_read_all", read_all)
    return batches


def registry(rings: list[int] | None = None) -> ProcessRegistry:
    def at_once(work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        then(work())

    return ProcessRegistry(at_once, lambda: None if rings is None else rings.append(1))


def at(seconds: float, *processes: Process, **changes: Any) -> Frame:  # noqa: ANN401
    device = builders.device(0, processes=processes, **changes)
    return builders.frame(devices=(device,), monotonic_seconds=seconds)


KEY = (4000, builders.process(4000).start_ticks or 0, builders.device(0).key)


def test_an_origin_is_read_once_while_processes_are_shown(reads: Reads) -> None:
    rings: list[int] = []
    processes = registry(rings)
    processes.observe(at(0, builders.process(1), builders.process(2)))
    assert reads == [], "no screen shows processes"
    processes.set_shown(True)
    for seconds in range(3):
        processes.observe(at(seconds, builders.process(1), builders.process(2)))
    assert reads == [[1, 2]]
    processes.observe(at(4, builders.process(2), builders.process(3)))
    assert reads == [[1, 2], [3]]
    assert [pid for pid, _ in processes.state.origins] == [2, 3]
    assert len(rings) == 2
    processes.observe(at(5, builders.process(2, start_ticks=99)))
    assert reads[-1] == [2], "another process with the same PID"


def test_a_process_that_is_not_identified_is_not_read(reads: Reads) -> None:
    processes = registry()
    processes.set_shown(True)
    processes.observe(at(0, builders.process(1, start_ticks=None, command=None)))
    assert reads == []


def test_three_thousand_processes_are_read_in_batches(reads: Reads) -> None:
    processes = registry()
    processes.set_shown(True)
    processes.observe(at(0, *(builders.process(pid) for pid in range(1, 3001))))
    assert sum(map(len, reads)) == 3000
    assert max(map(len, reads)) <= 256


def test_recent_values_and_gaps() -> None:
    processes = registry()
    for point in (0, 1, 4):
        processes.observe(at(point * POINT_SECONDS, builders.process(4000, sm_percent=point * 10.0)))
        processes.observe(at(point * POINT_SECONDS + 1, builders.process(4000, sm_percent=99.0)))
    series = processes.state.histories[KEY].series
    assert series.sm_percent == [0.0, 10.0, None, None, 40.0]
    assert series.cpu_percent[0] == 103.5


def test_the_history_is_bounded_and_forgets_processes_that_ended() -> None:
    processes = registry()
    for point in range(MAX_POINTS + 20):
        processes.observe(at(point * POINT_SECONDS, builders.process(4000, sm_percent=float(point))))
    series = processes.state.histories[KEY].series
    assert len(series.sm_percent) == MAX_POINTS
    assert (series.sm_percent[0], series.sm_percent[-1]) == (20.0, MAX_POINTS + 19.0)
    for point in range(MAX_POINTS + 20, MAX_POINTS + 24):
        processes.observe(at(point * POINT_SECONDS))
    assert not processes.state.histories


def test_idle_begins_with_no_kernels_and_ends_with_some() -> None:
    processes = registry()

    def idle_since(point: int, sm_percent: float | None, utilization: float = 50.0) -> float | None:
        readings = {"utilization_gpu_percent": utilization}
        processes.observe(at(point * POINT_SECONDS, builders.process(4000, sm_percent=sm_percent), readings=readings))
        return processes.state.histories[KEY].idle_since

    assert idle_since(0, 20.0) is None
    assert idle_since(1, 0.0) == POINT_SECONDS
    assert idle_since(5, 0.0) == POINT_SECONDS
    assert idle_since(6, 3.0) is None
    assert idle_since(7, None, utilization=0.0) == 7 * POINT_SECONDS, "nothing runs on an idle GPU"
    assert idle_since(8, None) is None, "unknown"


def test_who_could_hold_unattributed_memory_is_searched_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[tuple[Any, Any]] = []

    def search(bus_ids: Any, listed: Any) -> dict[str, Holders]:  # noqa: ANN401
        searches.append((bus_ids, listed))
        return {KEY[2]: Holders((DeviceHolder(9, "python"),), are_hidden=False)}

    monkeypatch.setattr("gpumon.operations.device_holders.device_holders", search)
    processes = registry()
    unowned = {"readings": {"memory_unattributed_bytes": 9 << 30}}
    processes.observe(at(100.0, builders.process(4000), **unowned))
    assert searches == [], "nothing is searched while no screen shows it"
    processes.set_shown(True)
    processes.observe(at(101.0, builders.process(4000)))
    assert searches == [], "all memory has an owner"
    for second in range(102, 102 + int(SEARCH_SECONDS)):
        processes.observe(at(float(second), builders.process(4000), **unowned))
    assert searches == [({KEY[2]: "00000000:1B:00.0"}, {KEY[2]: {4000}})]
    assert processes.state.holders[KEY[2]].holders[0].pid == 9
    processes.observe(at(102 + SEARCH_SECONDS, builders.process(4000), **unowned))
    assert len(searches) == 2
    processes.observe(at(130.0, builders.process(4000)))
    assert processes.state.holders == {}


def test_a_process_that_has_just_begun_occupies_little() -> None:
    """Thousands of processes may come and go, and a complete history of each would be megabytes that come and go."""
    processes = registry()
    listed = [builders.process(pid) for pid in range(1, 1001)]
    tracemalloc.start()
    try:
        for point in range(2):
            processes.observe(at(POINT_SECONDS * point, *listed))
        size = sum(trace.size for trace in tracemalloc.take_snapshot().traces)
    finally:
        tracemalloc.stop()
    assert len(processes.state.histories) == 1000
    assert size < 1000 * 1500
