"""What the screens that draw scenes share."""

from typing import TypeVar

from textual import events
from textual.screen import Screen

from gpumon.ui.messages import SceneWanted
from gpumon.ui.scene import Scene

ResultT = TypeVar("ResultT")


class DrawnScreen(Screen[ResultT]):
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
        if self.is_current:
            self.post_message(SceneWanted())
