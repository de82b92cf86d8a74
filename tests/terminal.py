"""A real pseudo-terminal around a program: what a person's terminal would receive, show and answer.

A thread reads everything at once, so that the program never waits for the test; the screen is drawn by pyte only when
a test looks at it.
"""

import fcntl
import os
import pty
import re
import secrets
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final

import pyte

from tests.processes import kill_marked

MARK: Final = "GPUMON_TEST_TERMINAL"
"""Environment variable by which every descendant is found again, even one that has left its session."""

_QUERY: Final = re.compile(rb"\x1b\[0?c|\x1b\[6n|\x1b\[\?(\d+)\$p")
_MAX_QUERY: Final = 16
_MODE: Final = re.compile(rb"\x1b\[\?([\d;]+)([hl])")
_ENTERED_MODES: Final = (b"1049", b"1047", b"47", b"1000", b"1002", b"1003", b"1015", b"1006", b"1004", b"2004")
_NOT_OF_PYTE: Final = re.compile(
    rb"\x1b\[[<>=][\d;]*[a-zA-Z]"  # keyboard protocols
    rb"|\x1b\[\?[\d;]*(?:u|\$p)"  # queries
    rb"|\x1b[P_^][^\x1b]*\x1b\\"  # device control, application and privacy strings
)
_UNFINISHED: Final = re.compile(rb"\x1b(?:\[[<>=?\d;$]*|\][^\x07\x1b]*|[P_^][^\x1b]*)?\Z")
_DEFAULTED: Final = (
    signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGTSTP, signal.SIGCHLD,
)  # fmt: skip


class Terminal:
    """A program in its own terminal. As a context manager it leaves no process behind.

    Args:
        argv: The program.
        env: Its environment, or None for this process's; ``TERM`` and a UTF-8 locale are added where they are missing.
        rows: Height.
        cols: Width.
        ignored: Signals that the program starts with ignored, as under nohup.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        rows: int = 40,
        cols: int = 120,
        ignored: Sequence[signal.Signals] = (),
    ) -> None:
        self.started = time.monotonic()
        self.arrivals: list[tuple[float, int]] = []
        """Seconds since the start, and how many bytes had come by then."""
        self._mark = secrets.token_hex(8)
        self._screen = pyte.Screen(cols, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._raw = bytearray()
        self._drawn = 0
        self._answered = 0
        self._open = True
        self._reading = threading.Event()
        self._reading.set()
        self._master, slave = pty.openpty()
        self._set_size(rows, cols)
        os.set_blocking(self._master, False)
        defaults = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            list(argv),
            env={**defaults, **(os.environ if env is None else env), MARK: self._mark},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: _take_terminal(ignored),  # noqa: PLW1509 - a controlling terminal is taken from inside
        )
        os.close(slave)
        self._pump = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._pump.start()

    def __enter__(self) -> "Terminal":  # noqa: PYI034 - typing has no Self in Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        kill_marked(MARK, self._mark)
        self.hang_up()

    @property
    def raw(self) -> bytes:
        """Everything that the program has written."""
        return bytes(self._raw)

    @property
    def written(self) -> int:
        """How many bytes the program has written."""
        return len(self._raw)

    @property
    def pid(self) -> int:
        """The program's PID."""
        return self.process.pid

    def screen(self) -> str:
        """What the terminal shows, a line each, without trailing blanks."""
        self._draw(len(self._raw))
        return "\n".join(line.rstrip() for line in self._screen.display)

    def forget(self) -> None:
        """Skip the output that is not drawn yet; the program must then redraw its complete screen."""
        self._drawn = len(self._raw)
        self._screen.reset()

    def send(self, keys: str | bytes) -> None:
        """Types."""
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def wait_for(self, pattern: str, timeout: float = 20.0) -> str:
        """Waits until the screen shows ``pattern``, a regular expression; returns the screen.

        Raises:
            AssertionError: It does not in time.
        """
        deadline = time.monotonic() + timeout
        seen = -1
        while True:
            ended = self.process.poll() is not None
            if self.written != seen or ended:
                seen = self.written
                shown = self.screen()
                if re.search(pattern, shown):
                    return shown
            if ended or time.monotonic() > deadline:
                why = f"the program ended with {self.process.returncode}" if ended else f"{timeout:g} s are over"
                raise AssertionError(f"{pattern!r} is not on the screen and {why}:\n{self.screen()}")
            time.sleep(0.02)

    def wait_exit(self, timeout: float = 15.0) -> int:
        """Waits for the program's end; returns its exit code, negative for a signal.

        Raises:
            AssertionError: It does not end in time.
        """
        if self.process.poll() is None and not ended_within(self.pid, timeout):
            raise AssertionError(f"the program still runs after {timeout:g} s:\n{self.screen()}")
        code = self.process.wait()
        if self._open and self._reading.is_set():
            self._pump.join(0.5)  # what it wrote last
        return code

    def resize(self, rows: int, cols: int) -> None:
        """Changes the size, as a window manager does: the program gets SIGWINCH."""
        self._draw(len(self._raw))
        self._screen.resize(rows, cols)
        self._set_size(rows, cols)

    def pause_reading(self) -> None:
        """Stops reading, as Ctrl-S or a dead network does; the program's output piles up in the kernel."""
        self._reading.clear()

    def resume_reading(self) -> None:
        """Reads on."""
        self._reading.set()

    def hang_up(self) -> None:
        """Closes the terminal under the program."""
        if self._open:
            self._open = False
            self._reading.set()
            self._pump.join(2)
            os.close(self._master)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the program itself."""
        self.process.send_signal(number)

    def restored(self) -> bool:
        """Whether the bytes written leave a terminal as it was: main screen, no mouse, no paste mode, a cursor."""
        last: dict[bytes, bytes] = {}
        for modes, state in _MODE.findall(self.raw):
            last.update(dict.fromkeys(modes.split(b";"), state))
        return last.get(b"25", b"h") == b"h" and all(last.get(mode, b"l") == b"l" for mode in _ENTERED_MODES)

    def cooked(self) -> bool:
        """Whether the line discipline echoes and takes whole lines, as a shell expects it."""
        local: int = termios.tcgetattr(self._master)[3]
        return bool(local & termios.ECHO and local & termios.ICANON)

    def first_shown(self, pattern: str) -> float | None:
        """Seconds from the start until the screen showed ``pattern``, found by playing the output again."""
        again = pyte.Screen(self._screen.columns, self._screen.lines)
        stream = pyte.ByteStream(again)
        begin = 0
        for seconds, end in self.arrivals:
            stream.feed(_NOT_OF_PYTE.sub(b"", self.raw[begin:end]))
            begin = end
            if re.search(pattern, "\n".join(again.display)):
                return seconds
        return None

    def _set_size(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def _draw(self, end: int) -> None:
        data = bytes(self._raw[self._drawn : end])
        unfinished = _UNFINISHED.search(data)
        if unfinished is not None:
            data = data[: unfinished.start()]
        self._drawn += len(data)
        self._stream.feed(_NOT_OF_PYTE.sub(b"", data))

    def _read(self) -> None:
        while self._open:
            self._reading.wait()
            if not select.select([self._master], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self._master, 1 << 16)
            except BlockingIOError:
                continue
            except OSError:  # EIO: the last process that held the terminal has ended
                return
            self._raw += data
            self.arrivals.append((time.monotonic() - self.started, len(self._raw)))
            self._answer()

    def _answer(self) -> None:
        """Answers the queries that a real terminal answers; without that, programs wait for a timeout."""
        for query in _QUERY.finditer(self._raw, self._answered):
            self._answered = query.end()
            with suppress(OSError):
                os.write(self._master, _reply(query))
        self._answered = max(self._answered, len(self._raw) - _MAX_QUERY)


def ended_within(pid: int, seconds: float) -> bool:
    """Waits for a child's end without polling, so that its time can be measured."""
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def _reply(query: re.Match[bytes]) -> bytes:
    if query[1] is not None:
        return b"\x1b[?%b;%b$y" % (query[1], b"2" if query[1] == b"2026" else b"0")
    return b"\x1b[1;1R" if query[0].endswith(b"n") else b"\x1b[?62;22c"


def _take_terminal(ignored: Sequence[signal.Signals]) -> None:
    """Runs in the child: the terminal on 0 becomes its own, and no signal is inherited ignored."""
    for number in _DEFAULTED:
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
