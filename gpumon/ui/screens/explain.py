"""A place to paste a log or a traceback into, and what it means."""

from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widgets import Footer, TextArea

from gpumon.diagnosis.explain import explain_text
from gpumon.diagnosis.explanation import Explanation
from gpumon.operations.evidence import DRIVER_FILES, with_evidence
from gpumon.ui.messages import SceneWanted
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.explain import explanation_lines, hint_lines, reading_lines
from gpumon.ui.widgets.line_table import LineTable, TableRow
from gpumon.ui.widgets.paste_area import PasteArea, harmless
from gpumon.ui.widgets.text_line import TextLines
from gpumon.ui.workshop import Workshop

_PAUSE_SECONDS: Final = 0.2
"""Typing is waited for so long before the text is read again."""


class ExplainScreen(DrawnScreen[None]):
    """Explains a text as soon as it is there, in a thread: it may have megabytes.

    Args:
        workshop: What works in the background.
        text: What is to be explained at first; empty to wait for a paste.
        title: Where that text comes from.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back", id="explain.back", tooltip="Back; what was pasted is forgotten"),
        Binding("tab", "app.focus_next", "Text / meaning", id="explain.next", tooltip="Between text and explanation"),
        Binding("ctrl+l", "clear", "Clear", id="explain.clear", tooltip="Empty the text, to paste another one"),
        Binding("ctrl+c", "app.quit", "Quit", show=False, id="explain.quit", tooltip="Leave gpumon", priority=True),
    ]

    def __init__(self, workshop: Workshop, text: str = "", title: str = "What an error means") -> None:
        super().__init__()
        self.found: Explanation | None = None
        """What the text means, or None while there is no text or it has not been read yet."""
        self._workshop = workshop
        self._first_text = text
        self._title = title
        self._pause: Timer | None = None
        self._is_reading = False
        self._is_outdated = False
        self._is_asking = False

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield PasteArea(self._first_text, id="pasted")
        yield LineTable(id="meaning", choosable=False)
        yield Footer()

    def on_mount(self) -> None:
        """A text that is there already is for reading, an empty field for pasting into."""
        super().on_mount()
        self.query_one("#meaning" if self._first_text else "#pasted").focus()
        self._read()

    def show(self, scene: Scene) -> None:
        """Draws the explanation that there is, or that it is being looked for."""
        width = self.size.width
        table = self.query_one("#meaning", LineTable)
        room = max(1, width - 2)
        if self.found is not None:
            lines = explanation_lines(self.found, room)
        else:
            lines = reading_lines(room) if self._is_reading else hint_lines(room)
        with self.app.batch_update():
            title = title_line(self._title, "", scene, width, key=self.focused is not self._area)
            self.query_one("#title", TextLines).show([title])
            table.show([TableRow(str(number), each) for number, each in enumerate(lines)])

    @on(TextArea.Changed)
    def read_soon(self) -> None:
        """Reads the text when nothing was typed for a moment."""
        if self._pause is not None:
            self._pause.stop()
        self._pause = self.set_timer(_PAUSE_SECONDS, self._read)

    def on_paste(self, event: events.Paste) -> None:
        """A paste while the explanation is read is another text; after any, the explanation is for reading."""
        if self.focused is not self._area:
            self._area.text = harmless(event.text)
        self.query_one("#meaning").focus()

    def action_clear(self) -> None:
        self._area.text = ""
        self._area.focus()

    @property
    def _area(self) -> PasteArea:
        return self.query_one("#pasted", PasteArea)

    def _read(self) -> None:
        """Has the text read; while another one is being read, as soon as that is done."""
        if self._is_reading:
            self._is_outdated = True
            return
        text = self._area.text
        if not text.strip():
            self._keep(None)
            return
        self._is_reading = True
        self._workshop.in_background(lambda: explain_text(text), self._take)
        self.post_message(SceneWanted())

    def _take(self, found: Explanation) -> None:
        """The text was read; the screen may have been closed meanwhile, or hold another text."""
        self._is_reading = False
        if not self.is_attached:
            return
        if self._is_outdated:
            self._is_outdated = False
            self._read()
        else:
            self._keep(found)
            self._ask_machine()

    def _ask_machine(self) -> None:
        """Has this machine asked about the errors; while it is being asked about others, as soon as that is done."""
        found = self.found
        if found is None or not found.matches or self._is_asking or not DRIVER_FILES.exists():
            return
        self._is_asking = True
        self._workshop.in_background(lambda: (found, with_evidence(found)), self._take_evidence)

    def _take_evidence(self, told: tuple[Explanation, Explanation]) -> None:
        """This machine was asked; the text may be another one by now."""
        self._is_asking = False
        found, with_more = told
        if not self.is_attached:
            return
        if self.found is found:
            self.found = with_more
            self.post_message(SceneWanted())
        else:
            self._ask_machine()

    def _keep(self, found: Explanation | None) -> None:
        self.found = found
        self.query_one("#meaning", LineTable).action_move(-1 << 30)
        self.post_message(SceneWanted())
