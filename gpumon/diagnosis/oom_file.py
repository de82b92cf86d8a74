"""The file that a probe leaves when its process runs out of memory: read, and nothing in it is trusted."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from gpumon.core.allocator import AllocatorStatistics, BlockState, Segment
from gpumon.core.allocator_document import segment_of
from gpumon.core.checks import Json, as_count, as_flag, as_list, as_number, as_object, as_text, as_tuple, required
from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

SCHEMA: Final = 1
MOST_BYTES: Final = 16 << 20
"""Unpacked; with all the blocks that a probe tells, each in a segment of its own, a file has half of it."""
_MOST_CONTAINERS: Final = 500_000
"""Lists and objects, which take far more memory when read than they have bytes; as full as can be it has 200,000."""
_BEGINNING: Final = re.compile(rb'\s*\{[^{}\[\]]*"kind"\s*:\s*"gpumon-oom"')
_LATEST_SECONDS: Final = 1 << 35
"""A later time has a year of five digits."""
_MOST_WORDS: Final = 64
_LONGEST_COMMAND: Final = 160
_MOST_SETTINGS: Final = 32


class OomSample(NamedTuple):
    """The allocator at a moment of the last minute; what was not kept is None.

    Attributes:
        seconds_before: How long before the end.
        allocated_bytes: Held by live tensors.
        alloc_retries_count: How often so far the driver had no memory until the cache was given back.
    """

    seconds_before: float
    allocated_bytes: int
    alloc_retries_count: int | None


class StackFrame(NamedTuple):
    """A call of Python code: where it stands, and in which function."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f'File "{self.file}", line {self.line}, in {self.function}'


@dataclass(frozen=True, slots=True)
class OomFile:
    """What a process was like when an allocation failed; what the file does not tell is None.

    Attributes:
        time_seconds: When, in Unix time.
        asked_bytes: What the allocator wanted of the driver: the request, rounded up to the size of a segment.
        limit_bytes: The cap that the process has, or else the size of the GPU.
        free_bytes: What nobody held, as CUDA says.
        ordinal: The process's own number of the device.
        uuid: NVML's UUID of it.
        device_name: Product name.
        total_bytes: Size of its memory.
        statistics: The allocator's books of this device; by the segments where the books are missing.
        pid: The PID by which the process knows itself.
        command: Its command line.
        rank: Its number among the processes of the training.
        world_size: How many these are.
        torch_version: Such as ``2.11.0+cu130``.
        is_async: Whether CUDA's own pool is used in place of PyTorch's.
        is_expandable: Whether segments can grow.
        settings: The variables that steer the allocator.
        history: The last minute, the oldest first.
        stack: Who asked, innermost first.
        segments: What the allocator holds, by device and address.
        is_cut: Whether there were more blocks than the file has.
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
    """Whether a file that begins like this is one that a probe has left."""
    return _BEGINNING.match(beginning) is not None


def read_oom_file(pieces: Iterable[bytes], name: str) -> OomFile:
    """Reads such a file.

    Args:
        pieces: What is in it, unpacked.
        name: What it is called in a complaint.

    Raises:
        CommandError: It is not whole, or a newer probe has left it.
    """
    try:
        raw = as_object(json.loads(_whole(pieces)))
        if raw["schema"] != SCHEMA:
            raise _newer(name, raw["schema"])
        return _oom_file(raw)
    except RecursionError:
        raise _damaged(name, "it is nested too deep") from None
    except json.JSONDecodeError:
        raise _damaged(name, "it ends too early or is no JSON") from None
    except KeyError as error:
        raise _damaged(name, f"{error} is missing") from None
    except (TypeError, ValueError, OverflowError, IndexError) as error:
        raise _damaged(name, str(error)) from None


def _whole(pieces: Iterable[bytes]) -> bytes:
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    if data.count(b"[") + data.count(b"{") > _MOST_CONTAINERS:
        raise ValueError("it has too many parts")
    return bytes(data)


def _oom_file(raw: Json) -> OomFile:
    device, request, process = (as_object(raw[name]) for name in ("device", "request", "process"))
    ordinal = required(as_count(device["ordinal"]))
    segments = tuple(each for each in as_tuple(raw.get("segments") or [], segment_of) if each.ordinal == ordinal)
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
        history=tuple(sorted(as_tuple(raw.get("history") or [], _sample), key=lambda each: -each.seconds_before)),
        stack=tuple(_frame(each) for each in as_list(raw.get("stack"))),
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
    return AllocatorStatistics(
        ordinal,
        allocated,
        reserved,
        active_bytes=as_count(raw.get("active_bytes")),
        inactive_split_bytes=as_count(raw.get("inactive_split_bytes")),
        allocated_peak_bytes=as_count(raw.get("allocated_peak_bytes")),
        private_pools_bytes=as_count(raw.get("private_pools_bytes")),
        ooms_count=as_count(raw.get("ooms_count")),
        alloc_retries_count=as_count(raw.get("alloc_retries_count")),
    )


def _sample(raw: Json) -> OomSample:
    before = required(as_number(raw["seconds_before"]))
    if not 0 <= before < _LATEST_SECONDS:
        raise ValueError("a moment of its history cannot be")
    return OomSample(before, required(as_count(raw["allocated_bytes"])), as_count(raw.get("alloc_retries_count")))


def _frame(raw: object) -> StackFrame:
    file, line, function = as_list(raw)
    return StackFrame(required(as_text(file)), as_count(line) or 0, required(as_text(function)))


def _settings(raw: Json) -> dict[str, str]:
    return {safe_text(name): required(as_text(value)) for name, value in islice(raw.items(), _MOST_SETTINGS)}


def _command(raw: object) -> str:
    return safe_text(" ".join(required(as_text(word)) for word in as_list(raw)[:_MOST_WORDS]), _LONGEST_COMMAND)


def _time(raw: object) -> float:
    seconds = required(as_number(raw))
    if not 0 <= seconds < _LATEST_SECONDS:
        raise ValueError("its time cannot be")
    return seconds


def _newer(name: str, schema: object) -> CommandError:
    reason = (
        f"{safe_text(name)} cannot be read: it was left by a probe of schema {safe_text(str(schema), 20)}, and this "
        f"gpumon reads schema {SCHEMA}."
    )
    remedy = "Explain it with the version of gpumon whose probe has left it."
    return CommandError(Problem(ProblemCode.NEWER_SCHEMA, reason, remedy), ExitCode.USAGE)


def _damaged(name: str, why: str) -> CommandError:
    reason = f"{safe_text(name)} cannot be read: a probe has left it, and it is damaged ({safe_text(why, 100)})."
    remedy = "The log of that process may tell the same: gpumon explain LOG."
    return CommandError(Problem(ProblemCode.DAMAGED, reason, remedy), ExitCode.USAGE)
