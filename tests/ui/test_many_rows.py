"""Thousands of processes on the screen: rows that are not visible are not drawn."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.model import Frame
from gpumon.present.paint.line import Line
from gpumon.present.paint.table import Column, PlacedColumn
from gpumon.present.process_list import LISTED_COLUMNS, listed_line, listed_processes
from gpumon.present.process_table import process_line
from gpumon.ui.screens import overview, processes
from gpumon.ui.widgets.line_table import LineTable
from tests import builders
from tests.ui.fakes import FakeLive, app_on, screen_text


def crowded(second: int) -> Frame:
    """Three thousand processes on eight GPUs."""
    devices = tuple(
        builders.device(index, processes=tuple(builders.process(1000 + 375 * index + number) for number in range(375)))
        for index in range(8)
    )
    return builders.frame(devices=devices, monotonic_seconds=100.0 + second)


async def test_of_thousands_of_processes_those_in_sight_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[object] = []

    def counted(columns: Sequence[PlacedColumn[Any]], row: Any) -> Line:  # noqa: ANN401
        drawn.append(row)
        return process_line(columns, row)

    monkeypatch.setattr(overview, "process_line", counted)
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(160, 50)) as pilot:
        stream.put(crowded(0))
        await pilot.press("g")
        await pilot.pause()
        drawn.clear()
        stream.put(crowded(3))  # processes are drawn every two seconds
        await pilot.pause()
        assert 8 < len(drawn) <= 2 * 50
        table = app.screen.query_one("#processes", LineTable)
        assert len(table.rows) == 3000
        table.focus()
        await pilot.press("end")
        await pilot.pause()
        assert table.rows[table.cursor].key.endswith("/3999")
        assert " 3999 " in screen_text(app)
        assert len(drawn) <= 4 * 50


class Work:
    """Counts how often rows are made, and the values of their columns read, by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        monkeypatch.setattr(processes, "LISTED_COLUMNS", [self._watched(column) for column in LISTED_COLUMNS])
        monkeypatch.setattr(processes, "listed_processes", self._counted("rows", listed_processes))
        monkeypatch.setattr(processes, "listed_line", self._counted("lines", listed_line))

    def _watched(self, column: Column[Any]) -> Column[Any]:
        sort_key = column.sort_key and self._counted(f"{column.id} value", column.sort_key)
        return replace(column, sort_key=sort_key, text=self._counted(f"{column.id} text", column.text_of))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:  # noqa: ANN401
            self.calls[name] += 1
            return function(*arguments)

        return call

    def done(self, keys: int = 1) -> dict[str, int]:
        """The counts since the last call, after which that many keys were pressed; those of lines are left out."""
        counts = {name: count for name, count in self.calls.items() if name != "lines"}
        assert self.calls["lines"] <= 4 * 50 * keys, "those in sight"
        self.calls.clear()
        return counts
