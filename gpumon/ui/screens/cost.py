"""What gpumon itself costs."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.screen import Screen

from gpumon.streams.base import Countable, Stream
from gpumon.ui.costs import Costs
from gpumon.ui.scene import Scene
from gpumon.ui.screens.entries import EntriesScreen, NotedRow
from gpumon.ui.view.around import title_line
from gpumon.ui.view.call_costs import call_line, call_note, call_rows, heading, missing_note
from gpumon.ui.view.cost import cost_entries
from gpumon.ui.widgets.line_table import TableRow
from gpumon.ui.widgets.text_line import TextLines

_RATE_SECONDS: Final = 10.0
_MOST_MEASURED: Final = 200


class CostScreen(EntriesScreen[None]):
    """The costs as they are now; rates are those of the last seconds.

    Args:
        measure: Reads the costs.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h,c", "app.pop_screen", "Back", id="cost.back", tooltip="Back to all GPUs"),
    ]

    def __init__(self, measure: Callable[[], Costs]) -> None:
        super().__init__()
        self._measure = measure
        self._measured: deque[Costs] = deque(maxlen=_MOST_MEASURED)

    def show(self, scene: Scene) -> None:
        """Draws the costs up to now."""
        self._measured.append(self._measure())
        while self._measured[-1].at_seconds - self._measured[0].at_seconds > _RATE_SECONDS:
            self._measured.popleft()
        title = title_line("What gpumon costs", "", scene, self.size.width)
        with self.app.batch_update():
            self.query_one("#title", TextLines).show([title])
            entries = cost_entries(self._measured[-1], self._measured[0], scene.frame)
            self.show_rows([*self.rows_of(entries), *self._calls()])

    def _calls(self) -> Iterator[NotedRow]:
        """The table of the driver calls; they are counted only since the screen was opened."""
        counted = [each.calls for each in self._measured if each.calls.calls]
        if not counted:
            yield from self.rows_of(missing_note(has_collector=bool(self._measured[-1].collectors)))
            return
        width = self.size.width
        yield TableRow("", heading(width)), ""
        for row in call_rows(counted[-1], counted[0]):
            yield TableRow(row.ever.call, call_line(row, width)), call_note(row)


def count_calls(stream: Stream, screens: Sequence[Screen[Any]]) -> None:
    """Lets a stream tell what each driver call costs while a screen shows it, and no longer."""
    if isinstance(stream, Countable):
        stream.count_calls(any(isinstance(screen, CostScreen) for screen in screens))
