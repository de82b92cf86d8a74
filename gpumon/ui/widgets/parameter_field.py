"""One parameter of a workload as a line of a form: its name, its value, its range, and what is wrong with it."""

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input, Static

from gpumon.jobs.parameters import Parameter, ParameterKind
from gpumon.ui.view.figures import parameter_text
from gpumon.ui.widgets.fields import Choice


class ParameterField(Vertical):
    """A parameter and its value.

    Args:
        parameter: The parameter.
        device: ``cpu`` or a GPU, whose default is shown at first.
    """

    class Changed(Message):
        """Its text is another one."""

    def __init__(self, parameter: Parameter, device: str) -> None:
        super().__init__()
        self.parameter = parameter
        self.error = ""
        """What is wrong with its text, in a sentence; empty if nothing is."""
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
        """What stands in it."""
        return self.query_one("#value", Input).value if self._is_typed else self.query_one("#value", Choice).value

    @property
    def note(self) -> str:
        """All that is said about it."""
        return f"{self.parameter.name}: {self.parameter.help} {self.parameter.range_text.capitalize()}."

    def move_to(self, device: str) -> None:
        """Takes the default of another device, unless the user has chosen something else."""
        if self.text == default_text(self.parameter, self._device):
            text = default_text(self.parameter, device)
            if self._is_typed:
                self.query_one("#value", Input).value = text
            else:
                self.query_one("#value", Choice).choose(text)
        self._device = device

    @on(Input.Changed)
    @on(Choice.Changed)
    def check(self, event: Message) -> None:
        """Says at once what is wrong."""
        event.stop()
        try:
            self.parameter.parse(self.text)
        except ValueError as error:
            self.error = str(error)
        else:
            self.error = ""
        said = self.query_one(".error", Static)
        said.update(f"! {self.error}" if self.error else "")
        said.set_class(bool(self.error), "-said")
        self.post_message(self.Changed())

    @property
    def _is_typed(self) -> bool:
        return self.parameter.kind in (ParameterKind.INTEGER, ParameterKind.NUMBER)


def default_text(parameter: Parameter, device: str) -> str:
    """The default of a device as the user would type it."""
    return parameter_text(parameter.default_on(device))
