"""Files that probes write on request: asking several processes for one, reading it where it is, and moving it out."""

import gzip
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from gpumon.core.acting_user import acting_as, open_file_of
from gpumon.core.allocator import ProbeState
from gpumon.core.new_files import new_file, temporary_folder
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.procfs import effective_uid
from gpumon.core.text import safe_text
from gpumon.operations.process_details import stop_problem
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Answer, RequestKind, WrittenFile

CONNECT_SECONDS: Final = 5.0
"""How long a command waits for the probes of the processes that it names."""
_NAME: Final = re.compile(r"(?:trace|memory)-[0-9a-f]{8}_\d{1,10}\.(?:json|pickle)")
_FAST_COMPRESSION: Final = 1
_COPY_BYTES: Final = 1 << 20
_NO_ANSWER: Final = Problem(ProblemCode.UNRESPONSIVE, "The probe has not answered the request in time.")
_NOT_READABLE: Final = Problem(
    ProblemCode.NO_PERMISSION, "gpumon cannot read the file that the probe has written.", "Run it as the same user."
)


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """What one process has written, or why there is nothing.

    Attributes:
        pid: The process, as in `Probe.pid`.
        path: The file, which belongs to the caller: it has to be moved or removed. None without a file.
        size_bytes: Its size.
        notes: What the reader must know, in sentences.
        problem: Why there is no file, or None.
    """

    pid: int
    path: Path | None = None
    size_bytes: int = 0
    notes: tuple[str, ...] = ()
    problem: Problem | None = None


@contextmanager
def connected_watcher(pids: Sequence[int]) -> Iterator[ProbeWatcher]:
    """A client that is connected to the probes of processes.

    Raises:
        CommandError: One of them has no probe of this user.
    """
    watcher = ProbeWatcher()
    watcher.start()
    try:
        deadline = time.monotonic() + CONNECT_SECONDS
        while not _has_readings(watcher, pids) and time.monotonic() < deadline:
            watcher.inbox.arrived.wait(min(0.2, max(0.0, deadline - time.monotonic())))
            watcher.inbox.drain()
        for pid in pids:
            if pid not in watcher.probes:
                raise CommandError(_no_probe(pid), ExitCode.MISSING_PREREQUISITE)
        yield watcher
    finally:
        watcher.close()


def request_files(
    watcher: ProbeWatcher, pids: Sequence[int], kind: RequestKind, seconds: float, arguments: Mapping[str, int]
) -> Iterator[RecordedFile]:
    """Send a request to processes, and yield what each of them answers, in the order of the answers.

    The call drains the watcher's inbox: a session that shows the same probes has its own watcher.
    ``kind`` is a request whose result is a `WrittenFile`.
    """
    numbers = {watcher.ask(pid, kind, **arguments): pid for pid in pids}
    deadline = time.monotonic() + seconds
    while numbers and time.monotonic() < deadline:
        watcher.inbox.arrived.wait(min(1.0, max(0.0, deadline - time.monotonic())))
        for message in watcher.inbox.drain():
            if isinstance(message, Answer) and numbers.pop(message.id, None) is not None:
                yield _recorded(message)
    for pid in numbers.values():
        yield RecordedFile(pid, problem=_NO_ANSWER)


def refuse_existing(target: Path) -> None:
    """Check that a file can be created.

    Raises:
        CommandError: It exists, or its folder does not.
    """
    if target.exists():
        raise CommandError.usage(ProblemCode.NOT_WRITTEN, f"{_shown(target)} exists.", "Name a new file.")
    if not target.absolute().parent.is_dir():
        raise CommandError.usage(ProblemCode.NOT_WRITTEN, f"The folder of {_shown(target)} does not exist.")


def move_file(source: Path, target: Path) -> None:
    """Move a file to a new path of the user, compressed if that ends in ``.gz``.

    Raises:
        CommandError: It cannot be written. The source is removed in any case.
    """
    try:
        with source.open("rb") as reader, new_file(target) as raw:
            if target.suffix == ".gz":
                with gzip.open(raw, "wb", _FAST_COMPRESSION) as writer:
                    shutil.copyfileobj(reader, writer, _COPY_BYTES)
            else:
                shutil.copyfileobj(reader, raw, _COPY_BYTES)
    except OSError as error:
        raise CommandError.failure(
            ProblemCode.NOT_WRITTEN, f"{_shown(target)} cannot be written: {error.strerror}."
        ) from None
    finally:
        source.unlink(missing_ok=True)


def _has_readings(watcher: ProbeWatcher, pids: Sequence[int]) -> bool:
    probes = watcher.probes
    return all(pid in probes and probes[pid].reading is not None for pid in pids)


def _no_probe(pid: int) -> Problem:
    if not Path(f"/proc/{pid}").exists():
        return Problem(ProblemCode.NOT_FOUND, f"There is no process {pid} on this host.")
    return stop_problem(pid) or Problem(
        ProblemCode.NOT_FOUND,
        f"Process {pid} has no probe, or its probe belongs to another user.",
        f"Run gpumon attach {pid}, or start it with gpumon watch.",
    )


def _recorded(answer: Answer) -> RecordedFile:
    file = answer.result
    if not isinstance(file, WrittenFile):
        return RecordedFile(answer.pid, problem=answer.problem or _NO_ANSWER)
    path = _local_path(answer.pid, file.path)
    if path is None:
        return RecordedFile(answer.pid, notes=file.notes, problem=_NOT_READABLE)
    return RecordedFile(answer.pid, path, file.size_bytes, file.notes)


def _local_path(pid: int, path: str) -> Path | None:
    """The file as gpumon sees it, also if the process runs in a container; None if it is not one that a probe writes.

    The path comes from the process, and the caller removes the file. Of a file of another user, root makes a copy.
    """
    if _NAME.fullmatch(path.rpartition("/")[2]) is None:
        return None
    for candidate in (Path(path), Path(f"/proc/{pid}/root{path}")):
        with suppress(OSError):
            uid = effective_uid(f"/proc/{pid}")
            with open_file_of(uid, candidate) as file:
                return candidate if uid == os.geteuid() else _copied(file, candidate, uid)
    return None


def _copied(file: BinaryIO, path: Path, uid: int) -> Path:
    """A copy in the temporary folder; the file of the other user is removed, as that user would."""
    copy = temporary_folder() / f"gpumon-{secrets.token_hex(8)}-{path.name}"
    with new_file(copy, 0o600) as target:
        shutil.copyfileobj(file, target, _COPY_BYTES)
    with acting_as(uid), suppress(OSError):
        path.unlink()
    return copy


def _shown(path: Path) -> str:
    return safe_text(str(path), 200)


LEAD_SECONDS: Final = 4.0
"""Time between the request and the common start of several ranks: Kineto asks for its configuration once a second."""
_ANSWER_SECONDS: Final = 120.0
"""Longest time to wait for the answers after the recording; the probes give up earlier."""
_CHUNK_BYTES: Final = 1 << 20
_KERNEL: Final = re.compile(rb'"cat": ?"kernel"')
_KERNEL_BYTES: Final = 16
_STAYS: Final = "CUPTI would stay attached"
_NO_KERNELS: Final = Problem(
    ProblemCode.INVALID_VALUE,
    "The trace has no kernels, so it was dropped: the process used no GPU in that time, or another profiler is active.",
    "Record a longer time.",
)


@dataclass(frozen=True, slots=True)
class RecordedTrace(RecordedFile):
    """The trace of one process, or why there is none.

    Attributes:
        is_failed: Whether Kineto recorded, and the result is worth nothing: no kernels of a process that has a GPU.
    """

    is_failed: bool = False


def record_traces(
    watcher: ProbeWatcher, pids: Sequence[int], milliseconds: int, allow: Callable[[str], bool] | None = None
) -> tuple[RecordedTrace, ...]:
    """Have processes record a trace with Kineto, several of them from one common start on, and wait for the files.

    The call takes the duration and a few seconds more. It drains the watcher's inbox: a session that shows the same
    probes has its own watcher.

    Args:
        watcher: A started client that is connected to the processes, as `connected_watcher` returns.
        pids: The processes, as in `Probe.pid`.
        milliseconds: How long to record, 200 to 10,000.
        allow: Asked with a reason, in sentences, whether to record a process that is slower afterwards; None for yes.

    Returns:
        A trace or a problem for each process, in the order of `pids`.
    """
    has_gpu = {pid: _has_gpu(watcher, pid) for pid in pids}
    start = int(1000 * (time.time() + LEAD_SECONDS)) if len(pids) > 1 else 0
    may_stay = int(allow is None)
    arguments = {"milliseconds": milliseconds, "start_at_epoch_milliseconds": start, "may_stay": may_stay}
    seconds = milliseconds / 1000 + LEAD_SECONDS + _ANSWER_SECONDS
    files = {file.pid: file for file in request_files(watcher, pids, RequestKind.TRACE, seconds, arguments)}
    staying = [
        file.problem.reason for file in files.values() if file.problem and file.problem.reason.startswith(_STAYS)
    ]
    if allow is not None and staying and allow(staying[0]):
        return record_traces(watcher, pids, milliseconds)
    return tuple(_checked(files[pid], has_gpu[pid]) for pid in pids)


def _has_gpu(watcher: ProbeWatcher, pid: int) -> bool:
    probe = watcher.probes.get(pid)
    return probe is not None and probe.reading is not None and probe.reading.state is ProbeState.LIVE


def _checked(file: RecordedFile, has_gpu: bool) -> RecordedTrace:
    """The trace, without its file if that has no kernels although the process has a GPU."""
    if file.path is not None and has_gpu and not _has_kernels(file.path):
        file.path.unlink(missing_ok=True)
        return RecordedTrace(file.pid, notes=file.notes, problem=_NO_KERNELS, is_failed=True)
    return RecordedTrace(file.pid, file.path, file.size_bytes, file.notes, file.problem)


def _has_kernels(path: Path) -> bool:
    """Whether a trace of Kineto has a kernel; the file may be large."""
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            if _KERNEL.search(rest + chunk):
                return True
            rest = chunk[-_KERNEL_BYTES:]
    return False


MAX_SECONDS: Final = 120.0
"""Longest recording."""
_SNAPSHOT_SECONDS: Final = 60.0
"""Longest time to write the snapshot."""


def record_snapshot(watcher: ProbeWatcher, pid: int, seconds: float) -> RecordedFile:
    """Have a process record its memory history for a time and write a snapshot, and wait for the file.

    The watcher is that of `connected_watcher`; its inbox is drained. The time is up to `MAX_SECONDS`; 0 for a snapshot
    of what is allocated now.
    """
    arguments = {"milliseconds": int(1000 * seconds)}
    (file,) = request_files(watcher, (pid,), RequestKind.MEMORY_HISTORY, seconds + _SNAPSHOT_SECONDS, arguments)
    return file
