"""One run, live and afterwards: what it does, its figures beside its GPU's, its memory, and what it found."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer

from gpumon.ui.jobs import BoardRun
from gpumon.ui.messages import SceneWanted
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.screens.lines import LogScreen, MemoryScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.run import body_lines, head_lines, title_text
from gpumon.ui.view.run_result import troubles
from gpumon.ui.widgets.text_line import TextLines
from gpumon.ui.workshop import Workshop

_SCROLL_BAR = 1
_OFFERED = ("stop", "repeat", "explain", "memory")


class RunScreen(DrawnScreen[None]):
    """A run.

    Args:
        workshop: What knows the runs.
        entry: The run.
    """

    AUTO_FOCUS: ClassVar[str] = "#body"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h", "app.pop_screen", "Back", id="run.back", tooltip="Back; the workload goes on"),
        Binding("x", "stop", "Stop", id="run.stop", tooltip="Stop the workload; it is gone within five seconds"),
        Binding("r", "repeat", "Run again", id="run.again", tooltip="Run it again with the same parameters"),
        Binding("e,enter", "explain", "Explain", id="run.explain", tooltip="What its errors mean, and what mends them"),
        Binding("m", "memory", "Memory", id="run.memory", tooltip="All that torch.cuda.memory_summary() says"),
        Binding("l", "log", "Log", id="run.log", tooltip="What the workload has printed"),
    ]

    def __init__(self, workshop: Workshop, entry: BoardRun) -> None:
        super().__init__()
        self._workshop = workshop
        self._entry = entry
        self._offered: tuple[bool, ...] = ()

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="head")
        with VerticalScroll(id="body"):
            yield TextLines(id="lines")
        yield Footer()

    def show(self, scene: Scene) -> None:
        """Draws the run as it stands now, whatever moment of the GPUs is shown."""
        entry, width, now = self._entry, self.size.width, self._workshop.clock()
        with self.app.batch_update():
            self.query_one("#title", TextLines).show([title_line(title_text(entry), "", scene, width)])
            self.query_one("#head", TextLines).show(head_lines(entry, now, width))
            self.query_one("#lines", TextLines).show(body_lines(entry, now, max(1, width - _SCROLL_BAR)))
        offered = tuple(bool(self.check_action(action, ())) for action in _OFFERED)
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hides the keys that the run has no use for now."""
        if action == "stop":
            return not self._entry.run.ended
        if action == "repeat":
            return self._entry.run.ended
        if action == "explain":
            return bool(troubles(self._entry))
        if action == "memory":
            return self._entry.run.state.memory_summary is not None
        return super().check_action(action, parameters)

    def action_stop(self) -> None:
        self._entry.stop()
        self.post_message(SceneWanted())

    def action_repeat(self) -> None:
        try:
            entry = self._workshop.board.start_again(self._entry)
        except ValueError as refusal:
            self.notify(str(refusal), severity="warning", markup=False)
            return
        self.app.switch_screen(RunScreen(self._workshop, entry))

    def action_explain(self) -> None:
        from gpumon.ui.screens.explain import ExplainScreen  # it brings the catalogue of errors, which few runs need

        title = f"What the errors of {title_text(self._entry)} mean"
        self.app.push_screen(ExplainScreen(self._workshop, troubles(self._entry), title))

    def action_memory(self) -> None:
        self.app.push_screen(MemoryScreen(self._entry))

    def action_log(self) -> None:
        self.app.push_screen(LogScreen(self._entry))
