"""Has a running Python take a script over, by an interpreter of its own minor version in a short-lived child."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.text import safe_bytes, safe_text
from gpumon.probe.attach.refusals import LEAST_VERSION, cannot_run, no_interpreter, refused, too_old
from gpumon.probe.attach.target import Target

_PATIENCE_SECONDS: Final = 10.0
_SEARCH_PATH: Final = "LD_LIBRARY_PATH"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_ASK: Final = """
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
"""For any Python 3, so that one that is too old says so itself."""


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """Who asks.

    Attributes:
        program: The interpreter.
        environment: Its variables.
        user: As whom it runs, if not as gpumon; with it goes the group.
        group: See there.
    """

    program: str
    environment: Mapping[str, str]
    user: int | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What it said: its version, and what `sys.remote_exec` raised, the outermost first."""

    version: tuple[int, ...]
    errors: tuple[str, ...]
    is_forbidden: bool


def ask_to_run(target: Target, script: Path) -> None:
    """Has a process run a script at the next step of its main thread.

    Args:
        target: The process.
        script: A file that it can read; it must stay until it was run.

    Raises:
        CommandError: It is not taken over.
    """
    answer = _asked(target, script)
    if answer.version < LEAST_VERSION:
        raise too_old(target, answer.version)
    if answer.errors:
        raise refused(target, answer.errors, is_forbidden=answer.is_forbidden)


def _asked(target: Target, script: Path) -> _Answer:
    interpreter = _interpreter(target)
    try:
        done = subprocess.run(
            [interpreter.program, "-I", "-S", "-c", _ASK, str(target.pid), str(script)],
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=interpreter.environment,
            start_new_session=True,  # Ctrl-C is for gpumon, which ends it
            user=interpreter.user,
            group=interpreter.group,
            extra_groups=None if interpreter.user is None else [],
        )
    except subprocess.TimeoutExpired:
        raise cannot_run(target, f"it took more than {_PATIENCE_SECONDS:g} s") from None
    except OSError as error:
        raise cannot_run(target, error.strerror or str(error)) from None
    answer = _parsed(done.stdout) if done.returncode == 0 else None
    if answer is None:
        lines = safe_bytes(done.stderr[-1000:].strip().rpartition(b"\n")[2], 200)
        raise cannot_run(target, lines)
    return answer


def _interpreter(target: Target) -> _Interpreter:
    """The process's own, or gpumon's if it is of the same kind.

    Root runs what belongs to another user only as that user: it could be anything that calls itself Python.
    """
    fits = target.named_version == sys.version_info[:2]
    if fits and (target.is_foreign or not target.is_interpreter):
        return _Interpreter(sys.executable, dict(os.environ))
    if not target.is_interpreter:
        raise no_interpreter(target)
    folder = target.proc / str(target.pid)
    program = str(folder / "exe")  # which is that very file, even when it has been replaced on the disk
    if target.is_foreign and _is_systems(Path(target.program)):
        return _Interpreter(program, {})
    found = target.environment()
    environment = {name: found[name] for name in (_SEARCH_PATH,) if name in found}
    if not target.is_foreign:
        return _Interpreter(program, environment)
    group = target.uid
    with suppress(OSError):
        group = folder.stat().st_gid
    return _Interpreter(program, environment, target.uid, group)


def _is_systems(program: Path) -> bool:
    """Whether only root can have put this file where it is, or anything else beside it."""
    try:
        found = [path.lstat() for path in (program, *program.parents)]
    except OSError:
        return False
    return all(each.st_uid == 0 and not each.st_mode & _OTHERS_WRITE for each in found)


def _parsed(said: bytes) -> _Answer | None:
    try:
        told = json.loads(said.strip().rpartition(b"\n")[2])
        version = tuple(int(each) for each in told["version"])
        errors = _texts(told["errors"])
        return _Answer(version, errors, bool(told["is_forbidden"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _texts(told: Sequence[object]) -> tuple[str, ...]:
    return tuple(safe_text(str(each), 300) for each in told)
