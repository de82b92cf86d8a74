"""Base classes of the screens."""

from collections.abc import Callable
from typing import ClassVar, TypeVar

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen

from gpumon.session.app_session import Demand
from gpumon.session.background import ResultT, run_in_background
from gpumon.session.view_state import ViewState
from gpumon.ui.messages import ViewStateRequested

DismissT = TypeVar("DismissT")


class BaseScreen(Screen[DismissT]):
    """A screen that accepts no size but the terminal's.

    Textual queues a size for a screen both when the terminal changes and after the screen was laid out again. Two sizes
    in the queue bring each other back forever.
    """

    def on_resize(self, event: events.Resize) -> None:
        """Drop a size that the terminal had before."""
        if event.size != self.app.size:
            event.prevent_default()

    def in_background(self, work: Callable[[], ResultT], then: Callable[[ResultT], None]) -> None:
        """Run ``work`` in a thread, then call ``then`` with its result, unless the screen has closed."""
        run_in_background(work, then, self.call_later)


class BaseModalScreen(BaseScreen[DismissT], ModalScreen[DismissT]):
    """A dialog. Textual hides the bindings of the app from it, so it has those that apply everywhere itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "app.quit", "Quit", show=False, id="modal.quit", tooltip="Quit gpumon"),
        Binding("ctrl+l", "app.redraw", "Redraw", show=False, id="modal.redraw", tooltip="Redraw the complete screen"),
    ]


class ViewScreen(BaseScreen[DismissT]):
    """A screen that is drawn from a `ViewState`, and requests one when it comes to the top or has another size.

    It sends messages to the app for everything that it wants done.
    """

    def show(self, state: ViewState) -> None:
        """Draw a state; nothing is sent to the terminal for what has not changed."""
        raise NotImplementedError

    @property
    def demand(self) -> Demand:
        """What it shows of the values that are expensive to read."""
        return Demand()

    def on_mount(self) -> None:
        """Request what to draw."""
        self.post_message(ViewStateRequested())

    def on_screen_resume(self) -> None:
        """Request what was not drawn while the screen was hidden."""
        self.post_message(ViewStateRequested())

    def on_resize(self, _: events.Resize) -> None:
        """Draw again, because lines are made for a width."""
        if self.is_current:
            self.post_message(ViewStateRequested())
