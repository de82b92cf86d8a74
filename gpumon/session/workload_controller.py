"""The workloads of one open gpumon: what can be run, what runs, and which run waits for the user's confirmation."""

from __future__ import annotations

import time
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from gpumon.core.problems import CommandError, Problem
from gpumon.session.run_registry import RunRegistry
from gpumon.session.view_state import EarlierResult, WorkloadsState

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.core.model import Frame
    from gpumon.operations.workload import StartQuestion, WorkloadRun
    from gpumon.session.background import ResultT, RunInBackground
    from gpumon.workload_runs.catalogue import Catalogue
    from gpumon.workload_runs.interpreter import Interpreter

_MAX_EARLIER: Final = 100


class WorkloadController:
    """Catalogue, interpreter, saved results, runs, and the question before a start.

    Args:
        ring: Called from any thread when a run has new events, or when a search has ended.
        in_background: Runs what may take seconds.
    """

    def __init__(self, ring: Callable[[], None], in_background: RunInBackground) -> None:
        self.registry = RunRegistry(ring)
        self.catalogue: Catalogue | None = None
        """What can be run, or None while gpumon searches for it."""
        self.interpreter: Interpreter | Problem | None = None
        """What workloads run with, why there is none, or None while gpumon searches for one."""
        self.earlier: tuple[EarlierResult, ...] = ()
        """Saved results of earlier sessions, the newest first."""
        self.question: StartQuestion | None = None
        """What the user must confirm now."""
        self.clock: Callable[[], float] = time.time
        self._ring = ring
        self._in_background = in_background
        self._searching: set[str] = set()

    def refresh(self) -> None:
        """Search for workloads, an interpreter and saved results; what is known stays until a search has ended."""
        self._search("catalogue", _load_catalogue, self._keep_catalogue)
        self._search("earlier", self._load_earlier, self._keep_earlier)
        if self.interpreter is None or isinstance(self.interpreter, Problem):
            self._search("interpreter", partial(search_interpreter, ""), self._keep_interpreter)

    def drain(self, frame: Frame | None) -> None:
        """Apply the events of all runs, and let those start their work that need no confirmation.

        Args:
            frame: The newest frame of this host; None if gpumon shows another one.
        """
        from gpumon.operations.workload import start_question  # late, as below: the first values must not wait for it

        self.registry.drain()
        questions = []
        for run in self.registry.running:
            if run.state.awaits_confirmation and not run.is_stopping:
                question = start_question(run, self.registry.runs, frame)
                if question is None:
                    run.allow()
                else:
                    questions.append(question)
        asked = None if self.question is None else self.question.run
        if not any(question.run is asked for question in questions):  # the question stays as it was first asked
            self.question = next(iter(questions), None)

    def answer(self, run: WorkloadRun, *, confirmed: bool | None) -> None:
        """Take the user's answer, None for none; it has no effect on a run that no longer waits."""
        self.question = None
        if confirmed is not None and run.state.awaits_confirmation and not run.is_stopping:
            if confirmed:
                run.allow()
            else:
                run.cancel()
        self._ring()

    def state(self) -> WorkloadsState:
        """The state to draw."""
        runs = tuple(self.registry.runs)
        return WorkloadsState(runs, self.catalogue, self.interpreter, self.earlier, self.clock())

    def _search(self, name: str, work: Callable[[], ResultT], keep: Callable[[ResultT], None]) -> None:
        """Start a search, unless it runs already."""
        if name in self._searching:
            return
        self._searching.add(name)

        def finish(result: ResultT) -> None:
            self._searching.discard(name)
            keep(result)
            self._ring()

        self._in_background(work, finish)

    def _keep_catalogue(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue

    def _keep_earlier(self, earlier: tuple[EarlierResult, ...]) -> None:
        self.earlier = earlier

    def _keep_interpreter(self, interpreter: Interpreter | Problem) -> None:
        if self.interpreter is None or isinstance(self.interpreter, Problem):  # the user may have entered one
            self.interpreter = interpreter

    def _load_earlier(self) -> tuple[EarlierResult, ...]:
        from gpumon.workload_runs.results import recent_results

        created = self.registry.created_seconds
        return tuple(islice((result for result in recent_results() if _seconds(result) < created), _MAX_EARLIER))


def search_interpreter(requested: str) -> Interpreter | Problem:
    """The interpreter that the user named, or one that has torch if none was named; else why there is none."""
    from gpumon.workload_runs.interpreter import find_interpreter

    try:
        return find_interpreter(requested or None)
    except CommandError as error:
        return error.problem


def _load_catalogue() -> Catalogue:
    from gpumon.workload_runs.catalogue import BrokenWorkload, Catalogue, load_catalogue, workloads_folder

    try:
        return load_catalogue()
    except OSError as error:
        reason = f"The folder cannot be read: {error.strerror or error}."
        return Catalogue((), (BrokenWorkload(workloads_folder(), reason),))


def _seconds(result: EarlierResult) -> float:
    seconds = result.get("time_seconds")
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0
