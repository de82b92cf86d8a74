"""Questions to the user: a text and two buttons, of which "Cancel" has the focus."""

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Button, Static
from textual.widgets.button import ButtonVariant

from gpumon.core.model import Device
from gpumon.core.units import MISSING, bytes_text, counted
from gpumon.operations.signals import SentSignal, SignalRefusal, SignalTarget
from gpumon.operations.workload import StartQuestion
from gpumon.present.process_questions import SIGNAL_ORDER, foreign_question, signal_question
from gpumon.present.workload_text import resources_text
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.screens.base import BaseModalScreen

AnswerT = TypeVar("AnswerT")


class ConfirmDialog(BaseModalScreen[AnswerT]):
    """A question; `action_answer` receives the answer.

    Args:
        text: The question.
        label: Label of the button that confirms it.
    """

    AUTO_FOCUS: ClassVar[str] = "#no"
    BINDINGS: ClassVar[Bindings] = [
        key("dialog.back", "Cancel", "Close without an effect", "answer(False)"),
        key("dialog.up", "Previous", "Previous button", "app.focus_previous", keys="up", show=False),
        key("dialog.down", "Next", "Next button", "app.focus_next", keys="down", show=False),
    ]

    def __init__(self, text: str, label: str) -> None:
        super().__init__()
        self._question = text
        self._label = label

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._question, id="text", markup=False)
            with Horizontal():
                yield Button("Cancel", id="no", compact=True)
                yield Button(self._label, id="yes", variant="warning", compact=True)

    @on(Button.Pressed)
    def answer_by_button(self, pressed: Button.Pressed) -> None:
        """Answer with the button that was pressed."""
        self.choose(str(pressed.button.id))

    def choose(self, button: str) -> None:
        """Answer with the button that has an id."""
        self.action_answer(button == "yes")

    def action_answer(self, confirmed: bool) -> None:
        raise NotImplementedError


class QuitDialog(ConfirmDialog[bool]):
    """Asks before quitting ends workloads.

    Args:
        running_count: How many workloads run.
    """

    def __init__(self, running_count: int) -> None:
        verb, them = ("is", "it") if running_count == 1 else ("are", "them")
        text = f"{counted(running_count, 'workload')} started here {verb} running. Quitting stops {them}.\n"
        super().__init__(text, "Quit")

    BINDINGS: ClassVar[Bindings] = [key("quit-dialog.quit", "Quit", "Quit anyway", "answer(True)", show=False)]

    def action_answer(self, confirmed: bool) -> None:
        self.dismiss(confirmed)


class LoadProbeDialog(ConfirmDialog[bool]):
    """Asks before the probe is loaded into processes.

    Args:
        question: What happens to which processes.
    """

    def __init__(self, question: str) -> None:
        super().__init__(f"{question}\n", "Load the probe")

    def action_answer(self, confirmed: bool) -> None:
        self.dismiss(confirmed)


class ConfirmStartDialog(ConfirmDialog[bool]):
    """Asks before a workload starts; says why gpumon asks, which processes use the GPU, and what the workload will use.

    Args:
        question: What the user must confirm.
    """

    def __init__(self, question: StartQuestion) -> None:
        super().__init__(_start_text(question), "Start anyway")
        self.run = question.run

    def action_answer(self, confirmed: bool) -> None:
        self.dismiss(confirmed)


def _start_text(question: StartQuestion) -> str:
    state, name = question.run.state, question.run.request.workload.name
    lines = [f"{name} asks for confirmation. {state.confirmation_reason}", ""] if state.confirmation_reason else []
    lines += _other_process_lines(question) if question.others else []
    lines.append(f"{name} will use at most: {resources_text(state.plan)}.")
    slower = "The other processes will run slower meanwhile. " if question.others else ""
    return "\n".join([*lines, f"{slower}Start anyway?", ""])


def _other_process_lines(question: StartQuestion) -> list[str]:
    processes = counted(len(question.others), "other process")
    lines = [f"{question.run.target.label} is in use by {processes}:", ""]
    for device, process, memory_bytes in question.others:
        held = bytes_text(memory_bytes)
        if process is None:
            lines.append(f"  GPU {device.label}  a process that is not visible from here holds {held}")
            continue
        command = process.command or "exited, or in another PID namespace"
        lines.append(f"  GPU {device.label}  {process.user or MISSING}  PID {process.pid}  holds {held}")
        lines.append(f"    {command}")
    return [*lines, ""]


class SignalDialog(ConfirmDialog[SentSignal]):
    """The processes with their identity, and a button for each signal; the result is the signal, or None.

    Root is asked a second time if processes belong to other users.

    Args:
        targets: The processes.
        refusals: Processes that were selected, too, and get no signal.
        devices: The devices, whose lists say what the processes hold.
    """

    def __init__(
        self, targets: Sequence[SignalTarget], refusals: Sequence[SignalRefusal], devices: Sequence[Device] = ()
    ) -> None:
        super().__init__(signal_question(targets, refusals, devices), "")
        self._targets = targets
        self._chosen: SentSignal | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._question, id="text", markup=False)
            with Horizontal():
                yield Button("Cancel", id="no", compact=True)
                for sent in SIGNAL_ORDER:
                    variant: ButtonVariant = "error" if sent is SentSignal.KILL else "warning"
                    yield Button(sent.title, id=sent.name.lower(), variant=variant, compact=True)

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
