"""Starts the ranks of a distributed run with torchrun, relays their events, and ends all of them together.

torchrun starts each rank in a separate session and passes no file descriptors on, so every rank connects to an abstract
Unix socket. The socket carries the events of the rank; when it is closed, the rank ends (`_kit.rank.join`). A rank
that cannot react, such as one blocked in a driver call, is killed by its PID, and if this process is killed, by the
guard (`_kit.guard`), which recognizes it by its environment.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, cast

from _kit.events import Reporter, UnsupportedError
from _kit.ranks_failure import Failure, Rank, RanksError

RENDEZVOUS = "PET_RDZV_ENDPOINT"
"""torchrun's own environment variable with the address of the first host, HOST:PORT."""
_RUN = Path(__file__).resolve().parents[1] / "_run.py"
_PORT = 29400
"""torchrun's default port of the rendezvous."""
_START_SECONDS = 180.0
"""Importing torch from a slow network file system takes this long."""
_JOIN_SECONDS = 900.0
"""Time for other hosts to join; torchrun itself waits for 600 s."""
_GRACE_SECONDS = 15.0
"""The timeout of the process group comes first; its error names the collective."""
_COLLECT_SECONDS = 3.0
"""After the first failure: time for the errors of the other ranks and the summary of torchrun."""
_END_SECONDS = 2.0
_TICK_SECONDS = 0.1
_READ_BYTES = 1 << 16
_LOG_BYTES = 64_000
_RELAYED = frozenset({"step", "progress", "timing", "memory", "metric"})


@dataclass(frozen=True)
class RankJob:
    """What the ranks run.

    Attributes:
        file: The workload's file.
        part: A key of ``Workload.parts``.
        devices: Device of each local rank.
        parameters: The value of every parameter.
        timeout_seconds: Timeout of the process group.
        hosts: Number of hosts, each of which starts this many ranks.
    """

    file: str
    part: str
    devices: Sequence[str]
    parameters: Mapping[str, Any]
    timeout_seconds: float
    hosts: int = 1

    def command(self, address: str, logs: str) -> list[str]:
        """Returns the command line of torchrun."""
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(len(self.devices))]
        command += ["--nnodes", str(self.hosts)]  # the environment may contain that of another job
        if self.hosts == 1:
            command += ["--standalone", "--local-addr", "127.0.0.1"]
        else:
            command += ["--rdzv-backend", "c10d", "--rdzv-id", "gpumon", "--rdzv-endpoint", rendezvous()]
        command += ["--max-restarts", "0", "--monitor-interval", "0.1", "--log-dir", logs]
        command += ["--no-python", sys.executable, str(_RUN), self.file, "--part", self.part, "--ranks", address]
        return [*command, "--device", ",".join(self.devices), "--parameters", json.dumps(dict(self.parameters))]

    def environment(self) -> dict[str, str]:
        """Returns the environment; the ranks of a single host use the loopback interface unless the user chose one."""
        cores = 1 if self.devices[0] == "cpu" else len(os.sched_getaffinity(0)) // len(self.devices)
        defaults = {"OMP_NUM_THREADS": str(max(1, cores))}  # torchrun's own default is 1
        defaults["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"  # the error is enough, and the dump would be a file left in /tmp
        if self.hosts == 1:
            defaults.update(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
        return {**defaults, **os.environ}


def rendezvous() -> str:
    """Returns the address at which the hosts meet: that of the user, or this host."""
    return os.environ.get(RENDEZVOUS) or f"{socket.gethostname()}:{_PORT}"


def run_ranks(
    job: RankJob, reporter: Reporter, is_cancelled: Callable[[], bool], on_start: Callable[[], None]
) -> list[dict[str, Any]]:
    """Runs a part in all local ranks, relays their events, and returns their answers by local rank.

    Args:
        job: What the ranks run.
        reporter: Receives their events.
        is_cancelled: Returns whether to stop.
        on_start: Called when all local ranks have started.

    Raises:
        RanksError: A rank failed, ended, or did not respond in time, or the run was cancelled. The error of the rank
            has been reported as an event.
        UnsupportedError: A rank reported that it cannot run here.
    """
    address = f"gpumon-ranks-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryDirectory(prefix="gpumon-") as logs:
        listener.bind(f"\0{address}")
        listener.listen(len(job.devices))
        process = subprocess.Popen(
            job.command(address, logs), env=job.environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        launch = _Launch(job, listener, process, reporter)
        try:
            while not launch.is_over and not is_cancelled():
                launch.poll()
                if launch.has_started:
                    on_start()
        finally:
            launch.end()
    if is_cancelled():
        raise RanksError("The ranks were stopped.")
    return launch.answers()


class _Launch:
    """The processes of one launch: torchrun and the local ranks."""

    def __init__(
        self, job: RankJob, listener: socket.socket, process: subprocess.Popen[bytes], reporter: Reporter
    ) -> None:
        self._job = job
        self._process = process
        self._reporter = reporter
        self._ranks: list[Rank] = []
        self._first: Optional[Rank] = None
        self._suspects: list[Rank] = []
        self._failed_at: Optional[float] = None
        self._started_at = time.monotonic()
        self._overdue: list[Rank] = []
        self._log = b""
        self._is_ending = False
        self._selector = selectors.DefaultSelector()
        assert process.stderr is not None
        self._errors = process.stderr
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        self._selector.register(self._errors, selectors.EVENT_READ, self._read_log)

    @property
    def has_started(self) -> bool:
        """Whether all local ranks have connected."""
        return len(self._ranks) == len(self._job.devices)

    @property
    def is_over(self) -> bool:
        """Whether all ranks have answered, or a failure is fully known."""
        now = time.monotonic()
        if self._failed_at is not None:
            is_complete = self._errors.fileno() not in self._selector.get_map()
            return is_complete or now - self._failed_at > _COLLECT_SECONDS
        if self.has_started:
            if all(rank.answer is not None for rank in self._ranks):
                return True
            limit = self._job.timeout_seconds + _GRACE_SECONDS
            self._overdue = [rank for rank in self._ranks if rank.answer is None and now - rank.heard_at > limit]
            return bool(self._overdue)
        return now - self._started_at > (_START_SECONDS if self._job.hosts == 1 else _JOIN_SECONDS)

    def poll(self) -> None:
        """Handles what arrives within a tick."""
        for key, _ in self._selector.select(_TICK_SECONDS):
            cast("Callable[[], None]", key.data)()
        if self._failed_at is None and self._process.poll() is not None and not self.has_started:
            self._fail(None)

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, user, _ = struct.unpack("3i", credentials)
        if user != os.getuid():  # an abstract socket has no permissions
            connection.close()
            return
        rank = Rank(connection, pid)
        self._ranks.append(rank)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(rank))

    def _read(self, rank: Rank) -> None:
        try:
            data = rank.connection.recv(_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            rank.has_ended = True
            self._selector.unregister(rank.connection)
            if rank.answer is None and rank.error is None:
                self._fail(rank)
            return
        *lines, rank.partial = (rank.partial + data).split(b"\n")
        for line in lines:
            self._handle(rank, line)

    def _handle(self, rank: Rank, line: bytes) -> None:
        event = json.loads(line)
        kind = event["event"]
        if kind != "memory":  # a thread reports the memory even if the rank hangs
            rank.heard_at = time.monotonic()
        if kind == "rank":
            rank.local, rank.number = event["local_rank"], event["rank"]
        elif kind == "position":
            rank.position = event["text"]
        elif kind == "answer":
            rank.answer = event["value"]
        elif kind == "error" and not event["expected"]:
            rank.error = event
            self._fail(rank)
        elif kind == "metric" or (rank.local == 0 and kind in _RELAYED):
            self._reporter.relay(line + b"\n")

    def _fail(self, rank: Optional[Rank]) -> None:
        if self._failed_at is None and not self._is_ending:
            self._failed_at = time.monotonic()
            self._first = rank
            self._suspects = [other for other in self._ranks if other.is_working]

    def _read_log(self) -> None:
        data = os.read(self._errors.fileno(), _READ_BYTES)
        if not data:
            self._selector.unregister(self._errors)
        self._log = (self._log + data)[-_LOG_BYTES:]
        with suppress(OSError):
            os.write(2, data)

    def end(self) -> None:
        """Kills torchrun and all ranks, and waits until they are gone; those that have answered have no work left."""
        self._is_ending = True
        with suppress(ProcessLookupError):
            self._process.kill()
        for rank in self._ranks:
            if not rank.has_ended:  # the connection is open, so the PID still belongs to the rank
                with suppress(ProcessLookupError):
                    os.kill(rank.pid, signal.SIGKILL)
        deadline = time.monotonic() + _END_SECONDS
        while any(not rank.has_ended for rank in self._ranks) and time.monotonic() < deadline:
            self.poll()
        self._process.wait()
        self._selector.close()
        self._errors.close()
        for rank in self._ranks:
            rank.connection.close()

    def answers(self) -> list[dict[str, Any]]:
        """Returns the answers, or reports the failure.

        Raises:
            RanksError: As of `run_ranks`.
            UnsupportedError: As of `run_ranks`.
        """
        answers = [rank.answer for rank in sorted(self._ranks, key=lambda rank: rank.local) if rank.answer is not None]
        if len(answers) == len(self._job.devices):
            return answers
        failure = Failure(self._ranks, len(self._job.devices), self._first, self._suspects, self._overdue)
        sentence, error = failure.describe(self._log.decode(errors="replace"))
        if error["class"] == UnsupportedError.__name__:
            raise UnsupportedError(error["text"])
        self._reporter.send("error", **{"class": error["class"]}, text=error["text"], expected=False)
        raise RanksError(sentence)
