"""Work that takes long, in a thread, with its result delivered to the thread that draws."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

ResultT = TypeVar("ResultT")
Deliver = Callable[[Callable[[], None]], object]
"""Calls a function soon, in the thread that draws; may be called from any thread."""


class RunInBackground(Protocol):
    """`run_in_background` with a fixed ``deliver``."""

    def __call__(self, work: Callable[[], ResultT], then: Callable[[ResultT], None]) -> None:
        """Run ``work`` in a thread, then call ``then`` with its result in the thread that draws."""


def run_in_background(work: Callable[[], ResultT], then: Callable[[ResultT], None], deliver: Deliver) -> None:
    """Run a function in a thread, then deliver its result.

    The thread is a daemon: a thread of an executor would delay the end of gpumon until its work is done.

    Args:
        work: Runs in the thread; must not raise.
        then: Receives the result in the thread that draws.
        deliver: Calls a function in that thread; a function that comes after its end is dropped.
    """

    def run() -> None:
        result = work()
        with suppress(RuntimeError):  # the event loop has ended
            deliver(partial(then, result))

    threading.Thread(target=run, name="gpumon-background", daemon=True).start()
