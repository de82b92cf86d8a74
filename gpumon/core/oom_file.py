"""The file that a probe writes when its process runs out of memory: its name, and a reader that does not trust it."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from gpumon.core.allocator import AllocatorStatistics, BlockState, Segment, parse_segment
from gpumon.core.json_fields import Json, as_count, as_flag, as_list, as_number, as_object, as_text, as_tuple, required
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.stacks import StackFrame
from gpumon.core.text import safe_text

SCHEMA: Final = 1
KIND: Final = "gpumon-oom"
MAX_BYTES: Final = 16 << 20
"""Largest size after decompression. A file with the maximum number of blocks and segments has half of this size."""
_MAX_CONTAINERS: Final = 500_000
"""Maximum number of lists and objects, which take far more memory than bytes. A full file has 200,000."""
_NAME: Final = re.compile(r"oom-(\d{1,11})-(\d{1,10})-(\d{1,19})\.json\.gz", re.ASCII)
_BEGINNING: Final = re.compile(rb'\s*\{[^{}\[\]]*"kind"\s*:\s*"gpumon-oom"')
_MAX_TIME_SECONDS: Final = 1 << 35
"""A later Unix time has a year of five digits."""
_MAX_WORDS: Final = 64
_MAX_COMMAND: Final = 160
_MAX_SETTINGS: Final = 32


class OomFileName(NamedTuple):
    """What the name of a file says.

    Attributes:
        time_seconds: Unix time at which the file was written.
        pid: The PID in the process's own PID namespace.
        number: A number that counts up in the process.
    """

    time_seconds: int
    pid: int
    number: int

    @property
    def age_key(self) -> tuple[int, int]:
        """Sorts files from oldest to newest."""
        return self.time_seconds, self.number


def parse_oom_name(name: str) -> OomFileName | None:
    """Parses the name of a file, without its folder; None if a probe does not write such names."""
    match = _NAME.fullmatch(name)
    return None if match is None else OomFileName(int(match[1]), int(match[2]), int(match[3]))


class OomFileError(ValueError):
    """The content is damaged, or from a newer probe (``is_newer``). The text is a clause about the file."""

    def __init__(self, reason: str, *, is_newer: bool = False) -> None:
        super().__init__(reason)
        self.is_newer = is_newer


class OomSample(NamedTuple):
    """The allocator at one moment of the last minute; None where a value was not recorded.

    Attributes:
        seconds_before: How long before the out-of-memory error.
        allocated_bytes: Memory in live tensors.
        alloc_retries_count: How often the allocator had freed its cache to get memory from the driver.
    """

    seconds_before: float
    allocated_bytes: int
    alloc_retries_count: int | None


@dataclass(frozen=True, slots=True)
class OomFile:
    """The state of a process when an allocation failed; None where the file lacks a value.

    Attributes:
        time_seconds: Unix time of the failure.
        asked_bytes: What the allocator requested from the driver: the request rounded up to the size of a segment.
        limit_bytes: The memory limit of the process, or the size of the GPU if it has none.
        free_bytes: Free memory according to CUDA.
        ordinal: CUDA ordinal of the device in the process.
        uuid: Its UUID.
        device_name: Product name.
        total_bytes: Size of its memory.
        statistics: The allocator's statistics of this device; computed from the segments where they are missing.
        pid: The PID in the process's own PID namespace.
        command: Its command line.
        rank: Its rank in the training job.
        world_size: Number of ranks.
        torch_version: Such as ``2.11.0+cu130``.
        is_async: Whether the backend is cudaMallocAsync.
        is_expandable: Whether expandable segments are on.
        settings: The environment variables that configure the allocator.
        history: The last minute, oldest first.
        stack: The Python stack of the failed allocation, innermost first.
        segments: The allocator's segments on this device.
        is_cut: Whether the allocator had more blocks than the file can hold.
    """

    time_seconds: float
    asked_bytes: int
    limit_bytes: int | None
    free_bytes: int | None
    ordinal: int
    uuid: str | None
    device_name: str | None
    total_bytes: int | None
    statistics: AllocatorStatistics | None
    pid: int | None
    command: str
    rank: int | None
    world_size: int | None
    torch_version: str | None
    is_async: bool
    is_expandable: bool | None
    settings: Mapping[str, str]
    history: tuple[OomSample, ...]
    stack: tuple[StackFrame, ...]
    segments: tuple[Segment, ...]
    is_cut: bool


def is_oom_file(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes was written by a probe."""
    return _BEGINNING.match(beginning) is not None


def read_oom_file(pieces: Iterable[bytes], name: str) -> OomFile:
    """Reads a file.

    Args:
        pieces: Its content, decompressed.
        name: Its name in error messages.

    Raises:
        CommandError: The file is damaged, or a newer probe wrote it.
    """
    try:
        return parse_oom_file(_joined(pieces))
    except OomFileError as error:
        if error.is_newer:
            remedy = "Explain the file with the version of gpumon whose probe wrote it."
            problem = Problem(ProblemCode.NEWER_SCHEMA, f"{safe_text(name)} cannot be read: {error}.", remedy)
        else:
            reason = f"{safe_text(name)} cannot be read: a probe wrote it, but it is damaged ({error})."
            remedy = "Try the log of the process instead: gpumon explain LOG."
            problem = Problem(ProblemCode.DAMAGED, reason, remedy)
        raise CommandError(problem, ExitCode.USAGE) from None


def parse_oom_file(data: bytes) -> OomFile:
    """Parses the decompressed content of a file.

    Raises:
        OomFileError: It is damaged, or a newer probe wrote it.
    """
    if len(data) > MAX_BYTES:
        raise _too_large()
    if data.count(b"[") + data.count(b"{") > _MAX_CONTAINERS:
        raise OomFileError("it has too many parts")
    try:
        raw = as_object(json.loads(data))
        _check_schema(raw)
        return _oom_file(raw)
    except OomFileError:
        raise
    except RecursionError:
        raise OomFileError("it is nested too deep") from None
    except json.JSONDecodeError:
        raise OomFileError("it is cut off, or it is not JSON") from None
    except KeyError as error:
        raise OomFileError(f"{safe_text(str(error), 100)} is missing") from None
    except (TypeError, ValueError, OverflowError, IndexError) as error:
        raise OomFileError(safe_text(str(error), 100)) from None


def _check_schema(raw: Json) -> None:
    if raw["kind"] != KIND:
        raise OomFileError("it is another document")
    if raw["schema"] != SCHEMA:
        schema = safe_text(str(raw["schema"]), 20)
        raise OomFileError(
            f"a probe with schema {schema} wrote it, and this gpumon reads schema {SCHEMA}", is_newer=True
        )


def _joined(pieces: Iterable[bytes]) -> bytes:
    """All pieces, as far as `MAX_BYTES`."""
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > MAX_BYTES:
            raise _too_large()
    return bytes(data)


def _too_large() -> OomFileError:
    return OomFileError(f"it has more than {MAX_BYTES >> 20} MiB")


def _oom_file(raw: Json) -> OomFile:
    device, request, process = (as_object(raw[name]) for name in ("device", "request", "process"))
    ordinal = required(as_count(device["ordinal"]))
    segments = tuple(
        segment for segment in as_tuple(raw.get("segments") or [], parse_segment) if segment.ordinal == ordinal
    )
    return OomFile(
        time_seconds=_time(raw["time_seconds"]),
        asked_bytes=required(as_count(request["bytes"])),
        limit_bytes=as_count(request.get("limit_bytes")),
        free_bytes=as_count(request.get("free_bytes")),
        ordinal=ordinal,
        uuid=as_text(device.get("uuid")),
        device_name=as_text(device.get("name")),
        total_bytes=as_count(device.get("total_bytes")),
        statistics=_statistics(as_object(raw.get("statistics")), ordinal, segments),
        pid=as_count(process.get("pid")),
        command=_command(process.get("argv")),
        rank=as_count(process.get("rank")),
        world_size=as_count(process.get("world_size")),
        torch_version=as_text(raw.get("torch_version")),
        is_async=as_text(raw.get("backend")) == "cudaMallocAsync",
        is_expandable=as_flag(raw.get("expandable_segments")),
        settings=_settings(as_object(raw.get("settings"))),
        history=tuple(sorted(as_tuple(raw.get("history") or [], _sample), key=lambda sample: -sample.seconds_before)),
        stack=tuple(_frame(frame) for frame in as_list(raw.get("stack"))),
        segments=segments,
        is_cut=as_flag(raw.get("cut")) or False,
    )


def _statistics(raw: Json, ordinal: int, segments: tuple[Segment, ...]) -> AllocatorStatistics | None:
    allocated, reserved = as_count(raw.get("allocated_bytes")), as_count(raw.get("reserved_bytes"))
    if segments and allocated is None:
        blocks = (block for segment in segments for block in segment.blocks)
        allocated = sum(block.size_bytes for block in blocks if block.state is BlockState.ALLOCATED)
    if segments and reserved is None:
        reserved = sum(segment.size_bytes for segment in segments)
    if allocated is None or reserved is None:
        return None
    names = ("active_bytes", "inactive_split_bytes", "allocated_peak_bytes", "ooms_count", "alloc_retries_count")
    counts: dict[str, Any] = {name: as_count(raw.get(name)) for name in names}
    return AllocatorStatistics(ordinal, allocated, reserved, **counts)


def _sample(raw: Json) -> OomSample:
    before = required(as_number(raw["seconds_before"]))
    if not 0 <= before < _MAX_TIME_SECONDS:
        raise ValueError("a time in its history is out of range")
    return OomSample(before, required(as_count(raw["allocated_bytes"])), as_count(raw.get("alloc_retries_count")))


def _frame(raw: object) -> StackFrame:
    file, line, function = as_list(raw)
    return StackFrame(required(as_text(file)), as_count(line) or 0, required(as_text(function)))


def _settings(raw: Json) -> dict[str, str]:
    return {safe_text(name): required(as_text(value)) for name, value in islice(raw.items(), _MAX_SETTINGS)}


def _command(raw: object) -> str:
    return safe_text(" ".join(required(as_text(word)) for word in as_list(raw)[:_MAX_WORDS]), _MAX_COMMAND)


def _time(raw: object) -> float:
    seconds = required(as_number(raw))
    if not 0 <= seconds < _MAX_TIME_SECONDS:
        raise ValueError("its time is out of range")
    return seconds
