"""The events of a ring, and the jobs that have ended according to them or to a recording."""

import io
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.frames import to_document
from gpumon.core.groups import grouped
from gpumon.core.json_fields import Json
from gpumon.core.problems import Problem
from gpumon.core.record_codec import from_json
from gpumon.core.source_file import open_input
from gpumon.operations.program_name import program_name
from gpumon.operations.recorder.process_end import UNKNOWN
from gpumon.operations.recorder.process_log import GpuTime, LoggedProcess, ProcessLog
from gpumon.streams.lines import FrameLines
from gpumon.streams.recording import RecordingReader
from gpumon.streams.ring import EVENT_FILE_SECONDS, EVENTS, ring_files

_DAMAGED: Final = (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError)
_STEP_SECONDS: Final = 10.0
_BOOT_SLACK_SECONDS: Final = 5.0


class EventKind(str, Enum):
    """What a line of the events is about."""

    BEGIN = "begin"
    END = "end"
    RUNNING = "running"
    """A process that still runs, so that a later recorder continues with it."""
    XID = "xid"
    ALERT = "alert"
    OOM_KILL = "oom_kill"


class EndedJob(NamedTuple):
    """Processes of one user that belonged together and have ended.

    Attributes:
        user: Login name.
        job: Job of a scheduler, pod, or training job; empty for a process without one.
        program: Short name of what it ran.
        processes: How many processes.
        gpus: Labels of its GPUs.
        begin_seconds: Unix time at which it was first seen on a GPU.
        end_seconds: Unix time at which it was last seen on one.
        gpu_hours: Time of all GPUs, in hours.
        idle_gpu_hours: The part in which a GPU did nothing.
        utilization_percent: Mean GPU utilization; None if not measured.
        sm_percent: Mean SM activity; None if not measured.
        peak_bytes: Sum of the most memory on each GPU.
        memory_percent: The same of the memory of the GPUs; None if that is unknown.
        how: How it ended: the first process that did not end well.
    """

    user: str
    job: str
    program: str
    processes: int
    gpus: tuple[str, ...]
    begin_seconds: float
    end_seconds: float
    gpu_hours: float
    idle_gpu_hours: float
    utilization_percent: float | None
    sm_percent: float | None
    peak_bytes: float
    memory_percent: float | None
    how: str


def read_events(folder: Path, since: float, problems: list[Problem]) -> Iterator[Json]:
    """The events of a ring, the oldest first; what cannot be read is left out.

    Args:
        folder: The ring.
        since: Unix time; days before it are not read.
        problems: Receives what could not be read of the files that are complete.

    Raises:
        CommandError: The folder does not exist, or this user may not read it.
    """
    files = [file for file in ring_files(folder) if file.tier == EVENTS and file.start + EVENT_FILE_SECONDS >= since]
    for file in files:
        try:
            lines = FrameLines(io.BufferedReader(open_input(file.path)))
        except OSError:  # removed as the oldest file, or not readable
            continue
        while (line := lines.next_line()) is not None:
            try:
                event = json.loads(line.data)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield event
        if lines.problem is not None and file != files[-1]:
            problems.append(lines.problem)
        lines.close()


class ProcessEvents(NamedTuple):
    """What events say about processes.

    Attributes:
        ended: Those that have ended.
        running: Those that were not seen to end, since this host was booted.
        lost: Those that ran when this host was restarted.
    """

    ended: list[LoggedProcess]
    running: list[LoggedProcess]
    lost: list[LoggedProcess]


def process_events(events: Iterable[Json]) -> ProcessEvents:
    """Read the events of a host about processes."""
    ended: list[LoggedProcess] = []
    running: dict[tuple[int, int], tuple[LoggedProcess, float]] = {}
    for event in events:
        process = _process(event)
        if process is None:
            continue
        key = process.pid, process.start_ticks
        running.pop(key, None)
        if event["kind"] == EventKind.END.value:
            ended.append(process)
        else:
            running[key] = process, event["time_seconds"] - event["monotonic_seconds"]
    booted = time.time() - time.monotonic()
    left: tuple[list[LoggedProcess], list[LoggedProcess]] = ([], [])
    for process, boot in running.values():
        left[abs(boot - booted) > _BOOT_SLACK_SECONDS].append(process)
    return ProcessEvents(ended, *left)


def ended_processes(source: Path, since: float, problems: list[Problem]) -> list[LoggedProcess]:
    """The processes that have ended, the oldest first.

    Args:
        source: A ring, or a recording.
        since: Unix time; processes that ended before it are left out.
        problems: Receives what could not be read.

    Raises:
        CommandError: The source cannot be read.
    """
    if source.is_file():
        ended = _ended_in_file(source, problems)
    else:
        known = process_events(read_events(source, since, problems))
        ended = known.ended + [replace(process, how="host restarted") for process in known.lost]
    return [process for process in ended if process.end_seconds >= since]


def _ended_in_file(path: Path, problems: list[Problem]) -> list[LoggedProcess]:
    """The processes of a recording that ended before its end."""
    log = ProcessLog(lambda _, __: UNKNOWN)
    ended = []
    reader = RecordingReader(path)
    try:
        for record in reader.window(0.0, inf, _STEP_SECONDS, lambda: False) if reader.seekable else reader:
            ended += [process for process in log.observe(to_document(record.frame)) if process.how]
        if reader.problem is not None:
            problems.append(reader.problem)
    finally:
        reader.close()
    return ended


def _process(event: Json) -> LoggedProcess | None:
    """The process of an event; None if it is about something else, or damaged."""
    try:
        if event["kind"] in {EventKind.BEGIN.value, EventKind.END.value, EventKind.RUNNING.value}:
            float(event["time_seconds"] - event["monotonic_seconds"])
            return from_json(LoggedProcess, event)
    except _DAMAGED:
        pass
    return None


def ended_jobs(processes: Sequence[LoggedProcess]) -> list[EndedJob]:
    """The jobs of processes, the last that ended first."""
    groups: dict[tuple[str, str], list[LoggedProcess]] = {}
    for process in processes:
        job = process.job.partition(".")[0] if process.job.startswith("slurm") else process.job
        key = job or process.training_job or f"pid {process.pid} {process.start_ticks}"
        groups.setdefault((process.user, key), []).append(process)
    jobs = [_job(key, members) for (_, key), members in groups.items()]
    return sorted(jobs, key=lambda job: -job.end_seconds)


def _job(key: str, members: Sequence[LoggedProcess]) -> EndedJob:
    by_gpu = grouped((gpu.uuid, (gpu, process.end_seconds)) for process in members for gpu in process.gpus)
    seconds = {uuid: _gpu_seconds(times) for uuid, times in by_gpu.items()}
    times = [gpu for uses in by_gpu.values() for gpu, _ in uses]
    measured, counted = sum(gpu.seconds for gpu in times), sum(gpu.sm_measured_seconds for gpu in times)
    peak = sum(sum(gpu.peak_bytes for gpu, _ in uses) for uses in by_gpu.values())
    total = sum(max(gpu.total_bytes for gpu, _ in uses) for uses in by_gpu.values())
    hours = sum(seconds.values()) / 3600
    failed = [process for process in sorted(members, key=_end) if process.how != "exit 0"]
    first = failed[0] if failed else members[0]
    rank = f", rank {first.rank} first" if failed and len(members) > 1 and first.rank is not None else ""
    return EndedJob(
        user=first.user,
        job="" if key.startswith("pid ") else key,
        program=program_name(first.command),
        processes=len(members),
        gpus=tuple(sorted({gpu.label for gpu in times})),
        begin_seconds=min(process.begin_seconds for process in members),
        end_seconds=max(map(_end, members)),
        gpu_hours=hours,
        idle_gpu_hours=hours * sum(gpu.idle_seconds for gpu in times) / measured if measured else 0.0,
        utilization_percent=100 * sum(gpu.busy_seconds for gpu in times) / measured if measured else None,
        sm_percent=100 * sum(gpu.sm_seconds for gpu in times) / counted if counted else None,
        peak_bytes=peak,
        memory_percent=min(100.0, 100 * peak / total) if total else None,
        how=first.how + rank,
    )


def _end(process: LoggedProcess) -> float:
    return process.end_seconds


def _gpu_seconds(uses: Sequence[tuple[GpuTime, float]]) -> float:
    """How long a GPU was in use: processes at the same time count once, and only time that was measured."""
    covered, until = 0.0, -inf
    for begin, end in sorted((gpu.begin_seconds, end) for gpu, end in uses):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return min(covered, sum(gpu.seconds for gpu, _ in uses))
