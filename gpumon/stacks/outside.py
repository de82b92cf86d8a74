"""Python stacks of a process, read from outside by py-spy: the process is not stopped, and nothing of it changes.

py-spy is a separate program, which may be missing, and which the kernel may forbid to read another process.
"""

import json
import re
import resource
import shutil
import subprocess
import sysconfig
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from gpumon.core.json_fields import Json, as_count, as_flag, as_list, as_object, as_text, required
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.stacks import (
    MAX_FRAMES,
    MAX_SAMPLED_STACKS,
    MAX_THREADS,
    SampledStack,
    StackFrame,
    StackSamples,
    ThreadStack,
)
from gpumon.core.text import safe_text

DUMP_SECONDS: Final = 5.0
"""Longest time of one dump; it takes about 10 ms."""
_START_SECONDS: Final = 10.0
"""What a recording may take in addition to its duration."""
_MAX_BYTES: Final = 32 << 20
_MAX_CPU_SECONDS: Final = 30
_MAX_SAMPLES: Final = 10_000
_TEXT_LENGTH: Final = 400
_OUTPUT: Final = "OUTPUT"
"""Stands for the file that receives the output."""
_THREAD: Final = re.compile(r'(?:Process \d+ )?Thread (\d+)(?: "(.*)")?')
_MISSING: Final = Problem(
    ProblemCode.LIBRARY_NOT_FOUND,
    "py-spy, which reads stacks from outside, is not installed.",
    "Install it in gpumon's environment: pip install py-spy",
)
_DENIED: Final = re.compile(r"permission denied|operation not permitted|eperm", re.IGNORECASE)


class OutsideError(Exception):
    """The stacks cannot be read; ``problem`` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


def read_threads(pid: int) -> tuple[ThreadStack, ...]:
    """The stacks of all Python threads of a process at one moment.

    Raises:
        OutsideError: They cannot be read.
    """
    output = _run(pid, ["dump", "--json"], DUMP_SECONDS)
    try:
        return tuple(_thread(as_object(raw), pid) for raw in as_list(json.loads(output))[:MAX_THREADS])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise _damaged(pid) from None


def sample_main_thread(pid: int, seconds: float, hertz: int) -> StackSamples:
    """Sample the main thread of a process. Blocks for the time of the samples.

    Raises:
        OutsideError: It cannot be sampled, or has ended.
    """
    duration = max(1, round(seconds))
    options = ["record", "--idle", "--format", "speedscope", "--output", _OUTPUT]
    output = _run(pid, [*options, "--rate", str(hertz), "--duration", str(duration)], duration + _START_SECONDS)
    try:
        return _samples(as_object(json.loads(output)), pid, hertz)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, IndexError):
        raise _damaged(pid) from None


def _run(pid: int, options: list[str], seconds: float) -> bytes:
    """What py-spy prints about a process, within limits on time, CPU time and output.

    Raises:
        OutsideError: It is not installed, or fails.
    """
    path = program()
    if path is None:
        raise OutsideError(_MISSING)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        number = output.fileno()
        has_file = _OUTPUT in options  # a recording prints its progress too
        options = [option.replace(_OUTPUT, f"/dev/fd/{number}") for option in options]
        try:
            child = subprocess.Popen(
                [path, *options, "--nonblocking", "--full-filenames", "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if has_file else output,
                stderr=errors,
                env={},
                pass_fds=(number,),
            )
        except OSError as error:
            raise OutsideError(Problem(ProblemCode.NOT_READ, f"py-spy cannot be run: {error.strerror}.")) from None
        try:
            with suppress(OSError):
                resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (_MAX_BYTES, _MAX_BYTES))
                resource.prlimit(child.pid, resource.RLIMIT_CPU, (_MAX_CPU_SECONDS, _MAX_CPU_SECONDS))
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            child.kill()
            child.wait()
        if code != 0:
            raise OutsideError(_failure(pid, code, _content(errors, 4096)))
        return _content(output, _MAX_BYTES)


def program() -> str | None:
    """The program that was installed with gpumon, or else the one on the PATH."""
    installed = Path(sysconfig.get_path("scripts"), "py-spy")
    return str(installed) if installed.is_file() else shutil.which("py-spy")


def _content(file: IO[bytes], size: int) -> bytes:
    file.seek(0)
    return file.read(size)


def _failure(pid: int, code: int | None, errors: bytes) -> Problem:
    """Why py-spy gave no stacks."""
    if code is None:
        return Problem(ProblemCode.UNRESPONSIVE, f"py-spy did not read process {pid} in time.")
    if not Path("/proc", str(pid)).exists():
        return Problem(ProblemCode.NOT_FOUND, f"There is no process {pid}, or it has ended.")
    lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    if any(_DENIED.search(line) for line in lines):
        return Problem(ProblemCode.NO_PERMISSION, f"The kernel does not let py-spy read process {pid}.")
    text = safe_text(lines[0].removeprefix("Error: ") if lines else "no reason was given", _TEXT_LENGTH)
    return Problem(ProblemCode.NOT_READ, f"py-spy cannot read process {pid}: {text.rstrip('.')}.")


def _damaged(pid: int) -> OutsideError:
    return OutsideError(Problem(ProblemCode.DAMAGED, f"py-spy printed something unknown about process {pid}."))


def _thread(raw: Json, pid: int) -> ThreadStack:
    native_id = as_count(raw.get("os_thread_id"))
    frames = [_frame(as_object(frame), "filename") for frame in as_list(raw["frames"])[:MAX_FRAMES]]
    name, owns_gil = as_text(raw.get("thread_name")) or "", as_flag(raw.get("owns_gil")) is True
    return ThreadStack(name, _is_main(native_id, name, pid), tuple(frames), native_id, owns_gil=owns_gil)


def _is_main(native_id: int | None, name: str | None, pid: int) -> bool:
    """Whether a thread is the main thread; in another PID namespace its ID is not the PID."""
    return native_id == pid or name == "MainThread"


def _frame(raw: Json, file: str) -> StackFrame:
    """A frame; py-spy names a function with its classes, and the probe without."""
    name = required(as_text(raw["name"])).rpartition(".")[2]
    return StackFrame(as_text(raw.get(file)) or "", as_count(raw.get("line")) or 0, name)


def _samples(raw: Json, pid: int, hertz: int) -> StackSamples:
    """The samples of the main thread."""
    frames = [_frame(as_object(frame), "file") for frame in as_list(as_object(raw["shared"])["frames"])]
    counts: Counter[tuple[StackFrame, ...]] = Counter()
    for profile in map(as_object, as_list(raw["profiles"])):
        match = _THREAD.fullmatch(required(as_text(profile["name"])))
        if match is not None and _is_main(int(match[1]), match[2], pid):
            for sample in as_list(profile["samples"])[:_MAX_SAMPLES]:
                stack = [frames[required(as_count(number))] for number in reversed(as_list(sample))]
                counts[tuple(stack[:MAX_FRAMES])] += 1
    total = sum(counts.values())
    stacks = tuple(SampledStack(stack, count) for stack, count in counts.most_common(MAX_SAMPLED_STACKS))
    return StackSamples(total / hertz, total, stacks)
