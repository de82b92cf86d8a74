"""Answers of Slurm's commands: how they are asked, within limits, and the values of their JSON.

The format differs between versions: a number is plain or an object with ``set``, a state is a text or a list.
"""

import json
import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.fleet.model import FleetError

TIMEOUT_SECONDS: Final = 20.0
MAX_BYTES: Final = 128 << 20
_READ_BYTES: Final = 1 << 16
_MAX_ERROR_BYTES: Final = 1 << 14
_TEXT: Final = 120


def answer(command: str, options: Sequence[str]) -> bytes:
    """What a command of Slurm writes.

    Raises:
        FleetError: Slurm is not installed, refuses, does not respond, or answers without end.
    """
    if shutil.which(command) is None:
        raise FleetError(Problem(ProblemCode.NOT_FOUND, f"{command} is not installed here."))
    try:
        process = subprocess.Popen(
            [command, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        problem = Problem(ProblemCode.NOT_READ, f"{command} cannot be started: {error.strerror or error}.")
        raise FleetError(problem) from error
    with process:
        try:
            output, errors = _read(process, command)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        text = safe_text(errors.decode(errors="replace").strip().rpartition("\n")[2], 200).rstrip(".")
        reason = text or f"exit code {process.returncode}"
        raise FleetError(Problem(ProblemCode.NOT_READ, f"{command} failed: {reason}."))
    return output


def _read(process: subprocess.Popen[bytes], command: str) -> tuple[bytes, bytes]:
    """The output and the end of the error output of a command."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    output, errors = bytearray(), bytearray()
    with closing(selectors.DefaultSelector()) as selector:
        for pipe, data in ((process.stdout, output), (process.stderr, errors)):
            assert pipe is not None
            selector.register(pipe, selectors.EVENT_READ, data)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                problem = Problem(ProblemCode.UNRESPONSIVE, f"{command} did not respond within {TIMEOUT_SECONDS:g} s.")
                raise FleetError(problem)
            for key, _ in ready:
                piece = os.read(key.fd, _READ_BYTES)
                key.data.extend(piece)
                if not piece:
                    selector.unregister(key.fileobj)
            del errors[:-_MAX_ERROR_BYTES]
            if len(output) > MAX_BYTES:
                reason = f"{command} answered with more than {MAX_BYTES >> 20} MiB."
                raise FleetError(Problem(ProblemCode.NOT_READ, reason))
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        problem = Problem(ProblemCode.UNRESPONSIVE, f"{command} did not end within {TIMEOUT_SECONDS:g} s.")
        raise FleetError(problem) from None
    return bytes(output), bytes(errors)


def jobs_in(text: bytes, command: str) -> list[dict[str, Any]]:
    """The entries of an answer that may be jobs.

    Raises:
        FleetError: The answer is not JSON with a list of jobs.
    """
    try:
        document: Any = json.loads(text)
        raw = document["jobs"]
        return [entry for entry in raw if isinstance(entry, dict)]
    except (ValueError, RecursionError, KeyError, TypeError):
        reason = f"{command} --json gave no list of jobs."
        raise FleetError(Problem(ProblemCode.DAMAGED, reason, "It needs Slurm 21.08 or later.")) from None


def number(value: object) -> float | None:
    """A number, plain or in Slurm's form ``{"set": true, "infinite": false, "number": 5}``."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") is not False and value.get("infinite") is not True else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def text_of(value: object, length: int = _TEXT) -> str:
    """A text, or the first one of a list, safe to show; empty if there is none."""
    if isinstance(value, list):
        value = value[0] if value else None
    return safe_text(value, length) if isinstance(value, str) else ""


def part(value: object, *names: str) -> object:
    """What an object has under the names, one in the other; None if it has not."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def job_number(entry: dict[str, Any], array: object, task: object) -> str | None:
    """The id of a job, such as ``4711``, or ``4711_3`` in an array; None if the entry is no job."""
    job, array_job, array_task = number(entry.get("job_id")), number(array), number(task)
    if job is None:
        return None
    return f"{array_job:.0f}_{array_task:.0f}" if array_job and array_task is not None else f"{job:.0f}"
