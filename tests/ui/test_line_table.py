"""The table that draws only what changed: every region it asks for is counted."""

from collections.abc import Sequence

import pytest
from textual.app import ComposeResult
from textual.geometry import Region

from gpumon.present.paint.line import Role, Span
from gpumon.present.paint.table import TableRow
from gpumon.ui.base_app import BaseApp
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.text_lines import TextLines
from tests.ui.fakes import Refreshes

WIDTH = 40


class TableApp(BaseApp):
    """A table and a line of text."""

    def __init__(self) -> None:
        super().__init__("dark")
        self.chosen: list[str] = []
        self.moves = 0

    def compose(self) -> ComposeResult:
        yield LineTable(id="table")
        yield TextLines(id="text")

    def on_line_table_row_chosen(self, chosen: LineTable.RowChosen) -> None:
        self.chosen.append(chosen.key)

    def on_line_table_cursor_moved(self) -> None:
        self.moves += 1

    @property
    def table(self) -> LineTable:
        return self.query_one(LineTable)


def rows(*keys: str) -> list[TableRow]:
    return [row(key) for key in keys]


def row(key: str, value: str = "12", history: str = "▁▂▃") -> TableRow:
    return TableRow(key, (Span(f"{key} "), Span(value, Role.ACCENT), Span(f" {history}")))


def many(count: int) -> list[TableRow]:
    return rows(*(f"row{number}" for number in range(count)))


def shown(table: LineTable) -> list[str]:
    return [table.render_line(y).text.rstrip() for y in range(table.size.height)]


async def test_a_row_that_changed_costs_its_own_region() -> None:
    app = TableApp()
    async with app.run_test(size=(WIDTH, 10)) as pilot:
        app.table.show(rows("a", "b", "c"))
        await pilot.pause()
        refreshes = Refreshes(app.table)
        app.table.show([row("a"), row("b", value="99"), row("c")])
        assert refreshes.regions == [Region(MARGIN + len("b "), 1, len("99"), 1)], "what changed, and no more"
        refreshes.regions.clear()
        app.table.show([row("a"), row("b", value="99"), row("c", history="▂▃▄")])
        assert refreshes.regions == [Region(MARGIN + len("c 12 "), 2, len("▂▃▄"), 1)]
        refreshes.regions.clear()
        app.table.show([row("a"), row("b", value="99"), TableRow("c", (Span("c"),))])
        end = max(region.right for region in refreshes.regions)
        assert end == MARGIN + len("c 12 ▂▃▄"), "what was longer is wiped out"


async def test_nothing_changed_costs_nothing() -> None:
    app = TableApp()
    async with app.run_test(size=(WIDTH, 10)) as pilot:
        app.table.show(many(30))
        await pilot.pause()
        refreshes = Refreshes(app.table)
        app.table.show(many(30))
        assert refreshes.regions == []


async def test_another_number_of_rows_draws_those_that_come_and_go() -> None:
    app = TableApp()
    async with app.run_test(size=(WIDTH, 10)) as pilot:
        app.table.show(rows("a", "b"))
        await pilot.pause()
        assert shown(app.table)[:3] == ["▸a 12 ▁▂▃", " b 12 ▁▂▃", ""]
        refreshes = Refreshes(app.table)
        app.table.show(rows("a"))
        height = app.table.size.height
        assert refreshes.regions == [Region(0, 1, WIDTH, height - 1)]
        assert shown(app.table)[:2] == ["▸a 12 ▁▂▃", ""]
        await pilot.pause()
        refreshes.regions.clear()
        app.table.show([*rows("a"), row("b", value="99"), *rows("c")])
        assert refreshes.regions == [Region(0, 1, WIDTH, height - 1)]
        assert shown(app.table)[:4] == ["▸a 12 ▁▂▃", " b 99 ▁▂▃", " c 12 ▁▂▃", ""]
        await pilot.pause()
        refreshes.regions.clear()
        app.table.show([*rows("a", "b", "c"), *many(256)])
        assert Region(0, 3, WIDTH, height - 3) in refreshes.regions
        assert Region(MARGIN + len("b "), 1, len("99"), 1) in refreshes.regions, "what changed above"
        assert shown(app.table)[3] == " row0 12 ▁▂▃"
        app.table.show([])
        assert shown(app.table)[:1] == [""]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (["a", "b", "c"], ["b", "a", "c"], "b"),
        (["a", "b", "c"], ["x", "y", "a", "b", "c"], "b"),
        (["a", "b", "c"], ["a", "c"], "c"),
        (["a", "b"], ["a"], "a"),
    ],
)
async def test_the_cursor_stays_with_its_row(before: Sequence[str], after: Sequence[str], expected: str) -> None:
    app = TableApp()
    async with app.run_test(size=(WIDTH, 10)) as pilot:
        app.table.show(rows(*before))
        await pilot.press("down")
        app.table.show(rows(*after))
        await pilot.pause()
        assert app.table.rows[app.table.cursor].key == expected
        assert shown(app.table)[app.table.cursor].startswith(f"▸{expected}")
        assert sum(text.startswith("▸") for text in shown(app.table)) == 1


async def test_the_cursor_is_followed_to_a_row_that_was_not_there_before() -> None:
    app = TableApp()
    async with app.run_test(size=(WIDTH, 10)) as pilot:
        app.table.show(rows("a", "b"))
        await pilot.press("down")
        app.table.show([*many(50), *rows("b")])
        await pilot.pause()
        assert app.table.cursor == 50
        assert any(text.startswith("▸b") for text in shown(app.table)), shown(app.table)


async def test_keys_move_through_256_rows() -> None:
    app = TableApp()
    async with app.run_test(size=(WIDTH, 10)) as pilot:
        app.table.show(many(256))
        await pilot.pause()
        page = app.table.size.height - 1
        for key, expected in [
            ("down", 1),
            ("j", 2),
            ("k", 1),
            ("up", 0),
            ("up", 0),
            ("pagedown", page),
            ("pageup", 0),
            ("end", 255),
            ("down", 255),
            ("home", 0),
        ]:
            await pilot.press(key)
            assert app.table.cursor == expected
            top = app.table.scroll_offset.y
            assert top <= expected < top + app.table.size.height
        await pilot.press("down", "enter")
        assert app.chosen == ["row1"]


async def test_a_click_moves_the_cursor_and_a_second_one_chooses() -> None:
    app = TableApp()
    async with app.run_test(size=(WIDTH, 10)) as pilot:
        app.table.show(rows("a", "b", "c"))
        await pilot.click(LineTable, offset=(5, 1))
        assert (app.table.cursor, app.chosen) == (1, [])
        await pilot.click(LineTable, offset=(5, 2), times=2)
        assert (app.table.cursor, app.chosen) == (2, ["c"])
        await pilot.click(LineTable, offset=(5, 7), times=2)
        assert (app.table.cursor, app.chosen) == (2, ["c"])


async def test_only_a_focused_table_shows_a_cursor() -> None:
    app = TableApp()
    async with app.run_test(size=(WIDTH, 10)) as pilot:
        app.table.show(rows("a"))
        await pilot.pause()
        assert shown(app.table)[0].startswith("▸")
        app.set_focus(None)
        await pilot.pause()
        assert shown(app.table)[0].startswith(" ")
