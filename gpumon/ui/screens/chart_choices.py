"""Lists of check boxes: the metrics that are drawn over time, and the GPUs that are drawn in the same charts."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from gpumon.core.metrics import METRICS
from gpumon.core.model import short_product_name
from gpumon.core.units import value_text
from gpumon.present.device import MAX_CHARTS, MAX_OVERLAY
from gpumon.present.limits import limited_text
from gpumon.present.paint.line import Role, Span, clipped, line
from gpumon.present.paint.table import TableRow
from gpumon.present.top_line import title_line
from gpumon.session.view_state import ViewState
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.text_lines import TextLines

_LABEL_WIDTH: Final = 32
_VALUE_WIDTH: Final = 14


class ChartChoice(NamedTuple):
    """A row of a list.

    Attributes:
        key: What is chosen.
        label: Its name.
        value: Its current value; empty if it has none, because its chart would be empty now.
        note: What it is.
    """

    key: str
    label: str
    value: str
    note: str


class _ChoosingTable(LineTable, inherit_bindings=True):
    """A table of check boxes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Select", id="choices.open", tooltip="Add this chart, or remove it"),
    ]


class ChartChoiceScreen(ViewScreen[tuple[str, ...]]):
    """A list of check boxes. The result is the chosen keys in the order of choosing.

    Args:
        chosen: The keys that are chosen now.
    """

    PAGE: ClassVar[str] = "docs/device.md"
    TAB: ClassVar[str] = "GPUs"
    AUTO_FOCUS: ClassVar[str] = "#choices"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "done", "Done", id="choices.back", tooltip="Show the chosen charts"),
    ]
    TITLE_TEXT: ClassVar[str]
    MAX_CHOSEN: ClassVar[int]

    def __init__(self, chosen: Sequence[str]) -> None:
        super().__init__()
        self._chosen = list(chosen)
        self._choices: list[ChartChoice] = []

    def compose(self) -> ComposeResult:
        yield from self.compose_top()
        yield TextLines(id="title")
        yield _ChoosingTable(id="choices")
        yield Static(id="note", markup=False)
        yield Footer()

    def choices(self, state: ViewState) -> Iterator[ChartChoice]:
        """The rows of the list."""
        raise NotImplementedError

    def show(self, state: ViewState) -> None:
        """Draw the list; a row without a value is dim."""
        self._choices = list(self.choices(state))
        rows = []
        for choice in self._choices:
            tick = "x" if choice.key in self._chosen else " "
            text = f"[{tick}] {choice.label:<{_LABEL_WIDTH}} {choice.value:>{_VALUE_WIDTH}}  "
            note = clipped(choice.note, max(0, self.size.width - len(text) - 3))
            rows.append(
                TableRow(choice.key, line(Span(text, Role.PLAIN if choice.value else Role.DIM), Span(note, Role.DIM)))
            )
        title = f"{self.TITLE_TEXT}  {len(self._chosen)} of at most {self.MAX_CHOSEN}"
        with self.app.batch_update():
            self.query_one("#title", TextLines).show([title_line(title, "", self.size.width)])
            self.query_one("#choices", LineTable).show(rows)
            self.show_note()

    @on(LineTable.CursorMoved)
    def show_note(self) -> None:
        """Show the complete note of the row under the cursor."""
        cursor = self.query_one("#choices", LineTable).cursor
        note = self._choices[cursor].note if cursor < len(self._choices) else ""
        static = self.query_one("#note", Static)
        if static.content != note:
            static.update(note, layout=False)

    @on(LineTable.RowChosen)
    def toggle(self, chosen: LineTable.RowChosen) -> None:
        """Add a row, or remove it."""
        if chosen.key in self._chosen:
            self._chosen.remove(chosen.key)
        elif len(self._chosen) < self.MAX_CHOSEN:
            self._chosen.append(chosen.key)
        else:
            self.notify(f"At most {self.MAX_CHOSEN} are drawn: remove one first.", markup=False)
        self.post_message(ViewStateRequested())

    def action_done(self) -> None:
        self.dismiss(tuple(self._chosen))


class MetricChoiceScreen(ChartChoiceScreen):
    """Every metric with its current value.

    Args:
        key: The device whose values are shown.
        chosen: The metrics that are drawn now.
    """

    TITLE_TEXT = "Charts"
    MAX_CHOSEN = MAX_CHARTS

    def __init__(self, key: str, chosen: Sequence[str]) -> None:
        super().__init__(chosen)
        self._key = key

    def choices(self, state: ViewState) -> Iterator[ChartChoice]:
        device = next((device for device in state.frame.devices if device.key == self._key), None)
        for metric in METRICS.values():
            value = None if device is None else device.get(metric.id)
            text = "" if value is None else value_text(value, metric.unit)
            yield ChartChoice(metric.id, metric.label, text, f"{metric.help} ({metric.source})")


class OverlayChoiceScreen(ChartChoiceScreen):
    """Every GPU with its utilization."""

    TITLE_TEXT = "GPUs in the same charts"
    MAX_CHOSEN = MAX_OVERLAY

    def choices(self, state: ViewState) -> Iterator[ChartChoice]:
        for device in state.frame.devices:
            label = f"GPU {device.label}  {short_product_name(device.name)}"
            utilization = device.get("utilization_gpu_percent")
            text = "" if utilization is None else limited_text("utilization_gpu_percent", device)
            note = f"Memory {limited_text('memory_used_bytes', device)}, power {limited_text('power_watts', device)}"
            yield ChartChoice(device.key, label, text, note)
