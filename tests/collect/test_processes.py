"""What /proc says of processes, on a /proc that says anything."""

import os
import pwd
from pathlib import Path

import pytest

from gpumon.collect.calls import CallsInFlight
from gpumon.collect.processes import ProcessFacts, ProcessTable
from gpumon.core.problems import ProblemCode
from tests.collect.proc import add_process

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def table(tmp_path: Path) -> ProcessTable:
    return ProcessTable(CallsInFlight(), tmp_path)


def facts(table: ProcessTable, now: float = 0, pid: int = 4000) -> ProcessFacts:
    return table.facts(pid, now, uptime=5000)


def test_facts(table: ProcessTable, tmp_path: Path) -> None:
    add_process(tmp_path, 4000, start_ticks=1000 * TICKS, pages=7)
    result = facts(table)
    assert result == ProcessFacts(
        user=pwd.getpwuid(os.getuid()).pw_name,
        command="python train.py",
        cpu_percent=None,
        host_memory_bytes=7 * PAGE,
        age_seconds=4000,
        start_ticks=1000 * TICKS,
    )


def test_cpu_is_the_difference_of_two_ticks(table: ProcessTable, tmp_path: Path) -> None:
    add_process(tmp_path, 4000, cpu_ticks=500)
    facts(table, now=0)
    add_process(tmp_path, 4000, cpu_ticks=500 + 3 * TICKS)
    assert facts(table, now=2).cpu_percent == 150


def test_a_reused_pid_is_another_process(table: ProcessTable, tmp_path: Path) -> None:
    add_process(tmp_path, 4000, b"first\0", cpu_ticks=1000, start_ticks=100)
    facts(table, now=0)
    add_process(tmp_path, 4000, b"second\0", cpu_ticks=5, start_ticks=200)
    result = facts(table, now=1)
    assert result.command == "second"
    assert result.cpu_percent is None


def test_a_process_that_ends_is_not_visible_any_more(table: ProcessTable, tmp_path: Path) -> None:
    folder = add_process(tmp_path, 4000)
    facts(table, now=0)
    (folder / "stat").unlink()
    result = facts(table, now=1)
    assert result.command is None
    assert result.problem is not None
    assert result.problem.code is ProblemCode.PROCESS_NOT_VISIBLE


@pytest.mark.parametrize("pid", [0, -1, 0xFFFFFFFF, (1 << 22) + 1])
def test_impossible_pids(table: ProcessTable, pid: int) -> None:
    problem = facts(table, pid=pid).problem
    assert problem is not None
    assert problem.code is ProblemCode.INVALID_VALUE


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"python\0-c\0print('\x1b[2J')\0", "python -c print('\ufffd[2J')"),
        (b"a\nb\0", "a b"),
        (b"x\0\0\0y\0\0", "x   y"),
        (b"\xff\xfe\0", "\ufffd\ufffd"),
        (b"[/]\0[bold red]\0", "[/] [bold red]"),
        ("größe\u202e\0".encode(), "größe\ufffd"),
    ],
)
def test_hostile_command_lines(table: ProcessTable, tmp_path: Path, raw: bytes, shown: str) -> None:
    add_process(tmp_path, 4000, raw)
    assert facts(table).command == shown


@pytest.mark.parametrize("wiped", [b"", b"\0\0\0"])
def test_without_a_command_line_it_is_the_name_in_brackets(table: ProcessTable, tmp_path: Path, wiped: bytes) -> None:
    add_process(tmp_path, 4000, wiped, comm=b"py\x1bthon")
    assert facts(table).command == "[py\ufffdthon]"


def test_a_name_with_brackets_does_not_shift_the_fields(table: ProcessTable, tmp_path: Path) -> None:
    add_process(tmp_path, 4000, comm=b"a) S 1 (b", pages=3)
    assert facts(table).host_memory_bytes == 3 * PAGE


def test_a_uid_without_a_name_is_its_number(
    table: ProcessTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    add_process(tmp_path, 4000)
    assert facts(table).user == str(os.getuid())


def test_processes_that_left_the_gpus_are_forgotten(table: ProcessTable, tmp_path: Path) -> None:
    for pid in (4000, 4001):
        add_process(tmp_path, pid)
        facts(table, pid=pid)
    table.keep([4001])
    assert list(table._known) == [4001]
