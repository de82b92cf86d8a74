"""Answers the requests of clients: at once, or after a time, while the probe serves everyone else."""

from __future__ import annotations

import time
from functools import partial

from . import flight_recorder, stacks
from .debug import log_exception
from .identity import MAX_TEXT_LENGTH
from .messages import RefusedError, encode
from .observation import observe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator
    from typing import Any, Callable, Union

    from .allocator import Allocator
    from .kineto import Kineto
    from .pytorch import Torch
    from .server import ClientConnection
    from .training import Training

    Fields = dict[str, Any]
    """The fields that a result adds to the message ``answer``."""
    Steps = Generator[float, None, Fields]
    """A result that takes time: yields the seconds until it wants to go on, and returns the fields. It is closed when
    the client or the probe has gone, so that it undoes in ``finally`` what it began."""

_MAX_BLOCKS = 200_000
_REST_FACTOR = 10.0
_MAX_REST_SECONDS = 5.0
"""After an answer, requests are refused for `_REST_FACTOR` times as long as it took, so that clients cannot take the
program's time."""
_BUSY = "The probe has just answered a request; try again in a moment."
_NO_CONTEXT = "The process has no CUDA context."
_IN_PROGRESS = "The probe is answering a request of this kind; try again when it is done."


class _Pending:
    """A request whose answer takes time."""

    def __init__(self, client: ClientConnection, request: Fields, steps: Steps) -> None:
        self.client = client
        self.request = request
        self.steps = steps
        self.resume_at = 0.0
        self.started_at = time.monotonic()


class Requests:
    """The requests of all clients.

    Args:
        torch: The PyTorch of this process.
        allocator: Its allocator.
        training: Its training.
        sample_now: Has the probe send statistics as soon as possible.
        detach: Has the probe end and leave the process.
    """

    def __init__(
        self,
        torch: Torch,
        allocator: Allocator,
        training: Training,
        sample_now: Callable[[], None],
        detach: Callable[[], None],
    ) -> None:
        self._torch = torch
        self._allocator = allocator
        self._sample_now = sample_now
        self._detach = detach
        self._rest_until = 0.0
        self._pending: list[_Pending] = []
        self._kineto: Kineto | None = None
        self._handlers: dict[str, tuple[Callable[[Fields], Union[Fields, Steps]], bool]] = {
            "summary": (self._summary, True),
            "segments": (self._segments, True),
            "empty_cache": (self._empty_cache, True),
            "observe": (partial(observe, training), False),
            "trace": (self._trace, False),
            "memory_history": (self._memory_history, True),
            "stacks": (_stacks, False),
            "flight_recorder": (_flight_recorder, False),
            "detach": (self._end, False),
        }
        """By kind: what answers the request, and whether that needs a CUDA context."""

    @property
    def next_resume(self) -> float:
        """When the next answer that takes time goes on, in monotonic seconds; infinite without one."""
        check = float("inf") if self._kineto is None else self._kineto.next_check
        return min((pending.resume_at for pending in self._pending), default=check)

    @property
    def closing_seconds(self) -> float:
        """How long `close` may take."""
        return 0.0 if self._kineto is None else self._kineto.closing_seconds

    def begin(self, client: ClientConnection, request: Fields) -> None:
        """Answer a request, at once or later through `resume`.

        Raises:
            OSError: The client closed the connection.
            ProbeEndedError: The program closed the connection.
        """
        answer = self._begin(client, request)
        if answer is not None:
            client.send(encode(answer))

    def resume(self, clients: Collection[ClientConnection]) -> Iterator[tuple[ClientConnection, Fields]]:
        """Go on with the answers that are due; yield those that are complete. Those of clients that have gone end."""
        if self._kineto is not None:
            self._kineto.check()
        for pending in list(self._pending):
            if pending.client not in clients:
                self._pending.remove(pending)
                _close(pending.steps)
            elif time.monotonic() >= pending.resume_at:
                try:
                    pending.resume_at = time.monotonic() + next(pending.steps)
                except StopIteration as end:
                    self._pending.remove(pending)
                    seconds = time.monotonic() - pending.started_at
                    yield pending.client, _answer(pending.request, seconds, end.value)
                except Exception as error:  # the client sees what PyTorch raised
                    log_exception()
                    self._pending.remove(pending)
                    yield pending.client, _refusal(pending.request, _description(error))

    def close(self) -> None:
        """End all requests without an answer."""
        pending, self._pending = self._pending, []
        for item in pending:
            _close(item.steps)
        if self._kineto is not None:
            self._kineto.close()

    def _begin(self, client: ClientConnection, request: Fields) -> Fields | None:
        """The answer, or None if it takes time."""
        start = time.monotonic()
        reason = self._refusal(str(request.get("ask")), start)
        if reason:
            return _refusal(request, reason)
        try:
            result = self._handlers[request["ask"]][0](request)
        except Exception as error:  # the client sees what PyTorch raised
            log_exception()
            return _refusal(request, _description(error))
        if not isinstance(result, dict):
            self._pending.append(_Pending(client, request, result))
            return None
        seconds = time.monotonic() - start
        is_change = "after" in result
        self._rest_until = start + seconds + (0.0 if is_change else min(_REST_FACTOR * seconds, _MAX_REST_SECONDS))
        return _answer(request, seconds, result)

    def _refusal(self, kind: str, now: float) -> str:
        """Why a request of a kind is refused now, in a sentence; empty if it is not."""
        _, needs_context = self._handlers.get(kind, (None, None))
        if needs_context is None:
            return "This probe does not know the request."
        if now < self._rest_until and kind != "detach":  # whoever wants the probe to go need not wait for that
            return _BUSY
        if needs_context and self._torch.state != "live":
            return _NO_CONTEXT
        return _IN_PROGRESS if any(pending.request["ask"] == kind for pending in self._pending) else ""

    def _summary(self, request: Fields) -> Fields:
        return {"text": self._allocator.summary(int(request.get("ordinal", 0)))}

    def _segments(self, _: Fields) -> Fields:
        segments, is_cut = self._allocator.segments(_MAX_BLOCKS)
        return {"segments": segments, "cut": is_cut}

    def _trace(self, request: Fields) -> Steps:
        from .kineto import Kineto  # imported late: most processes are never traced

        if self._kineto is None:
            self._kineto = Kineto(self._torch, self._allocator.has_graphs)
        return self._kineto.record(request)

    def _memory_history(self, request: Fields) -> Steps:
        from .allocator_history import record

        return record(self._torch, request)

    def _end(self, _: Fields) -> Fields:
        self._detach()
        return {}

    def _empty_cache(self, _: Fields) -> Fields:
        before = self._allocator.devices()
        self._allocator.empty_cache()
        self._sample_now()
        return {"before": before, "after": self._allocator.devices()}


def _stacks(_: Fields) -> Fields:
    return stacks.all_stacks()


def _flight_recorder(request: Fields) -> Fields:
    return flight_recorder.recording(is_brief=bool(request.get("brief")))


def _answer(request: Fields, seconds: float, result: Fields) -> Fields:
    return {**_head(request), "ok": True, "reason": "", "seconds": seconds, **result}


def _refusal(request: Fields, reason: str) -> Fields:
    return {**_head(request), "ok": False, "reason": reason}


def _head(request: Fields) -> Fields:
    return {"event": "answer", "id": request.get("id")}


def _description(error: Exception) -> str:
    if isinstance(error, RefusedError):
        return str(error)
    return f"{type(error).__name__}: {error}"[:MAX_TEXT_LENGTH]


def _close(steps: Steps) -> None:
    try:
        steps.close()
    except Exception:  # whatever fails there is no concern of the program
        log_exception()
