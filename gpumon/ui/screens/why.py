"""Why a training run is slow: the account of its steps, renewed every few seconds, and the verdict."""

from collections.abc import Mapping
from functools import partial
from threading import Event
from typing import ClassVar

from gpumon.core.problems import CommandError, Problem
from gpumon.operations.why.examination import ExaminationProgress, Listener, WhyReport
from gpumon.operations.why.outside import examine_outside
from gpumon.operations.why.processes import examine_process
from gpumon.present.paint.line import Line, Role, Span, line
from gpumon.present.why import problem_lines, progress_text, why_lines
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import TextScreen
from gpumon.ui.screens.probe_question import ask_for_probe


class WhyScreen(TextScreen[None]):
    """Observes a process of this host again and again while it is the screen in front."""

    PAGE: ClassVar[str] = "docs/why.md"
    TAB: ClassVar[str] = "Processes"
    IS_TEXT = True
    TEXT_ID = "why"
    AUTO_FOCUS: ClassVar[str] = "#why"
    BINDINGS: ClassVar[Bindings] = [key("why.run", "Trace", "Record a trace too, for exact times of the GPU", "trace")]

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.report: WhyReport | Problem | None = None
        self._pid = pid
        self._progress: ExaminationProgress | None = None
        self._stop = Event()
        self._is_tracing = False
        self._is_read_only = False
        self._is_asking = False
        self._has_probe: bool | None = None
        """Whether the process has a probe; None until that is known, and the user was asked if it has none."""

    def on_screen_resume(self) -> None:
        """Observe the process while the screen is in front."""
        super().on_screen_resume()
        if self._has_probe is not None:
            self._start(is_tracing=False)

    def on_screen_suspend(self) -> None:
        self._stop.set()

    def on_unmount(self) -> None:
        self._stop.set()

    def show(self, state: ViewState) -> None:
        """Draw the newest report, and how far the next one is."""
        self._is_read_only = state.is_read_only
        if not self._is_asking:
            self._is_asking = True
            ask_for_probe(self, self._pid, state.load_probe, self._begin)
        self.show_title(f"Why PID {self._pid} is slow", "" if self._progress is None else progress_text(self._progress))
        self.show_text(self._report_lines(self.text_width))

    def conditions(self) -> Mapping[str, bool]:
        return {"trace": not self._is_read_only and self._has_probe is not False}  # a probe writes traces

    def action_trace(self) -> None:
        if not self._is_tracing:
            self._start(is_tracing=True)

    def _begin(self, problem: Problem | None) -> None:
        """Observe the process through its probe, or from outside."""
        self._has_probe = problem is None
        self.refresh_bindings()
        if self.is_current:
            self._start(is_tracing=False)

    def _report_lines(self, width: int) -> list[Line]:
        if self.report is None:
            return [line(Span("Observing the process …", Role.DIM))]
        if isinstance(self.report, Problem):
            return list(problem_lines(self.report, width))
        return list(why_lines(self.report, width))

    def _start(self, *, is_tracing: bool) -> None:
        """Begin an examination in a thread; one that runs already ends without a result."""
        self._stop.set()
        self._stop = Event()
        self._is_tracing = is_tracing
        listener = Listener(self._take_progress, self._stop.is_set)
        work = partial(_examine, self._pid, listener, is_tracing=is_tracing, has_probe=bool(self._has_probe))
        self.attempt(work, partial(self._take, self._stop))

    def _take_progress(self, progress: ExaminationProgress) -> None:
        """Called in the thread of the examination; drawn with the next state."""
        self._progress = progress

    def _take(self, stop: Event, result: WhyReport | CommandError) -> None:
        """Draw a result; observe again, unless there is a problem or a trace, which would be lost."""
        if stop is not self._stop or stop.is_set():
            return
        self.report, self._progress = result.problem if isinstance(result, CommandError) else result, None
        self.post_message(ViewStateRequested())
        if isinstance(result, WhyReport) and not self._is_tracing:
            self._start(is_tracing=False)
        self._is_tracing = False


def _examine(pid: int, listener: Listener, *, is_tracing: bool, has_probe: bool) -> WhyReport:
    if not has_probe:
        return examine_outside(pid, None, listener)
    return examine_process(pid, None, listener, has_trace=is_tracing)
