"""CPU time, memory, terminal output and driver calls of gpumon itself."""

from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult

from gpumon.present.cost import CALL_COLUMNS, CallRow, call_note, call_rows, cost_entries, missing_calls_entry
from gpumon.session.app_session import Demand
from gpumon.session.view_state import ViewState
from gpumon.ui.screens.entries import EntriesScreen
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.table_view import TableView

_OTHER_LINES: Final = 5
"""Tabs, title, the two lines of the note and the footer."""
_MIN_CALLS: Final = 5
_MIN_ENTRIES: Final = 2


class CostScreen(EntriesScreen[None]):
    """The costs up to now; rates are those of the last seconds."""

    PAGE: ClassVar[str] = "docs/costs.md"

    @property
    def demand(self) -> Demand:
        """Costs are measured, and driver calls are counted, only while a screen shows them."""
        return Demand(costs=True)

    def __init__(self) -> None:
        super().__init__()
        self._calls = TableView[CallRow](LineTable(id="calls", choosable=False), lambda row: row.total.call)

    def compose_below(self) -> ComposeResult:
        """The table of the driver calls, which are counted since the screen was opened."""
        yield self._calls

    def show(self, state: ViewState) -> None:
        if not state.costs:
            return
        counted = [sample.calls for sample in state.costs if sample.calls.calls]
        calls = call_rows(counted[-1], counted[0]) if counted else []
        entries = [*cost_entries(state.costs[-1], state.costs[0], state.frame)]
        if not counted:
            entries.append(missing_calls_entry(has_collector=bool(state.costs[-1].collectors)))
        self.show_title("Costs of gpumon")
        self._calls.display = bool(counted)
        room = self.size.height - _OTHER_LINES
        call_lines = min(len(calls), _MIN_CALLS) + self._calls.frame_height if counted else 0
        self.query_one("#details", LineTable).styles.height = max(_MIN_ENTRIES, min(len(entries), room - call_lines))
        self._calls.show(CALL_COLUMNS, calls)
        self.show_entries(entries)

    @property
    def note(self) -> str:
        """The note of the row under the cursor of the focused table."""
        row = self._calls.selected
        return call_note(row) if row is not None and self._calls.table.has_focus else super().note

    @on(events.DescendantFocus)
    def follow_focus(self) -> None:
        """Show the note of the table that has the focus now."""
        self.show_note()
