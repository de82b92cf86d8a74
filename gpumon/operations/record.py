"""Recording: write the frames of a stream to a file until a time limit or a signal.

An anonymized recording shows what the host did, but not whose host it is.
"""

import contextlib
import dataclasses
import io
import math
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from gpumon.core.model import Device, DeviceEvent, Frame, MigInstance, Process, same_uuid
from gpumon.core.problems import SIGNAL_BASE, CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.text import ELLIPSIS
from gpumon.core.units import counted
from gpumon.streams.base import Arrival, Stream, SupportsOnDemand
from gpumon.streams.recording import RecordingWriter

_NO_DRIVER: Final = frozenset(
    {ProblemCode.LIBRARY_NOT_FOUND, ProblemCode.DRIVER_NOT_LOADED, ProblemCode.LIBRARY_MISMATCH}
)
_FIRST_FRAME_TIMEOUT_SECONDS: Final = 10.0
_READER_CHECK_SECONDS: Final = 0.5

_NAME: Final = re.compile(r"[\w.+-]{1,64}", re.ASCII)
_SCRIPT: Final = re.compile(r"[\w./~+-]+\.py", re.ASCII)
_OPTION: Final = re.compile(r"(--[a-zA-Z][\w.-]{0,39})(=.*)?", re.ASCII)
_MODULE: Final = re.compile(r"[a-zA-Z_][\w.]{0,63}", re.ASCII)
_HOME: Final = re.compile(r"/(home|Users)/[^/]*/?")
_SEPARATORS: Final = re.compile(r"[^a-z0-9]+")
_MIN_SUBSTRING_LENGTH: Final = 3
_NOT_PUBLISHED: Final = frozenset({"settings", "oom_files"})
"""Fields of the reports of processes that are left out."""
_IDENTIFYING: Final = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F-]{8,}|\S+@\S+|~?/\S+")


Reports = Callable[[Frame], Mapping[str, Any]]


def record(
    stream: Stream,
    file: Path,
    duration: float | None,
    *,
    anonymize: bool,
    activity: bool,
    reports: Reports = lambda _: {},
) -> None:
    """Record a stream.

    Args:
        stream: A stream that has not been started.
        file: The file to create; ``-`` is standard output.
        duration: Seconds from the first frame, or None to record until a signal arrives.
        anonymize: Whether to remove what identifies the host and its users.
        activity: Whether to record what screens read only of the selected device too: SM activity, NVLink and PCIe.
        reports: Returns what the processes of the host report at the moment of a frame.

    Raises:
        CommandError: There is no driver, or the file cannot be written.
        BrokenPipeError: The reader of the frames has closed the pipe.
    """
    with _unwound_by_signals():
        try:
            stream.start()
            arrivals = _first_arrivals(stream)
            anonymizer = Anonymizer() if anonymize else None

            def complete(frame: Frame) -> Frame:
                frame = dataclasses.replace(frame, reports=reports(frame))
                return frame if anonymizer is None else anonymizer.apply(frame)

            with contextlib.closing(_writer(file)) as writer:
                _copy(stream, arrivals, writer, duration, complete, activity=activity)
        finally:
            stream.close()
            # report the frames that are missing from the recording
            if stream.inbox.lost:
                lost = counted(stream.inbox.lost, "frame")
                print(f"gpumon: The recording lacks {lost}: the file could not be written in time.", file=sys.stderr)


class Anonymizer:
    """Removes from frames what identifies the host; the same user and the same GPU always get the same new name."""

    def __init__(self) -> None:
        self._users: dict[str, str] = {}
        self._uuids: dict[str, str] = {}
        self._names: set[str] = set()
        self._job_names: dict[str, str] = {}

    def apply(self, frame: Frame) -> Frame:
        """Return the frame with new names for host, users and GPUs, and with shortened command lines."""
        host = frame.host
        self._collect_names(frame)
        return dataclasses.replace(
            frame,
            host=dataclasses.replace(
                host, name=None if host.name is None else "host", problems=self._problems(host.problems)
            ),
            devices=tuple(self._device(device) for device in frame.devices),
            events=tuple(self._event(event) for event in frame.events),
            problems=self._problems(frame.problems),
            reports=self._report(frame.reports),
        )

    def _report(self, value: Any, name: str = "") -> Any:  # noqa: ANN401 - whatever JSON has
        """A report of a process, or a part of it."""
        if isinstance(value, Mapping):
            return {key: self._report(item, key) for key, item in value.items() if key not in _NOT_PUBLISHED}
        if isinstance(value, list):
            return [self._report(item, name) for item in value]
        return self._report_text(value, name) if isinstance(value, str) else value

    def _report_text(self, text: str, name: str) -> str:
        if name in {"key", "id"}:
            return self._job_names.setdefault(text, f"job{len(self._job_names) + 1}")
        if name in {"uuid", "device_key"}:
            return next((new for uuid, new in self._uuids.items() if same_uuid(uuid, text)), "")
        rules: dict[str, Callable[[str], str]] = {
            "host": lambda host: host and "host",
            "path": lambda path: path.rpartition("/")[2],
            "user": self._user,
            "command": self.command,
        }
        return rules.get(name, self._text)(text)

    def _user(self, user: str) -> str:
        return self._users.setdefault(user, f"user{len(self._users) + 1}")

    def _collect_names(self, frame: Frame) -> None:
        """Collect all names before any text is changed, so that names inside of words are recognized."""
        host = frame.host.name
        users = {process.user for device in frame.devices for process in device.processes or () if process.user}
        names = users - {"root"} | ({host, host.partition(".")[0]} if host else set())
        self._names |= {name.lower() for name in names if name}

    def _device(self, device: Device) -> Device:
        return dataclasses.replace(
            device,
            uuid=None if device.uuid is None else self._uuid(device.uuid, device.index),
            instance=None if device.instance is None else self._instance(device.instance, device.index),
            processes=None if device.processes is None else tuple(map(self._process, device.processes)),
            problems=self._problems(device.problems),
        )

    def _instance(self, instance: MigInstance, index: int) -> MigInstance:
        if instance.parent.startswith("index:"):
            return instance
        return dataclasses.replace(instance, parent=self._uuid(instance.parent, index))

    def _event(self, event: DeviceEvent) -> DeviceEvent:
        key = event.device_key
        return event if key.startswith("index:") else dataclasses.replace(event, device_key=self._uuids.get(key, ""))

    def _uuid(self, uuid: str, index: int) -> str:
        if uuid not in self._uuids:
            number, used = index, set(self._uuids.values())
            kind = "MIG" if uuid.startswith("MIG-") else "GPU"
            while (new := f"{kind}-00000000-0000-0000-0000-{number:012d}") in used:
                number += 1
            self._uuids[uuid] = new
        return self._uuids[uuid]

    def _process(self, process: Process) -> Process:
        user = process.user
        return dataclasses.replace(
            process,
            user=None if user is None else self._user(user),
            command=None if process.command is None else self.command(process.command),
            problems=self._problems(process.problems),
        )

    def _problems(self, problems: Mapping[str, Problem]) -> dict[str, Problem]:
        return {
            subject: Problem(problem.code, self._text(problem.reason), self._text(problem.remedy))
            for subject, problem in problems.items()
        }

    def _text(self, text: str) -> str:
        """Return a sentence without paths, UUIDs, and words that contain a known name."""
        words = _IDENTIFYING.sub(ELLIPSIS, text).split(" ")
        return " ".join(ELLIPSIS if self._is_identifying(word) else word for word in words)

    def command(self, command: str) -> str:
        """Return the program, scripts, modules and names of long options of a command line; ``…`` for the rest."""
        shown: list[str] = []
        for word in _kept_words(command.split()):
            safe = ELLIPSIS if self._is_identifying(word) else word
            if safe != ELLIPSIS or shown[-1:] != [ELLIPSIS]:
                shown.append(safe)
        return " ".join(shown)

    def _is_identifying(self, word: str) -> bool:
        """Whether a word contains a known name; a very short name must be a separate part of the word."""
        lowered = word.lower()
        parts = _SEPARATORS.split(lowered)
        return any(name in (parts if len(name) < _MIN_SUBSTRING_LENGTH else lowered) for name in self._names)


def _kept_words(words: list[str]) -> Iterator[str]:
    """The words of a command line that may be published, and `ELLIPSIS` in place of every other word."""
    if not words:
        return
    yield (program := _program(words[0]))
    module_may_follow = program.startswith(("python", "torchrun", "accelerate", "deepspeed"))
    rest = iter(words[1:])
    for word in rest:
        option = _OPTION.fullmatch(word)
        if option:
            yield option[1]
            if option[2]:
                yield ELLIPSIS
        elif _SCRIPT.fullmatch(word):
            module_may_follow = False
            yield word.rpartition("/")[2]
        elif word == "-m" and module_may_follow:
            module_may_follow = False
            yield word
            module = next(rest, "")
            yield module if _MODULE.fullmatch(module) else ELLIPSIS
        else:
            yield ELLIPSIS


def _program(word: str) -> str:
    name = word.rpartition("/")[2].rstrip(":")
    return name if _NAME.fullmatch(name) and not _HOME.fullmatch(word) else ELLIPSIS


def _first_arrivals(stream: Stream) -> list[Arrival]:
    """The arrivals with the first frame; a host without a driver has nothing to record."""
    deadline = time.monotonic() + _FIRST_FRAME_TIMEOUT_SECONDS
    while (left := deadline - time.monotonic()) > 0 and stream.inbox.arrived.wait(left):
        arrivals = stream.inbox.drain()
        first = next((arrival for arrival in arrivals if isinstance(arrival, Frame)), None)
        if first is None:
            continue
        problem = first.problems.get("driver")
        if problem is not None and problem.code in _NO_DRIVER:
            raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)
        return arrivals
    silent = Problem(ProblemCode.COLLECTOR_SILENT, "There is nothing to record: the collector did not respond.")
    raise CommandError(stream.problem or silent, ExitCode.MISSING_PREREQUISITE)


def _copy(
    stream: Stream,
    arrivals: list[Arrival],
    writer: RecordingWriter,
    duration: float | None,
    complete: Callable[[Frame], Frame],
    *,
    activity: bool,
) -> None:
    """Write frames as they arrive, and check regularly whether the reader of the pipe still exists."""
    deadline = math.inf if duration is None else time.monotonic() + duration
    while True:
        for arrival in arrivals:
            if isinstance(arrival, Frame):
                if activity and isinstance(stream, SupportsOnDemand):
                    stream.request_on_demand([device.key for device in arrival.devices])
                writer.write(complete(arrival))
        left = deadline - time.monotonic()
        if left <= 0:
            return
        if writer.is_reader_gone():
            raise BrokenPipeError
        stream.inbox.arrived.wait(min(left, _READER_CHECK_SECONDS))
        arrivals = stream.inbox.drain()


def _writer(file: Path) -> RecordingWriter:
    """Open the output; standard output is unbuffered, so that a full disk is an error of the write that fails."""
    if str(file) != "-":
        return RecordingWriter(file)
    return RecordingWriter(io.FileIO(sys.stdout.fileno(), "w", closefd=False))


@contextlib.contextmanager
def _unwound_by_signals() -> Iterator[None]:
    """Turn the signals that would end the process into an exception that closes the file; ignored ones stay ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(SIGNAL_BASE + number)
