"""One probe that is listened to: lines put together, requests and their deadlines, and how much is taken from it."""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpumon.core.allocator import ProbedProcess, ProbeReading
from gpumon.core.problems import Problem, ProblemCode
from gpumon.probe.news import Answer, Ask, Probe, ProbeNews
from gpumon.probe.protocol import (
    ANSWER_BYTES,
    MOST_LINE_BYTES,
    ProtocolError,
    Reply,
    parse,
    request_line,
    result_of,
)

GREETING_SECONDS: Final = 30.0
"""A process in a call that keeps the GIL greets late; one that never does is not waited for."""
ANSWER_SECONDS: Final = 30.0
BYTES_A_SECOND: Final = 256 << 10
"""More is not taken from one that was asked for nothing; it waits, as it would for a reader that is slow."""
_MOST_FOREIGN: Final = 100
_CHUNK_BYTES: Final = 256 << 10

_GONE: Final = Problem(ProblemCode.NOT_FOUND, "The process has ended, or its probe has.")
_TURNED_AWAY: Final = Problem(
    ProblemCode.UNRESPONSIVE, "Its probe closes the connection; perhaps as many listen to it as it lets in."
)
_NO_GREETING: Final = Problem(ProblemCode.UNRESPONSIVE, f"Its probe has said nothing for {GREETING_SECONDS:.0f} s.")
_ENDLESS: Final = Problem(ProblemCode.DAMAGED, "What its probe says does not end.")
_LATE: Final = Problem(
    ProblemCode.UNRESPONSIVE,
    f"Its probe has not answered within {ANSWER_SECONDS:.0f} s.",
    "The process may be in a long call that keeps Python from running; when that returns it does what it was asked.",
)
_BUSY: Final = Problem(ProblemCode.UNRESPONSIVE, "It has not answered the last request of this kind yet.")
_DEAF: Final = Problem(ProblemCode.UNRESPONSIVE, "Its probe does not take requests at the moment.", "Try again.")


class DroppedError(Exception):
    """Nothing more is to be had from a probe; ``problem`` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


@dataclass(slots=True)
class _Pending:
    ask: Ask
    deadline: float
    is_late: bool = False


class Connection:
    """A connected probe.

    Args:
        connection: Its socket.
        pid: Its process, as the kernel says.
        now: Monotonic seconds.

    Attributes:
        probe: What is known; None until it has greeted.
    """

    def __init__(self, connection: socket.socket, pid: int, now: float) -> None:
        self.pid = pid
        self.probe: Probe | None = None
        self._socket = connection
        self._greets_until = now + GREETING_SECONDS
        self._allowance = BYTES_A_SECOND
        self._partial = bytearray()
        self._foreign = 0
        self._pending: dict[int, _Pending] = {}

    def fileno(self) -> int:
        """The descriptor of its socket."""
        return self._socket.fileno()

    @property
    def is_heard(self) -> bool:
        """Whether anything may be taken from it in this second."""
        return self._allowance > 0

    def refill(self) -> None:
        """A second has passed: as much may be taken as in the one before."""
        self._allowance = max(self._allowance, BYTES_A_SECOND)

    def tell(self, line: bytes) -> None:
        """Sends a line at once or not at all.

        Raises:
            DroppedError: It has gone, or took a part of the line only.
            BlockingIOError: It does not take anything at the moment.
        """
        try:
            sent = self._socket.send(line)
        except BlockingIOError:
            raise
        except OSError:
            raise DroppedError(_GONE) from None
        if sent < len(line):
            raise DroppedError(_DEAF)

    def ask(self, ask: Ask, number: int, more: Mapping[str, int], now: float) -> Iterator[Answer]:
        """Asks for something; where that cannot be, this is the answer.

        Raises:
            DroppedError: It has gone.
        """
        if any(pending.ask is ask for pending in self._pending.values()):
            yield Answer(self.pid, number, ask, problem=_BUSY)
            return
        self._pending[number] = _Pending(ask, now + ANSWER_SECONDS)
        self._allowance += ANSWER_BYTES[ask]
        try:
            self.tell(request_line(ask, number, more))
        except BlockingIOError:
            del self._pending[number]
            yield Answer(self.pid, number, ask, problem=_DEAF)

    def receive(self, now: float) -> Iterator[ProbeNews]:
        """What it has said, as far as it may.

        Raises:
            DroppedError: It has gone, or says what no probe says.
        """
        try:
            data = self._socket.recv(min(self._allowance, _CHUNK_BYTES))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            raise DroppedError(_TURNED_AWAY if self.probe is None else _GONE)
        self._allowance -= len(data)
        first, *more = data.split(b"\n")
        self._partial += first
        for piece in more:
            yield from self._hear(bytes(self._partial), now)
            self._partial = bytearray(piece)
        if len(self._partial) > self._most_bytes:
            raise DroppedError(_ENDLESS)

    def expire(self, now: float) -> Iterator[Answer]:
        """What has waited for too long. A late answer is still let in, and passed over.

        Raises:
            DroppedError: It has not greeted in time.
        """
        if self.probe is None and now > self._greets_until:
            raise DroppedError(_NO_GREETING)
        for number, pending in self._pending.items():
            if not pending.is_late and now > pending.deadline:
                pending.is_late = True
                yield Answer(self.pid, number, pending.ask, problem=_LATE)

    def end(self) -> Iterator[ProbeNews]:
        """Closes it; what it was asked for will not come."""
        self._socket.close()
        for number, pending in self._pending.items():
            if not pending.is_late:
                yield Answer(self.pid, number, pending.ask, problem=_GONE)
        if self.probe is not None:
            self.probe = replace(self.probe, connected=False)
            yield self.probe

    @property
    def _most_bytes(self) -> int:
        return max(MOST_LINE_BYTES, *(ANSWER_BYTES[pending.ask] for pending in self._pending.values()), 0)

    def _hear(self, line: bytes, now: float) -> Iterator[ProbeNews]:
        if len(line) > self._most_bytes:
            raise DroppedError(_ENDLESS)
        try:
            said = parse(line, self.pid)
        except ProtocolError as error:
            if error.problem.code is ProblemCode.NEWER_SCHEMA:
                raise DroppedError(error.problem) from None
            self._count_foreign(error.problem)
            return
        if isinstance(said, Reply):
            yield from self._answer(said)
        elif isinstance(said, ProbedProcess) and self.probe is None:
            self.probe = Probe(said, None, now)
            yield self.probe
        elif isinstance(said, ProbeReading) and self.probe is not None:
            self.probe = replace(self.probe, reading=said, arrived_monotonic=now)
            yield self.probe
        elif said is not None:
            self._count_foreign(Problem(ProblemCode.DAMAGED, "Its probe says things out of their order."))

    def _answer(self, reply: Reply) -> Iterator[Answer]:
        pending = self._pending.pop(reply.id, None)
        if pending is None:
            self._count_foreign(Problem(ProblemCode.DAMAGED, "Its probe answers what nobody has asked."))
        elif pending.is_late:
            return
        elif reply.reason is not None:
            problem = Problem(ProblemCode.UNKNOWN, reply.reason)
            yield Answer(self.pid, reply.id, pending.ask, problem=problem)
        else:
            try:
                yield Answer(self.pid, reply.id, pending.ask, result_of(pending.ask, reply))
            except ProtocolError as error:
                yield Answer(self.pid, reply.id, pending.ask, problem=error.problem)

    def _count_foreign(self, problem: Problem) -> None:
        self._foreign += 1
        if self._foreign > _MOST_FOREIGN:
            raise DroppedError(problem)
