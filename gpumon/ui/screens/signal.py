"""Asks which signal to send to which processes; "Cancel" has the focus."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Button, Static

from gpumon.operations.signals import SentSignal, SignalRefusal, SignalTarget
from gpumon.present.signals import SIGNAL_ORDER, foreign_question, signal_question
from gpumon.ui.screens.confirm import ConfirmDialog


class SignalDialog(ConfirmDialog[SentSignal]):
    """The processes with their identity, and a button for each signal; the result is the signal, or None.

    Root is asked a second time if processes belong to other users.

    Args:
        targets: The processes.
        refusals: Processes that were selected, too, and get no signal.
    """

    def __init__(self, targets: Sequence[SignalTarget], refusals: Sequence[SignalRefusal]) -> None:
        super().__init__(signal_question(targets, refusals), "")
        self._targets = targets
        self._chosen: SentSignal | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._question, id="text", markup=False)
            with Horizontal():
                yield Button("Cancel", id="no", compact=True)
                for sent in SIGNAL_ORDER:
                    yield Button(sent.title, id=sent.name.lower(), variant="warning", compact=True)

    def choose(self, button: str) -> None:
        """Send the signal of a button, or ask root a second time."""
        if button == "no":
            self.action_answer(False)
            return
        sent = SentSignal[button.upper()]
        if self._chosen is None and any(target.is_foreign for target in self._targets):
            self._ask_again(sent)
        else:
            self.dismiss(sent)

    def action_answer(self, confirmed: bool) -> None:
        if not confirmed:
            self.dismiss(None)

    def _ask_again(self, sent: SentSignal) -> None:
        self._chosen = sent
        self.query_one("#text", Static).update(foreign_question(self._targets, sent))
        for other in SIGNAL_ORDER:
            self.query_one(f"#{other.name.lower()}").display = other is sent
        self.query_one(f"#{sent.name.lower()}", Button).label = f"Send {sent.title}"
        self.query_one("#no").focus()
