"""Records a trace of this process with Kineto while the program runs, as the daemon that Kineto's own client asks.

`torch.profiler`, started on a thread, would stall the program for half a second. Kineto's client for traces on demand
does not: a thread of Kineto asks a daemon over a Unix datagram socket for a configuration, records, and writes the
file. The daemon is the probe itself, and only while a trace is wanted: between two traces the client finds no socket.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress

from .kineto_client import ALREADY_USED, TEARDOWN, KinetoClient, end_without_destructors, user_profiler_is_active
from .kineto_daemon import DaemonSocket
from .messages import RefusedError
from .written_files import MAX_FILE_BYTES, new_file, remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Callable

    from .pytorch import Torch

MIN_MILLISECONDS, MAX_MILLISECONDS = 200, 10_000
_ARM_SECONDS = 10.0
"""Longest time until the main thread runs a bytecode; it may be in a long call into C."""
_POLL_SECONDS = 15.0
"""Longest time until Kineto asks: once a second, or after five where the program has set KINETO_CONFIG."""
_START_SECONDS = 2.0
"""When Kineto starts after it was asked, unless the request gives a time: two intervals of its thread."""
_MIN_LEAD_SECONDS = 1.2
"""Kineto drops a request whose start is closer: its thread looks once a second."""
_LATE_SECONDS = 1.0
_MAX_ATTEMPTS = 4
"""How often a request is given to Kineto that drops it."""
_WRITE_SECONDS = 60.0
"""Longest time to write the file after the recording."""
_CLOSE_SECONDS = 15.0
"""Longest time that the end of the process waits for a file: it could crash while Kineto writes (pytorch#129626)."""
_FAST_INTERVAL, _ANSWER_INTERVAL, _INTERVAL = 0.01, 0.04, 0.1
"""Seconds between two looks: for the first request, for later ones, where Kineto waits 90 ms for an answer, and at the
file."""
_MIN_BYTES_FREE, _BYTES_PER_SECOND = 500 << 20, 200 << 20
"""Room that a trace needs: 100 MB a second were measured for a program that launches 20,000 kernels in it."""

_DETACH_SECONDS = 2.0
"""Kineto detaches CUPTI in the next call of the program to CUDA after a trace; it must not after one of the program."""
_MIN_CUDA = (12, 6)
"""Detaching CUPTI crashed programs with earlier releases (pytorch#146604)."""
_STAYS = (
    "CUPTI would stay attached to this process until it ends, because {}. Launches outside of CUDA graphs then take "
    "longer: steps that are limited by launches took 20 to 40 % longer on H200."
)
_GRAPHS = "it has CUDA graphs, which fail when CUPTI is detached"

_client: KinetoClient | None = None


class Recording:
    """A trace that Kineto has been asked to record.

    Args:
        stem: The path without the PID and the suffix, which Kineto appends.
        begins_in: Seconds until its start.
        seconds: How long it records.
    """

    def __init__(self, stem: str, begins_in: float, seconds: float) -> None:
        self.path = f"{stem}_{os.getpid()}.json"
        self.begins_at = time.monotonic() + begins_in
        self.ends_at = self.begins_at + seconds
        self.deadline = self.ends_at + _WRITE_SECONDS
        self.is_abandoned = False

    @property
    def is_late(self) -> bool:
        """Whether Kineto must have started by now, even on a busy host."""
        return time.monotonic() > self.begins_at + _LATE_SECONDS

    @property
    def is_complete(self) -> bool:
        """Whether the file is complete: Kineto renames it when it has closed it."""
        try:
            with open(self.path, "rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) == b"}"
        except OSError:
            return False

    @property
    def size_bytes(self) -> int:
        """The size of the file so far."""
        for path in (self.path, f"{self.path}.tmp"):
            with suppress(OSError):
                return os.stat(path).st_size
        return 0

    def remove(self) -> None:
        """Remove the file."""
        remove(self.path, f"{self.path}.tmp")


class Kineto:
    """The traces of this process, one at a time.

    Args:
        torch: The PyTorch of this process.
        has_graphs: Whether the program has captured CUDA graphs.

    Attributes:
        recording: What Kineto records or writes now, or None.
    """

    def __init__(self, torch: Torch, has_graphs: Callable[[], bool]) -> None:
        self.recording: Recording | None = None
        self._torch = torch
        self._has_graphs = has_graphs
        self._daemon: DaemonSocket | None = None
        self._pid = os.getpid()
        self._detached_at = float("inf")
        self._was_detached = False

    @property
    def next_check(self) -> float:
        """When `check` has something to do, in monotonic seconds; infinite if never."""
        recording = self.recording
        if recording is None and self._detached_at < float("inf"):
            return self._detached_at
        return time.monotonic() + _INTERVAL if recording is not None and recording.is_abandoned else float("inf")

    @property
    def closing_seconds(self) -> float:
        """How long `close` may take."""
        recording = self.recording
        return 0.0 if recording is None else max(0.0, recording.ends_at + _CLOSE_SECONDS - time.monotonic())

    def record(self, request: dict[str, Any]) -> Generator[float, None, dict[str, Any]]:
        """Record a trace.

        Args:
            request: ``milliseconds`` to record, ``start_at_epoch_milliseconds``, 0 for as soon as possible, and
                ``may_stay``: whether to record although CUPTI stays attached afterwards.

        Returns:
            The fields of a `gpumon.probe.messages.WrittenFile`.

        Raises:
            RefusedError: There is no trace; the text gives the reason.
        """
        milliseconds, start_at = int(request.get("milliseconds", 0)), int(request.get("start_at_epoch_milliseconds", 0))
        if not MIN_MILLISECONDS <= milliseconds <= MAX_MILLISECONDS:
            raise RefusedError(f"A trace takes {MIN_MILLISECONDS} to {MAX_MILLISECONDS:,} ms.")
        if self.recording is not None:
            raise RefusedError("Kineto still writes the previous trace; try again in a moment.")
        _refuse_user_profiler()
        reason = self._why_attached()
        if reason and not request.get("may_stay", 1):
            raise RefusedError(_STAYS.format(reason))
        seconds = milliseconds / 1000.0
        stem = new_file("trace", max(_MIN_BYTES_FREE, int(_BYTES_PER_SECOND * (1.0 + seconds))))
        client = self._client()
        self._daemon = daemon = DaemonSocket(client.folder)
        try:
            yield from _wait_until_armed(client)
            client.detach_cupti(is_wanted=not reason)
            recording, notes = yield from self._deliver(daemon, stem, seconds, start_at)
            daemon.close()
            client.forget_variables()
            size = yield from self._wait_for_file(recording)
        except GeneratorExit:  # the client has gone; Kineto cannot be stopped
            self._abandon()
            raise
        except Exception:
            self._discard()
            raise
        finally:
            daemon.close()
            self._daemon = None
        self.recording = None
        self._was_detached = self._was_detached or not reason
        self._detached_at = time.monotonic() + _DETACH_SECONDS
        notes += [_STAYS.format(reason).replace("would stay", "stays")] if reason else []
        return {"path": recording.path, "size_bytes": size, "notes": notes}

    def check(self) -> None:
        """Remove the file of a client that has gone, when Kineto has written it."""
        recording = self.recording
        if recording is None and time.monotonic() > self._detached_at:
            self._detached_at = float("inf")
            self._client().detach_cupti(is_wanted=False)
        if recording is None or not recording.is_abandoned:
            return
        if recording.is_complete or time.monotonic() > recording.deadline or user_profiler_is_active():
            recording.remove()
            self.recording = None

    def close(self) -> None:
        """Wait for the file of a recording, within limits, and remove it; in a forked child, only close the socket."""
        if self._daemon is not None:
            self._daemon.close()
        recording = self.recording
        if recording is None or self._pid != os.getpid():
            return
        end = recording.ends_at + _CLOSE_SECONDS
        while time.monotonic() < end and not recording.is_complete and not user_profiler_is_active():
            time.sleep(_FAST_INTERVAL)
        recording.remove()
        self.recording = None

    def _abandon(self) -> None:
        if self.recording is not None:
            self.recording.is_abandoned = True

    def _discard(self) -> None:
        if self.recording is not None:
            self.recording.remove()
            self.recording = None

    def _why_attached(self) -> str:
        """Why CUPTI cannot be detached after a trace, as a clause; empty if it can.

        Raises:
            RefusedError: It was detached, and the program has captured CUDA graphs since.
        """
        for name in (TEARDOWN, "DISABLE_CUPTI_LAZY_REINIT"):
            if name in os.environ:
                return f"{name} is set"
        version = re.match(r"(\d+)\.(\d+)", str(getattr(sys.modules.get("torch.version"), "cuda", None)))
        if version is not None and (int(version[1]), int(version[2])) < _MIN_CUDA:
            return f"CUDA {version[0]} cannot detach it"
        if version is None or not self._has_graphs():
            return ""
        if self._was_detached:
            raise RefusedError("CUPTI was detached after the last trace; the CUDA graphs captured since could fail.")
        return _GRAPHS

    def _client(self) -> KinetoClient:
        """Kineto's client in this process, which the main thread arms as soon as it can."""
        global _client  # noqa: PLW0603 - it belongs to the process
        if _client is None or _client.pid != os.getpid():
            _client = KinetoClient(self._torch)
        return _client

    def _deliver(
        self, daemon: DaemonSocket, stem: str, seconds: float, start_at: int
    ) -> Generator[float, None, tuple[Recording, list[str]]]:
        """Answer Kineto's client until it records; return the recording, and notes on it.

        Kineto looks once a second whether a start is near, and drops a request whose start has passed when it looks. It
        then asks again although it should be busy, and gets the request again.

        Raises:
            RefusedError: It does not ask, is busy, or drops the request again and again.
        """
        deadline = time.monotonic() + _POLL_SECONDS
        attempts, is_busy = 0, False
        recording: Recording | None = None
        notes: list[str] = []
        while time.monotonic() < deadline:
            for is_free, address in daemon.requests():
                is_wanted = recording is None or (recording.is_late and not recording.is_complete)
                is_busy = is_busy or not is_free
                if is_free and is_wanted and attempts < _MAX_ATTEMPTS and not user_profiler_is_active():
                    begins_in, notes = _lead(start_at)
                    configuration = _configuration(stem, seconds, 0 if notes else start_at)
                    if daemon.answer(configuration, address):
                        self.recording = recording = Recording(stem, begins_in, seconds)
                        deadline, attempts = recording.begins_at + _POLL_SECONDS, attempts + 1
                    continue
                daemon.answer(b"", address)
                if recording is not None and not is_free:
                    return recording, notes
            if recording is not None:
                _refuse_user_profiler()
                if recording.is_complete:
                    return recording, notes
            yield _FAST_INTERVAL if recording is None else _ANSWER_INTERVAL
        _refuse_user_profiler()
        if recording is not None:
            raise RefusedError("Kineto has dropped the request; this host may be overloaded. Try again.")
        raise RefusedError(
            "Kineto is busy with another profile of this process."
            if is_busy
            else f"Kineto has not asked for its configuration within {_POLL_SECONDS:.0f} s."
        )

    def _wait_for_file(self, recording: Recording) -> Generator[float, None, int]:
        """Wait until the file is complete; return its size in bytes.

        Raises:
            RefusedError: There will be none, or it is too large.
        """
        while not recording.is_complete:
            _refuse_user_profiler()
            if recording.size_bytes > MAX_FILE_BYTES:
                raise RefusedError(f"The trace is larger than {MAX_FILE_BYTES >> 30} GiB: record a shorter time.")
            if time.monotonic() > recording.deadline:
                raise RefusedError(
                    f"Kineto has written no trace within {_WRITE_SECONDS:.0f} s after its end: it may have dropped the "
                    "request because another profiler is active."
                )
            yield _INTERVAL
        size = recording.size_bytes
        if size > MAX_FILE_BYTES:
            raise RefusedError(f"The trace is larger than {MAX_FILE_BYTES >> 30} GiB: record a shorter time.")
        return size


def at_exit() -> None:
    """Remove the folder of the client's sockets, at the end of the process."""
    if _client is not None:
        _client.remove_folder()


def after_fork() -> None:
    """Let a forked child end, although it has only a part of the client."""
    if _client is not None:
        end_without_destructors()


def _wait_until_armed(client: KinetoClient) -> Generator[float, None, None]:
    """Wait until the main thread has armed the client.

    Raises:
        RefusedError: It has not within the time; it may still do so, and the next request finds that.
    """
    global _client  # noqa: PLW0603 - it belongs to the process
    deadline = time.monotonic() + _ARM_SECONDS
    while not client.is_armed:
        if time.monotonic() > deadline:
            if client.has_begun:
                _client = None
                raise RefusedError(ALREADY_USED)
            raise RefusedError(
                f"The main thread has run no Python code for {_ARM_SECONDS:.0f} s; it has to prepare Kineto."
            )
        yield _FAST_INTERVAL


def _refuse_user_profiler() -> None:
    if user_profiler_is_active():
        raise RefusedError("The program's own torch.profiler is active; a process can have one profile at a time.")


def _lead(start_at: int) -> tuple[float, list[str]]:
    """Seconds until the start, and a note if the start that was wanted has passed."""
    if not start_at:
        return _START_SECONDS, []
    lead = start_at / 1000.0 - time.time()
    if lead < _MIN_LEAD_SECONDS:
        late = _START_SECONDS - lead
        return _START_SECONDS, [f"The recording began {late:.1f} s later than requested."]
    return lead, []


def _configuration(stem: str, seconds: float, start_at: int) -> bytes:
    """What Kineto's client gets. Stacks are left out: they slow the program down."""
    lines = {
        "ACTIVITIES_LOG_FILE": f"{stem}.json",
        "PROFILE_START_TIME": start_at,
        "ACTIVITIES_DURATION_MSECS": int(1000 * seconds),
        "ACTIVITIES_WARMUP_PERIOD_SECS": 0,
        "PROFILE_WITH_STACK": "false",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items()).encode()
