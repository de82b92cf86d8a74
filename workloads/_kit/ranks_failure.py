"""Why the ranks of a distributed run did not finish: the rank that failed first, and the error behind it.

Most errors are echoes: a rank waited for another one until the timeout, or lost the connection to it. A process that
NCCL's watchdog aborts reports nothing itself, so the output of all ranks, which torchrun passes on, is searched too.
"""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

_TEXT_CHARACTERS = 4_000
_TIMEOUT = re.compile(r"time[ds]? ?-?out", re.IGNORECASE)
_ECHO = re.compile(r"closed|reset by peer|broken pipe|remote (?:process|worker|error)", re.IGNORECASE)
"""The wording of a rank that lost its connection because another rank has ended."""
_EXIT = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
_SUMMARY = re.compile(r"\(local_rank: (\d+)\)\s+exitcode *: (-?\d+)")
"""The table at the end of torchrun, which has all ranks that had ended before it looked."""
_WAITED = re.compile(r"[Rr]ank (\d+)\][^\n]*(?:Watchdog caught|collective operation timeout)")
_NATIVE = re.compile(r"NCCL|what\(\)|ProcessGroup|[Gg]loo|CUDA error")
_LAUNCHER = re.compile(r"distributed/elastic|torch\.distributed\.elastic|distributed/run\.py")


class RanksError(RuntimeError):
    """The ranks did not finish; the text names the rank and the reason."""


@dataclass
class Rank:
    """One local rank, as its socket reports it.

    Attributes:
        connection: Its socket.
        pid: Its PID.
        local: Its number on this host.
        number: Its number in the run.
        position: What it started last.
        heard_at: When it sent its last event, by the monotonic clock.
        error: The event of the error that ended it.
        answer: What its part returned.
        has_ended: Whether the connection is closed.
        partial: The start of an event that is not complete yet.
    """

    connection: socket.socket
    pid: int
    local: int = -1
    number: int = -1
    position: str = "its start"
    heard_at: float = field(default_factory=time.monotonic)
    error: Optional[dict[str, Any]] = None
    answer: Optional[dict[str, Any]] = None
    has_ended: bool = False
    partial: bytes = b""

    @property
    def is_working(self) -> bool:
        """Whether it has neither answered nor failed."""
        return self.answer is None and self.error is None and not self.has_ended


@dataclass(frozen=True)
class Failure:
    """What is known about a failure.

    Attributes:
        ranks: The local ranks that connected.
        expected: Number of local ranks.
        first: The rank that failed first, or None.
        suspects: The ranks that still worked then.
        overdue: The ranks that did not respond until the deadline.
    """

    ranks: Sequence[Rank]
    expected: int
    first: Optional[Rank]
    suspects: Sequence[Rank]
    overdue: Sequence[Rank]

    def describe(self, log: str) -> tuple[str, dict[str, str]]:
        """Returns a sentence about the cause, and the class and text of the error behind it.

        Args:
            log: What torchrun and the ranks printed to stderr.
        """
        waited = {int(number) for number in _WAITED.findall(log)}
        first = self._cause()
        if first is None:
            late = [rank for rank in self.overdue if rank.number not in waited] or self.overdue
            missing = self.expected - len(self.ranks)
            sentence = f"{missing} of {self.expected} ranks did not start." if missing else _no_response(late)
            return sentence, {"class": RanksError.__name__, "text": _native_text(log) or _last_lines(log) or sentence}
        if first.error is not None:
            error = {"class": str(first.error["class"]), "text": str(first.error["text"])}
        else:
            error = {"class": RanksError.__name__, "text": _native_text(log, with_echoes=False)}
        absent = [rank for rank in self.suspects if rank.error is None and rank.number not in waited]
        if _TIMEOUT.search(error["text"]) and absent:
            sentence = f"{_no_response(absent)} Rank {first.number} waited for it in {first.position}."
        elif first.error is not None:
            line = next(iter(error["text"].strip().splitlines()), "no text")
            sentence = f"Rank {first.number} failed in {first.position}: {error['class']}: {line}"
        else:
            exits = {int(local): int(code) for local, code in _SUMMARY.findall(log)}
            exits.update({int(local): int(code) for code, local in _EXIT.findall(log)})
            sentence = f"Rank {first.number} ended{_exit_text(exits.get(first.local))} in {first.position}."
        return sentence, {**error, "text": error["text"] or sentence}

    def _cause(self) -> Optional[Rank]:
        """Returns the rank that failed first: one that lost a connection only reacts to a rank that has ended."""
        first = self.first
        if first is not None and first.error is not None and _ECHO.search(str(first.error["text"])):
            ended = [rank for rank in self.suspects if rank.has_ended and rank.error is None]
            return ended[0] if ended else first
        return first


def _no_response(ranks: Sequence[Rank]) -> str:
    numbers = ", ".join(map(str, sorted(rank.number for rank in ranks)))
    where = ranks[0].position if ranks else "its start"
    return f"Rank {numbers} did not respond after {where}."


def _exit_text(code: Optional[int]) -> str:
    if code is None:
        return ""
    try:
        return f" with exit code {code}" if code >= 0 else f" by {signal.Signals(-code).name}"
    except ValueError:
        return f" by signal {-code}"


def _native_text(log: str, *, with_echoes: bool = True) -> str:
    """Returns the lines of NCCL, Gloo and the process group in a log, without those of torchrun.

    Args:
        log: What torchrun and the ranks printed to stderr.
        with_echoes: Whether the lines about a lost connection belong to them. A rank that ended wrote none of them.
    """
    lines = [line for line in log.splitlines() if _NATIVE.search(line) and not _LAUNCHER.search(line)]
    if not with_echoes:
        lines = [line for line in lines if not _ECHO.search(line)]
    return "\n".join(lines)[:_TEXT_CHARACTERS]


def _last_lines(log: str) -> str:
    return "\n".join(line for line in log.splitlines()[-20:] if line.strip())[-_TEXT_CHARACTERS:]
