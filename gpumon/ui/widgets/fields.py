"""Fields of a form: a choice, a box to tick, and a parameter of a workload. Their state is visible without colors."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input, Static

from gpumon.present.workload_text import parameter_text
from gpumon.ui.keymap import Bindings, key
from gpumon.workload_runs.parameters import ParameterKind, WorkloadParameter


class Choice(Static, can_focus=True):
    """One of several words, all of which are visible."""

    BINDINGS: ClassVar[Bindings] = [key("choice.open", "Change", "Next choice", "turn")]
    DEFAULT_CSS = "Choice { height: auto; width: 1fr; }"

    class Chosen(Message):
        """The user has chosen another word."""

    def __init__(self, choices: Sequence[str], chosen: str, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, markup=False)
        self._choices = tuple(choices)
        self.value = chosen
        self.choose(chosen)

    def choose(self, value: str) -> None:
        """Choose a word."""
        self.value = value
        self.update("  ".join(f"[{choice}]" if choice == value else f" {choice} " for choice in self._choices))

    def action_turn(self) -> None:
        index = self._choices.index(self.value) if self.value in self._choices else -1
        self.choose(self._choices[(index + 1) % len(self._choices)])
        self.post_message(self.Chosen())

    def on_click(self, _: events.Click) -> None:
        self.action_turn()


class Tick(Static, can_focus=True):
    """A box to tick, with a label."""

    BINDINGS: ClassVar[Bindings] = [key("tick.open", "Select", "Select, or clear", "turn")]
    DEFAULT_CSS = "Tick { height: 1; width: 1fr; }"

    class Toggled(Message):
        """The user has ticked the box, or cleared it."""

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
        self._label = label
        self._draw()

    def set_ticked(self, ticked: bool) -> None:
        """Tick the box, or clear it."""
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


class ParameterField(Vertical):
    """A parameter of a workload: its name, its value, its range, and what is wrong with the value.

    Args:
        parameter: The parameter.
        device: ``cpu`` or a GPU; its default is shown at first.
    """

    class TextChanged(Message):
        """The value has changed."""

    def __init__(self, parameter: WorkloadParameter, device: str) -> None:
        super().__init__()
        self.parameter = parameter
        self.error = ""
        """What is wrong with the value, in a sentence; empty if nothing is."""
        self._device = device

    def compose(self) -> ComposeResult:
        parameter = self.parameter
        text = default_text(parameter, self._device)
        with Horizontal(classes="field"):
            yield Static(parameter.name, classes="label", markup=False)
            if parameter.kind is ParameterKind.FLAG:
                yield Choice(("no", "yes"), text, id="value")
            elif parameter.kind is ParameterKind.CHOICE:
                yield Choice(parameter.choices, text, id="value")
            else:
                yield Input(text, id="value", compact=True, select_on_focus=False)
                yield Static(parameter.range_text, classes="range", markup=False)
        yield Static("", classes="error", markup=False)

    @property
    def text(self) -> str:
        """The value as text."""
        return self.query_one("#value", Input).value if self._is_typed else self.query_one("#value", Choice).value

    @property
    def note(self) -> str:
        """The help of the parameter and its range."""
        limits = self.parameter.range_text
        return f"{self.parameter.name}: {self.parameter.help} {limits[:1].upper()}{limits[1:]}."

    def set_device(self, device: str) -> None:
        """Show the default of another device, unless the user has entered another value."""
        if self.text == default_text(self.parameter, self._device):
            text = default_text(self.parameter, device)
            if self._is_typed:
                self.query_one("#value", Input).value = text
            else:
                self.query_one("#value", Choice).choose(text)
        self._device = device

    @on(Input.Changed)
    @on(Choice.Chosen)
    def check(self, event: Message) -> None:
        """Show at once what is wrong with the value."""
        event.stop()
        try:
            self.parameter.parse(self.text)
        except ValueError as error:
            self.error = str(error)
        else:
            self.error = ""
        static = self.query_one(".error", Static)
        static.update(f"! {self.error}" if self.error else "")
        static.set_class(bool(self.error), "-shown")
        self.post_message(self.TextChanged())

    @property
    def _is_typed(self) -> bool:
        return self.parameter.kind in (ParameterKind.INTEGER, ParameterKind.NUMBER)


def default_text(parameter: WorkloadParameter, device: str) -> str:
    """The default of a device as the user would type it."""
    return parameter_text(parameter.default_on(device))
