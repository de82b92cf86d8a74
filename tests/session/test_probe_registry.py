"""The registry of probes: many probes, probes that come again, PIDs that are used again, and lost messages."""

from dataclasses import replace

import pytest

from gpumon.core.problems import ProblemCode
from gpumon.probe.messages import RequestKind
from gpumon.session.memory_history import Series
from gpumon.session.oom_notices import recent_oom_files
from gpumon.session.probe_registry import ProbeRegistry
from tests import builders
from tests.ui.probing import BEGAN, GIB, PID, FakeWatcher, moment, probe, silent, statistics


@pytest.fixture
def registry(watcher: FakeWatcher) -> ProbeRegistry:
    registry = ProbeRegistry(lambda: watcher, lambda: None, lambda work, then: then(work()))
    registry.is_own = lambda _: True
    registry.start()
    return registry


def go(
    registry: ProbeRegistry, watcher: FakeWatcher, second: int, pids: range, command: str = "python train.py"
) -> None:
    """A second passes on a GPU with such processes."""
    for pid in pids:
        watcher.inbox.put(probe(pid, statistics(), at=BEGAN + second, process={"command": command}))
        registry.drain()
    held = tuple(builders.process(pid, memory_bytes=GIB) for pid in pids)
    registry.observe(moment(float(second), builders.device(0, processes=held)))


def seconds_of(registry: ProbeRegistry, pid: int) -> int:
    """How many of the first ten seconds of a process's history are known."""
    history = registry.history(pid, builders.device(0).key)
    return (
        0 if history is None else sum(value is not None for value in history.columns(Series.HELD, 1000, 10, 1.0, 0.0))
    )


def test_histories_of_many_processes_do_not_displace_each_other(registry: ProbeRegistry, watcher: FakeWatcher) -> None:
    for second in range(3):
        go(registry, watcher, second, range(1, 301))
    known = [seconds_of(registry, pid) for pid in range(1, 301)]
    assert known == [3] * 256 + [0] * 44
    for pid in range(1, 11):
        watcher.inbox.put(silent(probe(pid, statistics())))
    registry.drain()
    go(registry, watcher, 3, range(11, 301))
    assert [seconds_of(registry, pid) for pid in (1, 10, 11, 256, 257, 266, 267)] == [0, 0, 4, 4, 1, 1, 0]


def test_a_history_continues_when_its_process_comes_back_but_not_for_another_process(
    registry: ProbeRegistry, watcher: FakeWatcher
) -> None:
    go(registry, watcher, 0, range(PID, PID + 1))
    watcher.inbox.put(silent(probe(PID, statistics())))
    go(registry, watcher, 1, range(PID, PID + 1))
    assert seconds_of(registry, PID) == 2
    watcher.inbox.put(silent(probe(PID, statistics())))
    go(registry, watcher, 2, range(PID, PID + 1), command="python another.py")
    assert seconds_of(registry, PID) == 1


def test_another_process_with_the_same_pid_gets_no_request(registry: ProbeRegistry, watcher: FakeWatcher) -> None:
    go(registry, watcher, 0, range(PID, PID + 1))
    shown = registry.state().probes[PID]
    assert registry.refusal(replace(shown, arrived_monotonic=0.0)) == ""
    watcher.inbox.put(silent(probe(PID, statistics())))
    go(registry, watcher, 1, range(PID, PID + 1), command="python another.py")
    assert registry.refusal(shown) == f"PID {PID} has exited; another process has its PID now."


def test_lost_messages_are_made_up_for(registry: ProbeRegistry, watcher: FakeWatcher) -> None:
    go(registry, watcher, 0, range(1, 4))
    registry.request(7, registry.state().probes[1], RequestKind.SEGMENTS)
    watcher.answer()
    watcher.inbox.put(silent(probe(2, statistics())))
    for _ in range(2000):
        watcher.inbox.put(probe(1, statistics()))
    watcher.probes = {pid: probe(pid) for pid in (1, 3)}
    registry.drain()
    assert set(registry.state().probes) == {1, 3}
    start = registry.clock()
    for seconds, is_answered in ((30.0, False), (60.0, True), (120.0, True)):
        registry.clock = lambda now=start + seconds: now  # type: ignore[misc]
        registry.observe(moment(0.0))
        assert (registry.state().requests[7].answer is not None) is is_answered
    answer = registry.state().requests[7].answer
    assert answer is not None
    assert answer.problem is not None
    assert answer.problem.code is ProblemCode.DROPPED


def test_oom_files_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 3_999_999_999)
    assert recent_oom_files(1) == []


def test_a_frozen_state_stays_and_requests_go_on(registry: ProbeRegistry, watcher: FakeWatcher) -> None:
    go(registry, watcher, 0, range(1, 3))
    registry.freeze(True)
    go(registry, watcher, 1, range(3, 4))
    state = registry.state()
    assert set(state.probes) == {1, 2}
    registry.request(7, state.probes[1], RequestKind.SUMMARY, ordinal=0)
    watcher.answer("text")
    assert registry.drain(), "an answer is drawn at once"
    assert registry.state().requests[7].answer is not None
    registry.freeze(False)
    assert set(registry.state().probes) == {1, 2, 3}


def test_a_request_that_changes_the_process_is_refused_for_another_users_process(
    registry: ProbeRegistry, watcher: FakeWatcher
) -> None:
    go(registry, watcher, 0, range(1, 2))
    registry.is_own = lambda _: False
    registry.request(7, registry.state().probes[1], RequestKind.EMPTY_CACHE)
    assert "belongs to another user" in registry.state().requests[7].refusal
    assert watcher.asked == []
    registry.request(8, registry.state().probes[1], RequestKind.SEGMENTS)
    assert [kind for _, kind, _ in watcher.asked] == [RequestKind.SEGMENTS]


def test_many_probes_send_more_rarely() -> None:
    watcher = FakeWatcher()
    registry = ProbeRegistry(lambda: watcher, lambda: None, lambda work, then: then(work()))
    registry.start()
    for number in range(64):
        watcher.inbox.put(probe(4000 + number))
    registry.drain()
    assert watcher.paces == [1.0, 2.0]
    registry.set_shown(True)
    assert watcher.paces[-1] == 1.0
    for number in range(40):
        watcher.inbox.put(silent(probe(4000 + number)))
    registry.drain()
    assert watcher.paces[-1] == 0.5
