"""The choice of the metrics of a GPU that are drawn over time."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from gpumon.core.metrics import METRICS
from gpumon.core.units import value_text
from gpumon.present.device import MAX_CHARTS
from gpumon.present.header import title_line
from gpumon.present.paint.line import Role, Span, clipped, line
from gpumon.present.paint.table import TableRow
from gpumon.session.view_state import ViewState
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.text_lines import TextLines

_LABEL_WIDTH = 32
_VALUE_WIDTH = 14


class _ChoosingTable(LineTable, inherit_bindings=True):
    """A table of check boxes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "choose", "Select", id="table.select", tooltip="Add this chart, or remove it"),
    ]


class MetricChoiceScreen(ViewScreen[tuple[str, ...]]):
    """Every metric with its current value and a check box. The result is the chosen metrics in the order of choosing.

    Args:
        key: The device whose values are shown.
        chosen: The metrics that are drawn now.
    """

    AUTO_FOCUS: ClassVar[str] = "#metrics"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h,m", "done", "Done", id="metrics.back", tooltip="Show the chosen charts"),
    ]

    def __init__(self, key: str, chosen: Sequence[str]) -> None:
        super().__init__()
        self._key = key
        self._chosen = list(chosen)

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield _ChoosingTable(id="metrics")
        yield Static(id="note", markup=False)
        yield Footer()

    def show(self, state: ViewState) -> None:
        """Draw the list; a metric without a value is dim, because its chart would be empty now."""
        device = next((device for device in state.frame.devices if device.key == self._key), None)
        title = f"Charts  {len(self._chosen)} of at most {MAX_CHARTS}"
        rows = []
        for metric in METRICS.values():
            value = None if device is None else device.get(metric.id)
            tick = "x" if metric.id in self._chosen else " "
            role = Role.DIM if value is None else Role.PLAIN
            text = f"[{tick}] {metric.label:<{_LABEL_WIDTH}} {value_text(value, metric.unit):>{_VALUE_WIDTH}}  "
            help_room = max(0, self.size.width - len(text) - 3)
            rows.append(TableRow(metric.id, line(Span(text, role), Span(clipped(metric.help, help_room), Role.DIM))))
        with self.app.batch_update():
            self.query_one("#title", TextLines).show([title_line(title, "", state, self.size.width)])
            self.query_one("#metrics", LineTable).show(rows)
            self.show_note()

    @on(LineTable.CursorMoved)
    def show_note(self) -> None:
        """Show the meaning of the metric under the cursor."""
        table = self.query_one("#metrics", LineTable)
        metric = METRICS[table.rows[table.cursor].key] if table.cursor < len(table.rows) else None
        note = "" if metric is None else f"{metric.help} ({metric.source})"
        static = self.query_one("#note", Static)
        if static.content != note:
            static.update(note, layout=False)

    @on(LineTable.RowChosen)
    def toggle(self, chosen: LineTable.RowChosen) -> None:
        """Add a metric, or remove it."""
        if chosen.key in self._chosen:
            self._chosen.remove(chosen.key)
        elif len(self._chosen) < MAX_CHARTS:
            self._chosen.append(chosen.key)
        else:
            self.notify(f"At most {MAX_CHARTS} charts are drawn: remove one first.", markup=False)
        self.post_message(ViewStateRequested())

    def action_done(self) -> None:
        self.dismiss(tuple(self._chosen))
