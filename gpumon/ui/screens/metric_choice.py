"""Choosing which metrics of a GPU are drawn over time."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from gpumon.core.metrics import METRICS
from gpumon.core.units import value_text
from gpumon.ui.messages import SceneWanted
from gpumon.ui.paint.line import Role, Span, clipped, line
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.device import MOST_CHARTS
from gpumon.ui.widgets.line_table import LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines

_LABEL_WIDTH = 32
_VALUE_WIDTH = 14


class _ChoosingTable(LineTable, inherit_bindings=True):
    """A table whose rows are ticked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "choose", "Tick", id="table.tick", tooltip="Draw this metric, or no longer"),
    ]


class MetricChoiceScreen(DrawnScreen[tuple[str, ...]]):
    """Every metric with its present value and a tick. Leaving it gives the chosen ones, in the order of choosing.

    Args:
        key: The device whose values are shown.
        chosen: What is drawn now.
    """

    AUTO_FOCUS: ClassVar[str] = "#metrics"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h,m", "leave", "Done", id="metrics.back", tooltip="Draw what is ticked"),
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

    def show(self, scene: Scene) -> None:
        """Draws the list; one without a value is dim, since its chart would be empty now."""
        device = next((each for each in scene.frame.devices if each.key == self._key), None)
        what = f"Charts  {len(self._chosen)} of at most {MOST_CHARTS}"
        rows = []
        for metric in METRICS.values():
            value = None if device is None else device.get(metric.id)
            tick = "x" if metric.id in self._chosen else " "
            role = Role.DIM if value is None else Role.PLAIN
            text = f"[{tick}] {metric.label:<{_LABEL_WIDTH}} {value_text(value, metric.unit):>{_VALUE_WIDTH}}  "
            help_room = max(0, self.size.width - len(text) - 3)
            rows.append(TableRow(metric.id, line(Span(text, role), Span(clipped(metric.help, help_room), Role.DIM))))
        with self.app.batch_update():
            self.query_one("#title", TextLines).show([title_line(what, "", scene, self.size.width)])
            self.query_one("#metrics", LineTable).show(rows)
            self.show_note()

    @on(LineTable.CursorMoved)
    def show_note(self) -> None:
        """Says what the metric under the cursor means."""
        table = self.query_one("#metrics", LineTable)
        metric = METRICS[table.rows[table.cursor].key] if table.cursor < len(table.rows) else None
        note = "" if metric is None else f"{metric.help} ({metric.source})"
        static = self.query_one("#note", Static)
        if static.content != note:
            static.update(note, layout=False)

    @on(LineTable.RowChosen)
    def turn(self, chosen: LineTable.RowChosen) -> None:
        """Ticks a metric or takes its tick away."""
        if chosen.key in self._chosen:
            self._chosen.remove(chosen.key)
        elif len(self._chosen) < MOST_CHARTS:
            self._chosen.append(chosen.key)
        else:
            self.notify(f"No more than {MOST_CHARTS} charts are drawn: take a tick away first.", markup=False)
        self.post_message(SceneWanted())

    def action_leave(self) -> None:
        self.dismiss(tuple(self._chosen))
