"""Recording: frames of a stream go to a file, until it is time or somebody says so.

Anonymized, a recording tells what the machine did and not whose it is.
"""

import contextlib
import dataclasses
import io
import math
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from gpumon.core.exits import SIGNAL_BASE, CommandError, ExitCode
from gpumon.core.model import Device, DeviceEvent, Frame, MigInstance, Process
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import ELLIPSIS
from gpumon.streams.base import Arrival, Stream
from gpumon.streams.recording import RecordingWriter

_NO_DRIVER: Final = frozenset(
    {ProblemCode.LIBRARY_NOT_FOUND, ProblemCode.DRIVER_NOT_LOADED, ProblemCode.LIBRARY_MISMATCH}
)
_PATIENCE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.5
_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)

_NAME: Final = re.compile(r"[\w.+-]{1,64}", re.ASCII)
_SCRIPT: Final = re.compile(r"[\w./~+-]+\.py", re.ASCII)
_OPTION: Final = re.compile(r"(--[a-zA-Z][\w.-]{0,39})(=.*)?", re.ASCII)
_MODULE: Final = re.compile(r"[a-zA-Z_][\w.]{0,63}", re.ASCII)
_RUNS_MODULES: Final = ("python", "torchrun", "accelerate", "deepspeed")
_HOME: Final = re.compile(r"/(home|Users)/[^/]*/?")
_APART: Final = re.compile(r"[^a-z0-9]+")
_SHORT_NAME: Final = 3
_TELLING: Final = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F-]{8,}|\S+@\S+|~?/\S+")


def record(stream: Stream, file: Path, duration: float | None, anonymize: bool) -> None:
    """Records a stream.

    Args:
        stream: A stream that was not started yet.
        file: Where to; ``-`` is standard output.
        duration: Seconds from the first frame on, or None until a signal comes.
        anonymize: Whether to leave out what tells whose machine it is.

    Raises:
        CommandError: There is no driver, or the file cannot be written.
        BrokenPipeError: Whoever read the frames is gone.
    """
    with _ended_by_signals():
        try:
            stream.start()
            arrivals = _first_arrivals(stream)
            with contextlib.closing(_writer(file)) as writer:
                _copy(stream, arrivals, writer, duration, Anonymizer() if anonymize else None)
        finally:
            stream.close()
            _tell_lost(stream)


def _tell_lost(stream: Stream) -> None:
    """Says that the recording has holes; one that is silent about them would lie."""
    if stream.inbox.lost:
        print(f"gpumon: {stream.inbox.lost} frames are missing: they could not be written in time.", file=sys.stderr)


class Anonymizer:
    """Takes out of frames what tells whose machine it is; the same user and the same GPU keep the same new name."""

    def __init__(self) -> None:
        self._users: dict[str, str] = {}
        self._uuids: dict[str, str] = {}
        self._secrets: set[str] = set()

    def apply(self, frame: Frame) -> Frame:
        """The frame with new names for host, users and GPUs, and with little left of command lines."""
        host = frame.host
        self._learn(frame)
        return dataclasses.replace(
            frame,
            host=dataclasses.replace(
                host, name=None if host.name is None else "host", problems=self._problems(host.problems)
            ),
            devices=tuple(self._device(device) for device in frame.devices),
            events=tuple(self._event(event) for event in frame.events),
            problems=self._problems(frame.problems),
        )

    def _learn(self, frame: Frame) -> None:
        """Notes every name first, so that none is missed where it stands inside a word."""
        name = frame.host.name
        users = {each.user for device in frame.devices for each in device.processes or () if each.user}
        names = users - {"root"} | ({name, name.partition(".")[0]} if name else set())
        self._secrets |= {each.lower() for each in names if each}

    def _device(self, device: Device) -> Device:
        return dataclasses.replace(
            device,
            uuid=None if device.uuid is None else self._uuid(device.uuid, device.index),
            instance=None if device.instance is None else self._instance(device.instance, device.index),
            processes=None if device.processes is None else tuple(self._process(each) for each in device.processes),
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
            number, taken = index, set(self._uuids.values())
            kind = "MIG" if uuid.startswith("MIG-") else "GPU"
            while (made := f"{kind}-00000000-0000-0000-0000-{number:012d}") in taken:
                number += 1
            self._uuids[uuid] = made
        return self._uuids[uuid]

    def _process(self, process: Process) -> Process:
        user = process.user
        return dataclasses.replace(
            process,
            user=None if user is None else self._users.setdefault(user, f"user{len(self._users) + 1}"),
            command=None if process.command is None else self.command(process.command),
            problems=self._problems(process.problems),
        )

    def _problems(self, problems: Mapping[str, Problem]) -> dict[str, Problem]:
        return {
            subject: Problem(problem.code, self._text(problem.reason), self._text(problem.remedy))
            for subject, problem in problems.items()
        }

    def _text(self, text: str) -> str:
        """A sentence without paths, UUIDs and the words in which a known name stands."""
        words = _TELLING.sub(ELLIPSIS, text).split(" ")
        return " ".join(ELLIPSIS if self._tells(word) else word for word in words)

    def command(self, command: str) -> str:
        """Program, scripts, modules and the names of long options; ``…`` for all else."""
        shown: list[str] = []
        for word in _kept_words(command.split()):
            safe = ELLIPSIS if self._tells(word) else word
            if safe != ELLIPSIS or shown[-1:] != [ELLIPSIS]:
                shown.append(safe)
        return " ".join(shown)

    def _tells(self, word: str) -> bool:
        """Whether a known name stands in a word; a very short name counts only where it stands apart."""
        lowered = word.lower()
        parts = _APART.split(lowered)
        return any(secret in (parts if len(secret) < _SHORT_NAME else lowered) for secret in self._secrets)


def _kept_words(words: list[str]) -> Iterator[str]:
    """The words of a command line that may be shown, `ELLIPSIS` in place of each other one."""
    if not words:
        return
    yield (program := _program(words[0]))
    module_may_follow = program.startswith(_RUNS_MODULES)
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
    """What comes first; a machine without a driver has nothing to record."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (left := deadline - time.monotonic()) > 0 and stream.inbox.arrived.wait(left):
        arrivals = stream.inbox.drain()
        first = next((each for each in arrivals if isinstance(each, Frame)), None)
        if first is None:
            continue
        problem = first.problems.get("driver")
        if problem is not None and problem.code in _NO_DRIVER:
            raise CommandError(problem, ExitCode.NOT_THERE)
        return arrivals
    silent = Problem(ProblemCode.COLLECTOR_SILENT, "There is nothing to record: the collector did not answer.")
    raise CommandError(stream.problem or silent, ExitCode.NOT_THERE)


def _copy(
    stream: Stream,
    arrivals: list[Arrival],
    writer: RecordingWriter,
    duration: float | None,
    anonymizer: Anonymizer | None,
) -> None:
    """Writes frames as they come, and looks now and then whether there is still somebody to write for."""
    deadline = math.inf if duration is None else time.monotonic() + duration
    while True:
        for arrival in arrivals:
            if isinstance(arrival, Frame):
                writer.write(arrival if anonymizer is None else anonymizer.apply(arrival))
        left = deadline - time.monotonic()
        if left <= 0:
            return
        if writer.reader_gone():
            raise BrokenPipeError
        stream.inbox.arrived.wait(min(left, _LOOK_SECONDS))
        arrivals = stream.inbox.drain()


def _writer(file: Path) -> RecordingWriter:
    """Standard output is written without a buffer, so that a full disk is noticed while there is somebody to tell."""
    if str(file) != "-":
        return RecordingWriter(file)
    return RecordingWriter(io.FileIO(sys.stdout.fileno(), "w", closefd=False))


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Lets signals that would end the program at once unwind it instead; those that are ignored stay ignored."""
    before = {number: signal.getsignal(number) for number in _ENDING_SIGNALS}
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
