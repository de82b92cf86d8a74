"""The alerts screen: what is wrong, since when, the evidence, and what to do."""

from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpumon.present.alerts import (
    ALERT_COLUMNS,
    AlertRow,
    alert_rows,
    coverage_lines,
    headline,
    pane_lines,
    row_key,
)
from gpumon.present.header import title_line
from gpumon.present.paint.line import Role, Span, line, plain
from gpumon.present.paint.table import TableRow, fit_columns, headings, row_line
from gpumon.session.view_state import ViewState
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.text_lines import TextLines

_PANE_SHARE: Final = 0.35
_MIN_PANE: Final = 4
_MAX_PANE: Final = 9
_COVERAGE_SHARE: Final = 0.14
_COVERAGE_SHARE_WITHOUT_ALERTS: Final = 0.6


class AlertsScreen(ViewScreen[None]):
    """The alerts that stand, followed by those that have ended."""

    AUTO_FOCUS: ClassVar[str] = "#alerts"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h,a", "app.pop_screen", "Back", id="alerts.back", tooltip="Back to the previous screen"),
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

    def show(self, scene: ViewState) -> None:
        """Draws the alerts."""
        width, height = self.size
        columns = fit_columns(ALERT_COLUMNS, width - MARGIN - 1)
        self._rows = alert_rows(scene)
        with self.app.batch_update():
            self._lines("title").show([title_line("Alerts", "", scene, width)])
            self._lines("headline").show([headline(scene.alerts)])
            heading = " " * MARGIN + plain(headings(columns))
            self._lines("alert-headings").show([line(Span(heading.ljust(width), Role.HEADING))])
            rows = [TableRow(row_key(row), row_line(columns, row)) for row in self._rows]
            self.query_one("#alerts", LineTable).show(rows)
            share = _COVERAGE_SHARE if rows else _COVERAGE_SHARE_WITHOUT_ALERTS
            self._lines("coverage").show(coverage_lines(scene, width, max(1, int(height * share))))
            self.show_pane()

    @on(LineTable.CursorMoved)
    def show_pane(self) -> None:
        """Shows the details of the alert under the cursor."""
        cursor = self.query_one("#alerts", LineTable).cursor
        height = max(_MIN_PANE, min(_MAX_PANE, int(self.size.height * _PANE_SHARE)))
        selected = self._rows[cursor : cursor + 1]
        self._lines("pane").show([row for alert in selected for row in pane_lines(alert, self.size.width, height)])

    @on(LineTable.RowChosen)
    def open_device(self, chosen: LineTable.RowChosen) -> None:
        """Opens the screen of the GPU that the selected alert concerns."""
        row = next((row for row in self._rows if row_key(row) == chosen.key), None)
        if row is not None and row.alert.device_key is not None:
            self.app.push_screen(DeviceScreen(row.alert.device_key))

    def _lines(self, name: str) -> TextLines:
        return self.query_one(f"#{name}", TextLines)
