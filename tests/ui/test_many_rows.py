"""Thousands of processes on the screen: rows that are not visible are not drawn."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpumon.core.model import Frame
from gpumon.present.paint.line import Line
from gpumon.present.paint.table import PlacedColumn
from gpumon.present.process_table import process_line
from gpumon.ui.screens import overview
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
