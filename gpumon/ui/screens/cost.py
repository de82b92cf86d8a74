"""CPU time, memory, terminal output and driver calls of gpumon itself."""

from collections.abc import Iterator
from typing import ClassVar

from textual.binding import Binding, BindingType

from gpumon.present.cost import call_heading, call_line, call_note, call_rows, cost_entries, missing_calls_entry
from gpumon.present.header import title_line
from gpumon.present.paint.table import TableRow
from gpumon.session.app_session import Demand
from gpumon.session.view_state import ViewState
from gpumon.ui.screens.entries import EntriesScreen, NotedRow
from gpumon.ui.widgets.text_lines import TextLines


class CostScreen(EntriesScreen[None]):
    """The costs up to now; rates are those of the last seconds."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h,c", "app.pop_screen", "Back", id="cost.back", tooltip="Back to the overview"),
    ]

    @property
    def demand(self) -> Demand:
        """Costs are measured, and driver calls are counted, only while a screen shows them."""
        return Demand(costs=True)

    def show(self, state: ViewState) -> None:
        """Draw the costs of a state."""
        if not state.costs:
            return
        title = title_line("Costs of gpumon", "", state, self.size.width)
        with self.app.batch_update():
            self.query_one("#title", TextLines).show([title])
            entries = cost_entries(state.costs[-1], state.costs[0], state.frame)
            self.show_rows([*self.rows_of(entries), *self._calls(state)])

    def _calls(self, state: ViewState) -> Iterator[NotedRow]:
        """The table of the driver calls, which are counted since the screen was opened."""
        counted = [sample.calls for sample in state.costs if sample.calls.calls]
        if not counted:
            yield from self.rows_of([missing_calls_entry(has_collector=bool(state.costs[-1].collectors))])
            return
        width = self.size.width
        yield TableRow("", call_heading(width)), ""
        for row in call_rows(counted[-1], counted[0]):
            yield TableRow(row.total.call, call_line(row, width)), call_note(row)
