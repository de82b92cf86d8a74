"""The process that the probe is loaded into, as /proc shows it: its user, its program and its Python version."""

import os
import pwd
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.procfs import find_command, find_stat, read_status
from gpumon.core.text import safe_text
from gpumon.probe.attach.refusals import RefusalError

_PROC: Final = Path("/proc")
_DELETED: Final = " (deleted)"
_COMMAND_LENGTH: Final = 80
_INTERPRETER: Final = re.compile(r"python(?:(\d+)(?:\.(\d+))?)?[dtu]*(?:-dbg)?")
_LIBRARY: Final = re.compile(rb"/libpython(\d+)\.(\d+)(t?)[^/\n]*\n")
_EXTENSION: Final = re.compile(rb"\.cpython-(3)(\d+)(t?)[dm]*-[^/\n]*\.so\n")
_PYPY: Final = re.compile(r"/(?:lib)?pypy3?[^/]*")


@dataclass(frozen=True, slots=True)
class Target:
    """A process that runs Python.

    Attributes:
        pid: Its PID in gpumon's PID namespace.
        own_pid: Its PID in its own PID namespace, which differs in a container.
        uid: Its real user ID.
        gid: Its real group ID.
        start_ticks: Its start time in clock ticks since boot, which distinguishes it from a later process with its PID.
        command: Its command line as safe text.
        program: The file that it runs, as a path in its own file system.
        is_replaced: Whether that file was removed since the process started.
        is_interpreter: Whether that file is a Python interpreter, not a program that embeds Python.
        named_version: Major and minor version from the names of its files, or None if no name has them.
        is_free_threaded: Whether these names are those of a build without the GIL.
        proc: Root of the proc file system.
    """

    pid: int
    own_pid: int
    uid: int
    gid: int
    start_ticks: int
    command: str
    program: str
    is_replaced: bool
    is_interpreter: bool
    named_version: tuple[int, int] | None
    is_free_threaded: bool = False
    proc: Path = _PROC

    @property
    def is_foreign(self) -> bool:
        """Whether it belongs to another user, so that only root may access it."""
        return self.uid != os.geteuid()

    @property
    def state(self) -> str | None:
        """The letter of its state in /proc/PID/stat, or None if the process has ended."""
        stat = find_stat(self.proc / str(self.pid))
        return None if stat is None or stat.has_ended or stat.start_ticks != self.start_ticks else stat.state

    @property
    def has_other_file_system(self) -> bool:
        """Whether its root file system is another one, as in a container, so that paths name other files."""
        return not self.is_replaced and not _is_same(self.proc / str(self.pid) / "exe", Path(self.program))

    @property
    def shares_mounts(self) -> bool:
        """Whether gpumon and the process have the same mount namespace and the same root folder."""
        own, other = self.proc / "self", self.proc / str(self.pid)
        return all(_is_same(own / name, other / name) for name in ("ns/mnt", "root"))

    @property
    def own_uid(self) -> int:
        """Its user ID in its own user namespace, which differs in a container without root."""
        with suppress(OSError, ValueError):
            for line in (self.proc / str(self.pid) / "uid_map").read_text().splitlines():
                inside, outside, count = (int(number) for number in line.split())
                if 0 <= self.uid - outside < count:
                    return inside + self.uid - outside
        return self.uid

    def seen(self, path: Path) -> Path:
        """Where gpumon finds a path of the process, which may have another root folder or other mounts."""
        return path if self.shares_mounts else self.proc / str(self.pid) / "root" / path.relative_to("/")

    def environment(self) -> Mapping[str, str]:
        """The environment variables that it was started with."""
        pairs = (text.partition("=") for text in self._texts("environ"))
        return {name: value for name, _, value in pairs}

    def arguments(self) -> tuple[str, ...]:
        """The arguments of its command line."""
        return self._texts("cmdline")

    def sees(self, path: Path) -> bool:
        """Whether a path names the same file for the process and for gpumon."""
        return _is_same(self.proc / str(self.pid) / "root" / path.relative_to("/"), path)

    @property
    def name(self) -> str:
        """How to name it within a sentence."""
        return f"process {self.pid} ({self.command})" if self.command else f"process {self.pid}"

    def __str__(self) -> str:
        """How to name it at the start of a sentence."""
        return self.name.replace("p", "P", 1)

    def _texts(self, file: str) -> tuple[str, ...]:
        raw = b""
        with suppress(OSError):
            raw = (self.proc / str(self.pid) / file).read_bytes()
        return tuple(os.fsdecode(text) for text in raw.split(b"\0"))


def read_target(pid: int, proc: Path = _PROC) -> Target:
    """Read a process from /proc; ``pid`` is that in gpumon's PID namespace.

    Raises:
        CommandError: The process does not exist, may not be accessed, or is not Python.
    """
    folder = proc / str(pid)
    status = _status(pid, folder)
    leader = status.get("Tgid", str(pid))
    if leader != str(pid):
        raise CommandError.usage(
            ProblemCode.INVALID_VALUE, f"{pid} is a thread of process {leader}.", f"Run `gpumon attach {leader}`."
        )
    stat = find_stat(folder)
    if stat is None or stat.has_ended:
        raise RefusalError("no_process", pid=pid)
    uid = _owner(pid, status)
    program, libraries = _program(pid, folder)
    is_replaced = program.endswith(_DELETED)
    program = program.removesuffix(_DELETED)
    match = _INTERPRETER.fullmatch(Path(program).name)
    if not match and not libraries:
        raise _not_python(pid, program)
    named = [number for number in (match.groups() if match else ()) if number]
    version = libraries[0][:2] if libraries else tuple(int(number) for number in named)
    return Target(
        pid=pid,
        own_pid=int(status.get("NSpid", str(pid)).split()[-1]),
        uid=uid,
        gid=int(status["Gid"].split()[0]),
        start_ticks=stat.start_ticks,
        command=find_command(folder, _COMMAND_LENGTH),
        program=program,
        is_replaced=is_replaced,
        is_interpreter=match is not None,
        named_version=(version[0], version[1]) if len(version) == 2 else None,
        is_free_threaded=libraries[0][2] if libraries else program.endswith("t"),
        proc=proc,
    )


def _status(pid: int, folder: Path) -> Mapping[str, str]:
    try:
        return read_status(folder)
    except (FileNotFoundError, ProcessLookupError):
        if not _is_hidden(pid):
            raise RefusalError("no_process", pid=pid) from None
        raise RefusalError("other_user", pid=pid, owner="another user") from None
    except OSError:
        raise RefusalError("other_user", pid=pid, owner="another user") from None


def _is_hidden(pid: int) -> bool:
    """Whether the process exists although /proc does not show it (mount option hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _owner(pid: int, status: Mapping[str, str]) -> int:
    """The user of the process. To access it, the kernel requires that all its user IDs equal those of gpumon."""
    uids = [int(uid) for uid in status["Uid"].split()[:3]]
    own = os.geteuid()
    others = [uid for uid in uids if uid != own]
    if others and own != 0:
        raise RefusalError("other_user", pid=pid, owner=_user_name(others[0]))
    return uids[0]


def _user_name(uid: int) -> str:
    try:
        return f"user {safe_text(pwd.getpwuid(uid).pw_name, 40)}"
    except KeyError:
        return f"the user with ID {uid}"


def _program(pid: int, folder: Path) -> tuple[str, list[tuple[int, int, bool]]]:
    """The file that the process runs, and the versions of the Python libraries that it has loaded."""
    try:
        program = str((folder / "exe").readlink())
        maps = (folder / "maps").read_bytes()
    except PermissionError:
        raise RefusalError("more_privileges", pid=pid) from None
    except OSError:
        stat = find_stat(folder)
        if stat is None or stat.has_ended:
            raise RefusalError("no_process", pid=pid) from None
        raise _not_python(pid, "") from None  # threads of the kernel run no file
    is_interpreter = _INTERPRETER.fullmatch(Path(program).name) is not None
    libraries = _LIBRARY.findall(maps) or (_EXTENSION.findall(maps) if is_interpreter else [])
    return program, [(int(major), int(minor), suffix == b"t") for major, minor, suffix in libraries]


def _not_python(pid: int, program: str) -> RefusalError:
    shown = safe_text(program, 200)
    if _PYPY.search(program):
        return RefusalError("pypy", pid=pid, program=shown)
    clause = f"runs {shown}, which" if program else "belongs to the kernel and"
    return RefusalError("not_python", pid=pid, clause=clause)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
