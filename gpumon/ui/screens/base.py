"""Base classes of the screens."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, Screen

from gpumon.core.model import Process
from gpumon.core.problems import CommandError
from gpumon.present.paint.line import Line, plain
from gpumon.present.paint.table import TableRow
from gpumon.present.top_line import title_line
from gpumon.session.app_session import Demand
from gpumon.session.background import ResultT, run_in_background
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.text_lines import TextLines, TopLine

DismissT = TypeVar("DismissT")


class BaseScreen(Screen[DismissT]):
    """A screen that accepts no size but the terminal's.

    Textual queues a size for a screen both when the terminal changes and after the screen was laid out again. Two sizes
    in the queue bring each other back forever.
    """

    PAGE: ClassVar[str] = ""
    """The page of the documentation that its help names, a file of the repository."""
    LEGEND: ClassVar[str] = ""
    """The meaning of its columns, words and symbols, for the help."""
    IS_TEXT: ClassVar[bool] = False
    """Whether its table contains one text, which is copied in full."""

    def dismiss(self, result: DismissT | None = None) -> AwaitComplete:
        """Close the screen, unless an earlier key has done that: Textual would close what lies below it."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def on_resize(self, event: events.Resize) -> None:
        """Drop a size that the terminal had before."""
        if event.size != self.app.size:
            event.prevent_default()

    @property
    def text_to_copy(self) -> str:
        """The row under the cursor of the table that has the focus as plain text, or else the text of the screen."""
        table = self.focused
        if isinstance(table, LineTable) and not self.IS_TEXT:
            return table.text_of_row()
        lines = [row.line for table in self.query(LineTable) for row in table.rows]
        lines += [line for lines in self.query("VerticalScroll TextLines").results(TextLines) for line in lines.lines]
        return "\n".join(plain(line).rstrip() for line in lines)

    def conditions(self) -> Mapping[str, bool]:
        """Whether each action that does not always apply has a use now; the keys of the others are hidden."""
        return {}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.conditions().get(action, True) and super().check_action(action, parameters)

    def in_background(self, work: Callable[[], ResultT], then: Callable[[ResultT], None]) -> None:
        """Run ``work`` in a thread, then call ``then`` with its result, unless the screen has closed."""
        run_in_background(work, then, self.call_later)

    def attempt(self, work: Callable[[], ResultT], then: Callable[[ResultT | CommandError], None]) -> None:
        """The same for ``work`` that may raise a `CommandError`, which is its result then."""

        def result() -> ResultT | CommandError:
            try:
                return work()
            except CommandError as error:
                return error

        self.in_background(result, then)

    def report_saved(self, result: object) -> None:
        """Show where something was saved, or why it could not be written."""
        if isinstance(result, CommandError):
            self.notify(str(result), severity="error", markup=False)
        else:
            self.notify(f"Saved {result}", markup=False)

    def show_title(self, title: str, details: str = "") -> None:
        """Draw the title, with details at its right side."""
        self._lines("title").show([title_line(title, details, self.size.width)])

    def _lines(self, name: str) -> TextLines:
        return self.query_one(f"#{name}", TextLines)


class BaseModalScreen(BaseScreen[DismissT], ModalScreen[DismissT]):
    """A dialog. Textual hides the bindings of the app from it, so it has those that apply everywhere itself.

    The keys that quit gpumon and show the help close it, as the key does that leads back.
    """

    BINDINGS: ClassVar[Bindings] = [
        key("modal.quit", "Close", "Close the dialog", "close", show=False),
        key("modal.help", "Close", "Close the dialog", "close", show=False),
        key("modal.redraw", "Redraw", "Redraw the complete screen", "app.redraw", show=False),
    ]

    async def action_close(self) -> None:
        """Do what the key that leads back does."""
        bindings = (active.binding for active in self.active_bindings.values())
        back = next((binding for binding in bindings if (binding.id or "").endswith(".back")), None)
        if back is not None:
            await self.run_action(back.action)
        else:
            self.dismiss(None)


def next_key(keys: Sequence[str], key: str | None, step: int) -> str | None:
    """The key ``step`` places after ``key``, as in a ring; the first one if ``key`` is not among them."""
    if not keys:
        return None
    return keys[(keys.index(key) + step) % len(keys)] if key in keys else keys[0]


class ViewScreen(BaseScreen[DismissT]):
    """A screen that is drawn from a `ViewState`, and requests one when it comes to the top or has another size.

    It sends messages to the app for everything that it wants done.
    """

    BINDINGS: ClassVar[Bindings] = [key("view.back", "Back", "Back to the previous screen", "app.pop_screen")]
    TAB: ClassVar[str] = ""
    """Name of its tab in the top line."""
    SELECTS_DEVICE: ClassVar[bool] = False
    """Whether it shows a GPU, or has one selected, and can go to another one."""
    LISTS_PROCESSES: ClassVar[bool] = False
    """Whether it has a table of the processes of all GPUs."""
    SHOWS_FRAMES: ClassVar[bool] = True
    """Whether its values follow the frames, which can be paused."""
    _top: TopLine | None = None
    _conditions: Mapping[str, bool] = MappingProxyType({})

    @property
    def device_key(self) -> str | None:
        """`Device.key` of the GPU that is shown or selected."""
        return None

    @property
    def selected_process(self) -> Process | None:
        """The process that is shown or selected."""
        return None

    def select_device(self, step: int) -> None:
        """Go to the GPU that is ``step`` places further; the first one follows the last one."""

    def compose_top(self, *names: str) -> ComposeResult:
        """The first line: the tabs, the host and the source, which `draw` keeps up to date; then lines with an id."""
        self._top = TopLine(self.TAB)
        yield self._top
        yield from (TextLines(id=name) for name in names)

    def draw(self, state: ViewState, tab_keys: Mapping[str, str]) -> None:
        """Draw the top line, with the key of each tab, and the rest of the screen."""
        with self.app.batch_update():
            if self._top is not None:
                self._top.show_state(state, tab_keys)
            self.show(state)
            self.follow_conditions()

    def follow_conditions(self) -> None:
        """Show the keys that apply now, if others did before."""
        conditions = self.conditions()
        if conditions != self._conditions:
            self._conditions = conditions
            self.refresh_bindings()

    def show(self, state: ViewState) -> None:
        """Draw a state; nothing is sent to the terminal for what has not changed."""
        raise NotImplementedError

    @property
    def demand(self) -> Demand:
        """What it shows of the values that are expensive to read."""
        return Demand()

    def on_mount(self) -> None:
        """Request what to draw."""
        self.post_message(ViewStateRequested())

    def on_screen_resume(self) -> None:
        """Request what was not drawn while the screen was hidden."""
        self.post_message(ViewStateRequested())

    def on_resize(self, _: events.Resize) -> None:
        """Draw again, because lines are made for a width."""
        if self.is_current:
            self.post_message(ViewStateRequested())


class TextScreen(ViewScreen[DismissT]):
    """A title, and a text that scrolls."""

    TEXT_ID: ClassVar[str] = "lines"

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title")
        yield LineTable(id=self.TEXT_ID, choosable=False)
        yield Footer()

    @property
    def text_width(self) -> int:
        """Cells of a line of the text."""
        return max(1, self.size.width - MARGIN - 1)

    def show_text(self, lines: Iterable[Line]) -> None:
        """Replace the text."""
        self.query_one(LineTable).show([TableRow(str(number), text) for number, text in enumerate(lines)])
