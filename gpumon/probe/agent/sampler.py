"""The probe's thread: samples the allocator and the steps at an interval, and answers requests."""

from __future__ import annotations

import _thread
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from functools import partial

from .allocator import Allocator
from .debug import log_exception
from .hooks import Hooks
from .identity import MAX_TEXT_LENGTH, process_facts
from .messages import DEFAULT_INTERVAL, MAX_INTERVAL, MIN_INTERVAL, SCHEMA, encode
from .oom import MAX_FILES, OomWriter
from .owned_socket import OwnedSocket, ProbeEndedError
from .pytorch import STATES, Torch
from .requests import Requests
from .server import ClientConnection, SocketServer
from .stacks import StackTimer
from .training import Training

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

MAX_SHARE = 0.0005
"""Limit on the CPU time of the thread, as a share of the process's time. What the program pays for handing over the GIL
comes on top."""
_JITTER = 0.1
_GOLDEN_RATIO = 0.6180339887
"""Intervals are up to `_JITTER` longer, by a low-discrepancy sequence: samples in step with the training loop would
always see the same point of it."""
_WAIT_SECONDS = 0.25
_LONG_WAIT_SECONDS = 1.0
_LONG_WAIT_AFTER_SECONDS = 60.0
"""Interval of the checks whether the program has initialized CUDA: short at first, long from a minute on."""
_SOCKET_CHECK_SECONDS = 10.0
_THREAD_END_SECONDS = 0.0001
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
"""Signals that the probe's thread itself would cause; the kernel kills a process with such a fault blocked."""


class Sampler:
    """Samples the allocator and serves the clients, on a thread that `threading` does not know.

    The thread is therefore not counted, traced or joined like the program's threads.

    Args:
        opens_at: The state of PyTorch, one of `STATES`, from which on there is a socket.
        observe: Registers the OOM observer; called with every sample, because it needs a CUDA context.
        forget: Removes the rest of the probe from the process, after a client has requested that.

    Attributes:
        is_pausing: Whether the thread ends, or has ended, until `resume`.
    """

    def __init__(self, opens_at: str, observe: Callable[[], None], forget: Callable[[], None]) -> None:
        self.torch = Torch()
        self.allocator = Allocator(self.torch)
        self.oom_writer = OomWriter(self.torch, self.allocator)
        self.training = Training()
        self.server = SocketServer()
        self.requests = Requests(self.torch, self.allocator, self.training, self._sample_now, self._detach)
        self._hooks = Hooks(self.training)
        self.stack_timer = StackTimer()
        self._opens_at = opens_at
        self._observe = observe
        self._forget = forget
        self._is_detaching = False
        self._is_stopping = False
        self.is_pausing = False
        self._has_ended = _thread.allocate_lock()
        self._task = ""  # what the kernel has of the thread
        self._wakeup: tuple[OwnedSocket, OwnedSocket] | None = None
        self._started_at = time.monotonic()
        self._next_sample = 0.0
        self._samples = 0
        self._sample_seconds = 0.0
        self._next_socket_check = 0.0
        self._has_queued_call = False
        self._failure = ""

    def start(self) -> None:
        """Start the thread, with the signals of the program blocked, so that only the program's threads receive them.

        A thread begins with the signal mask of the one that starts it.

        Raises:
            OSError: The process has no free descriptor.
            RuntimeError: The process cannot start a thread.
        """
        waiting, waking = socket.socketpair()
        for end in (waiting, waking):
            end.setblocking(False)
        self._wakeup = OwnedSocket(waiting), OwnedSocket(waking)
        _load_libgcc()
        self._has_ended.acquire()
        self._hooks.add_step_hook()
        self._start_thread(self._wakeup[0])

    def _start_thread(self, wakeup: OwnedSocket) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
            _thread.start_new_thread(self._run, (wakeup, _thread.get_native_id()))
        except BaseException:
            self._close()
            self._wakeup = None
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def open_from(self, state: str) -> None:
        """Open the socket from a state of PyTorch on, one of `STATES`, if that is earlier than was said before."""
        self._opens_at = min(self._opens_at, state, key=STATES.index)

    def pause(self, timeout_seconds: float) -> None:
        """End the thread until `resume`, unless the program has more threads anyway.

        Args:
            timeout_seconds: Longest time to wait for the end.
        """
        if self._wakeup is None or not self._has_ended.locked() or self._is_stopping or self.is_pausing:
            return
        if len(os.listdir("/proc/self/task")) > 2:  # the main thread and the probe's
            return
        self.is_pausing = True
        self._wakeup[1].get().send(b"!")
        self.is_pausing = self._await_end(timeout_seconds)

    def resume(self) -> None:
        """Start the thread again.

        Raises:
            RuntimeError: The process cannot start a thread.
            ProbeEndedError: The program has closed all descriptors.
        """
        if self.is_pausing and self._wakeup is not None:
            self.is_pausing = False
            with suppress(BlockingIOError):
                self._wakeup[0].get().recv(1)
            self._start_thread(self._wakeup[0])

    @property
    def has_started(self) -> bool:
        """Whether there is, or was, a thread."""
        return self._wakeup is not None

    def stop(self, timeout_seconds: float) -> None:
        """Stop the thread, and wait for it: the interpreter must not be finalized in the middle of a sample.

        Args:
            timeout_seconds: Longest time to wait. While Kineto records or writes a trace it is longer: the process
                must not end in the middle.
        """
        if self._wakeup is not None and not self._is_stopping:
            timeout_seconds += self.requests.closing_seconds
            self._is_stopping = True
            if self.is_pausing:
                self.is_pausing = False
                self._close()
                self._has_ended.release()
            with suppress(OSError, ProbeEndedError):
                self._wakeup[1].get().send(b"!")
            self._await_end(timeout_seconds)
            self.server.remove_file()

    def _await_end(self, timeout_seconds: float) -> bool:
        """Wait until the kernel no longer counts the thread, after its last bytecode; return whether it ended."""
        deadline = time.monotonic() + timeout_seconds
        has_ended = self._has_ended.acquire(timeout=timeout_seconds)
        while os.path.exists(self._task) and time.monotonic() < deadline:
            time.sleep(_THREAD_END_SECONDS)
        return has_ended

    def abandon(self) -> None:
        """Close the descriptors that a forked child has inherited; the thread itself does not exist in the child."""
        self._is_stopping = True  # or the exit of the child would wait for the thread
        self.stack_timer.abandon()
        self._close()

    def _close(self) -> None:
        self._hooks.remove()
        self.requests.close()
        self.stack_timer.close()
        for end in self._wakeup or ():
            end.close()
        self.server.close()

    def _run(self, wakeup: OwnedSocket, starter: int) -> None:
        """The body of the thread. No exception leaves it.

        Args:
            wakeup: Readable when the probe is stopped.
            starter: Native ID of the thread that started this one.
        """
        try:
            _require_own_thread(starter)
            self._task = f"/proc/self/task/{_thread.get_native_id()}"
            self._wait_for_torch(wakeup)
            if self.server.path is None and not self.is_pausing:
                self.server.open()
            while not self._is_stopping and not self.is_pausing:
                self._serve_until_sample(wakeup)
            if not self.is_pausing:
                self._send_sample(time.monotonic())
        except BaseException:  # the probe ends silently and the program goes on
            log_exception()
        finally:
            if self._is_detaching:  # perhaps while it pauses, which the main thread waits for
                self._hooks.remove()
                self._forget()
            if self._is_detaching or not self.is_pausing:
                self._close()
            self._has_ended.release()

    def _detach(self) -> None:
        """End the thread after the requests that have arrived, and remove the probe from the process."""
        self._is_detaching = self._is_stopping = True

    def _wait_for_torch(self, wakeup: OwnedSocket) -> None:
        """Wait without a socket: most processes never import PyTorch, and most forked ones never use it.

        It returns early if the program forks.

        Raises:
            ProbeEndedError: The probe was stopped.
        """
        while STATES.index(self.torch.state) < STATES.index(self._opens_at):
            self._queue_observer()
            if self._is_stopping:
                raise ProbeEndedError("stopped before the program initialized CUDA")
            if self.is_pausing:
                return
            is_late = time.monotonic() - self._started_at > _LONG_WAIT_AFTER_SECONDS
            self._wait_for_stop(wakeup, _LONG_WAIT_SECONDS if is_late else _WAIT_SECONDS)

    def _wait_for_stop(self, wakeup: OwnedSocket, seconds: float) -> None:
        """Wait until the probe is stopped.

        Raises:
            ProbeEndedError: The program has closed all descriptors, as a daemon does when it starts.
        """
        poll = select.poll()
        poll.register(wakeup.get(), select.POLLIN)
        poll.poll(1000 * seconds)

    def _queue_observer(self) -> None:
        """Have PyTorch register the OOM observer when it creates its first context; once."""
        if not self._has_queued_call and self.torch.state == "waiting_for_cuda":
            self._has_queued_call = True
            self.torch.call_on_cuda_init(self._observe)

    def _serve_until_sample(self, wakeup: OwnedSocket) -> None:
        """Serve the clients that are ready; take a sample if one is due."""
        due = min(self._next_sample, self.requests.next_resume)
        if self.server.clients:
            due = min(due, self.stack_timer.keep(time.monotonic()))
        for client, events in self.server.wait(due - time.monotonic(), wakeup):
            self._serve(client, events)
        for client, answer in self.requests.resume(self.server.clients.values()):
            self._guarded(client, partial(ClientConnection.send, line=encode(answer)))
        now = time.monotonic()
        if now < self._next_sample:
            return
        if now >= self._next_socket_check:
            self._next_socket_check = now + _SOCKET_CHECK_SECONDS
            self.server.reopen_if_removed()
        self._send_sample(now)

    def _send_sample(self, now: float) -> None:
        """Take a sample and send it to all clients."""
        start = time.thread_time()
        line = encode(self._sample(now))
        for client in list(self.server.clients.values()):
            self._guarded(client, lambda client: client.send(line, replaceable=True))
        previous, self._sample_seconds = self._sample_seconds, time.thread_time() - start
        self._next_sample = now + self._interval(min(previous, self._sample_seconds))

    def _sample(self, now: float) -> dict[str, Any]:
        """The message ``statistics``."""
        torch = self.torch
        state = torch.state
        self._queue_observer()
        if state != STATES[0]:
            self._hooks.install()
        devices, pinned = [], None
        if state == "live" and not self._failure:
            self._observe()
            try:
                devices, pinned = self.allocator.devices(), self.allocator.pinned()
            except Exception as error:  # a release of PyTorch that this probe cannot read
                self._failure = f"{type(error).__name__}: {error}"
                log_exception()
            self.oom_writer.add_to_history(now, devices)
        self._samples += 1
        return {
            "event": "statistics",
            "state": "failed" if self._failure else state,
            "reason": self._failure[:MAX_TEXT_LENGTH],
            "monotonic_seconds": now,
            "torch_version": torch.version,
            "backend": torch.backend,
            "expandable_segments": torch.expandable_segments,
            "devices": devices,
            "pinned": pinned,
            "training": self.training.progress(),
            "cost": {
                "share": time.thread_time() / max(now - self._started_at, 1.0),
                "seconds": self._sample_seconds,
                "reads": self._samples,
            },
            "oom_files": self.oom_writer.files[-MAX_FILES:],
        }

    def _sample_now(self) -> None:
        self._next_sample = 0.0

    def _interval(self, sample_seconds: float) -> float:
        """Seconds until the next sample: as clients request, but at least so long that `MAX_SHARE` is kept."""
        requested = min((client.interval or DEFAULT_INTERVAL for client in self.server.clients.values()), default=None)
        if requested is None:
            requested = DEFAULT_INTERVAL if self.torch.state == "live" else _WAIT_SECONDS
        jitter = 1.0 + _JITTER * (self._samples * _GOLDEN_RATIO % 1.0)
        return max(requested, sample_seconds / MAX_SHARE) * jitter

    def _serve(self, client: ClientConnection, events: int) -> None:
        if not events:  # the client is new, or its socket accepts bytes again
            self._guarded(client, ClientConnection.flush if client.interval else self._greet)
        else:
            self._guarded(client, self._handle_requests)

    def _guarded(self, client: ClientConnection, call: Callable[[ClientConnection], None]) -> None:
        """Call a function with a client, and close the client's connection if the function fails."""
        try:
            call(client)
        except Exception as error:  # no client may end the service for the others
            if not isinstance(error, ConnectionError):  # one that went is no fault
                log_exception()
            self.server.drop(client)

    def _greet(self, client: ClientConnection) -> None:
        client.interval = DEFAULT_INTERVAL
        client.send(
            encode({"schema": SCHEMA, "event": "hello", **process_facts(), "stack_file": self.stack_timer.facts()})
        )
        self._next_sample = 0.0

    def _handle_requests(self, client: ClientConnection) -> None:
        for request in client.receive():
            if request.get("ask") == "pace":
                interval = request.get("interval_seconds")
                if isinstance(interval, (int, float)) and interval > 0:  # False for NaN
                    client.interval = min(max(interval, MIN_INTERVAL), MAX_INTERVAL)
                    self._next_sample = min(self._next_sample, time.monotonic() + client.interval)
            else:
                self.requests.begin(client, request)


def _require_own_thread(starter: int) -> None:
    """Check that this thread is not the one that started it, as under gevent, where the probe would block the program.

    Raises:
        ProbeEndedError: Both are the same thread.
    """
    if _thread.get_native_id() == starter:
        raise ProbeEndedError("the program's threads are green threads")


def _load_libgcc() -> None:
    """Load what ends a thread in Python 3.8, which aborts the program if there is no free descriptor to load it then.

    PyTorch has loaded it; glibc opens it in `pthread_exit`, which later releases of Python do not call.
    """
    if sys.version_info < (3, 9):
        with suppress(ImportError, OSError):
            import ctypes

            ctypes.CDLL("libgcc_s.so.1")
