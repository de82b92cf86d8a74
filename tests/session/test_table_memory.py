"""What gpumon remembers of its tables, and what the file may contain."""

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.problems import Problem
from gpumon.session.background import ResultT
from gpumon.session.table_memory import (
    MAX_BYTES,
    KeptTable,
    TableMemory,
    TableState,
    load_tables,
    save_tables,
    tables_file,
)

BY_MEMORY = TableState("memory", is_descending=True, columns=("gpu", "memory"))


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder that does not exist yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def at_once(work: Callable[[], ResultT], then: Callable[[ResultT], None]) -> None:
    then(work())


def memory(**configured: list[str]) -> TableMemory:
    """A memory that has read the file."""
    result = TableMemory(at_once, configured)
    result.restore("", lambda _: None)
    return result


def fail(problem: Problem) -> None:
    raise AssertionError(problem)


def write(content: Any) -> None:  # noqa: ANN401
    tables_file().parent.mkdir(parents=True, exist_ok=True)
    tables_file().write_text(content if isinstance(content, str) else json.dumps(content))


def test_what_was_chosen_is_there_the_next_time_without_the_filter() -> None:
    memory().keep("processes", BY_MEMORY._replace(filter_text="ann"), fail)
    memory().keep("devices", TableState("util"), fail)
    assert memory().state("processes") == BY_MEMORY
    assert memory().state("devices") == TableState("util")
    assert memory().state("alerts") == TableState()
    assert tables_file().stat().st_mode & 0o777 == 0o600
    assert list(tables_file().parent.iterdir()) == [tables_file()]


def test_a_filter_alone_writes_no_file(state_home: Path) -> None:
    memory().keep("processes", TableState(filter_text="ann"), fail)
    assert not state_home.exists()


def test_the_configuration_names_the_first_columns_and_a_choice_holds_until_it_changes() -> None:
    assert memory(processes=["gpu", "pid"]).state("processes") == TableState(columns=("gpu", "pid"))
    memory(processes=["gpu", "pid"]).keep("processes", BY_MEMORY, fail)
    assert memory(processes=["gpu", "pid"]).state("processes") == BY_MEMORY
    changed = memory(processes=["gpu", "user"])
    assert changed.state("processes") == BY_MEMORY._replace(columns=("gpu", "user")), "the order of rows stays"
    assert memory().state("processes") == BY_MEMORY._replace(columns=())


def test_the_default_columns_can_be_chosen_against_the_configuration() -> None:
    memory(processes=["gpu"]).keep("processes", TableState(), fail)
    assert memory(processes=["gpu"]).state("processes") == TableState()


def test_the_file_is_read_once_and_changes_during_a_write_are_saved_after_it() -> None:
    tasks: list[Callable[[], None]] = []

    def later(work: Callable[[], ResultT], then: Callable[[ResultT], None]) -> None:
        tasks.append(lambda: then(work()))

    write({"schema": 1, "tables": {"devices": {"sort": "util"}}})
    tables = TableMemory(later, {})
    calls: list[TableState] = []
    tables.restore("devices", calls.append)
    tables.restore("jobs", calls.append)
    assert (len(tasks), calls) == (1, [])
    tables.keep("processes", TableState("pid"), fail)
    tasks.pop(0)()
    assert calls == [TableState("util"), TableState()]
    assert tables.state("processes") == TableState("pid"), "the choice is newer than the file"
    assert tables.state("devices") == TableState("util")
    for column in ("user", "age", "cpu"):
        tables.keep("processes", TableState(column), fail)
    assert len(tasks) == 1
    tasks.pop(0)()
    tasks.pop(0)()
    assert tasks == []
    assert load_tables() == {"devices": KeptTable(TableState("util")), "processes": KeptTable(TableState("cpu"))}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "nonsense",
        "[" * 100_000,
        '{"schema": 1, "tables": ' + " " * MAX_BYTES + "{}}",
        [],
        {"schema": 2, "tables": {"processes": {"sort": "pid"}}},
        {"schema": 1, "tables": []},
        {"schema": 1, "tables": {"processes": ["sort"], "../../x": {"sort": "pid"}, "x" * 50: {}}},
    ],
)
def test_a_file_that_is_not_valid_is_as_good_as_none(content: object) -> None:
    write(content)
    assert load_tables() == {}
    memory().keep("processes", BY_MEMORY, fail)
    assert memory().state("processes") == BY_MEMORY


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_neither_read_nor_replaced() -> None:
    write({"schema": 1, "tables": {"processes": {"sort": "pid"}}})
    os.chown(tables_file(), 12345, 12345)
    assert load_tables() == {}
    problem = save_tables({"processes": KeptTable(BY_MEMORY)})
    assert problem is not None
    assert "belongs to another user" in problem.reason
    assert tables_file().stat().st_uid == 12345


def save_numbered(name: str, start: Any) -> None:  # noqa: ANN401 - a barrier of multiprocessing
    for number in range(20):
        start.wait()
        assert save_tables({f"{name}{number}": KeptTable(TableState("pid"), ())}) is None


def test_two_programs_that_save_at_once_keep_the_tables_of_both() -> None:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(2)
    processes = [context.Process(target=save_numbered, args=(name, start)) for name in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert sorted(load_tables()) == sorted(f"{name}{number}" for name in "ab" for number in range(20))
