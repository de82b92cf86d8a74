"""The question before a workload begins that meets others on its GPU, or that does harm to itself."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from gpumon.core.units import MISSING, bytes_text
from gpumon.operations.neighbours import Neighbour
from gpumon.ui.jobs import BoardRun
from gpumon.ui.screens.drawn import SteadyScreen
from gpumon.ui.view.figures import uses_text


class LeaveDialog(SteadyScreen[bool], ModalScreen[bool]):
    """Says why it is asked, who works there, and what the workload will use.

    Args:
        waiting: The run that waits.
        neighbours: Who works there, if anybody.
    """

    AUTO_FOCUS: ClassVar[str] = "#no"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Start", id="leave.yes", tooltip="Start it all the same"),
        Binding("n,escape", "answer(False)", "Do not start", id="leave.no", tooltip="Do not start it"),
        Binding("left,up", "app.focus_previous", "Previous", show=False, id="leave.left", tooltip="The other button"),
        Binding("right,down", "app.focus_next", "Next", show=False, id="leave.right", tooltip="The other button"),
    ]

    def __init__(self, waiting: BoardRun, neighbours: Sequence[Neighbour]) -> None:
        super().__init__()
        self._text = question(waiting, neighbours)
        self._yes = "Start beside them (y)" if neighbours else "Start (y)"

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._text, markup=False)
            with Horizontal():
                yield Button("Do not start (n)", id="no", compact=True)
                yield Button(self._yes, id="yes", variant="warning", compact=True)

    @on(Button.Pressed)
    def answer_by_button(self, pressed: Button.Pressed) -> None:
        """Answers."""
        self.dismiss(pressed.button.id == "yes")

    def action_answer(self, leave: bool) -> None:
        self.dismiss(leave)


def question(waiting: BoardRun, neighbours: Sequence[Neighbour]) -> str:
    """What is asked."""
    name = waiting.run.request.workload.name
    asks = waiting.run.state.asks
    lines = [f"{name} asks first. {asks}", ""] if asks else []
    lines += _neighbour_lines(waiting, neighbours) if neighbours else []
    lines += [f"{name} will use at most: {uses_text(waiting.run.state.plan)}."]
    slower = "The others will be slower meanwhile. " if neighbours else ""
    return "\n".join([*lines, f"{slower}Start it all the same?", ""])


def _neighbour_lines(waiting: BoardRun, neighbours: Sequence[Neighbour]) -> list[str]:
    count = len(neighbours)
    others = "1 other works" if count == 1 else f"{count} others work"
    lines = [f"{others} where {waiting.run.request.workload.name} is to run, on {waiting.place.words}:", ""]
    for device, process, memory in neighbours:
        held = bytes_text(memory)
        if process is None:
            lines.append(f"  GPU {device.label}  somebody who cannot be seen from here holds {held}")
            continue
        command = process.command or "gone, or in another PID namespace"
        lines.append(f"  GPU {device.label}  {process.user or MISSING}  PID {process.pid}  holds {held}")
        lines.append(f"    {command}")
    return [*lines, ""]
