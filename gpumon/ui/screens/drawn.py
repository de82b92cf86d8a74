"""What the screens that draw scenes share."""

from typing import Final, TypeVar

from textual import events
from textual.screen import Screen
from textual.widgets import Footer

from gpumon.ui.messages import SceneWanted
from gpumon.ui.scene import Scene

ResultT = TypeVar("ResultT")

_ROOMY_WIDTH: Final = 141
"""From so many columns on every key of the overview has room in the footer with space around it."""


class SteadyScreen(Screen[ResultT]):
    """Takes no size but the terminal's own.

    Textual queues a size for a screen both when the terminal changes and when the screen was laid out anew. With two of
    them in the queue, each brings the other back, for ever.
    """

    def on_resize(self, event: events.Resize) -> None:
        """Drops a size that the terminal had before."""
        if event.size != self.app.size:
            event.prevent_default()


class DrawnScreen(SteadyScreen[ResultT]):
    """Is given scenes while it is on top; asks for one when it comes there and when its size changes."""

    def show(self, scene: Scene) -> None:
        """Draws a scene; sends nothing for what is the same as before."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Until now it had nothing to draw on."""
        self.post_message(SceneWanted())

    def on_screen_resume(self) -> None:
        """It may have missed scenes while it was hidden."""
        self.post_message(SceneWanted())

    def on_resize(self, _: events.Resize) -> None:
        """Lines are made for a width."""
        for footer in self.query(Footer):
            footer.compact = self.app.size.width < _ROOMY_WIDTH
        if self.is_current:
            self.post_message(SceneWanted())
