"""The process that a probe is to be loaded into, as /proc shows it: whose it is, whether it is Python, and which."""

import os
import pwd
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_bytes, safe_text

_PROC: Final = Path("/proc")
_DELETED: Final = " (deleted)"
_COMMAND_BYTES: Final = 4096
_COMMAND_LENGTH: Final = 80
_INTERPRETER: Final = re.compile(r"python(?:(\d+)(?:\.(\d+))?)?[dtu]*(?:-dbg)?")
_LIBRARY: Final = re.compile(rb"/libpython(\d+)\.(\d+)[^/\n]*\n")
_ENDED: Final = "ZXx"


@dataclass(frozen=True, slots=True)
class Target:
    """A process of Python.

    Attributes:
        pid: Its PID as it is seen here.
        own_pid: Its PID as it sees it itself; another one in a container.
        uid: Whose it is.
        start_ticks: When it began, which tells it from a later process of the same PID.
        command: Its command line, made safe.
        program: The file that it runs, as a path in its own file system.
        is_replaced: Whether that file has gone from the disk since.
        is_interpreter: Whether that file is Python itself, and not a program that has Python inside.
        named_version: Major and minor version as file names have them, or None where none has.
        proc: Root of the proc file system.
    """

    pid: int
    own_pid: int
    uid: int
    start_ticks: int
    command: str
    program: str
    is_replaced: bool
    is_interpreter: bool
    named_version: tuple[int, int] | None
    proc: Path = _PROC

    @property
    def is_foreign(self) -> bool:
        """Whether it is somebody else's, so that only root may touch it."""
        return self.uid != os.geteuid()

    @property
    def state(self) -> str | None:
        """The one letter that /proc has for what it does, or None if it has ended."""
        state, start_ticks = _state(self.proc / str(self.pid))
        return None if _is_over(state) or start_ticks != self.start_ticks else state

    @property
    def is_elsewhere(self) -> bool:
        """Whether it lives in another file system, as in a container, where paths mean other files."""
        return not self.is_replaced and not _is_same(self.proc / str(self.pid) / "exe", Path(self.program))

    def environment(self) -> Mapping[str, str]:
        """The variables that it was started with."""
        pairs = (text.partition("=") for text in self._texts("environ"))
        return {name: value for name, _, value in pairs}

    def arguments(self) -> tuple[str, ...]:
        """The words of its command line."""
        return self._texts("cmdline")

    def sees(self, path: Path) -> bool:
        """Whether it finds the same file under this name as gpumon does."""
        return _is_same(self.proc / str(self.pid) / "root" / path.relative_to("/"), path)

    @property
    def name(self) -> str:
        """What it is called within a sentence."""
        return f"process {self.pid} ({self.command})" if self.command else f"process {self.pid}"

    def __str__(self) -> str:
        """What it is called where a sentence begins."""
        return self.name.replace("p", "P", 1)

    def _texts(self, file: str) -> tuple[str, ...]:
        raw = b""
        with suppress(OSError):
            raw = (self.proc / str(self.pid) / file).read_bytes()
        return tuple(os.fsdecode(each) for each in raw.split(b"\0"))


def read_target(pid: int, proc: Path = _PROC) -> Target:
    """The process of this PID.

    Args:
        pid: As it is seen here.
        proc: Root of the proc file system.

    Raises:
        CommandError: There is none, it may not be touched, or it is not Python.
    """
    folder = proc / str(pid)
    facts = _facts(pid, folder)
    _refuse_thread(pid, facts)
    state, start_ticks = _state(folder)
    if _is_over(state):
        raise no_such_process(pid)
    uid = _owner(pid, facts)
    program, libraries = _program(pid, folder)
    is_replaced = program.endswith(_DELETED)
    program = program.removesuffix(_DELETED)
    named = _INTERPRETER.fullmatch(Path(program).name)
    if not named and not libraries:
        raise _not_python(pid, program)
    version = libraries[0] if libraries else tuple(int(each) for each in (named.groups() if named else ()) if each)
    return Target(
        pid=pid,
        own_pid=int(facts.get("NSpid", str(pid)).split()[-1]),
        uid=uid,
        start_ticks=start_ticks,
        command=_command(folder),
        program=program,
        is_replaced=is_replaced,
        is_interpreter=named is not None,
        named_version=(version[0], version[1]) if len(version) == 2 else None,
        proc=proc,
    )


def not_there(code: ProblemCode, reason: str, remedy: str = "") -> CommandError:
    """What ends the command where something that it needs is not there."""
    return CommandError(Problem(code, reason, remedy), ExitCode.NOT_THERE)


def no_such_process(pid: int) -> CommandError:
    """There is none, or no more."""
    return not_there(
        ProblemCode.NOT_FOUND,
        f"There is no process {pid}, or it has ended.",
        "gpumon shows the PIDs of those that use a GPU; in a container, only its own processes can be seen.",
    )


def _facts(pid: int, folder: Path) -> Mapping[str, str]:
    try:
        lines = (folder / "status").read_text(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        if not _is_hidden(pid):
            raise no_such_process(pid) from None
        raise _of_another(pid, "another user") from None
    except OSError:
        raise _of_another(pid, "another user") from None
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process although /proc does not show it, as /proc can be told to."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _refuse_thread(pid: int, facts: Mapping[str, str]) -> None:
    leader = facts.get("Tgid", str(pid))
    if leader != str(pid):
        problem = Problem(
            ProblemCode.INVALID_VALUE, f"{pid} is a thread of process {leader}.", f"Say `gpumon attach {leader}`."
        )
        raise CommandError(problem, ExitCode.USAGE)


def _owner(pid: int, facts: Mapping[str, str]) -> int:
    """Whose the process is; the kernel asks that all its user ids are those of whoever touches it."""
    found = [int(each) for each in facts["Uid"].split()[:3]]
    own = os.geteuid()
    others = [each for each in found if each != own]
    if others and own != 0:
        raise _of_another(pid, _user_name(others[0]))
    return found[0]


def _user_name(uid: int) -> str:
    try:
        return f"user {safe_text(pwd.getpwuid(uid).pw_name, 40)}"
    except KeyError:
        return f"the user of number {uid}"


def _of_another(pid: int, owner: str) -> CommandError:
    return not_there(
        ProblemCode.NO_PERMISSION,
        f"Process {pid} belongs to {owner}, and only they and root may load something into it.",
        f"Run gpumon attach {pid} as that user or as root.",
    )


def _program(pid: int, folder: Path) -> tuple[str, list[tuple[int, ...]]]:
    """The file that it runs, and the versions of the Python libraries that it has loaded."""
    try:
        program = str((folder / "exe").readlink())
        libraries = _LIBRARY.findall((folder / "maps").read_bytes())
    except PermissionError:
        raise not_there(
            ProblemCode.NO_PERMISSION,
            f"Process {pid} does not let itself be looked into, as one does that has more rights than its user.",
            f"Run gpumon attach {pid} as root, with the capability SYS_PTRACE.",
        ) from None
    except OSError:
        if _is_over(_state(folder)[0]):
            raise no_such_process(pid) from None
        raise _not_python(pid, "") from None  # the kernel's own threads run no file
    return program, [(int(major), int(minor)) for major, minor in libraries]


def _not_python(pid: int, program: str) -> CommandError:
    runs = f"runs {safe_text(program, 200)}, which" if program else "is the kernel's own and"
    return not_there(
        ProblemCode.NOT_SUPPORTED,
        f"Process {pid} {runs} is not Python and has loaded no libpython.",
        "Name the training's own process: not its shell, launcher or container.",
    )


def _command(folder: Path) -> str:
    raw = b""
    with suppress(OSError), (folder / "cmdline").open("rb") as file:
        raw = file.read(_COMMAND_BYTES)
    return safe_bytes(raw.rstrip(b"\0").replace(b"\0", b" "), _COMMAND_LENGTH)


def _state(folder: Path) -> tuple[str | None, int]:
    """The letter of what it does, and when it began, in ticks since boot; None and 0 for none."""
    try:
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None, 0
    return fields[0].decode(), int(fields[19])


def _is_over(state: str | None) -> bool:
    return state is None or state in _ENDED


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
