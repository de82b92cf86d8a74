"""Thousands of processes, and those that /proc does not show: what is read is counted, not timed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpumon.collect.calls import CallsInFlight
from gpumon.collect.processes import NOT_YET, RETRY_TICKS, ProcessTable
from gpumon.core.problems import ProblemCode
from tests.collect.proc import add_process, set_pid_namespace

PIDS, MAX_READS = range(1000, 1200), 100


class CountingTable(ProcessTable):
    """Counts how often each process is read."""

    def __init__(self, proc: Path) -> None:
        set_pid_namespace(proc)
        super().__init__(CallsInFlight(), proc)
        self.reads: Counter[int] = Counter()

    def _read(self, pid: int, known: Any) -> Any:  # noqa: ANN401
        self.reads[pid] += 1
        return super()._read(pid, known)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A /proc with more processes than may be read at a tick."""
    proc = tmp_path_factory.mktemp("proc")
    for pid in PIDS:
        add_process(proc, pid)
    return proc


def test_of_many_processes_a_bounded_number_is_read_at_a_tick(crowd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.collect.processes.MAX_READS_PER_TICK", MAX_READS)
    table = CountingTable(crowd)
    for tick in range(10):
        before = table.reads.total()
        all_facts = [table.facts(pid, float(tick), 5000) for pid in PIDS]
        table.keep(PIDS)
        assert table.reads.total() - before <= MAX_READS
        if tick == 0:
            assert [facts.problem for facts in all_facts] == [None] * MAX_READS + [NOT_YET] * MAX_READS
    assert all(facts.problem is None for facts in all_facts)
    assert all(facts.cpu_percent == 0 for facts in all_facts)
    assert len(table.reads) == len(PIDS)
    assert max(table.reads.values()) - min(table.reads.values()) <= 1, "they take turns"


def test_on_eight_gpus_a_process_is_read_once_a_tick(crowd: Path) -> None:
    table = CountingTable(crowd)
    few = list(PIDS[:50])
    for tick in range(5):
        for _ in range(8):
            for pid in few:
                table.facts(pid, float(tick), 5000)
    assert set(table.reads.values()) == {5}


def test_a_process_that_proc_does_not_show_is_retried_rarely(tmp_path: Path) -> None:
    table = CountingTable(tmp_path)
    for tick in range(4 * RETRY_TICKS):
        assert table.facts(4000, float(tick), 5000).problem is not None
    assert table.reads[4000] == 4
    add_process(tmp_path, 4000)
    assert table.facts(4000, 1000.0, 5000).command == "python train.py"


def test_a_process_that_returns_to_a_gpu_is_read_at_once(tmp_path: Path) -> None:
    table = CountingTable(tmp_path)
    facts = table.facts(4000, 1.0, 5000)
    assert facts.problem is not None
    assert facts.problem.code is ProblemCode.PROCESS_NOT_VISIBLE
    table.keep([])
    add_process(tmp_path, 4000)
    assert table.facts(4000, 2.0, 5000).problem is None
