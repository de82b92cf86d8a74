"""The memory of a process over time: columns, marks and peaks, and which process a history belongs to."""

from gpumon.session.memory_history import MarkKind, MemoryHistory, Series
from gpumon.session.probe_registry import ProbeRegistry
from tests.ui.probing import BEGAN, GIB, PID, FakeWatcher, gpu, moment, probe, silent, statistics


def history_of(*values: tuple[float, int]) -> MemoryHistory:
    history = MemoryHistory()
    for seconds, size in values:
        history.add(Series.ALLOCATED, seconds, size)
    return history


def test_a_column_is_the_maximum_of_its_time() -> None:
    history = history_of((100.1, 5), (100.9, 7), (101.5, 3), (104.0, 4))
    assert history.columns(Series.ALLOCATED, 99, 6, 1.0, 0.0) == [None, 7, 3, None, None, 4]
    assert history.columns(Series.ALLOCATED, 49, 4, 2.0, 0.0) == [None, 7, None, 4]
    assert history.columns(Series.RESERVED, 99, 2, 1.0, 0.0) == [None, None]


def test_a_value_holds_until_the_next_one_but_not_for_long() -> None:
    history = history_of((100.0, 5), (103.0, 6))
    assert history.columns(Series.ALLOCATED, 99, 9, 1.0, 2.5) == [None, 5, 5, 5, 6, 6, 6, None, None]
    assert history.columns(Series.ALLOCATED, 101, 2, 1.0, 2.5) == [5, 5], "also from before the left edge"


def test_an_hour_is_kept_and_late_values_are_dropped() -> None:
    history = history_of((100.0, 5), (3699.0, 6))
    assert history.columns(Series.ALLOCATED, 100, 1, 1.0, 0.0) == [5]
    history.add(Series.ALLOCATED, 3700.0, 7)
    history.add(Series.ALLOCATED, 3000.0, 99)
    assert history.columns(Series.ALLOCATED, 100, 1, 1.0, 0.0) == [None]
    assert history.columns(Series.ALLOCATED, 3000, 1, 1.0, 0.0) == [None]
    history.add(Series.ALLOCATED, 1e6, 8)
    assert not any(history.columns(Series.ALLOCATED, 3690, 20, 1.0, 0.0))


def test_earlier_counts_are_no_mark_and_a_peak_can_be_reset() -> None:
    history = MemoryHistory()
    history.record(1.0, statistics(alloc_retries_count=7, ooms_count=2, allocated_peak_bytes=9))
    history.record(2.0, statistics(alloc_retries_count=9, ooms_count=2, allocated_peak_bytes=9))
    history.record(3.0, statistics(alloc_retries_count=None, ooms_count=None, allocated_peak_bytes=None))
    history.record(4.0, statistics(alloc_retries_count=10, ooms_count=3, allocated_peak_bytes=4))
    assert list(history.marks) == [(2.0, MarkKind.RETRY, 2)], "what happened without a report is unknown"
    assert history.peak == (4, 4.0)
    history.record(5.0, statistics(alloc_retries_count=10, ooms_count=4, allocated_peak_bytes=4))
    assert history.marks[-1] == (5.0, MarkKind.OOM, 1)


def test_a_pid_that_is_used_again_is_another_process() -> None:
    watcher = FakeWatcher()
    registry = ProbeRegistry(lambda: watcher, lambda: None, lambda work, then: then(work()))
    key = gpu().key
    registry.start()
    watcher.inbox.put(probe(PID, statistics()))
    registry.drain()
    registry.observe(moment(0.0))
    before = registry.history(PID, key)
    assert before is not None
    watcher.inbox.put(probe(PID, statistics(), at=BEGAN + 1))
    registry.drain()
    assert registry.history(PID, key) is before
    assert before.columns(Series.HELD, int(BEGAN), 1, 1.0, 0.0) == [61 * GIB]
    watcher.inbox.put(silent(probe(PID, statistics())))
    registry.drain()
    assert not registry.state().probes
    assert registry.history(PID, key) is before, "the screen can still show it"
    watcher.inbox.put(probe(PID, statistics(), process={"command": "python another.py"}))
    registry.drain()
    assert registry.history(PID, key) is None
