"""GPUs that `gpumon pick` has given to a process that does not use them yet, in a file of the user's state folder.

A reservation lasts while its owner runs: at most `HOLD_SECONDS`, or longer while a process of this user is on the GPU.
"""

import json
import os
import pwd
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.core.json_text import json_bytes
from gpumon.core.model import Device
from gpumon.core.ownership import root_ownership_problem
from gpumon.core.problems import CommandError, ExitCode, ProblemCode
from gpumon.core.procfs import find_stat, read_command
from gpumon.core.state_file import STATE_REMEDY, lock_file, open_regular, state_file

HOLD_SECONDS: Final = 60.0
LOCK_SECONDS: Final = 5.0
_SCHEMA: Final = 1
_MAX_BYTES: Final = 1 << 20
_OTHER_HOST_SECONDS: Final = 86_400.0
"""A home folder may be shared by several hosts: their reservations are kept for a day."""
_MAX_ANCESTORS: Final = 32


class ProcessStart(NamedTuple):
    """A process: its PID, and its start in clock ticks since boot, which a later process with its PID lacks."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int, proc: Path = Path("/proc")) -> "ProcessStart | None":
        """The process with a PID now; None if there is none."""
        stat = find_stat(proc / str(pid))
        return None if stat is None else cls(pid, stat.start_ticks)

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        stat = find_stat(f"/proc/{self.pid}")
        return stat is not None and stat.start_ticks == self.start_ticks and not stat.has_ended


class Reservation(NamedTuple):
    """One GPU that is reserved.

    Attributes:
        uuid: The GPU.
        owner: The process for which it was picked.
        boot_id: The boot of the host, which also identifies the host.
        monotonic_seconds: When it was picked.
        time_seconds: Unix time of the same moment.
    """

    uuid: str
    owner: ProcessStart
    boot_id: str
    monotonic_seconds: float
    time_seconds: float


def picking_process(proc: Path = Path("/proc")) -> int:
    """PID of the process for which gpumon picks: its parent, or the shell whose subshell ``$(gpumon pick)`` that is.

    A subshell is a copy of its shell, so both have the same program and arguments. It ends together with gpumon.
    """
    pid = os.getppid()
    for _ in range(_MAX_ANCESTORS):
        stat = find_stat(proc / str(pid))
        parent = 0 if stat is None else stat.parent
        if parent <= 1 or _program(pid, proc) != _program(parent, proc):
            break
        pid = parent
    return pid


def picks_file() -> Path:
    """Path of the file.

    Raises:
        RuntimeError: The user has no home folder.
    """
    return state_file("picks.json").absolute()


@contextmanager
def locked_reservations(devices: Sequence[Device]) -> Iterator[list[Reservation]]:
    """The reservations that are in force, locked; what the block adds to the list is saved.

    Raises:
        CommandError: The file cannot be used, or another process holds its lock.
    """
    try:
        file = picks_file()
    except RuntimeError:
        raise _failure("this user has no home folder") from None
    refusal = root_ownership_problem(file)
    if refusal is not None:
        raise CommandError(refusal, ExitCode.MISSING_PREREQUISITE)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = open_regular(file, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise _failure(error.strerror or str(error)) from None
    try:
        try:
            lock_file(descriptor, LOCK_SECONDS)
        except BlockingIOError:
            raise _failure(f"another process has locked it for {LOCK_SECONDS:g} s") from None
        reservations = [item for item in _load(descriptor) if _is_in_force(item, devices)]
        yield reservations
        try:
            _store(descriptor, reservations)
        except OSError as error:
            raise _failure(error.strerror or str(error)) from None
    finally:
        os.close(descriptor)


def reserve(uuid: str, owner: ProcessStart) -> Reservation:
    """A reservation that starts now."""
    return Reservation(uuid, owner, boot_id(), time.monotonic(), time.time())


def _is_in_force(reservation: Reservation, devices: Sequence[Device]) -> bool:
    if reservation.boot_id != boot_id():
        return abs(time.time() - reservation.time_seconds) < _OTHER_HOST_SECONDS
    if not reservation.owner.is_alive:
        return False
    if 0 <= time.monotonic() - reservation.monotonic_seconds < HOLD_SECONDS:
        return True
    user = _user()
    device = next((device for device in devices if device.uuid == reservation.uuid), None)
    return device is not None and any(process.user == user for process in device.processes or ())


def _load(descriptor: int) -> Iterator[Reservation]:
    """The reservations of the file; what is not valid in it is left out."""
    try:
        raw = json.loads(os.pread(descriptor, _MAX_BYTES, 0) or b"{}")
        entries = raw.get("picks", []) if raw.get("schema") == _SCHEMA else []
    except (ValueError, AttributeError, RecursionError, OSError):
        return
    for entry in entries if isinstance(entries, list) else ():
        with suppress(TypeError, KeyError, ValueError):
            yield _reservation(entry)


def _reservation(entry: dict[str, Any]) -> Reservation:
    owner = ProcessStart(int(entry["pid"]), int(entry["start_ticks"]))
    return Reservation(
        str(entry["uuid"]),
        owner,
        str(entry["boot_id"]),
        float(entry["monotonic_seconds"]),
        float(entry["time_seconds"]),
    )


def _store(descriptor: int, reservations: Sequence[Reservation]) -> None:
    picks = [
        {
            "uuid": item.uuid,
            **item.owner._asdict(),
            "boot_id": item.boot_id,
            "monotonic_seconds": item.monotonic_seconds,
            "time_seconds": item.time_seconds,
        }
        for item in reservations
    ]
    content = json_bytes({"schema": _SCHEMA, "picks": picks})
    os.pwrite(descriptor, content, 0)
    os.ftruncate(descriptor, len(content))


def _failure(reason: str) -> CommandError:
    return CommandError.missing(
        ProblemCode.NOT_WRITTEN, f"The reservations (picks.json) cannot be used: {reason}.", STATE_REMEDY
    )


def _program(pid: int, proc: Path) -> str:
    """Program and arguments of a process; unique if they cannot be read."""
    try:
        return f"{(proc / str(pid) / 'exe').readlink()}\0{read_command(proc / str(pid), 4096)}"
    except OSError:
        return str(pid)


def boot_id() -> str:
    """The boot of this host, which also identifies the host; empty if it is unknown."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _user() -> str:
    """The user as the processes of a frame name it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
