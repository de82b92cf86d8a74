"""What gpumon itself costs."""

from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from gpumon.ui.costs import Costs
from gpumon.ui.scene import Scene
from gpumon.ui.screens.entries import EntriesScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.cost import cost_entries
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
            self.show_entries(cost_entries(self._measured[-1], self._measured[0], scene.frame))
