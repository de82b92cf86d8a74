"""What /proc says of the processes that NVML lists: owner, command line, host CPU and memory, age.

One file is read a process each time; owner and command line only when a process is seen for the first time. psutil
reads two and takes twice as long, 25 instead of 12 microseconds: at a thousand processes a percent of a core.
"""

import os
import pwd
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.collect.flights import Callee, Flights
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_bytes

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_COMMAND_BYTES: Final = 4096
_PID_MAX_LIMIT: Final = 1 << 22  # the kernel's own; pid_max may be lower here than where the driver counts

NOT_VISIBLE: Final = Problem(
    ProblemCode.PROCESS_NOT_VISIBLE,
    "No such process in this /proc: it has ended, runs in another PID namespace, or is hidden from this user.",
)
NOT_ANSWERING: Final = Problem(ProblemCode.UNRESPONSIVE, "/proc does not answer for this process.")
IMPOSSIBLE_PID: Final = Problem(ProblemCode.INVALID_VALUE, "The driver answered with a PID that cannot exist.")

NOT_YET: Final = Problem(ProblemCode.NOT_READ, "There are many processes: this one is read in a moment.")

READS_A_TICK: Final = 500
"""More processes than that take turns: each read costs 12 microseconds, and more on a busy host."""

RETRY_TICKS: Final = 5
"""A process that /proc does not show, of another PID namespace or dead, is looked for again after so many ticks."""

MAX_STUCK_READS: Final = 2
"""While so many reads do not return, no other process is read for the first time: each could cost a thread."""


class ProcessFacts(NamedTuple):
    """Facts of one process; None with ``problem`` when /proc does not show it."""

    user: str | None
    command: str | None
    cpu_percent: float | None
    host_memory_bytes: int | None
    age_seconds: float | None
    problem: Problem | None = None


class _Identity(NamedTuple):
    start_ticks: int
    uid: int
    command: str


class _Reading(NamedTuple):
    identity: _Identity
    cpu_ticks: int
    pages: int


class _Known:
    """What is remembered of a process between ticks."""

    __slots__ = ("cpu_ticks", "facts", "identity", "read_at", "tick")

    def __init__(self, identity: _Identity) -> None:
        self.identity = identity
        self.cpu_ticks = 0
        self.read_at = 0.0
        self.tick = 0
        self.facts: ProcessFacts | None = None


class ProcessTable:
    """Facts by PID, each process read once a tick however many devices it is on.

    A command line can hang on its process's memory lock and a user's name on the network. The thread that is held so is
    left behind; the one that takes over does not ask again for what the first one still waits for.

    Args:
        flights: Where reads are marked.
        proc: Root of the proc file system.
    """

    def __init__(self, flights: Flights, proc: Path = Path("/proc")) -> None:
        self._flights = flights
        self._proc = str(proc)
        self._known: dict[int, _Known] = {}
        self._unseen: dict[int, int] = {}
        self._now: float | None = None
        self._tick = 0
        self._reads = 0
        self._round = 1
        self._users: dict[int, str] = {}
        self._reading: set[int] = set()
        self._naming = False

    def facts(self, pid: int, now: float, uptime: float) -> ProcessFacts:
        """Facts of a process.

        Args:
            pid: PID as NVML gave it.
            now: Time of the tick, monotonic seconds; asked twice with the same time, the answer is the same.
            uptime: Seconds since boot, for the age.
        """
        if not 0 < pid <= _PID_MAX_LIMIT:
            return _nothing(IMPOSSIBLE_PID)
        if now != self._now:
            self._now, self._tick, self._reads = now, self._tick + 1, 0
        known = self._known.get(pid)
        if known is not None and known.facts is not None and not self._is_due(known):
            return known.facts
        why_not = self._why_not(pid, known)
        if why_not is not None:
            return _nothing(why_not)
        try:
            reading = self._read(pid, known)
        except (OSError, ValueError, IndexError):
            self._known.pop(pid, None)
            self._unseen[pid] = self._tick
            return _nothing(NOT_VISIBLE)
        return self._remember(pid, reading, now, uptime)

    def keep(self, pids: Iterable[int]) -> None:
        """Forgets every process that is not among ``pids``."""
        kept = set(pids)
        self._round = ceil(len(kept) / READS_A_TICK) or 1
        for held in (self._known, self._unseen):
            for pid in [pid for pid in held if pid not in kept]:
                del held[pid]

    def _is_due(self, known: _Known) -> bool:
        """Whether a process is to be read again: at every tick, or in its turn where there are many."""
        return self._tick - known.tick >= self._round and self._reads < READS_A_TICK

    def _why_not(self, pid: int, known: _Known | None) -> Problem | None:
        """Why a process is not read now, if it is not."""
        looked_at = self._unseen.get(pid)
        if looked_at is not None and self._tick - looked_at < max(RETRY_TICKS, self._round):
            return NOT_VISIBLE
        if pid in self._reading or (known is None and len(self._reading) >= MAX_STUCK_READS):
            return NOT_ANSWERING
        return None if self._reads < READS_A_TICK else NOT_YET

    def _remember(self, pid: int, reading: _Reading, now: float, uptime: float) -> ProcessFacts:
        identity = reading.identity
        cpu_percent = None
        known = self._known.get(pid)
        if known is None or known.identity is not identity:
            known = self._known[pid] = _Known(identity)
        elif now > known.read_at:
            used = (reading.cpu_ticks - known.cpu_ticks) / _TICKS_PER_SECOND
            cpu_percent = round(100 * used / (now - known.read_at), 1)
        known.cpu_ticks, known.read_at, known.tick = reading.cpu_ticks, now, self._tick
        known.facts = ProcessFacts(
            self._user(identity.uid),
            identity.command,
            cpu_percent,
            reading.pages * _PAGE_BYTES,
            round(max(0.0, uptime - identity.start_ticks / _TICKS_PER_SECOND), 1),
        )
        return known.facts

    def _read(self, pid: int, known: _Known | None) -> _Reading:
        """What /proc says now; changes nothing that another thread could be using."""
        self._reads += 1
        self._reading.add(pid)
        try:
            with self._flights.flight(f"/proc/{pid}", Callee.HOST):
                with open(f"{self._proc}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - often
                    fields = file.read(2048).rsplit(b")", 1)[1].split()
                start_ticks = int(fields[19])
                if known is None or known.identity.start_ticks != start_ticks:
                    identity = self._identify(pid, start_ticks)
                else:
                    identity = known.identity
                return _Reading(identity, int(fields[11]) + int(fields[12]), int(fields[21]))
        finally:
            self._reading.discard(pid)

    def _identify(self, pid: int, start_ticks: int) -> _Identity:
        with open(f"{self._proc}/{pid}/cmdline", "rb", buffering=0) as file:  # noqa: PTH123
            command = safe_bytes(file.read(_COMMAND_BYTES).rstrip(b"\0").replace(b"\0", b" "))
        if not command:  # a zombie, a kernel thread, or a process that wiped its arguments
            command = f"[{safe_bytes(Path(self._proc, str(pid), 'comm').read_bytes().rstrip())}]"
        return _Identity(start_ticks, self._uid(pid), command)

    def _uid(self, pid: int) -> int:
        """The effective user. The owner of the files in /proc is root for a process that has changed its user."""
        status = Path(self._proc, str(pid), "status").read_bytes()
        return int(status.partition(b"\nUid:")[2].split()[1])

    def _user(self, uid: int) -> str:
        """Login name, or the uid while the directory of users does not answer or where it knows no name."""
        name = self._users.get(uid)
        if name is not None:
            return name
        if self._naming:
            return str(uid)
        self._naming = True
        try:
            with self._flights.flight(f"getpwuid({uid})", Callee.HOST):
                try:
                    name = pwd.getpwuid(uid).pw_name
                except KeyError:
                    name = str(uid)
                self._users[uid] = name  # kept even by a thread left behind: a slow directory would never be done
                return name
        finally:
            self._naming = False


def _nothing(problem: Problem) -> ProcessFacts:
    return ProcessFacts(None, None, None, None, None, problem)
