"""A text area for a log or a traceback, and the explanation of the errors in it."""

from collections.abc import Mapping
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.timer import Timer
from textual.widgets import Input, TextArea

from gpumon.core.units import counted
from gpumon.errors.entry import KnownError
from gpumon.errors.explain import explain_text
from gpumon.errors.explanation import Explanation
from gpumon.errors.load import ERRORS
from gpumon.errors.narrative import error_sections
from gpumon.health.alerts.errors import OTHER_XID
from gpumon.operations.evidence import DRIVER_FILES, with_evidence
from gpumon.present.error_list import ERROR_COLUMNS, EXAMPLE, FREQUENT, ErrorRow, recent_rows
from gpumon.present.explain import SAMPLE, FixLine, explanation_lines, hint_lines, reading_lines, section_lines
from gpumon.present.paint.table import TableRow
from gpumon.session.view_state import OomNotice, ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.oom import OomScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.paste_area import PasteArea, harmless
from gpumon.ui.widgets.table_view import TableView
from gpumon.ui.widgets.text_lines import TextLines

_TYPING_PAUSE_SECONDS: Final = 0.2
"""The text is read again after no key was pressed for this time."""


class FixTable(LineTable, inherit_bindings=True):
    """The lines of an explanation; the cursor goes from one thing to do to the next, and else from line to line."""

    BINDINGS: ClassVar[Bindings] = [key("fixes.copy-all", "Copy all", "Copy the code of every fix")]

    def __init__(self) -> None:
        super().__init__(id="meaning", choosable=False)
        self._fixes: list[FixLine] = []

    def show_lines(self, lines: list[FixLine]) -> None:
        """Replace the lines."""
        self._fixes = lines
        self.show([TableRow(str(number), item.line) for number, item in enumerate(lines)])

    def text_of_row(self) -> str:
        """The code of the thing to do under the cursor, or else of the first one."""
        below = self._fixes[self.cursor :] if self.cursor < len(self._fixes) and self._fixes[self.cursor].fix else ()
        return next((item.copied for item in (*below, *self._fixes) if item.fix), "")

    def action_copy_all(self) -> None:
        copied = {item.fix: item.copied for item in self._fixes if item.fix}
        if copied:
            self.app.copy_to_clipboard("\n".join(copied.values()))
        text = f"Copied the code of {counted(len(copied), 'fix')}" if copied else "Y: there is nothing to copy"
        self.screen.query_one(Footer).say(text)

    def action_move(self, rows: int) -> None:
        """Go to the next thing to do in this direction if it is in sight."""
        if abs(rows) == 1:
            current = self._fixes[self.cursor].fix if self.cursor < len(self._fixes) else 0
            in_sight = range(self.scroll_offset.y, min(len(self._fixes), self.scroll_offset.y + self.size.height))
            starts = [
                row for row in in_sight if self._fixes[row].fix and self._fixes[row].fix != self._fixes[row - 1].fix
            ]
            ahead = [row for row in starts if (row - self.cursor) * rows > 0 and self._fixes[row].fix != current]
            if ahead:
                rows = min(ahead, key=lambda row: abs(row - self.cursor)) - self.cursor
        super().action_move(rows)


class ExplainScreen(ViewScreen[None]):
    """Explains a text in a background thread, because it may have megabytes; without one, lists what can be explained.

    Args:
        text: The initial text; empty to wait for a paste.
        title: The title, which names the source of the text.
        error_id: The known error to explain; empty for the text.
    """

    PAGE: ClassVar[str] = "docs/explain.md"
    SHOWS_FRAMES: ClassVar[bool] = False
    TAB: ClassVar[str] = "Explain"
    AUTO_FOCUS: ClassVar[str] = ""
    BINDINGS: ClassVar[Bindings] = [
        key("explain.open", "More", "Other fixes and sources"),
        key("explain.back", "Back", "Leave the text; again: go back and discard it", "leave"),
        key("explain.next-field", "Switch", "Between text and explanation", "app.focus_next"),
        key("explain.new", "New", "Clear the text, to type or paste another one", "clear"),
    ]

    def __init__(self, text: str = "", title: str = "Explain an error", error_id: str = "") -> None:
        super().__init__()
        self.explanation: Explanation | None = None
        """The explanation, or None while there is no text or the text has not been read yet."""
        self.is_long = False
        """Whether the other fixes, the code and the sources are shown too."""
        self._initial_text = text
        self._title = title
        self._error: KnownError | None = ERRORS[error_id] if error_id else None
        """The entry of the catalogue that is shown instead of a text."""
        self._is_from_list = False
        """Whether the entry was chosen in the list, to which there is a way back."""
        self._recent: tuple[ErrorRow, ...] = ()
        self._catalogue = _frequent_rows()
        """The frequent errors, and all of them once they have been read."""
        self._rows: tuple[ErrorRow, ...] = ()
        self._ooms: tuple[OomNotice, ...] = ()
        self._errors = TableView[ErrorRow](LineTable(id="errors"), lambda row: row.key)
        self._typing_pause: Timer | None = None
        self._is_reading = False
        self._is_outdated = False
        self._is_collecting_evidence = False

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title")
        yield PasteArea(self._initial_text, id="pasted")
        yield TextLines(id="hint")
        yield self._errors
        yield FixTable()
        yield Footer()

    def on_mount(self) -> None:
        """Focuses the list: a digit changes the screen until the text is edited, and a paste needs no focus."""
        super().on_mount()
        self._show_part()
        self._read()
        self.in_background(_catalogue_rows, self._take_catalogue)

    def show(self, state: ViewState) -> None:
        """Draws the explanation, a notice that the text is being read, or what can be explained."""
        room = max(1, self.size.width - 2)
        self._ooms, recent = state.probes.ooms, recent_rows(state)
        if recent != self._recent or not self._rows:
            self._recent = recent
            self._rows = (*recent, *self._catalogue)
        self._show_part()
        self.show_title(self._title if self._error is None else self._error.title)
        self._lines("hint").show(hint_lines(room) if self._shows_list else [])
        if self._shows_list:
            self._errors.show(ERROR_COLUMNS, self._rows)
        else:
            self._table.show_lines(self._explained(room))

    def _explained(self, room: int) -> list[FixLine]:
        if self.explanation is not None:
            return explanation_lines(self.explanation, room, is_long=self.is_long)
        if self._error is not None:
            return list(section_lines(error_sections(self._error), room))
        return [FixLine(row) for row in reading_lines(room)]

    @property
    def _shows_list(self) -> bool:
        return self.explanation is None and self._error is None and not self._is_reading

    def _show_part(self) -> None:
        """Show the list or the explanation, and give it the focus unless the text is edited."""
        shows_list = self._shows_list
        part = self._errors.table if shows_list else self._table
        self._errors.display = shows_list
        self._table.display = not shows_list
        self._area.display = self._error is None
        if self.focused is not part and not (self.focused is self._area or isinstance(self.focused, Input)):
            part.focus()

    def _take_catalogue(self, rows: tuple[ErrorRow, ...]) -> None:
        self._catalogue, self._rows = rows, ()
        self.post_message(ViewStateRequested())

    @on(LineTable.RowChosen, "#errors")
    def choose(self, chosen: LineTable.RowChosen) -> None:
        """Explain what was chosen: a report, the example, or an entry of the catalogue."""
        oom = next((oom for oom in self._ooms if chosen.key == f"/{oom.path}"), None)
        if oom is not None:
            self.app.push_screen(OomScreen(oom))
        elif chosen.key == EXAMPLE:
            self._area.text = SAMPLE
        else:
            self._error, self._is_from_list = ERRORS.get(chosen.key) or ERRORS[OTHER_XID], True
            self._table.action_move(-1 << 30)
            self.post_message(ViewStateRequested())

    @on(TextArea.Changed)
    def schedule_reading(self) -> None:
        """Reads the text after a pause in typing."""
        if self._typing_pause is not None:
            self._typing_pause.stop()
        self._typing_pause = self.set_timer(_TYPING_PAUSE_SECONDS, self._read)

    def on_paste(self, event: events.Paste) -> None:
        """Replaces the text by one that is pasted into the explanation, and focuses the explanation after any paste."""
        self._error, self._is_from_list = None, False
        if self.focused is not self._area:
            self._area.text = harmless(event.text)
        self._table.focus()

    def action_open(self) -> None:
        """Show more of the answer or less."""
        self.is_long = not self.is_long
        self._table.action_move(-1 << 30)
        self.post_message(ViewStateRequested())

    def conditions(self) -> Mapping[str, bool]:
        return {"open": self.explanation is not None}

    def action_leave(self) -> None:
        """Leave the text area, whose text contains every letter that is typed; then the entry; then the screen."""
        if self.focused is self._area:
            (self._errors.table if self._shows_list else self._table).focus()
        elif self._is_from_list:
            self._error, self._is_from_list = None, False
            self.post_message(ViewStateRequested())
        else:
            self.app.pop_screen()

    def action_clear(self) -> None:
        self._error, self._is_from_list = None, False
        self._area.display = True
        self._area.text = ""
        self._area.focus()

    @property
    def _table(self) -> FixTable:
        return self.query_one(FixTable)

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
        self._table.action_move(-1 << 30)
        self.post_message(ViewStateRequested())


def _catalogue_rows() -> tuple[ErrorRow, ...]:
    """Every known error, the most frequent ones first."""
    rest = (ErrorRow(error.id, error.section, error.title) for error in ERRORS.values() if error.id not in FREQUENT)
    return (*_frequent_rows(), *rest)


def _frequent_rows() -> tuple[ErrorRow, ...]:
    return tuple(ErrorRow(key, "frequent", ERRORS[key].title) for key in FREQUENT)
