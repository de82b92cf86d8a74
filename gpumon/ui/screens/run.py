"""One run, while it works and afterwards: its progress, its metrics next to its GPU's, its memory, log and result."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from gpumon.operations.workload import WorkloadRun
from gpumon.present.paint.line import Role, Span, line, wrapped
from gpumon.present.paint.table import TableRow
from gpumon.present.run import body_lines, explainable_text, head_lines, title_text
from gpumon.present.workload_text import code_text
from gpumon.session.app_session import Demand
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import RestartRequested, StopRequested
from gpumon.ui.screens.base import TextScreen, ViewScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.text_lines import TextLines
from gpumon.workload_runs.catalogue import WorkloadInfo

_SCROLL_BAR: Final = 1
_BOTTOM: Final = 1 << 30
_HEADS: Final = ("def ", "class ", "@")
"""How lines of code begin that name what follows."""


class RunScreen(ViewScreen[None]):
    """A run.

    Args:
        run: The run; its state in each `ViewState` is the same object.
    """

    PAGE: ClassVar[str] = "docs/workloads.md"
    SHOWS_FRAMES: ClassVar[bool] = False
    TAB: ClassVar[str] = "Workloads"
    AUTO_FOCUS: ClassVar[str] = "#body"
    BINDINGS: ClassVar[Bindings] = [
        key("run.back", "Back", "Back; the workload continues", "app.pop_screen"),
        key("run.stop", "Stop", "Stop the workload; it ends within five seconds"),
        key("run.run", "Run again", "Run it again with the same parameters", "repeat"),
        key("run.explain-selected", "Explain", "What its errors mean; how to fix them", "explain"),
        key("run.view", "Log", "Next view: log, code, memory summary", "next_view"),
    ]

    def __init__(self, run: WorkloadRun) -> None:
        super().__init__()
        self._shown_run = run

    @property
    def demand(self) -> Demand:
        """The hardware counters of its GPU, while it works."""
        device = None if self._shown_run.ended else self._shown_run.device
        return Demand(device_keys=frozenset() if device is None else frozenset({device.key}))

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title", "head")
        with VerticalScroll(id="body"):
            yield TextLines(id="lines")
        yield Footer()

    def show(self, state: ViewState) -> None:
        """Draw the run as it is now, also while the screen is paused."""
        run, width, now = self._shown_run, self.size.width, state.workloads.now_seconds
        self.show_title(title_text(run))
        self._lines("head").show(head_lines(run, now, width))
        self._lines("lines").show(body_lines(run, now, max(1, width - _SCROLL_BAR)))

    def conditions(self) -> Mapping[str, bool]:
        run = self._shown_run
        return {"stop": not run.ended, "repeat": run.ended, "explain": bool(explainable_text(run))}

    def action_stop(self) -> None:
        self.post_message(StopRequested(self._shown_run))

    def action_repeat(self) -> None:
        self.post_message(RestartRequested(self._shown_run))

    def action_explain(self) -> None:
        from gpumon.ui.screens.explain import ExplainScreen  # it imports the error catalogue, which few runs need

        title = f"Errors of {title_text(self._shown_run)}"
        self.app.push_screen(ExplainScreen(explainable_text(self._shown_run), title))

    def action_next_view(self) -> None:
        self.app.push_screen(LogScreen(self._shown_run))


class RunTextScreen(TextScreen[None]):
    """Long text that scrolls, one of the views of a run.

    Args:
        subject: What it is the text of.
        run: The run, or None where the code of a workload is shown before it runs.
    """

    PAGE: ClassVar[str] = "docs/workloads.md"
    SHOWS_FRAMES: ClassVar[bool] = False
    TAB: ClassVar[str] = "Workloads"
    IS_TEXT: ClassVar[bool] = True
    NAME: ClassVar[str] = ""
    NO_TEXT: ClassVar[str] = ""
    FOLLOWS: ClassVar[bool] = False
    """Whether new lines are added at the end."""
    BINDINGS: ClassVar[Bindings] = [key("run-text.view", "Next view", "Next view of the run", "next_view")]

    def __init__(self, subject: str, run: WorkloadRun | None = None) -> None:
        super().__init__()
        self._subject = subject
        self._viewed_run = run

    def action_next_view(self) -> None:
        following = None if self._viewed_run is None else _next_view(self._viewed_run, type(self))
        if following is None:
            self.app.pop_screen()
        else:
            self.app.switch_screen(following)

    def rows(self, width: int) -> Iterator[TableRow]:
        """The text in lines of a width."""
        raise NotImplementedError

    def show(self, _: ViewState) -> None:
        """Draw the text; a reader at its end stays there when lines are added."""
        self.show_title(f"{self.NAME} of {self._subject}")
        table = self.query_one("#lines", LineTable)
        at_end = table.cursor == len(table.rows) - 1
        rows = list(self.rows(self.text_width)) or [TableRow("", line(Span(self.NO_TEXT, Role.DIM)))]
        table.show(rows)
        if at_end and self.FOLLOWS:
            table.action_move(_BOTTOM)


class LogScreen(RunTextScreen):
    """The output of a workload."""

    NAME = "Log"
    NO_TEXT = "The workload has printed nothing."
    FOLLOWS = True

    def __init__(self, run: WorkloadRun) -> None:
        super().__init__(title_text(run), run)
        self._log = run.child.log

    def rows(self, width: int) -> Iterator[TableRow]:
        room = max(1, width - 2)
        for number, entry in enumerate(list(self._log)):
            mark, role = ("! ", Role.WARNING) if entry.stream == "stderr" else ("  ", Role.PLAIN)
            for start in range(0, max(1, len(entry.text)), room):
                yield TableRow(f"{number}/{start}", line(Span(mark, role), entry.text[start : start + room]))


class CodeScreen(RunTextScreen):
    """The code that a workload measures, with the values of its parameters.

    Args:
        workload: The workload.
        run: Its run, or None before it runs.
    """

    NAME = "Code"

    def __init__(self, workload: WorkloadInfo, run: WorkloadRun | None = None) -> None:
        super().__init__(workload.name if run is None else title_text(run), run)
        self._program = workload.program
        self._code = code_text(workload, None if run is None else run.request.parameters)

    @property
    def text_to_copy(self) -> str:
        """The code, whose long lines the screen breaks."""
        return self._program or self._code

    def rows(self, width: int) -> Iterator[TableRow]:
        for number, text in enumerate(self._code.splitlines()):
            is_head = text.lstrip().startswith(_HEADS)
            role = Role.DIM if text.lstrip().startswith("#") else Role.ACCENT if is_head else Role.PLAIN
            for place, part in enumerate(wrapped(text, width) or [""]):
                yield TableRow(f"{number}/{place}", line(Span(part, role)))


class MemorySummaryScreen(RunTextScreen):
    """``torch.cuda.memory_summary()`` in full."""

    NAME = "Memory"
    NO_TEXT = "No memory summary: torch has one only on a GPU, once its allocator is in use."

    def __init__(self, run: WorkloadRun) -> None:
        super().__init__(title_text(run), run)
        self._state = run.state

    def rows(self, width: int) -> Iterator[TableRow]:  # noqa: ARG002 - torch has laid it out
        for number, text in enumerate((self._state.memory_summary or "").splitlines()):
            yield TableRow(str(number), line(text))


def _next_view(run: WorkloadRun, shown: type[RunTextScreen]) -> RunTextScreen | None:
    """The view of a run after the one that is shown, of those that it has; None after the last one."""
    if shown is LogScreen and run.request.workload.code:
        return CodeScreen(run.request.workload, run)
    if shown is not MemorySummaryScreen and run.state.memory_summary is not None:
        return MemorySummaryScreen(run)
    return None
