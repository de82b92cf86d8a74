"""Thousands of processes, and those that /proc does not show: what is read is counted, not timed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpumon.collect.flights import Flights
from gpumon.collect.processes import NOT_VISIBLE, NOT_YET, READS_A_TICK, RETRY_TICKS, ProcessTable
from gpumon.core.problems import ProblemCode
from tests.collect.proc import add_process

PIDS = range(1000, 4000)


class CountingTable(ProcessTable):
    """Counts how often each process is read."""

    def __init__(self, proc: Path) -> None:
        super().__init__(Flights(), proc)
        self.reads: Counter[int] = Counter()

    def _read(self, pid: int, known: Any) -> Any:  # noqa: ANN401
        self.reads[pid] += 1
        return super()._read(pid, known)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A /proc with three thousand processes."""
    proc = tmp_path_factory.mktemp("proc")
    for pid in PIDS:
        add_process(proc, pid)
    return proc


def test_of_thousands_of_processes_a_bounded_number_is_read_at_a_tick(crowd: Path) -> None:
    table = CountingTable(crowd)
    for tick in range(30):
        before = table.reads.total()
        found = [table.facts(pid, float(tick), 5000) for pid in PIDS]
        table.keep(PIDS)
        assert table.reads.total() - before <= READS_A_TICK
        if tick == 0:
            assert [each.problem for each in found[:READS_A_TICK]] == [None] * READS_A_TICK
            assert {each.problem for each in found[READS_A_TICK:]} == {NOT_YET}
    assert all(each.problem is None for each in found)
    assert all(each.cpu_percent == 0 for each in found)
    assert len(table.reads) == len(PIDS)
    assert max(table.reads.values()) - min(table.reads.values()) <= 1, "they take turns"


def test_on_eight_gpus_a_process_is_read_once_a_tick(crowd: Path) -> None:
    table = CountingTable(crowd)
    few = list(PIDS[:100])
    for tick in range(5):
        for _ in range(8):
            for pid in few:
                table.facts(pid, float(tick), 5000)
    assert set(table.reads.values()) == {5}


def test_what_proc_does_not_show_is_looked_for_seldom(tmp_path: Path) -> None:
    table = CountingTable(tmp_path)
    for tick in range(4 * RETRY_TICKS):
        assert table.facts(4000, float(tick), 5000).problem is not None
    assert table.reads[4000] == 4
    add_process(tmp_path, 4000)
    assert table.facts(4000, 1000.0, 5000).command == "python train.py"


def test_thousands_that_proc_does_not_show_take_turns_as_well(tmp_path: Path) -> None:
    table = CountingTable(tmp_path)
    for tick in range(20):
        before = table.reads.total()
        found = [table.facts(pid, float(tick), 5000).problem for pid in PIDS]
        table.keep(PIDS)
        assert table.reads.total() - before <= READS_A_TICK
    assert set(found) == {NOT_VISIBLE}


def test_what_left_the_gpus_and_comes_back_is_looked_for_at_once(tmp_path: Path) -> None:
    table = CountingTable(tmp_path)
    found = table.facts(4000, 1.0, 5000)
    assert found.problem is not None
    assert found.problem.code is ProblemCode.PROCESS_NOT_VISIBLE
    table.keep([])
    add_process(tmp_path, 4000)
    assert table.facts(4000, 2.0, 5000).problem is None
