"""The topology screen: how the GPUs of this host are connected, what is wrong with it, and the traffic on NVLink."""

from functools import partial
from typing import ClassVar

from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.core.topology import Topology
from gpumon.core.units import counted
from gpumon.health.topology import topology_findings
from gpumon.operations.topology import TopologyFeed, without_rates
from gpumon.present.paint.line import Role, Span, line, wrapped
from gpumon.present.topology import topology_lines
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import TextScreen


class TopologyScreen(TextScreen[None]):
    """The topology of this host, whatever host the other screens show.

    The connections are read when it is opened, and on request; the rates of the NVLinks again and again while it is
    the screen in front.
    """

    PAGE: ClassVar[str] = "docs/choosing.md"
    SHOWS_FRAMES: ClassVar[bool] = False
    IS_TEXT = True
    TEXT_ID = "topology"
    BINDINGS: ClassVar[Bindings] = [key("topology.run", "Read again", "Read the connections again", "again")]

    def __init__(self) -> None:
        super().__init__()
        self.result: Topology | Problem | None = None
        self._feed: TopologyFeed | None = None

    def on_screen_resume(self) -> None:
        """Read the topology, also what has changed while another screen was in front."""
        super().on_screen_resume()
        self._start()

    def on_screen_suspend(self) -> None:
        """Read nothing while another screen is in front."""
        self._stop()

    def on_unmount(self) -> None:
        self._stop()

    def show(self, state: ViewState) -> None:
        result = self.result
        lines, note = [line("Reading …")], ""
        if result is not None:
            problem = result if isinstance(result, Problem) else result.problems.get("driver")
            lines = [line(Span(text, Role.WARNING)) for text in wrapped(str(problem), self.text_width)]
            if problem is None and isinstance(result, Topology):
                lines = topology_lines(result, self.text_width)
                note = counted(len(topology_findings(result)), "finding")
        self.show_title(f"Topology{'' if state.is_this_host else ' (this host)'}", note)
        self.show_text(lines)

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
        self.attempt(feed.read, partial(self._take, feed))

    def _take(self, feed: TopologyFeed, outcome: Topology | CommandError) -> None:
        result = outcome.problem if isinstance(outcome, CommandError) else outcome
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
