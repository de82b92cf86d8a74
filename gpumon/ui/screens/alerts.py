"""The alerts screen: what is wrong, since when, the evidence, and what to do."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult

from gpumon.health.alerts import JOB_HANGS, Severity
from gpumon.present.alerts import (
    ALERT_COLUMNS,
    AlertRow,
    alert_rows,
    coverage_lines,
    headline,
    oom_of,
    pane_lines,
    row_key,
)
from gpumon.present.top_line import title_line
from gpumon.session.view_state import OomNotice, ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import AcknowledgeRequested, ViewStateRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.table_view import TableView
from gpumon.ui.widgets.text_lines import TextLines

_MIN_HEIGHT_FOR_TITLE: Final = 14
"""Lower terminals have no title, and no rules that were skipped below alerts."""
_PANE_SHARE: Final = 0.35
_OTHER_LINES: Final = 3
"""Tabs, the line of counts and the footer."""
_MIN_ROWS: Final = 2
_MIN_PANE: Final = 4
_MAX_PANE: Final = 9
_COVERAGE_SHARE: Final = 0.14
_COVERAGE_SHARE_WITHOUT_ALERTS: Final = 0.6


class AlertsScreen(ViewScreen[None]):
    """The alerts that stand, followed by those that have ended."""

    PAGE: ClassVar[str] = "docs/alerts.md"
    TAB: ClassVar[str] = "Alerts"
    AUTO_FOCUS: ClassVar[str] = "#alerts"
    BINDINGS: ClassVar[Bindings] = [
        key("alerts.acknowledge", "Acknowledge", "Count it no more while it stands"),
        key("alerts.explain-selected", "Explain", "Why the process ran out of memory", "explain_oom"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._alerts = TableView[AlertRow](LineTable(id="alerts"), row_key)
        self._ooms: Sequence[OomNotice] = ()
        self._wanted: str | None = None
        """The device whose first alert is to be selected."""

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title", "headline")
        yield self._alerts
        yield TextLines(id="pane")
        yield TextLines(id="coverage")
        yield Footer()

    def show(self, scene: ViewState) -> None:
        width, height = self.size
        rows = alert_rows(scene)
        self._ooms = scene.probes.ooms
        is_low = height < _MIN_HEIGHT_FOR_TITLE
        self._lines("title").show([] if is_low else [title_line("Alerts", "", width)])
        self._lines("headline").show([headline(scene.alerts)])
        self._alerts.show(ALERT_COLUMNS, rows)
        if self._wanted is not None:
            keys = [row_key(row) for row in rows if row.alert.device_key == self._wanted]
            self._alerts.table.select(keys[0] if keys else "")
            self._wanted = None
        share = _COVERAGE_SHARE if rows else _COVERAGE_SHARE_WITHOUT_ALERTS
        coverage_height = min(max(1, int(height * share)), self._room - (self._pane_height if rows else 0))
        self._lines("coverage").show(coverage_lines(scene, width, max(0, coverage_height)))
        self.show_pane()

    def select(self, device_key: str | None) -> None:
        """Select the first alert of a device, as soon as the alerts are drawn."""
        self._wanted = device_key
        self.post_message(ViewStateRequested())

    @on(LineTable.CursorMoved)
    def show_pane(self) -> None:
        """Shows the details of the alert under the cursor."""
        selected = self._alerts.selected
        pane = [] if selected is None else pane_lines(selected, self.size.width, self._pane_height)
        self._lines("pane").show(pane)
        self.follow_conditions()

    @on(LineTable.RowChosen)
    async def open_subject(self, chosen: LineTable.RowChosen) -> None:
        """Open the GPU that the selected alert concerns, or the jobs if one hangs."""
        row = self._alerts.row(chosen.key)
        if row is None:
            return
        if row.alert.id == JOB_HANGS:
            await self.run_action("app.open_screen('jobs')")
        elif row.alert.device_key is not None:
            self.app.push_screen(DeviceScreen(row.alert.device_key))

    def conditions(self) -> Mapping[str, bool]:
        row = self._alerts.selected
        can_count = row is not None and row.ended_ago_seconds is None and row.alert.severity is not Severity.INFO
        return {"acknowledge": can_count, "explain_oom": self._oom is not None}

    def action_acknowledge(self) -> None:
        if self._alerts.selected is not None:
            self.post_message(AcknowledgeRequested(self._alerts.selected.alert))

    def action_explain_oom(self) -> None:
        from gpumon.ui.screens.oom import OomScreen  # it imports the error catalogue, which few sessions need

        if self._oom is not None:
            self.app.push_screen(OomScreen(self._oom))

    @property
    def _room(self) -> int:
        """Lines below the table, which has some rows at every height."""
        title = self.size.height >= _MIN_HEIGHT_FOR_TITLE
        return self.size.height - _OTHER_LINES - title - self._alerts.frame_height - _MIN_ROWS

    @property
    def _pane_height(self) -> int:
        height = min(_MAX_PANE, max(_MIN_PANE, int(self.size.height * _PANE_SHARE)))
        return max(0, min(height, self._room))

    @property
    def _oom(self) -> OomNotice | None:
        """The file about the out-of-memory error that the selected alert reports."""
        selected = self._alerts.selected
        return None if selected is None else oom_of(selected.alert, self._ooms)
