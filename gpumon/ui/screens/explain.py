"""A text area for a log or a traceback, and the explanation of the errors in it."""

from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widgets import TextArea

from gpumon.errors.explain import explain_text
from gpumon.errors.explanation import Explanation
from gpumon.operations.evidence import DRIVER_FILES, with_evidence
from gpumon.present.explain import explanation_lines, hint_lines, reading_lines
from gpumon.present.paint.table import TableRow
from gpumon.present.top_line import title_line
from gpumon.session.view_state import ViewState
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.paste_area import PasteArea, harmless
from gpumon.ui.widgets.text_lines import TextLines

_TYPING_PAUSE_SECONDS: Final = 0.2
"""The text is read again after no key was pressed for this time."""


class ExplainScreen(ViewScreen[None]):
    """Explains a text in a background thread, because the text may have megabytes.

    Args:
        text: The initial text; empty to wait for a paste.
        title: The title, which names the source of the text.
    """

    PAGE: ClassVar[str] = "docs/explain.md"
    TAB: ClassVar[str] = "Explain"
    IS_TEXT: ClassVar[bool] = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "open", "More", id="explain.open", tooltip="Other fixes and sources; without a text, type one"
        ),
        Binding("escape", "leave", "Back", id="explain.back", tooltip="Leave the text; again: go back and discard it"),
        Binding("tab", "app.focus_next", "Switch", id="explain.next-field", tooltip="Between text and explanation"),
        Binding("ctrl+n", "clear", "New", id="explain.new", tooltip="Clear the text, to paste another one"),
    ]

    def __init__(self, text: str = "", title: str = "Explain an error") -> None:
        super().__init__()
        self.explanation: Explanation | None = None
        """The explanation, or None while there is no text or the text has not been read yet."""
        self.is_long = False
        """Whether the other fixes, the code and the sources are shown too."""
        self._initial_text = text
        self._title = title
        self._typing_pause: Timer | None = None
        self._is_reading = False
        self._is_outdated = False
        self._is_collecting_evidence = False

    def compose(self) -> ComposeResult:
        yield from self.compose_top()
        yield TextLines(id="title")
        yield PasteArea(self._initial_text, id="pasted")
        yield LineTable(id="meaning", choosable=False)
        yield Footer()

    def on_mount(self) -> None:
        """Focuses the explanation: a digit changes the screen until the text is edited, and a paste needs no focus."""
        super().on_mount()
        self.query_one("#meaning").focus()
        self._read()

    def show(self, _: ViewState) -> None:
        """Draws the explanation, or a notice that the text is being read."""
        width = self.size.width
        table = self.query_one("#meaning", LineTable)
        room = max(1, width - 2)
        if self.explanation is not None:
            lines = explanation_lines(self.explanation, room, is_long=self.is_long)
        else:
            lines = reading_lines(room) if self._is_reading else hint_lines(room)
        with self.app.batch_update():
            title = title_line(self._title, "", width)
            self.query_one("#title", TextLines).show([title])
            table.show([TableRow(str(number), line) for number, line in enumerate(lines)])

    @on(TextArea.Changed)
    def schedule_reading(self) -> None:
        """Reads the text after a pause in typing."""
        if self._typing_pause is not None:
            self._typing_pause.stop()
        self._typing_pause = self.set_timer(_TYPING_PAUSE_SECONDS, self._read)

    def on_paste(self, event: events.Paste) -> None:
        """Replaces the text by one that is pasted into the explanation, and focuses the explanation after any paste."""
        if self.focused is not self._area:
            self._area.text = harmless(event.text)
        self.query_one("#meaning").focus()

    def action_open(self) -> None:
        """Show more of the answer or less; without a text, type one."""
        if self.explanation is None:
            self._area.focus()
        else:
            self.is_long = not self.is_long
            self.post_message(ViewStateRequested())

    @property
    def text_to_copy(self) -> str:
        """The code of the first thing to do, or its text."""
        step = None if self.explanation is None else self.explanation.answer.do
        return "" if step is None else step.code or step.text

    def action_leave(self) -> None:
        """Leave the text area, whose text contains every letter that is typed, and then the screen."""
        if self.focused is self._area:
            self.query_one("#meaning").focus()
        else:
            self.app.pop_screen()

    def action_clear(self) -> None:
        self._area.text = ""
        self._area.focus()

    @property
    def _area(self) -> PasteArea:
        return self.query_one("#pasted", PasteArea)

    def _read(self) -> None:
        """Starts reading the text; if another text is being read, this one follows."""
        if self._is_reading:
            self._is_outdated = True
            return
        text = self._area.text
        if not text.strip():
            self._set_explanation(None)
            return
        self._is_reading = True
        self.in_background(lambda: explain_text(text), self._receive_explanation)
        self.post_message(ViewStateRequested())

    def _receive_explanation(self, explanation: Explanation) -> None:
        """Shows an explanation, unless the screen was closed or the text was changed in the meantime."""
        self._is_reading = False
        if not self.is_attached:
            return
        if self._is_outdated:
            self._is_outdated = False
            self._read()
        else:
            self._set_explanation(explanation)
            self._collect_evidence()

    def _collect_evidence(self) -> None:
        """Starts collecting evidence from this host; if that already runs for another text, this one follows."""
        explanation = self.explanation
        if explanation is None or not explanation.matches or self._is_collecting_evidence or not DRIVER_FILES.exists():
            return
        self._is_collecting_evidence = True
        self.in_background(lambda: (explanation, with_evidence(explanation)), self._receive_evidence)

    def _receive_evidence(self, result: tuple[Explanation, Explanation]) -> None:
        """Shows the evidence, unless the text was changed in the meantime."""
        self._is_collecting_evidence = False
        without_evidence, complete = result
        if not self.is_attached:
            return
        if self.explanation is without_evidence:
            self.explanation = complete
            self.post_message(ViewStateRequested())
        else:
            self._collect_evidence()

    def _set_explanation(self, explanation: Explanation | None) -> None:
        self.explanation = explanation
        self.query_one("#meaning", LineTable).action_move(-1 << 30)
        self.post_message(ViewStateRequested())
