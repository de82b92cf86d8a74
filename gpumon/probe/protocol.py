"""The protocol between a probe and gpumon: JSON lines. The process is not trusted, so every field is checked here.

The probe sends ``hello`` once, then ``statistics`` at an interval and an ``answer`` to each request; a client sends
requests. Unknown events are ignored, so that an older gpumon understands a newer probe.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from gpumon.core.allocator import (
    AllocatorStatistics,
    EmptyCacheResult,
    PinnedMemory,
    ProbeCost,
    ProbedProcess,
    ProbeReading,
    ProbeState,
    parse_segment,
)
from gpumon.core.collectives import parse_recording
from gpumon.core.json_fields import Json, as_count, as_flag, as_list, as_number, as_object, as_text, as_tuple, required
from gpumon.core.json_text import json_bytes
from gpumon.core.oom_file import parse_oom_name
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.record_codec import from_json
from gpumon.core.stacks import MAX_THREADS, ThreadStack, parse_thread
from gpumon.core.steps import StepProgress, parse_observation
from gpumon.core.text import safe_text
from gpumon.probe.messages import RequestKind, RequestResult, SegmentMap, WrittenFile

SCHEMA: Final = 1
MAX_LINE_BYTES: Final = 64 << 10
"""Limit on a line that is not an answer."""
MAX_ANSWER_BYTES: Final[Mapping[RequestKind, int]] = {
    RequestKind.SUMMARY: 1 << 20,
    RequestKind.SEGMENTS: 64 << 20,
    RequestKind.EMPTY_CACHE: 256 << 10,
    RequestKind.OBSERVE: 16 << 20,
    RequestKind.STACKS: 4 << 20,
    RequestKind.FLIGHT_RECORDER: 16 << 20,
    RequestKind.TRACE: 64 << 10,
    RequestKind.MEMORY_HISTORY: 64 << 10,
}
"""Limit on the line that answers a request."""
MAX_BLOCKS: Final = 200_000
MIN_PACE, MAX_PACE = 0.1, 60.0

_MAX_DEVICES: Final = 64
_MAX_ARGUMENTS: Final = 256
_MAX_SETTINGS: Final = 64
_MAX_OOM_FILES: Final = 16
_MAX_SUMMARY_LINES: Final = 1000
_MAX_NOTES: Final = 16
_MAX_CONTAINERS: Final = 1_000_000
_MAX_ITEMS: Final = 4_000_000


class ProtocolError(Exception):
    """A line that violates the protocol; ``problem`` has the code `NEWER_SCHEMA` if only a newer gpumon can read it."""

    def __init__(self, reason: str, code: ProblemCode = ProblemCode.DAMAGED, remedy: str = "") -> None:
        super().__init__(reason)
        self.problem = Problem(code, f"The probe sent an invalid message: {reason}.", remedy)


class Reply(NamedTuple):
    """An answer whose result has not been read; `result_of` does that.

    Attributes:
        id: The number of the request.
        reason: Why there is no result; None if there is one.
        body: The message.
    """

    id: int
    reason: str | None
    body: Json


Message = ProbedProcess | ProbeReading | Reply


def pace_line(seconds: float) -> bytes:
    """A request for statistics at an interval."""
    return json_bytes({"ask": "pace", "interval_seconds": min(max(seconds, MIN_PACE), MAX_PACE)})


def request_line(ask: RequestKind, number: int, arguments: Mapping[str, int]) -> bytes:
    """A request for one answer."""
    return json_bytes({"ask": ask.value, "id": number, **arguments})


def parse(line: bytes, pid: int) -> Message | None:
    """Parse a line; return None for an event that this gpumon does not know.

    Args:
        line: The line without its line feed.
        pid: The PID of the process, as the kernel reports it.

    Raises:
        ProtocolError: The line is damaged or comes from a newer probe.
    """
    try:
        raw = _document(line)
        read = _EVENTS.get(str(raw.get("event")))
        return None if read is None else read(raw, pid)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError, IndexError) as error:
        raise ProtocolError(safe_text(str(error), 200)) from None


def result_of(ask: RequestKind, reply: Reply) -> RequestResult:
    """Read the result of an answer.

    Raises:
        ProtocolError: The result does not fit the request.
    """
    try:
        return _RESULTS[ask](reply.body)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, IndexError) as error:
        raise ProtocolError(safe_text(str(error), 200)) from None


def _document(line: bytes) -> Json:
    """Decode a line. A short line can become large in memory, so its containers and items are counted first."""
    if line.count(b"[") + line.count(b"{") > _MAX_CONTAINERS or line.count(b",") > _MAX_ITEMS:
        raise ValueError("it has too many items")
    raw = json.loads(line.decode())
    if type(raw) is not dict:
        raise TypeError("it is not a JSON object")
    return raw


def _hello(raw: Json, pid: int) -> ProbedProcess:
    if raw.get("schema") != SCHEMA:
        raise ProtocolError(
            f"it has schema {safe_text(str(raw.get('schema')), 20)}, and this gpumon reads schema {SCHEMA}",
            ProblemCode.NEWER_SCHEMA,
            "Use the same version of gpumon for both.",
        )
    arguments = [required(as_text(argument)) for argument in _limited(raw.get("argv"), _MAX_ARGUMENTS)]
    settings = as_object(raw.get("settings"))
    items = _limited(list(settings.items()), _MAX_SETTINGS)
    stack_file = as_object(raw.get("stack_file") or {})
    return ProbedProcess(
        pid=pid,
        own_pid=required(as_count(raw.get("pid"))),
        command=safe_text(" ".join(arguments)),
        python_version=as_text(raw.get("python_version")) or "",
        rank=as_count(raw.get("rank")),
        local_rank=as_count(raw.get("local_rank")),
        world_size=as_count(raw.get("world_size")),
        settings={safe_text(name, 64): required(as_text(value)) for name, value in items},
        stack_descriptor=as_count(stack_file.get("descriptor")),
        main_thread_id=as_count(stack_file.get("main_thread")),
    )


def _reading(raw: Json, _: int) -> ProbeReading:
    state, reason = ProbeState(raw["state"]), as_text(raw.get("reason"))
    pinned, cost, training = raw.get("pinned"), raw.get("cost"), raw.get("training")
    return ProbeReading(
        state=state,
        monotonic_seconds=required(as_number(raw["monotonic_seconds"])),
        torch_version=as_text(raw.get("torch_version")),
        backend=as_text(raw.get("backend")),
        expandable_segments=as_flag(raw.get("expandable_segments")),
        devices=_devices(raw.get("devices")),
        pinned=None if pinned is None else from_json(PinnedMemory, pinned, is_signed=False),
        cost=None if cost is None else from_json(ProbeCost, cost, is_signed=False),
        oom_files=tuple(_oom_files(raw.get("oom_files"))),
        training=None if training is None else from_json(StepProgress, training, is_signed=False),
        problem=Problem(ProblemCode.NOT_SUPPORTED, reason) if reason else None,
    )


def _reply(raw: Json, _: int) -> Reply:
    is_ok, reason = required(as_flag(raw["ok"])), as_text(raw.get("reason"))
    return Reply(required(as_count(raw["id"])), None if is_ok else reason or "The probe gives no reason.", raw)


_EVENTS: Final[Mapping[str, Callable[[Json, int], Message]]] = {
    "hello": _hello,
    "statistics": _reading,
    "answer": _reply,
}


def _devices(raw: object) -> tuple[AllocatorStatistics, ...]:
    devices = tuple(from_json(AllocatorStatistics, one, is_signed=False) for one in _limited(raw, _MAX_DEVICES))
    if len({device.ordinal for device in devices}) < len(devices):
        raise ValueError("a device occurs twice")
    return devices


def _oom_files(raw: object) -> list[str]:
    """The paths that have the name of an out-of-memory file; a hostile process may send any others."""
    paths = [path for path in _limited(raw, _MAX_OOM_FILES) if type(path) is str and safe_text(path, 4096) == path]
    return [path for path in paths if path.startswith("/") and parse_oom_name(path.rpartition("/")[2])]


def _summary(body: Json) -> str:
    text = body["text"]
    if type(text) is not str:
        raise TypeError("the summary is not a text")
    lines = text.split("\n", _MAX_SUMMARY_LINES)[:_MAX_SUMMARY_LINES]
    return "\n".join(safe_text(line) for line in lines)


def _segment_map(body: Json) -> SegmentMap:
    raw = _limited(body["segments"], MAX_BLOCKS)
    if sum(len(segment["blocks"]) for segment in raw) > MAX_BLOCKS:
        raise ValueError("there are too many blocks")
    segments = sorted(as_tuple(raw, parse_segment), key=lambda segment: (segment.ordinal, segment.address))
    seconds = as_number(body.get("seconds")) or 0.0
    return SegmentMap(tuple(segments), as_flag(body.get("cut")) or False, seconds)


def _emptied(body: Json) -> EmptyCacheResult:
    return EmptyCacheResult(_devices(body["before"]), _devices(body["after"]), required(as_number(body["seconds"])))


def _stacks(body: Json) -> tuple[ThreadStack, ...]:
    return as_tuple(_limited(body["threads"], MAX_THREADS), parse_thread)


def _written_file(body: Json) -> WrittenFile:
    path = body["path"]
    if type(path) is not str or not path.startswith("/") or safe_text(path, 4096) != path:
        raise TypeError("the path is not an absolute path")
    notes = tuple(required(as_text(note)) for note in _limited(body.get("notes"), _MAX_NOTES))
    return WrittenFile(path, required(as_count(body["size_bytes"])), notes)


_RESULTS: Final[Mapping[RequestKind, Callable[[Json], RequestResult]]] = {
    RequestKind.SUMMARY: _summary,
    RequestKind.SEGMENTS: _segment_map,
    RequestKind.EMPTY_CACHE: _emptied,
    RequestKind.OBSERVE: parse_observation,
    RequestKind.STACKS: _stacks,
    RequestKind.FLIGHT_RECORDER: parse_recording,
    RequestKind.TRACE: _written_file,
    RequestKind.MEMORY_HISTORY: _written_file,
}


def _limited(raw: object, max_items: int) -> list[Any]:
    """A list of limited length; an empty one for null."""
    items = as_list(raw)
    if len(items) > max_items:
        raise ValueError(f"a list has {len(items)} items")
    return items
