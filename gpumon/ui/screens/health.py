"""What is wrong with the machine, since when, by which figures, and what to do."""

from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer

from gpumon.ui.paint.columns import headings, place, row_line
from gpumon.ui.paint.line import Role, Span, line, plain
from gpumon.ui.scene import Scene
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.health import (
    ALERT_COLUMNS,
    AlertRow,
    alert_rows,
    coverage_lines,
    headline,
    pane_lines,
    row_key,
)
from gpumon.ui.widgets.line_table import MARGIN, LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines

_PANE_SHARE: Final = 0.35
_LEAST_PANE: Final = 4
_MOST_PANE: Final = 9
_COVERAGE_SHARE: Final = 0.14
_COVERAGE_SHARE_ALONE: Final = 0.6
"""When there is nothing else to show."""


class HealthScreen(DrawnScreen[None]):
    """Alerts that stand, and under them those that are over."""

    AUTO_FOCUS: ClassVar[str] = "#alerts"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h,a", "app.pop_screen", "Back", id="health.back", tooltip="Back to where you were"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[AlertRow] = []

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="headline")
        yield TextLines(id="alert-headings")
        yield LineTable(id="alerts")
        yield TextLines(id="pane")
        yield TextLines(id="coverage")
        yield Footer()

    def show(self, scene: Scene) -> None:
        """Draws the alerts of a scene."""
        width, height = self.size
        columns = place(ALERT_COLUMNS, width - MARGIN - 1)
        self._rows = alert_rows(scene)
        with self.app.batch_update():
            self._lines("title").show([title_line("Health", "", scene, width)])
            self._lines("headline").show([headline(scene.alerts)])
            heading = " " * MARGIN + plain(headings(columns))
            self._lines("alert-headings").show([line(Span(heading.ljust(width), Role.HEADING))])
            rows = [TableRow(row_key(row), row_line(columns, row)) for row in self._rows]
            self.query_one("#alerts", LineTable).show(rows)
            share = _COVERAGE_SHARE if rows else _COVERAGE_SHARE_ALONE
            self._lines("coverage").show(coverage_lines(scene, width, max(1, int(height * share))))
            self.show_pane()

    @on(LineTable.CursorMoved)
    def show_pane(self) -> None:
        """Shows all that is said about the alert under the cursor."""
        cursor = self.query_one("#alerts", LineTable).cursor
        height = max(_LEAST_PANE, min(_MOST_PANE, int(self.size.height * _PANE_SHARE)))
        shown = self._rows[cursor : cursor + 1]
        self._lines("pane").show([each for row in shown for each in pane_lines(row, self.size.width, height)])

    @on(LineTable.RowChosen)
    def open_device(self, chosen: LineTable.RowChosen) -> None:
        """Shows the GPU of the chosen alert over time."""
        row = next((each for each in self._rows if row_key(each) == chosen.key), None)
        if row is not None and row.alert.device_key is not None:
            self.app.push_screen(DeviceScreen(row.alert.device_key))

    def _lines(self, name: str) -> TextLines:
        return self.query_one(f"#{name}", TextLines)
