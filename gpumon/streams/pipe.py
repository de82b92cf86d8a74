"""Frames from a pipe, at the pace of their arrival, and the conversion of standard input to such a pipe."""

import os
import sys
from typing import Final

from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.streams.base import ThreadStream
from gpumon.streams.lines import FrameLines

_STANDARD_INPUT: Final = 0


class PipeStream(ThreadStream):
    """Frames from a file descriptor.

    Args:
        file_descriptor: The descriptor to read; the stream takes ownership.
        title: Name of the stream on the screen.
    """

    def __init__(self, file_descriptor: int, title: str) -> None:
        super().__init__(title, "gpumon-pipe")
        self._descriptor = file_descriptor
        self._frames = 0

    def _run(self) -> None:
        try:
            with os.fdopen(self._descriptor, "rb") as file:
                self._read(FrameLines(file))
        except OSError as error:
            remedy = f"Reading failed: {os.strerror(error.errno or 0).lower()}."
        else:
            remedy = "The screen shows the last frame." if self._frames else "Check the output of the sending command."
        reason = "The stream ended." if self._frames else "The stream ended before its first frame."
        self._problem = Problem(ProblemCode.STREAM_ENDED, reason, remedy)
        self.inbox.ring()

    def _read(self, lines: FrameLines) -> None:
        while not self._closing.is_set() and (line := lines.next_line()) is not None:
            record = lines.decode(line)
            if record is not None:
                self._frames += 1
                self.inbox.put(record.frame)
            if lines.problem != self._problem:
                self._problem = lines.problem
                self.inbox.ring()


def move_standard_input() -> int:
    """Move standard input to another descriptor, and put the terminal, from which keys are read, in its place.

    Python's `sys.stdin` is unaffected: it reads descriptor 0, whatever that is, and nothing was read from it yet.

    Returns:
        The descriptor from which frames can be read.

    Raises:
        CommandError: Standard input is closed or is a terminal, or there is no terminal to read keys from.
    """
    if sys.__stdin__ is None or sys.__stdin__.closed:
        raise _no_input("Standard input is closed.")
    if os.isatty(_STANDARD_INPUT):
        raise _no_input("Standard input is a terminal.")
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        raise CommandError.usage(
            ProblemCode.NOT_FOUND,
            "There is no terminal to read keys from.",
            "Run gpumon in a terminal; with ssh, request one with: ssh -t",
        ) from None
    descriptor = os.dup(_STANDARD_INPUT)
    os.set_blocking(descriptor, True)
    os.dup2(terminal, _STANDARD_INPUT)
    os.close(terminal)
    return descriptor


def _no_input(reason: str) -> CommandError:
    remedy = "Pipe frames into gpumon: ssh host gpumon record - | gpumon replay -"
    return CommandError.usage(ProblemCode.NOT_FOUND, reason, remedy)
