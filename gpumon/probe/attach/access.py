"""Whether the probe can be loaded into a process, from /proc alone: the process itself is not touched."""

import os
import platform
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from gpumon.core.problems import CommandError, Problem
from gpumon.core.procfs import read_status
from gpumon.probe.attach.errors import (
    MIN_VERSION,
    NO_ATTACH,
    REMOTE_EXEC_VERSION,
    forbidden,
    ptrace_scope,
    too_old,
    traced,
)
from gpumon.probe.attach.handshake import listening_in
from gpumon.probe.attach.refusals import RefusalError
from gpumon.probe.attach.target import Target, read_target

_CAP_SYS_PTRACE: Final = 19
"""From linux/capability.h."""
_ELF_CLASS_64: Final = 2
_MACHINES: Final = {"x86_64": 62, "aarch64": 183}
"""From elf.h, by the name that the kernel has for the architecture."""


class AttachState(str, Enum):
    """What can be said about a process without touching it."""

    PROBE = "probe"
    CAN_ATTACH = "can attach"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Attachability:
    """Whether the probe can be loaded into a process.

    Attributes:
        state: What it is.
        word: For a column: the state, or why not in two or three words.
        problem: Why not and what to do; None unless the state is `REFUSED`.
        target: The process; None if it cannot be read.
        folder: Where its probe listens; None unless the state is `PROBE`.
    """

    state: AttachState
    word: str
    problem: Problem | None = None
    target: Target | None = None
    folder: Path | None = None


def attachability(pid: int, proc: Path = Path("/proc")) -> Attachability:
    """Whether the probe can be loaded into a process.

    A process that the kernel allows to be read may still turn out to be unsuitable when gpumon attaches to it.
    """
    target = None
    try:
        target = read_target(pid, proc)
        folder = listening_in(target)
        if folder is not None:
            return Attachability(AttachState.PROBE, AttachState.PROBE.value, target=target, folder=folder)
        check_access(target)
    except CommandError as error:
        word = error.word if isinstance(error, RefusalError) else "unknown"
        return Attachability(AttachState.REFUSED, word, error.problem, target)
    return Attachability(AttachState.CAN_ATTACH, AttachState.CAN_ATTACH.value, target=target)


def check_access(target: Target) -> None:
    """Check what can be known about a process before gpumon attaches to it.

    Raises:
        CommandError: The probe cannot be loaded into it.
    """
    version = target.named_version
    _check_kernel(target)
    if target.environment().get("GPUMON_PROBE") == "0":
        raise RefusalError("disabled", target=target)
    if version is not None and version < MIN_VERSION:
        raise too_old(target, version)
    if version is not None and version >= REMOTE_EXEC_VERSION:
        return
    if target.is_free_threaded:
        raise RefusalError("no_gil", target=target)
    machine = platform.machine()
    if _elf_kind(target) != (_ELF_CLASS_64, _MACHINES.get(machine)):
        raise RefusalError("other_architecture", target=target, machine=machine)
    if machine != "x86_64":
        raise RefusalError("untested", target=target, machine=machine)


def _check_kernel(target: Target) -> None:
    """Check what the kernel checks before a process may be traced (ptrace(2), Documentation/admin-guide/LSM/Yama.rst).

    Raises:
        CommandError: The kernel refuses it.
    """
    folder = target.proc / str(target.pid)
    with suppress(OSError):
        status = read_status(folder)
        tracer = int(status.get("TracerPid", "0"))
        if tracer:
            raise traced(target, tracer)
        if status.get("State", "").startswith(("T", "t")):
            raise RefusalError("stopped", target=target)
        if status.get("Seccomp") == "1":
            raise RefusalError("strict_seccomp", target=target)
        if "shstk" in status.get("x86_Thread_features", ""):
            raise RefusalError("shadow_stack", target=target)
    if _has_ptrace_capability(target):
        if ptrace_scope(target) == NO_ATTACH:
            raise forbidden(target)
        return
    is_dumpable = folder.stat().st_uid == target.uid  # root owns the files of a process that must not be read
    scope = ptrace_scope(target)
    is_open = scope != "1" or _is_descendant(target) or _has_allowed_it(target)
    if not is_dumpable or scope in {"2", NO_ATTACH} or not is_open:
        raise forbidden(target)


def _has_ptrace_capability(target: Target) -> bool:
    """Whether this process has the capability over the target: not if that is in a user namespace outside its own."""
    with suppress(OSError, KeyError, ValueError):
        capabilities = int(read_status(target.proc / "self")["CapEff"], 16)
        return bool(capabilities >> _CAP_SYS_PTRACE & 1)
    return False


def _is_descendant(target: Target) -> bool:
    """Whether gpumon, or a process that it was started from in this shell job, has started the process."""
    own, pid = os.getpid(), target.pid
    with suppress(OSError, KeyError, ValueError):
        while pid > 1:
            if pid == own:
                return True
            pid = int(read_status(target.proc / str(pid))["PPid"])
    return False


def _has_allowed_it(target: Target) -> bool:
    """Whether the process has allowed others to trace it (PR_SET_PTRACER), as MPI does; the kernel logs a no."""
    with suppress(OSError), (target.proc / str(target.pid) / "mem").open("rb"):
        return True
    return False


def _elf_kind(target: Target) -> tuple[int, int]:
    """Class and machine of the program that the process runs; zeros if its file cannot be read."""
    with suppress(OSError, struct.error), (target.proc / str(target.pid) / "exe").open("rb") as file:
        header = file.read(20)
        (machine,) = struct.unpack_from("<H", header, 18)
        return header[4], machine
    return 0, 0
