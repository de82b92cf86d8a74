"""A table on a screen: its headings, its filter, its columns, and what it sends to the terminal."""

from typing import Any, NamedTuple

import pytest
from textual.app import ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot

from gpumon.present.paint.line import Span
from gpumon.present.paint.table import Align, Column, Quantity
from gpumon.session.table_memory import TableState
from gpumon.ui.base_app import BaseApp
from gpumon.ui.screens.choice import ColumnChoiceScreen
from gpumon.ui.widgets.filter_bar import FilterBar
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.table_view import HeadingLine, TableView
from tests.ui.fakes import Refreshes, screen_lines


class Job(NamedTuple):
    """A row of the table under test."""

    name: str
    memory: float = 0.0
    user: str = "ann"


COLUMNS: tuple[Column[Job], ...] = (
    Column("Name", 8, lambda row, _: Span(row.name), align=Align.LEFT, id="name", sort_key=lambda row: row.name),
    Column(
        "Mem",
        5,
        lambda row, _: Span(f"{row.memory:.0f}"),
        id="memory",
        sort_key=lambda row: row.memory,
        descending_first=True,
        quantity=Quantity.BYTES,
    ),
    Column("User", 6, lambda row, _: Span(row.user), align=Align.LEFT, stretches=True, id="user"),
)
JOBS = [Job("train", 3), Job("eval", 20), Job("serve", 1, "bo"), Job("idle", 7)]


class JobsApp(BaseApp):
    """One table."""

    def __init__(self) -> None:
        super().__init__("dark")
        self.view = TableView[Job](LineTable(id="jobs"), lambda row: row.name)
        self.changes: list[tuple[str, TableState]] = []
        self.chosen: list[str] = []
        self.moves: list[str] = []

    def compose(self) -> ComposeResult:
        yield self.view

    def on_table_view_state_changed(self, changed: TableView.StateChanged) -> None:
        self.changes.append((changed.table_id, changed.state))

    def on_line_table_row_chosen(self, chosen: LineTable.RowChosen) -> None:
        self.chosen.append(chosen.key)

    def on_line_table_cursor_moved(self) -> None:
        self.moves.append(self.view.selected.name if self.view.selected else "")

    @property
    def names(self) -> list[str]:
        return [row.key for row in self.view.table.rows]


async def show(pilot: Pilot[Any], rows: list[Job] = JOBS) -> None:
    app = app_of(pilot)
    app.view.table.focus()
    app.view.show(COLUMNS, rows)
    await pilot.pause()


def app_of(pilot: Pilot[Any]) -> JobsApp:
    assert isinstance(pilot.app, JobsApp)
    return pilot.app


async def test_s_picks_the_column_to_sort_by_and_the_same_letter_reverses() -> None:
    async with JobsApp().run_test(size=(40, 10)) as pilot:
        app = app_of(pilot)
        await show(pilot)
        assert screen_lines(app)[0].rstrip() == " Name       Mem User"
        await pilot.press("s")
        assert "n Name  m Mem  s none" in screen_lines(app)[-1]
        assert screen_lines(app)[1].startswith("▸train") or " train" in screen_lines(app)[1], "the table stays visible"
        await pilot.press("n")
        assert app.names == ["eval", "idle", "serve", "train"]
        await pilot.pause()
        assert screen_lines(app)[0].rstrip() == " Name▲      Mem User"
        await pilot.press("M")
        assert app.names == ["eval", "idle", "train", "serve"]
        await pilot.pause()
        assert screen_lines(app)[0].rstrip() == " Name       Mem▼User"
        await pilot.press("s", "m")
        assert app.names == ["serve", "train", "idle", "eval"]
        await pilot.press("s", "s")
        assert app.names == [job.name for job in JOBS]
        await pilot.press("s", "q", "P")
        assert [state.sort_column for _, state in app.changes] == ["name", "memory", "memory", ""]
        assert {table for table, _ in app.changes} == {"jobs"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("x", "names"), [(1, "eval"), (4, "eval"), (12, "eval"), (14, "eval"), (16, "train")])
async def test_a_click_on_a_heading_sorts_and_another_reverses(x: int, names: str) -> None:
    async with JobsApp().run_test(size=(40, 10)) as pilot:
        app = app_of(pilot)
        await show(pilot)
        await pilot.click(HeadingLine, offset=(x, 0))
        await pilot.pause()
        assert app.names[0] == names
        first = app.names
        await pilot.click(HeadingLine, offset=(x, 0))
        await pilot.pause()
        assert app.names == (first if names == "train" else first[::-1])


async def test_a_filter_is_applied_while_it_is_typed_and_kept_with_enter() -> None:
    async with JobsApp().run_test(size=(60, 10)) as pilot:
        app = app_of(pilot)
        await show(pilot)
        assert not app.query_one(FilterBar).display
        await pilot.press("slash", "e", "v", "a")
        assert app.names == ["eval"]
        await pilot.pause()
        assert "1 of 4" in screen_lines(app)[1]
        assert screen_lines(app)[2].startswith(" eval")
        await pilot.press("enter")
        assert app.focused is app.view.table
        assert app.names == ["eval"], "enter keeps the filter"
        assert app.view.selected == JOBS[1]
        await pilot.press("enter")
        assert app.chosen == ["eval"]
        app.view.show(COLUMNS, [*JOBS, Job("evaluate")])
        assert app.names == ["eval", "evaluate"], "the next frame is filtered, too"
        await pilot.press("slash", "escape")
        assert app.focused is app.view.table
        assert len(app.names) == 5
        await pilot.pause()
        assert not app.query_one(FilterBar).display


async def test_a_filter_that_is_not_valid_says_why_next_to_it() -> None:
    async with JobsApp().run_test(size=(60, 10)) as pilot:
        app = app_of(pilot)
        await show(pilot)
        await pilot.press("slash", *"color:red")
        await pilot.pause()
        assert len(app.names) == 4
        assert screen_lines(app)[1].rstrip() == " /color:red               ! No column color. Columns: name,…"
        assert app.view.frame_height == 2
        await pilot.press("escape")
        await pilot.pause()
        assert screen_lines(app)[1].startswith("▸train")


async def test_the_row_under_the_cursor_is_the_one_that_is_shown() -> None:
    async with JobsApp().run_test(size=(60, 10)) as pilot:
        app = app_of(pilot)
        await show(pilot)
        await pilot.press("down", "down", "M")
        assert app.view.selected == JOBS[2], "the cursor goes with its row"
        assert app.view.table.cursor == 3
        await pilot.press("slash", *"name:idle")
        await pilot.pause()
        assert app.view.selected == JOBS[3]
        assert app.moves[-1] == "idle", "the screen learns that another row is under the cursor"
        assert app.view.row("idle") == JOBS[3]
        assert app.view.row("train") is None


async def test_the_top_of_a_long_sorted_table_stays_in_sight() -> None:
    async with JobsApp().run_test(size=(60, 10)) as pilot:
        app = app_of(pilot)
        await show(pilot, [Job(f"job{number:03}", number) for number in range(300)])
        await pilot.press("M")
        assert app.names[0] == "job299"
        assert app.view.table.cursor == 0
        app.view.show(COLUMNS, [Job(f"job{number:03}", (number * 7) % 300) for number in range(300)])
        await pilot.pause()
        assert app.view.table.cursor == 0
        assert app.view.table.scroll_offset.y == 0


async def test_columns_are_chosen_in_a_dialog() -> None:
    async with JobsApp().run_test(size=(60, 14)) as pilot:
        app = app_of(pilot)
        await show(pilot)
        await pilot.press("c")
        assert isinstance(app.screen, ColumnChoiceScreen)
        await pilot.pause()
        assert sum("[x]" in text for text in screen_lines(app)) == 3
        await pilot.press("down", "enter")
        await pilot.pause()
        assert sum("[x]" in text for text in screen_lines(app)) == 2
        await pilot.press("escape")
        await pilot.pause()
        assert app.view.state.columns == ("name", "user")
        assert screen_lines(app)[0].rstrip() == " Name     User"
        await pilot.press("c", "down", "enter", "s", "s", "escape")
        await pilot.pause()
        assert app.view.state == TableState("memory", is_descending=False), "the default is no choice"
        assert app.names == ["serve", "train", "idle", "eval"]
        await pilot.press("c", "enter", "down", "enter", "down", "enter", "escape")
        await pilot.pause()
        assert not app.view.state.columns, "a table without columns shows the default ones"


async def test_a_kept_state_is_restored_on_request() -> None:
    class RememberingApp(JobsApp):
        def on_table_view_state_requested(self, requested: TableView.StateRequested) -> None:
            requested.view.restore(TableState("memory", is_descending=True, columns=("memory",)))

    async with RememberingApp().run_test(size=(60, 10)) as pilot:
        app = app_of(pilot)
        await show(pilot)
        assert app.names == ["eval", "idle", "train", "serve"]
        assert screen_lines(app)[0].rstrip() == "   Mem▼"
        assert app.changes == []


async def test_headings_and_rows_that_stay_the_same_send_nothing() -> None:
    async with JobsApp().run_test(size=(60, 12)) as pilot:
        app = app_of(pilot)
        await show(pilot)
        await pilot.press("s", "n", "slash", "e", "enter")
        await pilot.pause()
        spies = [Refreshes(lines) for lines in app.query(LineTable)] + [
            Refreshes(lines) for lines in app.query("TextLines")
        ]
        app.view.show(COLUMNS, list(JOBS))
        assert [spy.regions for spy in spies] == [[]] * len(spies)
        app.view.show(COLUMNS, [*JOBS[:3], Job("idle", 7, "cy")])
        regions = [region for spy in spies for region in spy.regions]
        assert len(regions) == 1
        assert regions[0] != Region()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(60, 10), (80, 24), (300, 100)])
async def test_a_table_fits_every_size(size: tuple[int, int]) -> None:
    async with JobsApp().run_test(size=size) as pilot:
        app = app_of(pilot)
        await show(pilot, [Job(f"job{number:03}", number) for number in range(300)])
        await pilot.press("slash", *"job")
        await pilot.pause()
        lines = screen_lines(app)
        assert len(lines) == size[1]
        assert lines[0].startswith(" Name")
        assert "300 of 300" in lines[1]
        assert lines[2].startswith(" job000")
        assert all(text.startswith(" job") for text in lines[2:])
        await pilot.press("enter", "c")
        await pilot.pause()
        assert "[x] User" in "\n".join(screen_lines(app))
        assert max(map(len, (text.rstrip() for text in screen_lines(app)))) <= size[0]


async def test_a_table_that_is_wider_than_the_screen_scrolls_by_columns() -> None:
    app = JobsApp()
    async with app.run_test(size=(18, 8)) as pilot:
        app.view.show(COLUMNS, JOBS)
        await pilot.pause()
        assert "Name" in screen_lines(app)[0]
        assert "Mem" in screen_lines(app)[0]
        assert "User" not in screen_lines(app)[0]
        await pilot.press("greater_than_sign")
        await pilot.pause()
        assert screen_lines(app)[0].split() == ["Name", "User"]
        assert app.view.check_action("scroll_columns", (1,)) is False
        await pilot.press("less_than_sign")
        await pilot.pause()
        assert screen_lines(app)[0].split() == ["Name", "Mem"]
