"""The topology screen: how the GPUs of this host are connected, what is wrong with it, and the traffic on NVLink."""

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.core.topology import Topology
from gpumon.health.topology import topology_findings
from gpumon.operations.topology import TopologyFeed, without_rates
from gpumon.present.paint.line import Role, Span, line
from gpumon.present.paint.table import TableRow
from gpumon.present.top_line import title_line
from gpumon.present.topology import topology_lines
from gpumon.session.view_state import ViewState
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.text_lines import TextLines

_SCROLL_BAR = 1


class TopologyScreen(ViewScreen[None]):
    """The topology of this host, whatever host the other screens show.

    The connections are read when it is opened, and on request; the rates of the NVLinks again and again while it is
    the screen in front.
    """

    PAGE: ClassVar[str] = "docs/choosing.md"
    IS_TEXT = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back", id="topology.back", tooltip="Back to the previous screen"),
        Binding("r", "again", "Read again", id="topology.run", tooltip="Read the connections again"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.result: Topology | Problem | None = None
        self._feed: TopologyFeed | None = None

    def compose(self) -> ComposeResult:
        yield from self.compose_top()
        yield TextLines(id="title")
        yield LineTable(id="topology", choosable=False)
        yield Footer()

    def on_screen_resume(self) -> None:
        """Read the topology, also what has changed while another screen was in front."""
        super().on_screen_resume()
        self._start()

    def on_screen_suspend(self) -> None:
        """Read nothing while another screen is in front."""
        self._stop()

    def on_unmount(self) -> None:
        """Stop reading."""
        self._stop()

    def show(self, state: ViewState) -> None:
        """Draw what was read."""
        width = max(1, self.size.width - MARGIN - _SCROLL_BAR)
        result = self.result
        lines = [line("Reading …")]
        note = ""
        if isinstance(result, Problem):
            lines = [line(Span(str(result), Role.WARNING))]
        elif result is not None:
            problem = result.problems.get("driver")
            lines = topology_lines(result, width) if problem is None else [line(Span(str(problem), Role.WARNING))]
            count = len(topology_findings(result))
            note = f"{count} finding{'' if count == 1 else 's'}" if problem is None else ""
        title = f"Topology{'' if state.is_this_host else ' (this host)'}"
        with self.app.batch_update():
            self.query_one("#title", TextLines).show([title_line(title, note, self.size.width)])
            self.query_one("#topology", LineTable).show([TableRow(str(row), text) for row, text in enumerate(lines)])

    def action_again(self) -> None:
        self.result = None
        self._stop()
        self._start()
        self.post_message(ViewStateRequested())

    def _start(self) -> None:
        try:
            self._feed = TopologyFeed()
        except OSError as error:
            self.result = Problem(ProblemCode.COLLECTOR_DIED, f"The collector cannot be started: {error.strerror}.")
        else:
            self._read_next(self._feed)

    def _stop(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            self.in_background(feed.close, lambda _: None)

    def _read_next(self, feed: TopologyFeed) -> None:
        self.in_background(partial(_read, feed), partial(self._take, feed))

    def _take(self, feed: TopologyFeed, result: Topology | Problem) -> None:
        if feed is self._feed:
            if isinstance(self.result, Topology) and isinstance(result, Problem):
                self.result = without_rates(self.result, result)
            else:
                self.result = result
            self.post_message(ViewStateRequested())
            if isinstance(result, Problem):
                self._stop()
            else:
                self._read_next(feed)


def _read(feed: TopologyFeed) -> Topology | Problem:
    try:
        return feed.read()
    except CommandError as error:
        return error.problem
