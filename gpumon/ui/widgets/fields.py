"""Fields of a form that take one line: a choice that keys go round, and a tick. Their state is read without colours."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static


class Choice(Static, can_focus=True):
    """One of several words, all of them in sight.

    Args:
        choices: The words.
        chosen: The one that is chosen.
        id: The widget's id.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,space,enter", "turn(1)", "Next", show=False, id="choice.next", tooltip="The next choice"),
        Binding("left", "turn(-1)", "Previous", show=False, id="choice.previous", tooltip="The choice before"),
    ]
    DEFAULT_CSS = "Choice { height: auto; width: 1fr; }"

    class Changed(Message):
        """Another word was chosen."""

    def __init__(self, choices: Sequence[str], chosen: str, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, markup=False)
        self._choices = tuple(choices)
        self.value = chosen
        self.choose(chosen)

    def choose(self, value: str) -> None:
        """Chooses a word."""
        self.value = value
        self.update("  ".join(f"[{each}]" if each == value else f" {each} " for each in self._choices))

    def action_turn(self, steps: int) -> None:
        place = self._choices.index(self.value) if self.value in self._choices else -1
        self.choose(self._choices[(place + steps) % len(self._choices)])
        self.post_message(self.Changed())

    def on_click(self, _: events.Click) -> None:
        self.action_turn(1)


class Tick(Static, can_focus=True):
    """Something that may be ticked.

    Args:
        label: What it is.
        id: The widget's id.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,enter", "turn", "Tick", show=False, id="tick.turn", tooltip="Tick it, or take the tick away"),
    ]
    DEFAULT_CSS = "Tick { height: 1; width: 1fr; }"

    class Toggled(Message):
        """The user ticked it or took the tick away."""

        def __init__(self, tick: "Tick") -> None:
            super().__init__()
            self.tick = tick
            self.ticked = tick.ticked

    def __init__(self, label: str, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, markup=False)
        self.ticked = False
        self._label = label
        self._drawn = ""
        self._draw()

    def show(self, label: str) -> None:
        """Shows another label."""
        self._label = label
        self._draw()

    def set_ticked(self, ticked: bool) -> None:
        """Ticks it or takes the tick away."""
        self.ticked = ticked
        self._draw()

    def action_turn(self) -> None:
        self.set_ticked(not self.ticked)
        self.post_message(self.Toggled(self))

    def on_click(self, _: events.Click) -> None:
        self.action_turn()

    def _draw(self) -> None:
        drawn = f"[{'x' if self.ticked else ' '}] {self._label}"
        if drawn != self._drawn:
            self._drawn = drawn
            self.update(drawn, layout=False)
