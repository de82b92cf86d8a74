"""Why a process ran out of memory, from the file that its probe wrote."""

from pathlib import Path
from typing import ClassVar

from gpumon.core.problems import CommandError
from gpumon.errors.explain import explain_paths
from gpumon.errors.explanation import Explanation
from gpumon.operations.evidence import DRIVER_FILES, with_evidence
from gpumon.present.explain import explanation_lines, reading_lines
from gpumon.present.paint.line import Line, Role, Span, line, wrapped
from gpumon.session.view_state import OomNotice, ViewState
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import TextScreen


class OomScreen(TextScreen[None]):
    """The explanation of one file, which is read in the background.

    Args:
        event: Which process ran out of memory, and its file.
    """

    PAGE: ClassVar[str] = "docs/explain.md"
    SHOWS_FRAMES: ClassVar[bool] = False
    TAB: ClassVar[str] = "Memory"
    IS_TEXT: ClassVar[bool] = True
    TEXT_ID: ClassVar[str] = "meaning"
    AUTO_FOCUS: ClassVar[str] = "#meaning"

    def __init__(self, event: OomNotice) -> None:
        super().__init__()
        self.outcome: Explanation | str | None = None
        """The explanation, why the file cannot be read, or None while it is read."""
        self._event = event

    def on_mount(self) -> None:
        super().on_mount()
        path = self._event.path
        self.in_background(lambda: explain_file(path), self._show_outcome)

    def show(self, _: ViewState) -> None:
        """Draws the explanation, or that the file is being read."""
        self.show_title(f"Why PID {self._event.pid} ran out of memory")
        self.show_text(self._explained(self.text_width))

    def _explained(self, room: int) -> list[Line]:
        if self.outcome is None:
            return reading_lines(room)
        if isinstance(self.outcome, str):
            return [line(Span(text, Role.WARNING)) for text in wrapped(f"! {self.outcome}", room)]
        lines = [item.line for item in explanation_lines(self.outcome, room, is_long=True)]
        return [*lines, (), line(Span(f"From {self._event.path}", Role.DIM))]

    def _show_outcome(self, outcome: Explanation | str) -> None:
        """Shows the explanation, and later the evidence of this host. The screen may have been closed meanwhile."""
        is_first = self.outcome is None
        self.outcome = outcome
        if not self.is_attached:
            return
        self.post_message(ViewStateRequested())
        if is_first and isinstance(outcome, Explanation) and DRIVER_FILES.exists():
            self.in_background(lambda: with_evidence(outcome), self._show_outcome)


def explain_file(path: str) -> Explanation | str:
    """The explanation of a file, or why it cannot be read."""
    try:
        return explain_paths([Path(path)])
    except CommandError as error:
        return f"{error.problem.reason} Probes keep the newest ten files."
