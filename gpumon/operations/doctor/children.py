"""Child processes that query the driver, or the torch of each Python.

A child may hang or crash. The steps that it completed before that still count, and the child is killed.
"""

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

from gpumon.core.json_fields import object_in
from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem
from gpumon.core.text import safe_bytes, safe_text
from gpumon.core.units import signal_name
from gpumon.health.doctor.facts import Python, Pythons, Step, Steps
from gpumon.workload_runs.catalogue import workloads_folder
from gpumon.workload_runs.interpreter import Interpreter, python_environment

DRIVER_SECONDS: Final = 12.0
_MAX_BYTES: Final = 8 << 20
_READ_BYTES: Final = 1 << 16
_ERROR_BYTES: Final = 4096
_REAP_SECONDS: Final = 0.5
_ORPHAN_SECONDS: Final = 5
"""How much later than its timeout a child ends by itself, in case gpumon was killed."""
_MAX_DEPTH: Final = 6
_MIN_FREE_BYTES: Final = 2 << 30
"""A GPU with less free memory is not tested: a CUDA context takes half a gigabyte, which a job may be about to need."""


class Children:
    """The child processes that run now, so that all of them can be killed at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    def run(
        self, python: Path, arguments: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
    ) -> Steps:
        """Runs a child until it ends or its time is up, and returns the steps that it completed."""
        try:
            read_end, write_end = os.pipe()
        except OSError as error:
            return Steps(ended_by=_start_error(error))
        command = [str(python), str(workloads_folder() / "_doctor.py"), *arguments]
        command += ["--fd", str(write_end), "--seconds", str(int(seconds) + _ORPHAN_SECONDS)]
        try:
            child = self._start(command, write_end, environment)
        except OSError as error:
            os.close(read_end)
            return Steps(ended_by=_start_error(error))
        finally:
            os.close(write_end)
        try:
            output, errors, is_late = _read(child, read_end, seconds)
            return _steps(output, _end_reason(child, errors, seconds, is_late=is_late))
        finally:
            os.close(read_end)
            self._end(child)

    def close(self) -> None:
        """Kills every child, and lets none start."""
        with self._lock:
            self._is_closed = True
            for child in self._running:
                _kill(child)

    def _start(
        self, command: Sequence[str], write_end: int, environment: Mapping[str, str] | None
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise OSError("the examination was closed")
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(write_end,),
                start_new_session=True,
                cwd="/",  # a folder called torch in the user's working directory must not be imported
                env=python_environment(environment),
                bufsize=0,
            )
            self._running.add(child)
            return child

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Kills a child and all processes that it started. A child blocked in a driver call is not waited for."""
        _kill(child)
        try:
            child.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            threading.Thread(target=child.wait, name="gpumon-reap", daemon=True).start()  # no zombie stays
        with self._lock:
            self._running.discard(child)
        if child.stderr is not None:
            child.stderr.close()


def query_cuda(children: Children, variables: Mapping[str, str]) -> Steps:
    """The answers of the CUDA driver about all GPUs, in its own order, also about those that the environment hides."""
    shown = {name: value for name, value in variables.items() if name != "CUDA_VISIBLE_DEVICES"}
    return children.run(Path(sys.executable), ["driver"], DRIVER_SECONDS, shown | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})


def examine_pythons(
    children: Children,
    interpreters: Sequence[Interpreter],
    frame: Frame | Problem,
    seconds: float,
    *,
    was_named: bool,
    tests_gpus: bool = True,
) -> Pythons:
    """Runs the torch steps in every Python at the same time; two paths of one environment count as one.

    GPUs that are full or do not respond are not tested.
    """
    arguments = ["torch"]
    excluded = [] if isinstance(frame, Problem) else sorted(_full_or_silent_uuids(frame))
    if not tests_gpus:
        excluded = ["all"]
    if excluded:
        arguments += ["--exclude", ",".join(excluded)]
    pythons: dict[int, Python] = {}

    def examine(number: int, interpreter: Interpreter) -> None:
        is_refused = interpreter.refusal is not None
        steps = Steps() if is_refused else children.run(interpreter.path, arguments, seconds)
        pythons[number] = Python(str(interpreter.path), interpreter.found_in, steps, interpreter.refusal)

    threads = [
        threading.Thread(target=examine, args=numbered, name="gpumon-python", daemon=True)
        for numbered in enumerate(interpreters)
    ]
    started = []
    for number, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError as error:  # the system starts no more threads
            interpreter = interpreters[number]
            steps = Steps(ended_by=_start_error(error))
            pythons[number] = Python(str(interpreter.path), interpreter.found_in, steps)
        else:
            started.append(thread)
    for thread in started:
        thread.join()
    distinct: dict[object, Python] = {}
    for number in sorted(pythons):
        steps = pythons[number].steps
        prefix = steps.value("python", "prefix")
        distinct.setdefault((prefix, steps.value("python", "version")) if prefix else number, pythons[number])
    return Pythons(tuple(distinct.values()), was_named)


def _start_error(error: Exception) -> str:
    return f"it cannot be started ({getattr(error, 'strerror', None) or error})"


def _full_or_silent_uuids(frame: Frame) -> set[str]:
    """UUIDs of the GPUs that must not be tested."""
    return {device.uuid for device in frame.devices if device.uuid is not None and not _is_testable(device)}


def _is_testable(device: Device) -> bool:
    free = device.get("memory_free_bytes")
    return device.state is DeviceState.OK and (free is None or free >= _MIN_FREE_BYTES)


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.returncode is None:  # until the child is reaped, its PID cannot be reused
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def _read(child: subprocess.Popen[bytes], read_end: int, seconds: float) -> tuple[bytes, bytes, bool]:
    """The output of a child, the end of its standard error, and whether its time was up before it closed the pipe."""
    assert child.stderr is not None
    output, errors = bytearray(), b""
    sources = {read_end, child.stderr.fileno()}
    deadline = time.monotonic() + seconds
    while read_end in sources and len(output) < _MAX_BYTES:
        left = deadline - time.monotonic()
        ready = select.select(list(sources), [], [], max(0.0, left))[0]
        if not ready and left <= 0:
            return bytes(output), errors, True
        for source in ready:
            data = os.read(source, _READ_BYTES)
            if not data:
                sources.discard(source)
            elif source == read_end:
                output += data
            else:
                errors = (errors + data)[-_ERROR_BYTES:]
    return bytes(output), errors, False


def _end_reason(child: subprocess.Popen[bytes], errors: bytes, seconds: float, *, is_late: bool) -> str:
    """Why a child ended before its last step."""
    if is_late:
        return f"no answer within {seconds:g} s"
    try:
        code = child.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:
        return "it closed its output"
    if code < 0:
        return f"killed by {signal_name(-code)}"
    lines = errors.strip().splitlines()
    return f"exit code {code}{f': {safe_bytes(lines[-1], 200)}' if lines else ''}"


def _steps(output: bytes, end_reason: str) -> Steps:
    done: dict[str, Step] = {}
    running = ""
    for line in output.splitlines():
        event = object_in(line)
        if event is None:
            continue
        if event.get("end") is True:
            return Steps(done)
        if isinstance(event.get("begin"), str):
            running = safe_text(event["begin"], 40)
        elif isinstance(event.get("step"), str):
            done[safe_text(event["step"], 40)] = _step(event)
            running = ""
    return Steps(done, running, end_reason)


def _step(event: Mapping[str, Any]) -> Step:
    answer, seconds = _safe(event.get("answer")), event.get("seconds")
    return Step(
        answer if isinstance(answer, dict) else {},
        safe_text(str(event.get("error") or "")),
        float(seconds) if isinstance(seconds, (int, float)) else 0.0,
    )


def _safe(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any JSON value
    """A value with all text in it made safe."""
    if isinstance(value, str):
        return safe_text(value)
    if depth >= _MAX_DEPTH:
        return None
    if isinstance(value, list):
        return [_safe(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {safe_text(str(name), 120): _safe(item, depth + 1) for name, item in value.items()}
    return value
