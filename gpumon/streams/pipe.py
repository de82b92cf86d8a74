"""Frames from a pipe, at the pace that they come in, and how standard input becomes such a pipe."""

import os
import sys
import threading
from typing import Final

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.streams.base import FrameInbox
from gpumon.streams.lines import FrameLines

_STANDARD_INPUT: Final = 0


class PipeStream:
    """Frames from a file descriptor.

    Args:
        file_descriptor: What to read; it belongs to the stream from now on.
        title: What to call it.
    """

    def __init__(self, file_descriptor: int, title: str) -> None:
        self.inbox = FrameInbox()
        self.title = title
        self._descriptor = file_descriptor
        self._problem: Problem | None = None
        self._frames = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="gpumon-pipe", daemon=True)

    @property
    def problem(self) -> Problem | None:
        """Lines that could not be read, or that the other side has ended."""
        return self._problem

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def close(self) -> None:
        """Takes no more frames; a thread that waits for the other side is left behind."""
        self._closing = True

    def _run(self) -> None:
        try:
            with os.fdopen(self._descriptor, "rb") as file:
                self._read(FrameLines(file))
        except OSError as error:
            remedy = f"It cannot be read: {os.strerror(error.errno or 0).lower()}."
        else:
            remedy = "This is its last frame." if self._frames else "Look at what the other side has to say."
        reason = "The stream has ended." if self._frames else "The stream ended before its first frame."
        self._problem = Problem(ProblemCode.STREAM_ENDED, reason, remedy)
        self.inbox.ring()

    def _read(self, lines: FrameLines) -> None:
        while not self._closing and (line := lines.next_line()) is not None:
            record = lines.decode(line)
            if record is not None:
                self._frames += 1
                self.inbox.put(record.frame)
            if lines.problem != self._problem:
                self._problem = lines.problem
                self.inbox.ring()


def take_standard_input() -> int:
    """Moves standard input to another descriptor, and the terminal to its place: keys are read from there.

    Python's own `sys.stdin` stays as it is: it reads descriptor 0, whatever that is, and nothing was read from it yet.

    Returns:
        The descriptor that frames can be read from.

    Raises:
        CommandError: It is closed, is the terminal itself, or there is no terminal to take keys from.
    """
    if sys.__stdin__ is None or sys.__stdin__.closed:
        raise _no_input("Standard input is closed.")
    if os.isatty(_STANDARD_INPUT):
        raise _no_input("Standard input is the terminal.")
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        problem = Problem(
            ProblemCode.NOT_FOUND,
            "There is no terminal to take keys from.",
            "Run it in a terminal; over ssh, ask for one with: ssh -t",
        )
        raise CommandError(problem, ExitCode.USAGE) from None
    descriptor = os.dup(_STANDARD_INPUT)
    os.set_blocking(descriptor, True)
    os.dup2(terminal, _STANDARD_INPUT)
    os.close(terminal)
    return descriptor


def _no_input(reason: str) -> CommandError:
    remedy = "Pipe frames into it: ssh box gpumon record - | gpumon replay -"
    return CommandError(Problem(ProblemCode.NOT_FOUND, reason, remedy), ExitCode.USAGE)
