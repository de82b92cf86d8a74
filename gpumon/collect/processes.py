"""Facts from /proc about the processes that NVML lists: owner, command line, host CPU and memory, age.

gpumon reads one file per process and sweep, and the owner and the command line only for a new process. psutil reads two
files and takes twice as long, 25 instead of 12 microseconds, which is one percent of a core for a thousand processes.

A PID is a process only within a PID namespace. In the initial namespace, NVML's PIDs are those of /proc. In any other
namespace (a container), drivers before 545 return PIDs of the host, which may belong to another process here; newer
drivers translate PIDs to the namespace of the caller. There, a process is identified only if the driver translates and
the process has an NVIDIA device file open.
"""

import os
import pwd
import re
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.collect.calls import Callee, CallsInFlight
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import (
    TICKS_PER_SECOND,
    ProcessStat,
    effective_uid,
    nvidia_files,
    read_stat,
    read_status,
    read_title,
)

_PID_MAX_LIMIT: Final = 1 << 22
"""The kernel's limit (PID_MAX_LIMIT); pid_max may be lower in this namespace than in the driver's."""

INITIAL_PID_NAMESPACE: Final = "pid:[4026531836]"
"""The link /proc/self/ns/pid in the initial PID namespace; the kernel fixes this inode (PROC_PID_INIT_INO)."""

FIRST_TRANSLATING_DRIVER: Final = 545
"""Since this driver branch NVML returns PIDs of the caller's PID namespace and omits processes outside it."""

NOT_VISIBLE: Final = Problem(
    ProblemCode.PROCESS_NOT_VISIBLE,
    "No such process in /proc: the process has ended, runs in another PID namespace, or is hidden from this user.",
)
UNPROVEN: Final = Problem(
    ProblemCode.PROCESS_NOT_VISIBLE,
    "gpumon runs in its own PID namespace (a container) and cannot prove which process this PID belongs to.",
    "Run gpumon in the host's PID namespace (docker run --pid=host, or hostPID: true in Kubernetes).",
)
NOT_RESPONDING: Final = Problem(ProblemCode.UNRESPONSIVE, "/proc does not respond for this process.")
IMPOSSIBLE_PID: Final = Problem(ProblemCode.INVALID_VALUE, "The driver returned a PID that cannot exist.")

NOT_YET: Final = Problem(
    ProblemCode.NOT_READ, "There are many processes; gpumon reads this one in one of the next frames."
)

MAX_READS_PER_TICK: Final = 500
"""With more processes, they take turns: each read costs 12 microseconds, and more on a busy host."""

BACKGROUND_ROUND: Final = 10
"""Ticks between two reads of a process by a collector that runs all the time."""

RETRY_TICKS: Final = 5
"""Number of ticks until gpumon looks again for a process that /proc does not show or that is not identified."""

MAX_STUCK_READS: Final = 2
"""While this many reads have not returned, no new process is read: each read could block a thread."""


class PidProof(Enum):
    """What proves that a PID from NVML is the process with this PID in /proc."""

    INITIAL_NAMESPACE = "initial namespace"
    """The PID namespace is the initial one, so every PID is proved."""
    OPEN_DEVICE = "open device"
    """The driver translates PIDs; a process that has an NVIDIA device file open is proved."""
    NONE = "none"


class ProcessFacts(NamedTuple):
    """Facts about one process; all None, with a ``problem``, if the process is not visible or not identified."""

    user: str | None
    command: str | None
    cpu_percent: float | None
    host_memory_bytes: int | None
    age_seconds: float | None
    problem: Problem | None = None
    start_ticks: int | None = None


class _UnprovenError(Exception):
    """Nothing proves that a process is the one that NVML lists."""


class _ProcessIdentity(NamedTuple):
    start_ticks: int
    uid: int
    command: str


class _ProcessReading(NamedTuple):
    identity: _ProcessIdentity
    stat: ProcessStat


class _KnownProcess:
    """What is kept about a process between ticks."""

    __slots__ = ("cpu_seconds", "facts", "identity", "read_at", "tick")

    def __init__(self, identity: _ProcessIdentity) -> None:
        self.identity = identity
        self.cpu_seconds = 0.0
        self.read_at = 0.0
        self.tick = 0
        self.facts: ProcessFacts | None = None


class ProcessTable:
    """Facts by PID. Each process is read once per tick, on however many devices it runs.

    Reading a command line can block on the process's memory lock, and a user name on the network. The blocked thread is
    abandoned, and its replacement does not repeat a read that has not returned.

    Args:
        in_flight: Marks reads in flight.
        proc: Root of the proc file system.
        min_round: Ticks between two reads of a process, at least.
    """

    def __init__(self, in_flight: CallsInFlight, proc: Path = Path("/proc"), min_round: int = 1) -> None:
        self._in_flight = in_flight
        self._proc = str(proc)
        self._driver_version: str | None = None
        self._proof: PidProof | None = None
        self._known: dict[int, _KnownProcess] = {}
        self._missing: dict[int, tuple[int, Problem]] = {}
        self._now: float | None = None
        self._tick = 0
        self._reads = 0
        self._round = self._min_round = min_round
        self._users: dict[int, str] = {}
        self._reading: set[int] = set()
        self._is_naming = False

    def set_driver_version(self, version: str | None) -> None:
        """Set the version of the driver that returns the PIDs, such as ``580.95.05``."""
        self._driver_version = version
        self._proof = None

    def facts(self, pid: int, now: float, uptime: float) -> ProcessFacts:
        """Facts about a process.

        Args:
            pid: PID from NVML.
            now: Time of the tick, monotonic seconds. Two calls with the same time return the same facts.
            uptime: Seconds since boot, for the age.
        """
        if not 0 < pid <= _PID_MAX_LIMIT:
            return _no_facts(IMPOSSIBLE_PID)
        if self._proof is None:
            self._proof = pid_proof(self._proc, self._driver_version)
        if self._proof is PidProof.NONE:
            return _no_facts(UNPROVEN)
        if now != self._now:
            self._now, self._tick, self._reads = now, self._tick + 1, 0
        known = self._known.get(pid)
        if known is not None and known.facts is not None and not self._is_due(known):
            return known.facts
        why_not = self._why_not(pid, known)
        if why_not is not None:
            return _no_facts(why_not)
        try:
            reading = self._read(pid, known)
        except (OSError, _UnprovenError) as error:
            problem = UNPROVEN if isinstance(error, _UnprovenError) else NOT_VISIBLE
            self._known.pop(pid, None)
            self._missing[pid] = self._tick, problem
            return _no_facts(problem)
        return self._remember(pid, reading, now, uptime)

    def keep(self, pids: Iterable[int]) -> None:
        """Forget every process except ``pids``."""
        kept = set(pids)
        self._round = max(self._min_round, ceil(len(kept) / MAX_READS_PER_TICK))
        for processes in (self._known, self._missing):
            for pid in [pid for pid in processes if pid not in kept]:
                del processes[pid]

    def _is_due(self, known: _KnownProcess) -> bool:
        """Whether a process is read again: in every tick, or in its turn if there are many processes."""
        return self._tick - known.tick >= self._round and self._reads < MAX_READS_PER_TICK

    def _why_not(self, pid: int, known: _KnownProcess | None) -> Problem | None:
        """Why a process is not read now, or None if it is."""
        tick, problem = self._missing.get(pid, (None, None))
        if tick is not None and self._tick - tick < max(RETRY_TICKS, self._round):
            return problem
        if pid in self._reading or (known is None and len(self._reading) >= MAX_STUCK_READS):
            return NOT_RESPONDING
        return None if self._reads < MAX_READS_PER_TICK else NOT_YET

    def _remember(self, pid: int, reading: _ProcessReading, now: float, uptime: float) -> ProcessFacts:
        identity = reading.identity
        cpu_percent = None
        known = self._known.get(pid)
        if known is None or known.identity is not identity:
            known = self._known[pid] = _KnownProcess(identity)
        elif now > known.read_at:
            used = reading.stat.cpu_seconds - known.cpu_seconds
            cpu_percent = round(100 * used / (now - known.read_at), 1)
        known.cpu_seconds, known.read_at, known.tick = reading.stat.cpu_seconds, now, self._tick
        known.facts = ProcessFacts(
            self._user(identity.uid),
            identity.command,
            cpu_percent,
            reading.stat.resident_bytes,
            round(max(0.0, uptime - identity.start_ticks / TICKS_PER_SECOND), 1),
            start_ticks=identity.start_ticks,
        )
        return known.facts

    def _read(self, pid: int, known: _KnownProcess | None) -> _ProcessReading:
        """Read /proc; change nothing that another thread could use."""
        self._reads += 1
        self._reading.add(pid)
        try:
            with self._in_flight.track(f"/proc/{pid}", Callee.HOST):
                stat = read_stat(f"{self._proc}/{pid}")
                if known is None or known.identity.start_ticks != stat.start_ticks:
                    identity = self._identify(f"{self._proc}/{pid}", stat.start_ticks)
                else:
                    identity = known.identity
                return _ProcessReading(identity, stat)
        finally:
            self._reading.discard(pid)

    def _identify(self, folder: str, start_ticks: int) -> _ProcessIdentity:
        if self._proof is PidProof.OPEN_DEVICE and not _has_nvidia_device_open(folder):
            raise _UnprovenError
        command = read_title(folder)
        return _ProcessIdentity(start_ticks, effective_uid(folder), command)

    def _user(self, uid: int) -> str:
        """The login name, or the user ID if the user database has no name or does not respond."""
        name = self._users.get(uid)
        if name is not None:
            return name
        if self._is_naming:
            return str(uid)
        self._is_naming = True
        try:
            with self._in_flight.track(f"getpwuid({uid})", Callee.HOST):
                try:
                    name = pwd.getpwuid(uid).pw_name
                except KeyError:
                    name = str(uid)
                self._users[uid] = (
                    name  # an abandoned thread stores the name too: otherwise a slow database would never finish
                )
                return name
        finally:
            self._is_naming = False


def pid_proof(proc: str, driver_version: str | None) -> PidProof:
    """What can prove the identity of the processes that the driver lists, in the PID namespace of gpumon.

    Args:
        proc: Root of the proc file system.
        driver_version: Such as ``580.95.05``, or None if it is unknown.
    """
    try:
        if str(Path(proc, "self/ns/pid").readlink()) == INITIAL_PID_NAMESPACE:
            return PidProof.INITIAL_NAMESPACE
        own_pids = read_status(f"{proc}/self").get("NSpid", "").split()
    except OSError:
        # A kernel without PID namespaces has no such link. A /proc without "self" belongs to another namespace.
        return PidProof.INITIAL_NAMESPACE if _has_no_pid_namespaces(proc) else PidProof.NONE
    is_proc_of_namespace = len(own_pids) == 1
    branch = re.match(r"\d+", driver_version or "")
    translates = branch is not None and int(branch[0]) >= FIRST_TRANSLATING_DRIVER
    return PidProof.OPEN_DEVICE if is_proc_of_namespace and translates else PidProof.NONE


def _has_no_pid_namespaces(proc: str) -> bool:
    try:
        return "pid" not in os.listdir(f"{proc}/self/ns")  # noqa: PTH208
    except OSError:
        return False


def _has_nvidia_device_open(folder: str) -> bool:
    """Whether a process has an NVIDIA device file open; False if its file descriptors are hidden from this user."""
    with suppress(OSError):
        return next(nvidia_files(folder), None) is not None
    return False


def _no_facts(problem: Problem) -> ProcessFacts:
    return ProcessFacts(None, None, None, None, None, problem)
