"""The terminal: whether there is one, and giving it back in every end.

Textual restores the terminal when its app ends by itself. For everything else there is this: signals become an orderly
exit, and when even that does not come, the terminal is restored by hand; a terminal that is gone ends the process.
"""

import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from gpumon.core.exits import SIGNAL_BASE, CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode

if TYPE_CHECKING:
    from textual.app import App
    from textual.driver import Driver

    from gpumon.ui.terminal_app import TerminalApp

ORDERLY_SECONDS: Final = 1.0
_WAKE_SECONDS: Final = 0.02
_TRIES: Final = 25
_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
_RESTORE: Final = (
    b"\x1b[?2026l"  # end of a synchronised update
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"  # mouse
    b"\x1b[?2004l\x1b[?2048l\x1b[?1004l\x1b[<u"  # paste, resize, focus, keyboard
    b"\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"  # wrap, colours, alternate screen, cursor
)
_FRUGAL: Final = {"TEXTUAL_FPS": "30", "TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0"}


def require() -> None:
    """Makes sure that there is a terminal to draw on and to read keys from.

    Raises:
        CommandError: There is none.
    """
    for stream, role in ((sys.stdin, "keys come from standard input"), (sys.stderr, "it draws on standard error")):
        if stream is None or not stream.isatty():
            raise CommandError(
                Problem(
                    ProblemCode.NOT_SUPPORTED,
                    f"The screen needs a terminal: {role}, which is redirected.",
                    "Run it without the redirection, or use: gpumon status.",
                ),
                ExitCode.USAGE,
            )


def frugal() -> None:
    """Sets what Textual reads at its import: few frames and no animations, for a thin link. The user's own win.

    A size that a shell has exported would win over the terminal's own, and not follow it.
    """
    for name, value in _FRUGAL.items():
        os.environ.setdefault(name, value)
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


def run(app: "TerminalApp", close: Callable[[], None], mouse: bool = True) -> int:
    """Runs the app until it ends, whatever ends it.

    Args:
        app: The app.
        close: Closes what the app reads from; called when the process must end at once.
        mouse: Whether to take the mouse.

    Returns:
        The exit code: 0, or 128 plus the signal that ended it.
    """
    app.driver_class = counting(app.driver_class)
    guard = Guard(app, close)
    guard.install()
    try:
        app.run(mouse=mouse)
    finally:
        guard.remove()
    if app.failure is not None:
        raise app.failure
    return guard.exit_code or app.return_code or 0


def counting(driver_class: "type[Driver]") -> "type[Driver]":
    """A driver that counts the bytes that it sends."""

    class CountingDriver(driver_class):  # type: ignore[misc, valid-type]
        """Textual's driver of this platform, with a counter."""

        sent_bytes = 0

        def write(self, data: str) -> None:
            """Sends and counts."""
            self.sent_bytes += len(data.encode("utf-8", "replace"))
            super().write(data)

    return CountingDriver


def sent_bytes(app: "App[None]") -> int | None:
    """How many bytes an app has sent to its terminal; None if it has none, as in tests."""
    return getattr(app._driver, "sent_bytes", None)  # noqa: SLF001 - Textual has no public name for it


class Guard:
    """Ends the app on a signal or when its terminal goes away.

    Args:
        app: The app.
        close: Closes what the app reads from.
    """

    def __init__(self, app: "TerminalApp", close: Callable[[], None]) -> None:
        self.exit_code = 0
        self._app = app
        self._close = close
        self._screen = sys.stderr.fileno()
        self._descriptor = os.dup(self._screen)
        self._attributes = termios.tcgetattr(self._descriptor)
        self._handlers: dict[signal.Signals, Any] = {}
        self._finished = threading.Event()
        self._ending: threading.Thread | None = None

    def install(self) -> None:
        """Takes the signals over, except those that the user had ignored, and watches the terminal."""
        for number in _ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._end)
        threading.Thread(target=self._watch_terminal, name="gpumon-terminal", daemon=True).start()

    def remove(self) -> None:
        """Gives the signals back; a terminal that is being restored by hand is first restored, and the process ends."""
        self._finished.set()
        if self._ending is not None:
            self._ending.join()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _end(self, number: int, _: FrameType | None) -> None:
        """Asks for an orderly end; a thread sees to it that an end comes, even when the screen's loop stands still."""
        if self.exit_code:
            return
        self.exit_code = SIGNAL_BASE + number
        self._ending = threading.Thread(target=self._end_surely, name="gpumon-end", daemon=True)
        self._ending.start()
        loop = getattr(self._app, "_loop", None)
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._app.exit, None, self.exit_code)

    def _end_surely(self) -> None:
        self._close()
        if not self._finished.wait(ORDERLY_SECONDS):
            self._end_now()

    def _watch_terminal(self) -> None:
        """Waits, at next to no cost, until the other side of the terminal is gone."""
        poller = select.poll()
        poller.register(sys.stdin.fileno(), 0)
        while not self._finished.is_set():
            if any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poller.poll(1000)):
                self.exit_code = SIGNAL_BASE + signal.SIGHUP
                self._close()
                os._exit(self.exit_code)
            self._repeat_lost_resize()

    def _repeat_lost_resize(self) -> None:
        """Of two changes of size in a row, Textual's handler, interrupted by itself, may post the older one last."""
        with suppress(OSError):
            if tuple(os.get_terminal_size(self._descriptor)) != tuple(self._app.size):
                os.kill(os.getpid(), signal.SIGWINCH)

    def _end_now(self) -> None:
        """Restores the terminal by hand and ends the process."""
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._attributes)
            self._take_from_screen()
            self._write_surely(_RESTORE)
            os.set_blocking(self._descriptor, True)
        os._exit(self.exit_code)

    def _write_surely(self, data: bytes) -> None:
        """Writes as soon as the terminal's lock is free, which takes the woken writer a moment."""
        for _ in range(_TRIES):
            with suppress(BlockingIOError):
                if os.write(self._descriptor, data) == len(data):
                    return
            termios.tcflush(self._descriptor, termios.TCOFLUSH)
            time.sleep(_WAKE_SECONDS)

    def _take_from_screen(self) -> None:
        """Lets Textual write into nothing, and drops what nobody has read: it would keep the restoring from it.

        A write that waits for a reader holds the terminal's lock, and only a signal ends it.
        """
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._screen)
        os.set_blocking(self._descriptor, False)
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and thread.ident is not None:
                signal.pthread_kill(thread.ident, self.exit_code - SIGNAL_BASE)
        time.sleep(_WAKE_SECONDS)
        termios.tcflush(self._descriptor, termios.TCOFLUSH)
