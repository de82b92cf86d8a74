"""A list of what gpumon can notify the user of, with a tick at what it waits for."""

from collections.abc import Sequence
from typing import ClassVar

from gpumon.core.model import Frame
from gpumon.session.wait_registry import WaitChoice
from gpumon.ui.screens.choice import ChoiceScreen, TickItem


class NotifyWhenDialog(ChoiceScreen[Sequence[WaitChoice]]):
    """The result is what to wait for.

    Args:
        choices: What can be waited for.
        armed: What is waited for now; it is listed, too, so that it can be canceled.
        frame: The moment, which shows what is true already.
    """

    LABEL_WIDTH: ClassVar[int] = 42

    def __init__(self, choices: Sequence[WaitChoice], armed: Sequence[WaitChoice], frame: Frame) -> None:
        super().__init__("Notify me when …", [choice.id for choice in armed])
        self._all = {choice.id: choice for choice in (*choices, *armed)}
        self._true_now = {choice.id for choice in self._all.values() if choice.is_true(frame) is not None}
        self._armed = {choice.id for choice in armed}

    def choices(self) -> Sequence[TickItem]:
        return [TickItem(choice.id, choice.label, self._note(choice.id)) for choice in self._all.values()]

    def result(self) -> Sequence[WaitChoice]:
        return [self._all[chosen] for chosen in self.chosen]

    def _note(self, choice_id: str) -> str:
        if choice_id in self._armed:
            return "waiting"
        return "true now" if choice_id in self._true_now else ""
