"""Asks a child about the driver or about torch. It may hang or crash: its steps up to there count, and it is ended."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gpumon.core.text import safe_bytes, safe_text
from gpumon.diagnosis.doctor.facts import Step, Steps
from gpumon.jobs.catalogue import workloads_folder

_MOST_BYTES: Final = 8 << 20
_READ_BYTES: Final = 1 << 16
_ERROR_BYTES: Final = 4096
_REAP_SECONDS: Final = 0.5
_OWN_SECONDS: Final = 5
"""So much later a child ends by itself, if nobody is left to end it."""
_DEEPEST: Final = 6


class Children:
    """The children that are asked now, so that all of them can be ended at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_over = False

    def ask(
        self, python: Path, words: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
    ) -> Steps:
        """Asks a child; returns when it has ended, or when its time is up.

        Args:
            python: Its interpreter.
            words: What it is asked: the subject, and options.
            seconds: How long it may take.
            environment: Its environment; this process's if None.
        """
        told, tells = os.pipe()
        command = [str(python), str(workloads_folder() / "_doctor.py"), *words]
        command += ["--tell", str(tells), "--seconds", str(int(seconds) + _OWN_SECONDS)]
        try:
            child = self._start(command, tells, environment)
        except OSError as error:
            os.close(told)
            return Steps(ended_by=f"it cannot be started ({error.strerror or error})")
        finally:
            os.close(tells)
        try:
            said, errors, is_late = _read(child, told, seconds)
            return _steps(said, _end_of(child, errors, seconds, is_late=is_late))
        finally:
            os.close(told)
            self._end(child)

    def end(self) -> None:
        """Ends every child; none is started any more."""
        with self._lock:
            self._is_over = True
            for child in self._running:
                _kill(child)

    def _start(
        self, command: Sequence[str], tells: int, environment: Mapping[str, str] | None
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_over:
                raise OSError("nobody asks any more")
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(tells,),
                start_new_session=True,
                cwd="/",  # a folder called torch in the user's working directory is not torch
                env=environment,
                bufsize=0,
            )
            self._running.add(child)
            return child

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Ends a child and all that it has started; one that the driver holds is left to itself."""
        _kill(child)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_REAP_SECONDS)
        with self._lock:
            self._running.discard(child)
        if child.stderr is not None:
            child.stderr.close()


def own_python() -> Path:
    """The interpreter that gpumon runs with."""
    return Path(sys.executable)


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.returncode is None:  # its PID is its own until it was waited for
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def _read(child: subprocess.Popen[bytes], told: int, seconds: float) -> tuple[bytes, bytes, bool]:
    """What a child tells, the end of its standard error, and whether its time was up before it closed both."""
    assert child.stderr is not None
    said, errors = bytearray(), b""
    sources = {told, child.stderr.fileno()}
    deadline = time.monotonic() + seconds
    while told in sources and len(said) < _MOST_BYTES:
        left = deadline - time.monotonic()
        ready = select.select(list(sources), [], [], max(0.0, left))[0]
        if not ready and left <= 0:
            return bytes(said), errors, True
        for source in ready:
            data = os.read(source, _READ_BYTES)
            if not data:
                sources.discard(source)
            elif source == told:
                said += data
            else:
                errors = (errors + data)[-_ERROR_BYTES:]
    return bytes(said), errors, False


def _end_of(child: subprocess.Popen[bytes], errors: bytes, seconds: float, *, is_late: bool) -> str:
    """How a child ended that has not come to its end, in words."""
    if is_late:
        return f"no answer within {seconds:g} s"
    try:
        code = child.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:
        return "it closed its output"
    if code < 0:
        return f"killed by {_signal_name(-code)}"
    lines = errors.strip().splitlines()
    return f"exit code {code}{f': {safe_bytes(lines[-1], 200)}' if lines else ''}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _steps(said: bytes, ended_by: str) -> Steps:
    done: dict[str, Step] = {}
    running = ""
    for line in said.splitlines():
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(told, dict):
            continue
        if told.get("end") is True:
            return Steps(done)
        if isinstance(told.get("begin"), str):
            running = safe_text(told["begin"], 40)
        elif isinstance(told.get("step"), str):
            done[safe_text(told["step"], 40)] = _step(told)
            running = ""
    return Steps(done, running, ended_by)


def _step(told: Mapping[str, Any]) -> Step:
    answer, seconds = _safe(told.get("answer")), told.get("seconds")
    return Step(
        answer if isinstance(answer, dict) else {},
        safe_text(str(told.get("error") or "")),
        float(seconds) if isinstance(seconds, (int, float)) else 0.0,
    )


def _safe(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - it is whatever JSON can hold
    """A value with all text in it made harmless."""
    if isinstance(value, str):
        return safe_text(value)
    if depth >= _DEEPEST:
        return None
    if isinstance(value, list):
        return [_safe(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {safe_text(str(name), 120): _safe(each, depth + 1) for name, each in value.items()}
    return value
