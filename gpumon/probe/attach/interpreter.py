"""Calls `sys.remote_exec` in a short-lived child that runs an interpreter of the target's own minor version."""

import ctypes
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.text import safe_bytes, safe_text
from gpumon.probe.attach.errors import REMOTE_EXEC_VERSION, cannot_run, dotted, not_accepted
from gpumon.probe.attach.refusals import RefusalError
from gpumon.probe.attach.target import Target, read_target

_TIMEOUT_SECONDS: Final = 10.0
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_PR_SET_NO_NEW_PRIVS: Final = 38
"""From linux/prctl.h."""
_CODE: Final = """
import json, sys
errors, is_forbidden = [], False
if hasattr(sys, "remote_exec"):
    try:
        sys.remote_exec(int(sys.argv[1]), sys.argv[2])
    except Exception as error:
        while error is not None:
            errors.append("%s: %s" % (type(error).__name__, error))
            is_forbidden = is_forbidden or isinstance(error, PermissionError)
            error = error.__cause__ or error.__context__
print(json.dumps({"version": sys.version_info[:3], "errors": errors, "is_forbidden": is_forbidden}))
"""
"""Runs on any Python 3, so that one without `sys.remote_exec` reports its version."""


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """The interpreter of the child.

    Attributes:
        program: Its path.
        environment: Its environment variables.
        user: The user ID to run it as, or None for gpumon's own; a given user gets no privileges in addition.
        group: The group ID to run it as, or None for gpumon's own.
    """

    program: str
    environment: Mapping[str, str]
    user: int | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class _RemoteExecResult:
    """What the child reports: its version, and what `sys.remote_exec` raised, the outermost exception first."""

    version: tuple[int, ...]
    errors: tuple[str, ...]
    is_forbidden: bool


def remote_exec(target: Target, script: Path) -> None:
    """Have a process run a script as soon as its main thread executes Python code.

    Args:
        target: The process.
        script: A file that the process can read; it must exist until the process has run it.

    Raises:
        CommandError: The process does not accept the script.
    """
    result = _call_remote_exec(target, script)
    if result.version < REMOTE_EXEC_VERSION:
        raise cannot_run(target, f"it runs Python {'.'.join(map(str, result.version))}")
    if result.errors:
        raise not_accepted(target, result.errors, is_forbidden=result.is_forbidden)


def _call_remote_exec(target: Target, script: Path) -> _RemoteExecResult:
    with _opened_program(target) as descriptor:
        child = _run_child(target, _interpreter(target, descriptor), descriptor, [str(target.pid), str(script)])
    result = _parse(child.stdout) if child.returncode == 0 else None
    if result is None:
        last_line = safe_bytes(child.stderr[-1000:].strip().rpartition(b"\n")[2], 200)
        raise cannot_run(target, last_line)
    return result


@contextmanager
def _opened_program(target: Target) -> Iterator[int]:
    """A descriptor of the file that a process runs: no other file can take its place.

    Raises:
        CommandError: The process has ended, or its user is not the one that was read.
    """
    try:
        descriptor = os.open(target.proc / str(target.pid) / "exe", os.O_PATH)
    except FileNotFoundError:
        raise RefusalError("ended", target=target) from None
    except OSError as error:
        raise cannot_run(target, error.strerror or str(error)) from None
    try:
        current = read_target(target.pid, target.proc)  # only now: the opened file may be that of a new user
        if (current.uid, current.gid, current.start_ticks) != (target.uid, target.gid, target.start_ticks):
            raise RefusalError("ended", target=target)
        yield descriptor
    finally:
        os.close(descriptor)


def _run_child(
    target: Target, interpreter: _Interpreter, descriptor: int, arguments: Sequence[str]
) -> "subprocess.CompletedProcess[bytes]":
    is_other_user = interpreter.user is not None
    try:
        return subprocess.run(
            [interpreter.program, "-I", "-S", "-c", _CODE, *arguments],
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=interpreter.environment,
            start_new_session=True,  # only gpumon receives Ctrl-C, and ends the child
            pass_fds=[descriptor],
            user=interpreter.user,
            group=interpreter.group,
            extra_groups=[] if is_other_user else None,
            preexec_fn=_forbid_new_privileges if is_other_user else None,
        )
    except subprocess.TimeoutExpired:
        raise cannot_run(target, f"it took more than {_TIMEOUT_SECONDS:g} s") from None
    except OSError as error:
        raise cannot_run(target, error.strerror or str(error)) from None
    except subprocess.SubprocessError as error:
        raise cannot_run(target, str(error)) from None


def _forbid_new_privileges() -> None:
    """Deny setuid programs to this process and its children."""
    if ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError("no_new_privs cannot be set")


def _interpreter(target: Target, descriptor: int) -> _Interpreter:
    """The target's own interpreter, or gpumon's if both have the same version.

    A process can run any file under the name and the path of an interpreter. As root, gpumon therefore runs the file
    of another user's process only as that user, unless the file itself is the system's. No file of a container is run
    outside of it with the rights that it has in the container.

    Args:
        target: The process.
        descriptor: The open file that the process runs.

    Raises:
        CommandError: There is no interpreter that gpumon may run.
    """
    is_same_version = target.named_version == sys.version_info[:2]
    if is_same_version and (target.is_foreign or not target.is_interpreter):
        return _Interpreter(sys.executable, dict(os.environ))
    if not target.is_interpreter:
        raise RefusalError("no_interpreter", target=target, version=dotted(target.named_version or ()))
    program = f"/proc/self/fd/{descriptor}"
    is_system_file = _is_system_file(descriptor, Path(target.program))
    if not target.shares_mounts and (target.uid == 0 or not is_system_file):
        raise RefusalError("other_file_system", target=target, program=safe_text(target.program, 200))
    if target.is_foreign and target.shares_mounts and is_system_file:
        return _Interpreter(program, {})
    variables = target.environment()
    environment = {name: variables[name] for name in ("LD_LIBRARY_PATH",) if name in variables}
    if not target.is_foreign:
        return _Interpreter(program, environment)
    return _Interpreter(program, environment, target.uid, target.gid)


def _is_system_file(descriptor: int, program: Path) -> bool:
    """Whether an open file is the one at a path, and only root can write the file and all its parent folders."""
    try:
        statuses = [path.lstat() for path in (program, *program.parents)]
    except OSError:
        return False
    is_closed = all(status.st_uid == 0 and not status.st_mode & _WRITABLE_BY_OTHERS for status in statuses)
    return is_closed and os.path.samestat(os.fstat(descriptor), statuses[0])


def _parse(output: bytes) -> _RemoteExecResult | None:
    try:
        document = json.loads(output.strip().rpartition(b"\n")[2])
        version = tuple(int(number) for number in document["version"])
        return _RemoteExecResult(version, _safe_texts(document["errors"]), bool(document["is_forbidden"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _safe_texts(errors: Sequence[object]) -> tuple[str, ...]:
    return tuple(safe_text(str(error), 300) for error in errors)
