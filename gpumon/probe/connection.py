"""The connection to one probe: its lines, its requests with their deadlines, and a limit on the bytes read from it."""

import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpumon.core.allocator import ProbedProcess, ProbeReading
from gpumon.core.problems import Problem, ProblemCode
from gpumon.probe.messages import Answer, Probe, ProbeMessage, RequestKind
from gpumon.probe.protocol import MAX_ANSWER_BYTES, MAX_LINE_BYTES, ProtocolError, Reply, parse, request_line, result_of

GREETING_SECONDS: Final = 30.0
"""Timeout of the message ``hello``. A process in a long call that holds the GIL sends it late."""
ANSWER_SECONDS: Final = 30.0
"""Timeout of an answer to a request that takes no time by itself; the others have their time more."""
_TRACE_SECONDS: Final = 80.0
"""What a trace takes in addition to its duration at most: to prepare Kineto, until it starts, and to write the file."""
BYTES_PER_SECOND: Final = 256 << 10
"""Read from a probe that has no open request. A probe that sends more waits, as it would for any slow reader."""
_MAX_INVALID_LINES: Final = 100
_CHUNK_BYTES: Final = 256 << 10

_ENDED: Final = Problem(ProblemCode.NOT_FOUND, "The process or its probe has ended.")
_REJECTED: Final = Problem(
    ProblemCode.UNRESPONSIVE, "The probe closes the connection. It may already have its maximum number of clients."
)
_NO_GREETING: Final = Problem(ProblemCode.UNRESPONSIVE, f"The probe has sent no message for {GREETING_SECONDS:.0f} s.")
_LINE_TOO_LONG: Final = Problem(ProblemCode.DAMAGED, "The probe sends a line that is too long.")
_BUSY: Final = Problem(ProblemCode.UNRESPONSIVE, "The probe has not answered the previous request of this kind yet.")
_NOT_ACCEPTED: Final = Problem(ProblemCode.UNRESPONSIVE, "The probe does not accept requests now.", "Try again.")


class DroppedError(Exception):
    """The connection has to be closed; ``problem`` gives the reason."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


def answer_seconds(ask: RequestKind, arguments: Mapping[str, int], now_epoch: float) -> float:
    """Timeout of an answer.

    Args:
        ask: The request.
        arguments: Its arguments, such as ``milliseconds`` that it takes, and when it begins if that is later.
        now_epoch: Seconds since the epoch.
    """
    delay = max(0.0, arguments.get("start_at_epoch_milliseconds", 0) / 1000.0 - now_epoch)
    seconds = ANSWER_SECONDS + delay + arguments.get("milliseconds", 0) / 1000.0
    return seconds + (_TRACE_SECONDS if ask is RequestKind.TRACE else 0.0)


@dataclass(slots=True)
class _PendingRequest:
    ask: RequestKind
    seconds: float
    deadline: float
    is_late: bool = False

    @property
    def timeout(self) -> Problem:
        """That the answer has not come in time."""
        return Problem(
            ProblemCode.UNRESPONSIVE,
            f"The probe has not answered within {self.seconds:.0f} s.",
            "The process may be in a long call that holds the GIL. The probe handles the request when it returns.",
        )


class Connection:
    """A connected probe.

    Args:
        connection: Its socket, in non-blocking mode.
        pid: The PID of its process, as the kernel reports it.
        now: Monotonic seconds.
        is_foreign: Whether it belongs to another user.

    Attributes:
        probe: The state of the process; None until the probe has sent ``hello``.
    """

    def __init__(self, connection: socket.socket, pid: int, now: float, *, is_foreign: bool = False) -> None:
        self.pid = pid
        self._is_foreign = is_foreign
        self.probe: Probe | None = None
        self._socket = connection
        self._greeting_deadline = now + GREETING_SECONDS
        self._allowance = BYTES_PER_SECOND
        self._partial = bytearray()
        self._invalid_lines = 0
        self._pending: dict[int, _PendingRequest] = {}

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._socket.fileno()

    @property
    def may_read(self) -> bool:
        """Whether more bytes may be read in this second."""
        return self._allowance > 0

    def refill(self) -> None:
        """Allow the bytes of another second."""
        self._allowance = max(self._allowance, BYTES_PER_SECOND)

    def send(self, line: bytes) -> None:
        """Send a line immediately or not at all.

        Raises:
            DroppedError: The connection is closed, or has accepted only a part of the line.
            BlockingIOError: The socket accepts no bytes now.
        """
        try:
            sent = self._socket.send(line)
        except BlockingIOError:
            raise
        except OSError:
            raise DroppedError(_ENDED) from None
        if sent < len(line):
            raise DroppedError(_NOT_ACCEPTED)

    def ask(self, ask: RequestKind, number: int, arguments: Mapping[str, int], now: float) -> Iterator[Answer]:
        """Send a request; yield an answer with the problem if that is not possible.

        Raises:
            DroppedError: The connection is closed.
        """
        if any(pending.ask is ask for pending in self._pending.values()):
            yield Answer(self.pid, number, ask, problem=_BUSY)
            return
        seconds = answer_seconds(ask, arguments, time.time())
        self._pending[number] = _PendingRequest(ask, seconds, now + seconds)
        self._allowance += MAX_ANSWER_BYTES[ask]
        try:
            self.send(request_line(ask, number, arguments))
        except BlockingIOError:
            del self._pending[number]
            yield Answer(self.pid, number, ask, problem=_NOT_ACCEPTED)

    def receive(self, now: float) -> Iterator[ProbeMessage]:
        """Read what the probe has sent, within the allowance.

        Raises:
            DroppedError: The connection is closed, or the probe violates the protocol.
        """
        try:
            data = self._socket.recv(min(self._allowance, _CHUNK_BYTES))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            raise DroppedError(_REJECTED if self.probe is None else _ENDED)
        self._allowance -= len(data)
        first, *rest = data.split(b"\n")
        self._partial += first
        for piece in rest:
            yield from self._handle_line(bytes(self._partial), now)
            self._partial = bytearray(piece)
        if len(self._partial) > self._max_bytes:
            raise DroppedError(_LINE_TOO_LONG)

    def expire(self, now: float) -> Iterator[Answer]:
        """Yield an answer for every request that has timed out. An answer that still arrives is ignored.

        Raises:
            DroppedError: The probe has not sent ``hello`` in time.
        """
        if self.probe is None and now > self._greeting_deadline:
            raise DroppedError(_NO_GREETING)
        for number, pending in self._pending.items():
            if not pending.is_late and now > pending.deadline:
                pending.is_late = True
                yield Answer(self.pid, number, pending.ask, problem=pending.timeout)

    def close(self) -> Iterator[ProbeMessage]:
        """Close the socket; yield an answer for every open request, and the final state of the process."""
        self._socket.close()
        for number, pending in self._pending.items():
            if not pending.is_late:
                yield Answer(self.pid, number, pending.ask, problem=_ENDED)
        if self.probe is not None:
            self.probe = replace(self.probe, connected=False)
            yield self.probe

    @property
    def _max_bytes(self) -> int:
        return max(MAX_LINE_BYTES, *(MAX_ANSWER_BYTES[pending.ask] for pending in self._pending.values()), 0)

    def _handle_line(self, line: bytes, now: float) -> Iterator[ProbeMessage]:
        if len(line) > self._max_bytes:
            raise DroppedError(_LINE_TOO_LONG)
        try:
            message = parse(line, self.pid)
        except ProtocolError as error:
            if error.problem.code is ProblemCode.NEWER_SCHEMA:
                raise DroppedError(error.problem) from None
            self._count_invalid(error.problem)
            return
        if isinstance(message, Reply):
            yield from self._handle_reply(message)
        elif isinstance(message, ProbedProcess) and self.probe is None:
            self.probe = Probe(message, None, now, is_foreign=self._is_foreign)
            yield self.probe
        elif isinstance(message, ProbeReading) and self.probe is not None:
            self.probe = replace(self.probe, reading=message, arrived_monotonic=now)
            yield self.probe
        elif message is not None:
            self._count_invalid(Problem(ProblemCode.DAMAGED, "The probe sends messages in the wrong order."))

    def _handle_reply(self, reply: Reply) -> Iterator[Answer]:
        pending = self._pending.pop(reply.id, None)
        if pending is None:
            self._count_invalid(Problem(ProblemCode.DAMAGED, "The probe answers a request that gpumon did not send."))
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

    def _count_invalid(self, problem: Problem) -> None:
        self._invalid_lines += 1
        if self._invalid_lines > _MAX_INVALID_LINES:
            raise DroppedError(problem)
