"""Which rows of a table are shown, in which order, and in which columns."""

import time
from typing import NamedTuple

import pytest

from gpumon.present.paint.line import Role, Span, plain
from gpumon.present.paint.table import Align, Column, Quantity, fit_columns, headings
from gpumon.present.process_table import PROCESS_COLUMNS, process_rows
from gpumon.present.table_filter import MAX_PATTERN
from gpumon.present.table_state import (
    Arrangement,
    arranged,
    sort_letters,
    sort_line,
    sort_marks,
    sorted_by,
    visible_columns,
)
from gpumon.session.table_memory import TableState
from tests import builders


class Job(NamedTuple):
    """A row of the table under test."""

    name: str
    gpu: int | None = 0
    memory: float | None = None
    age: float | None = None


COLUMNS: tuple[Column[Job], ...] = (
    Column("GPU", 3, lambda row, _: Span(str(row.gpu)), id="gpu", sort_key=lambda row: row.gpu),
    Column("Name", 8, lambda row, _: Span(row.name), align=Align.LEFT, id="name", sort_key=lambda row: row.name),
    Column(
        "Memory",
        6,
        lambda row, _: Span(str(row.memory)),
        id="memory",
        sort_key=lambda row: row.memory,
        descending_first=True,
        quantity=Quantity.BYTES,
        aliases=("ram",),
    ),
    Column("Age", 4, lambda row, _: Span("old"), id="age", sort_key=lambda row: row.age, quantity=Quantity.SECONDS),
    Column("Note", 4, lambda row, _: Span(f"note {row.name}"), id="note", is_optional=True),
)
GIB = 1 << 30
JOBS = [
    Job("train --lr 1", 3, 20.0 * GIB, 90_000),
    Job("Serve", 0, None, 30),
    Job("eval", 13, 5.0 * GIB, 7200),
    Job("训练", None, 5.0 * GIB, None),
]


def shown(text: str = "", sort: str = "", *, descending: bool = False) -> list[str]:
    rows = arranged(JOBS, COLUMNS, TableState(sort, descending, (), text)).rows
    return [row.name.split()[0] for row in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["train", "Serve", "eval", "训练"]), ("   ", ["train", "Serve", "eval", "训练"]), ("SERVE", ["Serve"]),
        ("note va", ["eval"]), ("tr lr", ["train"]), ("训", ["训练"]), ("nothing", []), ("gpu:3", ["train"]),
        ("gpu:0-3", ["train", "Serve"]), ("gpu:0,13", ["Serve", "eval"]), ("gpu:3 serve", []), ("name:AL", ["eval"]),
        ("n:al", ["eval"]), ("mem>10G", ["train"]), ("mem>=5g", ["train", "eval", "训练"]),
        ("ram<=5120M", ["eval", "训练"]), ("memory>0", ["train", "eval", "训练"]), ("mem<5G", []),
        ("age>2h", ["train"]), ("age>=2h", ["train", "eval"]), ("age>1d", ["train"]), ("age<1m", ["Serve"]),
        ("name~^(tr|se).*e", ["Serve"]), ("name~", ["train", "Serve", "eval", "训练"]), ("--lr=3", []), ("'", []),
    ],
)  # fmt: skip
def test_rows_that_match_a_filter(text: str, expected: list[str]) -> None:
    assert shown(text) == expected
    assert arranged(JOBS, COLUMNS, TableState(filter_text=text)).problem == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("color:red", "No column color. Columns: gpu, name, memory, age, note."),
        ("mem>10", "mem>10: expected 10K, 10M, 10G or 10T."),
        ("mem>", "mem>: expected 10K, 10M, 10G or 10T."),
        ("mem>-1G", "mem>-1G: expected 10K, 10M, 10G or 10T."),
        ("age<5G", "age<5G: expected 10s, 10m, 10h or 10d."),
        ("gpu>x", "gpu>x: expected a number."),
        ("note>3", "note>3: note cannot be compared."),
        ("serve name~(", "Not a regular expression: missing ), unterminated subpattern at position 0."),
        (f"name~{'x' * (MAX_PATTERN + 1)}", "A regular expression may have 100 characters."),
        ("name~(a+)+$", "A group in a regular expression may not be repeated."),
        ("name~(a|a)*b", "A group in a regular expression may not be repeated."),
        ("name~a*a*a*b", "A regular expression may have 2 repetitions."),
        ("name~a{1,9}a+a{2}b", "A regular expression may have 2 repetitions."),
        ("name~x{999999999999}", "Not a regular expression: the repetition number is too large."),
        ("name~\x1b[", "Not a regular expression: unterminated character set at position 1."),
    ],
)
def test_a_filter_that_is_not_valid_says_why_and_filters_nothing(text: str, problem: str) -> None:
    assert arranged(JOBS, COLUMNS, TableState(filter_text=text)).problem == problem
    assert len(shown(text)) == len(JOBS)


def test_a_regular_expression_that_takes_too_long_is_given_up() -> None:
    rows = [Job("a" * 5000)] * 3000
    started = time.perf_counter()
    result = arranged(rows, COLUMNS, TableState(filter_text="name~a*a*b"))
    assert time.perf_counter() - started < 2
    assert result == Arrangement(rows, "The regular expression takes too long.")


def test_rows_are_sorted_with_missing_values_last_in_both_directions() -> None:
    assert shown(sort="memory") == ["eval", "训练", "train", "Serve"]
    assert shown(sort="memory", descending=True) == ["train", "eval", "训练", "Serve"], "equal ones keep their order"
    assert shown(sort="gpu", descending=True) == ["eval", "train", "Serve", "训练"]
    assert shown(sort="name") == ["Serve", "eval", "train", "训练"]
    assert shown(sort="note") == shown(sort="no such column") == shown()
    assert shown("mem>0", sort="name", descending=True) == ["训练", "train", "eval"]


def test_the_picker_has_a_letter_for_each_column_and_one_line_of_any_width() -> None:
    columns = [column for column in COLUMNS if column.sort_key is not None]
    letters = sort_letters([*columns, *columns])
    assert len(letters) == 2 * len(columns)
    assert not {"s", "q"} & set(letters), "the natural order, and close"
    assert letters["m"].id == "memory"
    for width in (120, 60, 20):
        assert len(plain(sort_line(letters, TableState("memory", True), width))) <= width
    assert "▼" in plain(sort_line(letters, TableState("memory", True), 200))


def test_a_click_on_a_heading_sorts_and_the_second_one_reverses() -> None:
    once = sorted_by(TableState(filter_text="x"), COLUMNS, "memory")
    assert once == TableState("memory", True, (), "x")
    assert sorted_by(once, COLUMNS, "memory") == TableState("memory", False, (), "x")
    assert sorted_by(once, COLUMNS, "name") == TableState("name", False, (), "x")
    assert sorted_by(once, COLUMNS, "note") == once
    assert sorted_by(once, COLUMNS, "gone") == once


def test_chosen_columns_keep_the_order_of_the_table_and_unknown_ones_are_ignored() -> None:
    def ids(*chosen: str) -> list[str]:
        return [column.id for column in visible_columns(COLUMNS, TableState(columns=chosen))]

    assert ids() == ["gpu", "name", "memory", "age"]
    assert ids("note", "gpu", "gone") == ["gpu", "note"]
    assert ids("gone") == ids()


@pytest.mark.parametrize(
    ("sort", "descending", "expected"),
    [
        ("gpu", False, "GPU▲Name     Memory  Age "),
        ("name", True, "GPU Name▼    Memory  Age "),
        ("memory", True, "GPU Name     Memory▼ Age "),
        ("", False, "GPU Name     Memory  Age "),
    ],
)
def test_the_sorted_column_is_marked(sort: str, descending: bool, expected: str) -> None:
    placed = fit_columns(visible_columns(COLUMNS, TableState()), 24)
    marked = headings(placed, sort_marks(TableState(sort, descending)))
    assert marked == (Span(expected, Role.HEADING),)


# The tables of gpumon


def test_processes_are_filtered_by_what_their_cells_show_and_by_the_complete_command() -> None:
    busy = builders.process(7, user="ann", memory_bytes=20 * GIB, age_seconds=3 * 86_400, cpu_percent=3.0)
    other = builders.process(70, user="bo", memory_bytes=GIB, command="/opt/venv/bin/python serve.py")
    devices = (builders.device(0, processes=(busy,)), builders.device(2, processes=(other,)))
    rows = process_rows(builders.frame(devices=devices))

    def pids(text: str) -> list[int | None]:
        matching = arranged(rows, PROCESS_COLUMNS, TableState(filter_text=text)).rows
        return [None if row.process is None else row.process.pid for row in matching]

    assert pids("user:ann gpu:0-1 mem>10G cpu<5 age>2d cmd~train") == [7]
    assert pids("pid:7") == [7]
    assert pids("/opt/venv") == [70]
    assert pids("gpu:2 mem<=1G") == [70]
    sort = TableState("memory", is_descending=True)
    assert [row.process.pid for row in arranged(rows, PROCESS_COLUMNS, sort).rows if row.process] == [7, 70]
