"""Joins the workloads to the app: their bells, what is looked for meanwhile, and the question before a start."""

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from textual.app import App

from gpumon.core.exits import CommandError
from gpumon.core.inbox import Inbox
from gpumon.core.model import Frame
from gpumon.core.problems import Problem
from gpumon.jobs.catalogue import BrokenWorkload, Catalogue, load_catalogue, workloads_folder
from gpumon.jobs.interpreter import Interpreter, find_interpreter
from gpumon.jobs.results import recent
from gpumon.operations.neighbours import Neighbour
from gpumon.ui.feed import Feed
from gpumon.ui.jobs import BoardRun, JobBoard
from gpumon.ui.messages import JobsHaveNews
from gpumon.ui.screens.leave import LeaveDialog

LEAST_SECONDS_BETWEEN: Final = 0.25
"""Workloads tell their figures ten times a second; they are drawn less often."""
_MOST_EARLIER: Final = 100

FoundT = TypeVar("FoundT")
EarlierResult = Mapping[str, Any]


class Workshop:
    """What the workload screens work with.

    Args:
        app: The app.
        home: What gpumon was started with; only its frames can be of the GPUs that workloads run on.
        draw: Lets the screen on top draw.
    """

    def __init__(self, app: App[None], home: Feed, draw: Callable[[], None]) -> None:
        self.board = JobBoard(self._ring)
        self.catalogue: Catalogue | None = None
        """What there is to run, or None while it is looked for."""
        self.interpreter: Interpreter | Problem | None = None
        """What workloads run with, why there is none, or None while it is looked for."""
        self.earlier: tuple[EarlierResult, ...] = ()
        """Kept results of other sessions, the newest first."""
        self.clock: Callable[[], float] = time.time
        self._app = app
        self._home = home
        self._draw = draw
        self._found: Inbox[Callable[[], None]] = Inbox()
        self._taken_at = 0.0
        self._take_is_due = False
        self._dialog: LeaveDialog | None = None
        self._asked_for: BoardRun | None = None
        self._looking: set[str] = set()
        home.on_frame.append(self._watch)

    def look_around(self) -> None:
        """Looks for workloads, an interpreter and kept results; what is known stays until there is something newer."""
        self._look_once("catalogue", _load_catalogue, self._keep_catalogue)
        self._look_once("earlier", self._load_earlier, self._keep_earlier)
        if not isinstance(self.interpreter, Interpreter):
            self._look_once("interpreter", partial(look_for_interpreter, ""), self._keep_interpreter)

    def in_background(self, work: Callable[[], FoundT], then: Callable[[FoundT], None]) -> None:
        """Does in a thread what may take seconds, then calls ``then`` with what was found.

        The thread is a daemon: an executor's thread would hold up the end of gpumon until an interpreter answers.
        """

        def run() -> None:
            found = work()
            self._found.put(lambda: then(found))
            self._ring()

        threading.Thread(target=run, name="gpumon-look", daemon=True).start()

    def take_soon(self) -> None:
        """Takes in all news at once, or as soon as the last time is long enough ago."""
        wait = self._taken_at + LEAST_SECONDS_BETWEEN - time.monotonic()
        if wait <= 0:
            self._take()
        elif not self._take_is_due:
            self._take_is_due = True
            self._app.set_timer(wait, self._take)

    def close(self) -> None:
        """Stops all workloads; their guards end those for which there is no time."""
        self.board.stop_all()

    def _take(self) -> None:
        self._take_is_due = False
        self._taken_at = time.monotonic()
        for call in self._found.drain():
            call()
        self.board.take(self.clock())
        self._give_leave()
        self._draw()

    def _watch(self, frame: Frame) -> None:
        if self._home.is_this_machine:
            self.board.watch(frame, self._home.store)

    def _give_leave(self) -> None:
        """Lets workloads begin where nothing is to be asked; else the user is asked, about one after the other."""
        asked_for = self._asked_for
        if asked_for is not None and (asked_for.run.ended or asked_for.stopping):
            self._close_dialog()
        for waiting, neighbours in self.board.waiting(self._frame):
            must_ask = bool(neighbours or waiting.run.state.asks)
            if not must_ask:
                waiting.run.allow()
            elif self._asked_for is None:
                self._ask(waiting, neighbours)
            if waiting is self._asked_for and not must_ask:
                self._close_dialog()

    def _ask(self, waiting: BoardRun, neighbours: list[Neighbour]) -> None:
        self._asked_for = waiting
        self._dialog = LeaveDialog(waiting, neighbours)
        self._app.push_screen(self._dialog, self._answered)

    def _answered(self, leave: bool | None) -> None:
        waiting, self._asked_for, self._dialog = self._asked_for, None, None
        if waiting is None or not waiting.run.state.waits_for_leave:
            return
        if leave:
            waiting.run.allow()
        else:
            waiting.stop()
        self._ring()

    def _close_dialog(self) -> None:
        """What was asked has answered itself. Under another screen the dialog stays, and its answer counts no more."""
        if self._dialog is not None and self._app.screen is self._dialog:
            self._dialog.dismiss(None)

    @property
    def _frame(self) -> Frame | None:
        return self._home.store.frame if self._home.is_this_machine else None

    def _look_once(self, name: str, work: Callable[[], FoundT], keep: Callable[[FoundT], None]) -> None:
        """Looks for something, unless it is being looked for already."""
        if name in self._looking:
            return
        self._looking.add(name)

        def found_it(found: FoundT) -> None:
            self._looking.discard(name)
            keep(found)

        self.in_background(work, found_it)

    def _keep_catalogue(self, found: Catalogue) -> None:
        self.catalogue = found

    def _keep_earlier(self, found: tuple[EarlierResult, ...]) -> None:
        self.earlier = found

    def _keep_interpreter(self, found: Interpreter | Problem) -> None:
        if not isinstance(self.interpreter, Interpreter):  # one that was typed in meanwhile counts for more
            self.interpreter = found

    def _load_earlier(self) -> tuple[EarlierResult, ...]:
        began = self.board.began_seconds
        others = (each for each in recent() if _seconds(each) < began)
        return tuple(islice(others, _MOST_EARLIER))

    def _ring(self) -> None:
        self._app.post_message(JobsHaveNews())


def look_for_interpreter(asked: str) -> Interpreter | Problem:
    """The interpreter that was asked for, or one that has torch if none was; else why there is none."""
    try:
        return find_interpreter(asked or None)
    except CommandError as error:
        return error.problem


def _load_catalogue() -> Catalogue:
    try:
        return load_catalogue()
    except OSError as error:
        return Catalogue((), (BrokenWorkload(workloads_folder(), f"It could not be read: {error.strerror or error}."),))


def _seconds(result: EarlierResult) -> float:
    seconds = result.get("time_seconds")
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0
