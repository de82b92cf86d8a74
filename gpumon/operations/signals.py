"""Sends signals to processes that use a GPU: never to another process than the one that the user saw.

A PID can belong to another process by the time the user has confirmed. Therefore the process is opened first (a pidfd
stays with its process), then its start time, user and program are compared with those that were shown, and only then
the signal goes through the pidfd. If the process that was opened were a later one, its start time would differ.
"""

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.model import Process
from gpumon.core.procfs import ProcessStat, age_seconds, effective_uid, find_stat, read_same_stat, read_stat, read_title
from gpumon.core.text import safe_text

_MAX_ANCESTORS: Final = 64
_BLOCKED_SAMPLES: Final = 5
_BLOCKED_SAMPLE_SECONDS: Final = 0.05
"""A process that waits for a disk is in the state D for a moment; one in a driver call that hangs stays there."""
_BLOCKED: Final = "D"
_INIT_PID: Final = 1


class SentSignal(Enum):
    """The signals that can be sent."""

    INT = signal.SIGINT
    TERM = signal.SIGTERM
    KILL = signal.SIGKILL

    @property
    def title(self) -> str:
        """Its name, such as ``SIGTERM``."""
        return self.value.name


class SignalTarget(NamedTuple):
    """A process as it is shown to the user before a signal is sent.

    Attributes:
        pid: The process.
        start_ticks: Start time in clock ticks since boot, which with the PID identifies the process.
        uid: Its effective user ID.
        user: Its user's name, as shown.
        command: Its command line, made safe.
        program: The file that it runs, or "" if that is hidden from this user.
        started_seconds: Unix time of its start.
        is_foreign: Whether it belongs to another user, which root has to confirm a second time.
    """

    pid: int
    start_ticks: int
    uid: int
    user: str
    command: str
    program: str
    started_seconds: float
    is_foreign: bool


class SignalRefusal(NamedTuple):
    """A process that gets no signal, and why, in a sentence."""

    pid: int
    reason: str


class SignalResult(NamedTuple):
    """What became of a signal.

    Attributes:
        target: The process.
        sent: The signal.
        refusal: Why it was not sent, in a sentence; empty if it was.
    """

    target: SignalTarget
    sent: SentSignal
    refusal: str = ""


class PidfdCalls:
    """The system calls of the kernel on processes; tests have others. They raise OSError."""

    def open(self, pid: int) -> int:
        """Open a process."""
        return os.pidfd_open(pid)

    def send(self, descriptor: int, number: int) -> None:
        """Send a signal to an open process."""
        signal.pidfd_send_signal(descriptor, number)

    def close(self, descriptor: int) -> None:
        """Close a process."""
        os.close(descriptor)


class _ProcessStatus(NamedTuple):
    """What /proc shows of a process now."""

    stat: ProcessStat
    uid: int
    command: str
    program: str


class SignalSender:
    """Examines processes, and sends signals to them."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        pidfds: PidfdCalls | None = None,
        own_pid: int | None = None,
        own_uid: int | None = None,
    ) -> None:
        self._proc = proc
        self._pidfds = pidfds or PidfdCalls()
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._own_uid = os.geteuid() if own_uid is None else own_uid

    def examine(self, process: Process, workload_pids: Collection[int] = ()) -> SignalTarget | SignalRefusal:
        """The process to show to the user, or why it gets no signal.

        The process is that of the newest frame of this host; ``workload_pids`` are workloads that gpumon runs.
        """
        refuse = partial(SignalRefusal, process.pid)
        if process.start_ticks is None:
            problem = process.problems.get("command")
            why = "" if problem is None else f" {problem.reason}"
            return refuse(f"Nothing proves which process PID {process.pid} is.{why}")
        status = self._status(process.pid)
        if status is None:
            return refuse(_has_ended(process.pid))
        if status.stat.start_ticks != process.start_ticks:
            return refuse(_is_another(process.pid))
        reason = self._reason(process.pid, status, process.user or "", workload_pids)
        if reason:
            return refuse(reason)
        return SignalTarget(
            pid=process.pid,
            start_ticks=status.stat.start_ticks,
            uid=status.uid,
            user=process.user or str(status.uid),
            command=status.command or process.command or "",
            program=status.program,
            started_seconds=time.time() - age_seconds(status.stat.start_ticks),
            is_foreign=status.uid != self._own_uid,
        )

    def send(self, target: SignalTarget, sent: SentSignal, workload_pids: Collection[int] = ()) -> SignalResult:
        """Send a signal to exactly the process that was shown. May take a quarter of a second."""
        result = partial(SignalResult, target, sent)
        try:
            descriptor = self._pidfds.open(target.pid)
        except ProcessLookupError:
            return result(_has_ended(target.pid))
        except (OSError, AttributeError) as error:  # a system without pidfd lacks the function
            reason = getattr(error, "strerror", None) or "no such function"
            return result(f"PID {target.pid} cannot be opened safely (pidfd_open: {reason}), so nothing was sent.")
        try:
            reason = self._reason_now(target, workload_pids)
            if not reason:
                self._pidfds.send(descriptor, sent.value)
            return result(reason)
        except ProcessLookupError:
            return result(_has_ended(target.pid))
        except PermissionError:
            return result(f"The kernel does not permit this user to signal PID {target.pid}.")
        except OSError as error:
            return result(f"The kernel did not send the signal to PID {target.pid}: {error.strerror}.")
        finally:
            with suppress(OSError):
                self._pidfds.close(descriptor)

    def _reason_now(self, target: SignalTarget, workload_pids: Collection[int]) -> str:
        """Why the open process must not get the signal after all; empty if it may."""
        status = self._status(target.pid)
        for _ in range(_BLOCKED_SAMPLES - 1):
            if status is None or status.stat.state != _BLOCKED:
                break
            time.sleep(_BLOCKED_SAMPLE_SECONDS)
            status = self._status(target.pid)
        if status is None:
            return _has_ended(target.pid)
        is_same_program = status.command == target.command or (status.program and status.program == target.program)
        if (status.stat.start_ticks, status.uid) != (target.start_ticks, target.uid) or not is_same_program:
            return _is_another(target.pid)
        if status.stat.state == _BLOCKED:
            return (
                f"PID {target.pid} is blocked in an uninterruptible system call, usually in the driver: no signal can "
                "end it before that call returns."
            )
        return self._reason(target.pid, status, target.user, workload_pids)

    def _reason(self, pid: int, status: _ProcessStatus, user: str, workload_pids: Collection[int]) -> str:
        """Why a process gets no signal, whenever it is asked; empty if it may."""
        if pid <= _INIT_PID:
            return f"PID {pid} is the first process of this system or container: ending it would end everything."
        if status.stat.has_ended:
            return (
                f"PID {pid} is a zombie: it has ended already, and a signal has no effect. It disappears when its "
                f"parent, PID {status.stat.parent}, collects it or ends."
            )
        relation = self._relation(pid, workload_pids)
        if not relation and self._own_uid not in {0, status.uid}:
            owner = safe_text(user, 40) or f"UID {status.uid}"
            return f"PID {pid} belongs to {owner}: only that user and root may signal it."
        return relation

    def _relation(self, pid: int, workload_pids: Collection[int]) -> str:
        """Why a process that is related to this gpumon gets no signal; empty for any other process."""
        if pid == self._own_pid:
            return f"PID {pid} is this gpumon: q quits it."
        if pid in self._ancestors(self._own_pid):
            return f"PID {pid} started this gpumon, which would end with it."
        ancestors = self._ancestors(pid)
        if self._own_pid in ancestors or not set(workload_pids).isdisjoint((pid, *ancestors)):
            return f"PID {pid} belongs to this gpumon: X stops a workload that runs here."
        return ""

    def _ancestors(self, pid: int) -> list[int]:
        """The parent of a process, its parent, and so on."""
        ancestors: list[int] = []
        while len(ancestors) < _MAX_ANCESTORS:
            stat = find_stat(self._proc / str(pid))
            pid = 0 if stat is None else stat.parent
            if pid <= 0 or pid in ancestors:
                break
            ancestors.append(pid)
        return ancestors

    def _status(self, pid: int) -> _ProcessStatus | None:
        """The process that has the PID now; None if there is none, or if it ends while it is read."""
        folder = self._proc / str(pid)
        try:
            before = read_stat(folder)
            uid, command, program = effective_uid(folder), read_title(folder), _program(folder)
            return _ProcessStatus(read_same_stat(folder, before.start_ticks), uid, command, program)
        except OSError:
            return None


def _program(folder: Path) -> str:
    try:
        return str((folder / "exe").readlink())
    except OSError:  # hidden from other users
        return ""


def _has_ended(pid: int) -> str:
    return f"PID {pid} has ended."


def _is_another(pid: int) -> str:
    return f"PID {pid} is no longer the process that was shown, so nothing was sent."
