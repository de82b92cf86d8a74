"""What is known of the training jobs of this host as files for a bug report, without names, addresses, or secrets."""

import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.core.json_text import json_document
from gpumon.core.model import Frame
from gpumon.core.new_files import PrivateDir
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.ranks import RankEvidence
from gpumon.core.stacks import StackFrame
from gpumon.core.text import safe_text
from gpumon.operations.doctor.redaction import Redactor
from gpumon.operations.one_shot import live_frames
from gpumon.operations.record import Anonymizer
from gpumon.operations.training_jobs.report import jobs_document
from gpumon.operations.training_jobs.watcher import JobsSample, sample_jobs
from gpumon.stacks.tables import line_text
from gpumon.streams.recording import RecordingWriter

FRAMES_SECONDS: Final = 30.0
FRAMES_FILE: Final = "frames.jsonl.gz"
_INTERVAL_SECONDS: Final = 1.0


class DumpResult(NamedTuple):
    """What was written.

    Attributes:
        folder: Where the files are.
        files: The names of the files.
        removed: What was replaced, in a sentence.
    """

    folder: Path
    files: tuple[str, ...]
    removed: str


def dump_jobs(
    folder: Path, frames_seconds: float = FRAMES_SECONDS, frames: Sequence[Frame] | None = None
) -> DumpResult:
    """Write the jobs, their stacks, flight recorders and RAS reports, and frames.

    Frames are recorded for some time after that; Ctrl-C ends it sooner. A gpumon that runs passes the frames that it
    has.

    Raises:
        CommandError: The folder exists or cannot be written.
    """
    try:
        opened = PrivateDir.create(folder)
    except OSError as error:
        reason = f"{safe_text(str(folder))} cannot be created: {(error.strerror or str(error)).lower()}."
        raise CommandError.usage(ProblemCode.NOT_WRITTEN, reason, "Choose a new folder.") from None
    with closing(opened):
        return _dump(opened, frames_seconds, frames)


def _dump(folder: PrivateDir, frames_seconds: float, frames: Sequence[Frame] | None) -> DumpResult:
    sample = sample_jobs(wants_stacks=True)
    redactor = _redactor(sample)
    texts = {
        "jobs.json": json_document(jobs_document(sample.reading.reports, platform.node(), sample.problems)),
        "stacks.txt": "\n".join(_stacks(sample)),
        "flight_recorder.json": json_document(_recordings(sample)),
        "ras.json": json_document({key: _plain(answer) for key, answer in sample.reading.ras.items()}),
    }
    files = [*texts]
    try:
        for name, text in texts.items():
            folder.write(name, f"{redactor.text(text)}\n".encode(errors="replace"))
    except OSError as error:
        reason = f"{safe_text(str(folder.path / name))} cannot be written: {(error.strerror or str(error)).lower()}."
        raise CommandError.failure(ProblemCode.NOT_WRITTEN, reason) from None
    with suppress(KeyboardInterrupt):
        files += _record_frames(folder, frames_seconds) if frames is None else _write_frames(folder, frames)
    kinds = [f"{count} x {kind}" for kind, count in sorted(redactor.removed.items())]
    return DumpResult(
        folder.path.absolute(), tuple(files), f"Replaced: {', '.join(kinds)}." if kinds else "Nothing was replaced."
    )


def _write_frames(folder: PrivateDir, frames: Iterable[Frame]) -> list[str]:
    """Write frames without names; returns the names of the files, none without a driver."""
    known = [frame for frame in frames if "driver" not in frame.problems]
    if not known:
        return []
    anonymizer = Anonymizer()
    with closing(_writer(folder)) as writer:
        for frame in known:
            writer.write(anonymizer.apply(frame))
    return [FRAMES_FILE]


def _writer(folder: PrivateDir) -> RecordingWriter:
    return RecordingWriter(Path(FRAMES_FILE), folder.descriptor)


def _record_frames(folder: PrivateDir, seconds: float) -> list[str]:
    """Record this host without names; returns the names of the files, none without a driver."""
    anonymizer = Anonymizer()
    writer: RecordingWriter | None = None
    try:
        for frame in _host_frames(time.monotonic() + seconds):
            if "driver" in frame.problems:
                return []
            writer = writer or _writer(folder)
            writer.write(anonymizer.apply(frame))
    finally:
        if writer is not None:
            writer.close()
    return [FRAMES_FILE] if writer is not None else []


def _host_frames(deadline: float) -> Iterator[Frame]:
    """The frames of this host, until a time or until the collector is silent."""
    with suppress(CommandError), live_frames(_INTERVAL_SECONDS) as source:  # the jobs are worth more than frames
        yield from source.frames(deadline)


def _redactor(sample: JobsSample) -> Redactor:
    frame: Frame | None = sample.frame
    users = {os.environ.get(name) or "" for name in ("USER", "LOGNAME", "SUDO_USER")}
    users |= {report.user for report in sample.reading.reports}
    hosts = {platform.node()}
    if frame is not None:
        users |= {process.user or "" for device in frame.devices for process in device.processes or ()}
        hosts.add(frame.host.name or "")
    return Redactor(users, hosts, {str(Path.home())})


def _stacks(sample: JobsSample) -> Iterable[str]:
    """The stacks of all threads of all ranks, with names of files but not of the user's folders."""
    for rank in _ranks(sample):
        yield f"===== rank {rank.rank}, PID {rank.pid}, state {rank.state_code or 'unknown'}, {rank.system_call} ====="
        stacks = sample.stacks.get(rank.pid or 0) or rank.threads
        others = [(thread.name, thread.frames) for thread in stacks if not thread.is_main]
        main = rank.stack or next((thread.frames for thread in stacks if thread.is_main), ())
        for name, frames in [("main thread", main), *others]:
            yield f"{name}:" if frames else f"{name}: unknown"
            yield from (f"  {_frame_text(frame)}" for frame in frames)


def _recordings(sample: JobsSample) -> Sequence[Mapping[str, Any]]:
    result = []
    for rank in _ranks(sample):
        recording = None if rank.recording is None else _plain(rank.recording)
        result.append({"rank": rank.rank, "pid": rank.pid, "recording": recording})
    return result


def _ranks(sample: JobsSample) -> Iterable[RankEvidence]:
    return (rank for ranks in sample.reading.evidence.values() for rank in ranks)


def _frame_text(frame: StackFrame) -> str:
    """A frame without the folders of the user."""
    return f"{line_text(frame)} {frame.function}"


def _plain(value: Any) -> Any:  # noqa: ANN401 - any record
    """A record as JSON values; frames of stacks without the user's folders."""
    if isinstance(value, StackFrame):
        return _frame_text(value)
    if isinstance(value, Enum):
        return value.value
    items: Mapping[str, Any] | None = value if isinstance(value, Mapping) else None
    if is_dataclass(value):
        items = {field.name: getattr(value, field.name) for field in fields(value)}
    elif hasattr(value, "_asdict"):
        items = value._asdict()
    if items is not None:
        return {str(name): _plain(item) for name, item in items.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
