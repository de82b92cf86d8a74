"""When NCCL's RAS service is asked, and about which jobs: rarely, one connection at a time, never during start-up.

Before NCCL 2.28.7, a question during the creation of a communicator could end the job (NVIDIA/nccl#1669, #1718).
"""

import mmap
import os
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import age_seconds
from gpumon.distributed.environment import TrainingJob
from gpumon.distributed.ras_client import RasError, is_listening, read_report, socket_address
from gpumon.distributed.ras_report import RasReport

Version = tuple[int, int, int]
_MAX_MAPS_BYTES: Final = 8 << 20
_MAX_SECTIONS: Final = 256
_MAX_DATA_BYTES: Final = 32 << 20
"""Read-only data of the library that is searched; the code for GPUs, hundreds of MiB, is in other sections."""
_LIBRARY: Final = re.compile(rb"/\S*/libnccl\.so[.\d]*$", re.MULTILINE)
_IN_NAME: Final = re.compile(r"libnccl\.so\.(\d+)\.(\d+)\.(\d+)$")
_IN_DATA: Final = re.compile(rb"NCCL version (\d{1,3})\.(\d{1,3})\.(\d{1,3})")
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
"""``Elf64_Ehdr``."""
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
"""``Elf64_Shdr``."""
_known: Final[dict[tuple[int, int, int], Version | None]] = {}
"""Version by device, inode and time of change of the library: a host has few of them."""


def nccl_version(pid: int, proc: Path = Path("/proc")) -> Version | None:
    """The version of NCCL in a process; None if it has loaded none, or if that cannot be read."""
    folder = proc / str(pid)
    try:
        with (folder / "maps").open("rb") as file:
            match = _LIBRARY.search(file.read(_MAX_MAPS_BYTES))
        if match is None:
            return None
        path = match[0].decode()
        named = _IN_NAME.search(path)
        if named is not None:
            return int(named[1]), int(named[2]), int(named[3])
        library = folder / "root" / path.lstrip("/")
        status = library.stat()
        identity = (status.st_dev, status.st_ino, status.st_mtime_ns)
        if identity not in _known:
            _known[identity] = _version_in(library)
        return _known[identity]
    except (OSError, ValueError, struct.error):  # the process has ended, or the file is no library
        return None


def _version_in(library: Path) -> Version | None:
    """The version in the read-only data of a library."""
    with library.open("rb") as file:
        header = _HEADER.unpack(file.read(_HEADER.size))
        if header[0][:5] != b"\x7fELF\x02" or header[11] != _SECTION.size or header[12] > _MAX_SECTIONS:
            return None
        file.seek(header[6])
        sections = [_SECTION.unpack(file.read(_SECTION.size)) for _ in range(header[12])]
        file.seek(sections[header[13]][4])
        names = file.read(min(sections[header[13]][5], _MAX_MAPS_BYTES))
        for section in sections:
            name = names[section[0] :].split(b"\0", 1)[0]
            if name.startswith(b".rodata"):
                version = _search(file.fileno(), section[4], min(section[5], _MAX_DATA_BYTES))
                if version is not None:
                    return version
    return None


def _search(descriptor: int, offset: int, size: int) -> Version | None:
    """The version in a part of a file."""
    start = offset - offset % mmap.ALLOCATIONGRANULARITY
    with mmap.mmap(descriptor, offset + size - start, prot=mmap.PROT_READ, offset=start) as data:
        match = _IN_DATA.search(data)
        return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


POLL_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 60.0
"""After a question that failed, or was asked while a communicator was being created."""
FIRST_SAFE_VERSION: Final[Version] = (2, 28, 7)
MIN_AGE_SECONDS: Final = 120.0
"""Age of the youngest rank from which on its start-up is over, together with `MIN_LISTENING_SECONDS`."""
MIN_LISTENING_SECONDS: Final = 30.0
"""The service starts with the first communicator, which is created within this time, or the job hangs."""
_ATTEMPTS: Final = 4
"""Connections until the service of the right job has taken one of them."""

_STARTING: Final = Problem(ProblemCode.NOT_READ, "gpumon asks NCCL only after the start of a job: it is too young.")
_SILENT: Final = Problem(ProblemCode.NOT_FOUND, "No NCCL of this user offers its RAS service here.")
_OTHER_JOB: Final = Problem(ProblemCode.NOT_FOUND, "NCCL's RAS service on this port belongs to another job.")


class RasAnswer(NamedTuple):
    """What is known from NCCL about a job.

    Attributes:
        report: The report; None if there is none.
        problem: Why there is none.
    """

    report: RasReport | None = None
    problem: Problem | None = None


class _Address:
    """What is known of one address.

    Attributes:
        answer: The last answer.
        next_at: Monotonic seconds of the next question.
        listening_since: Since when something listens there, as far as gpumon has seen; None if nothing does.
    """

    __slots__ = ("answer", "listening_since", "next_at")

    def __init__(self) -> None:
        self.answer = RasAnswer()
        self.next_at = 0.0
        self.listening_since: float | None = None


class RasPoller:
    """Asks about jobs."""

    def __init__(self, proc: Path = Path("/proc"), poll_seconds: float = POLL_SECONDS) -> None:
        self._proc = proc
        self._poll_seconds = poll_seconds
        self._addresses: dict[tuple[str, str], _Address] = {}
        """By ``NCCL_RAS_ADDR``, and by the key of a job which is not in the report that came from there."""
        self._versions: dict[tuple[int, int], Version | None] = {}
        """Version of NCCL by PID and start time of the first rank of a job, once it is known."""

    def poll(
        self, jobs: Sequence[TrainingJob], now: float, min_listening_seconds: float = MIN_LISTENING_SECONDS
    ) -> Mapping[str, RasAnswer]:
        """What NCCL reports about each job that has several ranks, by `TrainingJob.key`. Blocks while it asks.

        ``min_listening_seconds`` is how long the service must have been seen; 0 for a command that looks only once.
        """
        distributed = [job for job in jobs if job.total_ranks > 1 and job.ranks]
        if not distributed:
            return MappingProxyType({})
        current = {(job.ranks[0].pid, job.ranks[0].start_ticks) for job in distributed}
        self._versions = {identity: version for identity, version in self._versions.items() if identity in current}
        answers = {}
        for job in distributed:
            problem = self._refusal(job, [other for other in distributed if other.ras_address == job.ras_address])
            answer = (
                RasAnswer(problem=problem) if problem is not None else self._answer(job, now, min_listening_seconds)
            )
            answers[job.key] = answer
        return answers

    def _refusal(self, job: TrainingJob, on_address: Sequence[TrainingJob]) -> Problem | None:
        """Why a job is not asked about; None if it may be. Any job on its address may take the connection."""
        if not job.has_ras:
            return Problem(ProblemCode.NOT_READ, "NCCL_RAS_ENABLE=0 turns NCCL's RAS service off.")
        if job.uid != os.geteuid() and os.geteuid() != 0:
            return Problem(ProblemCode.NO_PERMISSION, "gpumon asks NCCL only about jobs of the user that it runs as.")
        if age_seconds(max(rank.start_ticks for other in on_address for rank in other.ranks)) < MIN_AGE_SECONDS:
            return _STARTING
        identity = (job.ranks[0].pid, job.ranks[0].start_ticks)
        version = self._versions.get(identity)
        if version is None:
            version = self._versions[identity] = nccl_version(job.ranks[0].pid, self._proc)
        if version is None:
            return Problem(ProblemCode.NOT_FOUND, "The job has not loaded NCCL, or NCCL's version is unknown.")
        if version < FIRST_SAFE_VERSION:
            text = ".".join(map(str, version))
            return Problem(
                ProblemCode.NOT_SUPPORTED, f"The job has NCCL {text}; gpumon asks NCCL 2.28.7 and later only."
            )
        return None

    def _answer(self, job: TrainingJob, now: float, min_listening_seconds: float) -> RasAnswer:
        """The answer about a job. Where several jobs of a user listen on one port, any of them takes a connection."""
        shared = self._addresses.setdefault((job.ras_address, ""), _Address())
        answer = self._ask(shared, job, now, min_listening_seconds)
        if answer.report is None or _is_about(job, answer):
            return answer
        own = self._addresses.setdefault((job.ras_address, job.key), _Address())
        if own.listening_since is None:
            own.listening_since = shared.listening_since
        for _ in range(_ATTEMPTS if now >= own.next_at else 1):
            answer = self._ask(own, job, now, min_listening_seconds)
            if answer.report is None or _is_about(job, answer):
                return answer
            own.next_at = now
        own.next_at = now + RETRY_SECONDS
        own.answer = RasAnswer(problem=_OTHER_JOB)
        return own.answer

    def _ask(self, known: _Address, job: TrainingJob, now: float, min_listening_seconds: float) -> RasAnswer:
        """The answer of the service at the address of a job, or the last one."""
        if now < known.next_at:
            return known.answer
        known.next_at = now + self._poll_seconds
        try:
            _, port = socket_address(job.ras_address)
            if not is_listening(port, {job.uid}, self._proc):
                known.listening_since = None
                known.answer = RasAnswer(problem=_SILENT)
                return known.answer
            since = known.listening_since = now if known.listening_since is None else known.listening_since
            if now - since < min_listening_seconds:
                known.answer = RasAnswer(problem=_STARTING)
                return known.answer
            report = read_report(job.ras_address)
            if report.is_initializing:
                known.next_at = now + RETRY_SECONDS
            known.answer = RasAnswer(report)
        except RasError as error:
            known.next_at = now + RETRY_SECONDS
            known.answer = RasAnswer(problem=error.problem)
        return known.answer


def _is_about(job: TrainingJob, answer: RasAnswer) -> bool:
    return answer.report is not None and answer.report.includes({rank.pid: 0 for rank in job.ranks})
