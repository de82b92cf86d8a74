"""The terminal: a check that there is one, and its restoration however the process ends.

Textual restores the terminal when its app ends by itself. This module covers every other end: a signal leads to an
orderly exit; if that does not come in time, the terminal is restored by hand; a closed terminal ends the process.
"""

import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from gpumon.core.problems import SIGNAL_BASE, CommandError, ExitCode, Problem, ProblemCode

if TYPE_CHECKING:
    from textual.app import App
    from textual.driver import Driver

    from gpumon.ui.base_app import BaseApp

ORDERLY_TIMEOUT_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 0.3
"""Longer than a collector that is asked to end is waited for."""
_WAKE_DELAY_SECONDS: Final = 0.02
_MAX_TRIES: Final = 25
_RESTORE: Final = (
    b"\x1b[?2026l"  # end of a synchronized update
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"  # mouse
    b"\x1b[?2004l\x1b[?2048l\x1b[?1004l\x1b[<u"  # paste, resize, focus, keyboard
    b"\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"  # wrap, colors, alternate screen, cursor
)
_ERASE_LINE: Final = "\r\x1b[K"


def require() -> None:
    """Check that there is a terminal to draw on and to read keys from.

    Raises:
        CommandError: There is none.
    """
    for stream, role in (
        (sys.stdin, "gpumon reads keys from standard input"),
        (sys.stderr, "gpumon draws on standard error"),
    ):
        if stream is None or not stream.isatty():
            raise CommandError(
                Problem(
                    ProblemCode.NOT_SUPPORTED,
                    f"The screen needs a terminal: {role}, which is redirected.",
                    "Run gpumon without the redirection, or use gpumon status.",
                ),
                ExitCode.USAGE,
            )


def set_textual_defaults() -> None:
    """Set what Textual reads when it is imported: few frames and no animations, for slow links.

    Variables that the user has set take precedence. ``COLUMNS`` and ``LINES`` are removed: a size that a shell has
    exported would override the terminal's size and not follow it.
    """
    for name, value in {"TEXTUAL_FPS": "30", "TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0"}.items():
        os.environ.setdefault(name, value)
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


@contextmanager
def start_note() -> Iterator[None]:
    """Say that gpumon starts while the screen's library is imported, which may take a second on a slow host."""
    sys.stderr.write("Waiting for the first values.")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write(_ERASE_LINE)
        sys.stderr.flush()


def run(app: "BaseApp", close: Callable[[], None], mouse: bool = True) -> int:
    """Run the app until it ends, whatever ends it.

    Args:
        app: The app.
        close: Closes the app's sources; called when the process must end at once.
        mouse: Whether to use the mouse.

    Returns:
        The exit code: 0, or 128 plus the signal that ended it.
    """
    app.driver_class = batching(app.driver_class)
    guard = Guard(app, close)
    app.leave = guard.leave
    guard.install()
    try:
        app.run(mouse=mouse)
    finally:
        guard.remove()
    if app.failure is not None:
        raise app.failure
    return guard.exit_code or app.return_code or 0


def batching(driver_class: "type[Driver]") -> "type[Driver]":
    """A driver class that sends an update of the screen with one write, and counts the bytes that it sends.

    Textual writes what begins an update, the update, and what ends it separately, and each write wakes a thread.
    """
    from textual._ansi_sequences import SYNC_END, SYNC_START  # late: commands without a screen do without Textual

    class BatchingDriver(driver_class):  # type: ignore[misc, valid-type]
        """Textual's driver of this platform, with a counter."""

        sent_bytes = 0
        _begun = ""
        """What has been written of an update."""

        def write(self, data: str) -> None:
            """Count, and send what is complete."""
            self.sent_bytes += len(data.encode("utf-8", "replace"))
            if self._begun or data == SYNC_START:
                self._begun += data
                if data != SYNC_END:
                    return
                data, self._begun = self._begun, ""
            super().write(data)

    return BatchingDriver


def sent_bytes(app: "App[None]") -> int | None:
    """Bytes that an app has sent to its terminal; None if it has none, as in tests."""
    return getattr(app._driver, "sent_bytes", None)  # noqa: SLF001 - Textual has no public name for it


def write(app: "App[None]", sequence: str) -> None:
    """Send an escape sequence to an app's terminal, if it has one."""
    driver = app._driver  # noqa: SLF001 - Textual has no public name for it
    if driver is not None and not app.is_headless:
        driver.write(sequence)
        driver.flush()


class Guard:
    """Ends the app on a signal, or when its terminal is closed.

    Args:
        app: The app.
        close: Closes the app's sources.
    """

    def __init__(self, app: "BaseApp", close: Callable[[], None]) -> None:
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
        """Handle signals, except those that the user ignores, and watch the terminal."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._end)
        threading.Thread(target=self._watch_terminal, name="gpumon-terminal", daemon=True).start()

    def remove(self) -> None:
        """Restore the signal handlers, after waiting for a restoration of the terminal that has started."""
        self._finished.set()
        if self._ending is not None:
            self._ending.join()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def leave(self, closing: threading.Thread) -> None:
        """Restore the terminal, give what was started a moment to end, and end the process.

        Textual would close every widget first, which takes a while on a busy host.

        Args:
            closing: The thread that ends children; it has been started.
        """
        driver = self._app._driver  # noqa: SLF001 - Textual has no public name for it
        if driver is None or self.exit_code:
            return
        driver.close()  # what was drawn has been sent then, so that nothing follows the restoration
        self._finished.set()
        with suppress(OSError, termios.error):
            os.write(self._descriptor, _RESTORE)
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._attributes)
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        closing.join(_CLOSE_SECONDS)
        os._exit(0)

    def _end(self, number: int, _: FrameType | None) -> None:
        """Request an orderly end; a thread ends the process even if the event loop is blocked."""
        if self.exit_code:
            return
        self.exit_code = SIGNAL_BASE + number
        self._ending = threading.Thread(target=self._end_in_time, name="gpumon-end", daemon=True)
        self._ending.start()
        loop = getattr(self._app, "_loop", None)
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._app.exit, None, self.exit_code)

    def _end_in_time(self) -> None:
        self._close()
        if not self._finished.wait(ORDERLY_TIMEOUT_SECONDS):
            self._end_now()

    def _watch_terminal(self) -> None:
        """Wait, at almost no cost, until the other side of the terminal is closed."""
        poller = select.poll()
        poller.register(sys.stdin.fileno(), 0)
        while not self._finished.is_set():
            if any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poller.poll(1000)):
                self.exit_code = SIGNAL_BASE + signal.SIGHUP
                self._close()
                os._exit(self.exit_code)
            # signal a resize again if Textual missed it: its handler, interrupted by itself, may post the older size
            with suppress(OSError):
                if tuple(os.get_terminal_size(self._descriptor)) != tuple(self._app.size):
                    os.kill(os.getpid(), signal.SIGWINCH)

    def _end_now(self) -> None:
        """Restore the terminal by hand and end the process."""
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._attributes)
            self._detach_screen()
            self._write_with_retries(_RESTORE)
            os.set_blocking(self._descriptor, True)
        os._exit(self.exit_code)

    def _write_with_retries(self, data: bytes) -> None:
        """Write as soon as the terminal's lock is free; a writer that was woken needs a moment to release it."""
        for _ in range(_MAX_TRIES):
            with suppress(BlockingIOError):
                if os.write(self._descriptor, data) == len(data):
                    return
            termios.tcflush(self._descriptor, termios.TCOFLUSH)
            time.sleep(_WAKE_DELAY_SECONDS)

    def _detach_screen(self) -> None:
        """Redirect Textual's output to /dev/null and drop unread output, both of which would block the restoration.

        A write that waits for a reader holds the terminal's lock, and only a signal ends it.
        """
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._screen)
        os.set_blocking(self._descriptor, False)
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and thread.ident is not None:
                signal.pthread_kill(thread.ident, self.exit_code - SIGNAL_BASE)
        time.sleep(_WAKE_DELAY_SECONDS)
        termios.tcflush(self._descriptor, termios.TCOFLUSH)
