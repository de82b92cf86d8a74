"""Has a process empty its cache: the question, the wait for its answer, and what came back."""

from enum import Enum
from math import inf
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from gpumon.core.allocator import EmptiedCache
from gpumon.core.model import Device, Frame
from gpumon.operations.empty_cache import explain_emptied
from gpumon.operations.probed import Owner
from gpumon.probe.news import Answer, Ask
from gpumon.ui.messages import SceneWanted
from gpumon.ui.probes import ProbeBoard
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.empty_cache import asked_text, failed_text, question


class Phase(Enum):
    """How far it is."""

    QUESTION = "question"
    ASKED = "asked"
    ANSWERED = "answered"
    """The process has answered, and the driver's next figure is waited for."""
    TOLD = "told"


class EmptyCacheDialog(DrawnScreen[None], ModalScreen[None]):
    """Asks first, and does nothing by itself.

    Args:
        board: The probes.
        owner: The process, with what its allocator said of the GPU.
        device: The GPU.
    """

    AUTO_FOCUS: ClassVar[str] = "#no"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Empty it", id="empty.yes", tooltip="Have the process call empty_cache()"),
        Binding("n,escape", "answer(False)", "Leave it", id="empty.no", tooltip="Do nothing"),
        Binding("left,up", "app.focus_previous", "Previous", show=False, id="empty.left", tooltip="The other button"),
        Binding("right,down", "app.focus_next", "Next", show=False, id="empty.right", tooltip="The other button"),
    ]

    def __init__(self, board: ProbeBoard, owner: Owner, device: Device) -> None:
        super().__init__()
        assert owner.statistics is not None
        assert owner.probe is not None
        self.phase = Phase.QUESTION
        self._board = board
        self._owner = owner
        self._probe = owner.probe
        self._told = owner.statistics
        self._key = device.key
        self._used_before: float | None = None
        self._asked_at = 0.0
        self._answered_at = 0.0
        self._emptied: EmptiedCache | None = None
        self._said = ""

    def compose(self) -> ComposeResult:
        process = self._owner.process
        command = (process.command if process is not None else None) or ""
        with VerticalScroll():
            yield Static(question(self._owner, self._told, command), id="said", markup=False)
            with Horizontal():
                yield Button("Leave it (n)", id="no", compact=True)
                yield Button("Empty the cache (y)", id="yes", variant="warning", compact=True)

    def show(self, scene: Scene) -> None:
        """Follows what happens; the driver's figure counts from its first reading after the answer on."""
        device = next((each for each in scene.frame.devices if each.key == self._key), None)
        used, read_at = _used(scene.frame, device)
        if self.phase is Phase.QUESTION:
            self._used_before = used
        elif self.phase is Phase.ASKED:
            self._say(asked_text(self._owner, self._board.clock() - self._asked_at))
        elif self.phase is Phase.ANSWERED and read_at > self._answered_at:
            self.phase = Phase.TOLD
            self._say(self._outcome(used))

    @on(Button.Pressed)
    def answer_by_button(self, pressed: Button.Pressed) -> None:
        """Answers."""
        self.action_answer(pressed.button.id == "yes")

    def action_answer(self, leave: bool) -> None:
        if not leave:
            self.dismiss(None)
        elif self.phase is Phase.QUESTION:
            self._ask()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There is one question, which is answered once."""
        if action == "answer" and parameters == (True,):
            return self.phase is Phase.QUESTION
        return super().check_action(action, parameters)

    def _ask(self) -> None:
        """Asks the process, unless it has gone meanwhile."""
        refusal = self._board.refusal(self._probe)
        self.query_one("#yes").display = False
        self.query_one("#no", Button).label = "Close (n)"
        self.query_one("#no").focus()
        if refusal:
            self.phase = Phase.TOLD
            self._say(f"{refusal}\n")
            return
        self.phase = Phase.ASKED
        self._asked_at = self._board.clock()
        self._board.ask(self._owner.pid, Ask.EMPTY_CACHE, self._take)
        self.post_message(SceneWanted())

    def _take(self, answer: Answer) -> None:
        """The process has answered; the dialog may have been closed meanwhile."""
        if not self.is_attached:
            return
        if isinstance(answer.result, EmptiedCache):
            self._emptied = answer.result
            self._answered_at = self._board.clock()
            self.phase = Phase.ANSWERED
            self._say(self._outcome(None))
        else:
            self.phase = Phase.TOLD
            self._say(failed_text(answer.problem))

    def _outcome(self, used_after: float | None) -> str:
        assert self._emptied is not None
        ordinal = self._told.ordinal
        return "\n".join([*explain_emptied(self._emptied, ordinal, self._used_before, used_after), ""])

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self.query_one("#said", Static).update(text)


def _used(frame: Frame, device: Device | None) -> tuple[float | None, float]:
    """Memory of a device in use, and the moment of which that is in monotonic seconds; one not of now is not known."""
    if device is None or not frame.is_fresh(device) or device.is_stale("memory_used_bytes"):
        return None, -inf
    return device.get("memory_used_bytes"), frame.monotonic_seconds - (device.age_seconds or 0.0)
