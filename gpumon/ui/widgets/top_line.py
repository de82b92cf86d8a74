"""The first line of every screen: a click on a tab opens its screen, as its digit does."""

from collections.abc import Mapping

from textual import events

from gpumon.present.top_line import PlacedTab, top_line
from gpumon.session.view_state import ViewState
from gpumon.ui.widgets.text_lines import TextLines


class TopLine(TextLines):
    """The tabs, the host and the source.

    Args:
        front: Name of the tab of its screen; empty if it has none.
    """

    def __init__(self, front: str) -> None:
        super().__init__(id="top")
        self._front = front
        self._tabs: tuple[PlacedTab, ...] = ()

    def show_state(self, state: ViewState, keys: Mapping[str, str]) -> None:
        """Draw a state, with the key of each tab by its name."""
        line, self._tabs = top_line(state, self._front, self.app.size.width, keys)
        self.show([line])

    async def on_click(self, event: events.Click) -> None:
        """Open the screen whose tab is under the pointer."""
        for tab, start, end in self._tabs:
            if start <= event.x < end:
                await self.run_action(f"app.open_screen('{tab.name.lower()}')")
