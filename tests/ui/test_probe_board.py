"""The board of probes: many of them, those that come again, PIDs that are used again, and news that were lost."""

from dataclasses import replace

import pytest

from gpumon.core.problems import ProblemCode
from gpumon.probe.news import Answer, Ask
from gpumon.ui.memory_course import Series
from gpumon.ui.probes import ProbeBoard, left_files
from tests import builders
from tests.ui.probing import BEGAN, GIB, PID, FakeWatcher, moment, probe, silent, statistics


@pytest.fixture
def board(watcher: FakeWatcher) -> ProbeBoard:
    found = ProbeBoard(lambda: watcher, lambda: None, lambda work, then: then(work()))
    found.is_own = lambda _: True
    found.start()
    return found


def go(board: ProbeBoard, watcher: FakeWatcher, second: int, pids: range, command: str = "python train.py") -> None:
    """A second passes on a GPU with such processes."""
    for pid in pids:
        watcher.inbox.put(probe(pid, statistics(), at=BEGAN + second, process={"command": command}))
        board.take()
    held = tuple(builders.process(pid, memory_bytes=GIB) for pid in pids)
    board.watch(moment(float(second), builders.device(0, processes=held)))


def seconds_of(board: ProbeBoard, pid: int) -> int:
    """How many seconds of a process's course are known of the first ten."""
    course = board.course(pid, builders.device(0).key)
    return 0 if course is None else sum(each is not None for each in course.columns(Series.HELD, 1000, 10, 1.0, 0.0))


def test_the_courses_of_many_processes_do_not_drive_each_other_out(board: ProbeBoard, watcher: FakeWatcher) -> None:
    for second in range(3):
        go(board, watcher, second, range(1, 301))
    known = [seconds_of(board, pid) for pid in range(1, 301)]
    assert known == [3] * 256 + [0] * 44
    for pid in range(1, 11):
        watcher.inbox.put(silent(probe(pid, statistics())))
    board.take()
    go(board, watcher, 3, range(11, 301))
    assert [seconds_of(board, pid) for pid in (1, 10, 11, 256, 257, 266, 267)] == [0, 0, 4, 4, 1, 1, 0]


def test_the_course_goes_on_when_the_process_comes_again_and_not_for_another(
    board: ProbeBoard, watcher: FakeWatcher
) -> None:
    go(board, watcher, 0, range(PID, PID + 1))
    watcher.inbox.put(silent(probe(PID, statistics())))
    go(board, watcher, 1, range(PID, PID + 1))
    assert seconds_of(board, PID) == 2
    watcher.inbox.put(silent(probe(PID, statistics())))
    go(board, watcher, 2, range(PID, PID + 1), command="python another.py")
    assert seconds_of(board, PID) == 1


def test_another_process_with_the_same_pid_is_not_asked(board: ProbeBoard, watcher: FakeWatcher) -> None:
    go(board, watcher, 0, range(PID, PID + 1))
    shown = board.probes[PID]
    assert board.refusal(replace(shown, arrived_monotonic=0.0)) == ""
    watcher.inbox.put(silent(probe(PID, statistics())))
    go(board, watcher, 1, range(PID, PID + 1), command="python another.py")
    assert board.refusal(shown) == f"PID {PID} has gone; another process has its number now."


def test_what_was_lost_while_nobody_took_it_in_is_made_up_for(board: ProbeBoard, watcher: FakeWatcher) -> None:
    go(board, watcher, 0, range(1, 4))
    answers: list[Answer] = []
    board.ask(1, Ask.SEGMENTS, answers.append)
    watcher.answer()
    watcher.inbox.put(silent(probe(2, statistics())))
    for _ in range(2000):
        watcher.inbox.put(probe(1, statistics()))
    watcher.probes = {pid: probe(pid) for pid in (1, 3)}
    board.take()
    assert set(board.probes) == {1, 3}
    began = board.clock()
    for seconds, count in ((30.0, 0), (60.0, 1), (120.0, 1)):
        board.clock = lambda now=began + seconds: now  # type: ignore[misc]
        board.watch(moment(0.0))
        assert len(answers) == count
    assert [(each.id, each.problem and each.problem.code) for each in answers] == [(1, ProblemCode.DROPPED)]


def test_files_are_looked_for_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 3_999_999_999)
    assert left_files(1) == []
