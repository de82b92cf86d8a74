"""The lines between a probe and gpumon: JSON from a process that may be anything, so all of it is checked here.

The agent writes ``hello`` once, then ``statistics`` at its pace, and an ``answer`` to each request; a client writes
requests. An event that is not known is passed over, so that an older gpumon understands a newer probe.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from gpumon.core.allocator import (
    AllocatorStatistics,
    EmptiedCache,
    PinnedMemory,
    ProbeCost,
    ProbedProcess,
    ProbeReading,
    ProbeState,
)
from gpumon.core.allocator_document import segment_of, statistics_of
from gpumon.core.checks import Json, as_count, as_flag, as_list, as_number, as_object, as_text, as_tuple, required
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.probe.news import Ask, SegmentMap

SCHEMA: Final = 1
MOST_LINE_BYTES: Final = 64 << 10
"""Of a line that nobody has asked for."""
ANSWER_BYTES: Final[Mapping[Ask, int]] = {Ask.SUMMARY: 1 << 20, Ask.SEGMENTS: 64 << 20, Ask.EMPTY_CACHE: 256 << 10}
"""Of the line that answers a request."""
MOST_BLOCKS: Final = 200_000
LEAST_PACE, MOST_PACE = 0.1, 60.0

_MOST_DEVICES: Final = 64
_MOST_WORDS: Final = 256
_MOST_SETTINGS: Final = 64
_MOST_OOM_FILES: Final = 16
_MOST_SUMMARY_LINES: Final = 1000
_MOST_CONTAINERS: Final = 1_000_000
_MOST_ITEMS: Final = 4_000_000
_OOM_FILE: Final = re.compile(r"/(?:.*/)?oom-\d+-\d+-\d+\.json\.gz", re.ASCII)


class ProtocolError(Exception):
    """A line that no probe writes. ``problem`` says why; it is `NEWER_SCHEMA` when only a newer gpumon can read it."""

    def __init__(self, reason: str, code: ProblemCode = ProblemCode.DAMAGED, remedy: str = "") -> None:
        super().__init__(reason)
        self.problem = Problem(code, f"What its probe says cannot be understood: {reason}.", remedy)


class Reply(NamedTuple):
    """An answer of which nobody has looked yet to what; `result_of` does.

    Attributes:
        id: The number of the request.
        reason: Why there is no result; None if there is one.
        body: What was said.
    """

    id: int
    reason: str | None
    body: Json


Said = ProbedProcess | ProbeReading | Reply


def pace_line(seconds: float) -> bytes:
    """Asks for statistics so often."""
    return _line({"ask": "pace", "interval_seconds": min(max(seconds, LEAST_PACE), MOST_PACE)})


def request_line(ask: Ask, number: int, more: Mapping[str, int]) -> bytes:
    """Asks for something once."""
    return _line({"ask": ask.value, "id": number, **more})


def parse(line: bytes, pid: int) -> Said | None:
    """What a line says; None for an event that this gpumon does not know.

    Args:
        line: Without its line feed.
        pid: The process's PID as the kernel says.

    Raises:
        ProtocolError: It is damaged, foreign, or of a newer probe.
    """
    try:
        raw = _document(line)
        read = _EVENTS.get(str(raw.get("event")))
        return None if read is None else read(raw, pid)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError, IndexError) as error:
        raise ProtocolError(safe_text(str(error), 200)) from None


def result_of(ask: Ask, reply: Reply) -> str | SegmentMap | EmptiedCache:
    """What was asked for.

    Raises:
        ProtocolError: It is something else.
    """
    try:
        return _RESULTS[ask](reply.body)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, IndexError) as error:
        raise ProtocolError(safe_text(str(error), 200)) from None


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _document(line: bytes) -> Json:
    """The object in a line. Small JSON can be large in memory, so its parts are counted before it is read."""
    if line.count(b"[") + line.count(b"{") > _MOST_CONTAINERS or line.count(b",") > _MOST_ITEMS:
        raise ValueError("it has too many parts")
    raw = json.loads(line.decode())
    if type(raw) is not dict:
        raise TypeError("it is no object")
    return raw


def _hello(raw: Json, pid: int) -> ProbedProcess:
    if raw.get("schema") != SCHEMA:
        raise ProtocolError(
            f"it speaks schema {safe_text(str(raw.get('schema')), 20)}, this gpumon schema {SCHEMA}",
            ProblemCode.NEWER_SCHEMA,
            "Use one version of gpumon for both.",
        )
    words = [required(as_text(word)) for word in _few(raw.get("argv"), _MOST_WORDS)]
    settings = as_object(raw.get("settings"))
    named = _few(list(settings.items()), _MOST_SETTINGS)
    return ProbedProcess(
        pid=pid,
        own_pid=required(as_count(raw.get("pid"))),
        command=safe_text(" ".join(words)),
        python_version=as_text(raw.get("python_version")) or "",
        rank=as_count(raw.get("rank")),
        local_rank=as_count(raw.get("local_rank")),
        world_size=as_count(raw.get("world_size")),
        settings={safe_text(name, 64): required(as_text(value)) for name, value in named},
    )


def _reading(raw: Json, _: int) -> ProbeReading:
    state, reason = ProbeState(raw["state"]), as_text(raw.get("reason"))
    pinned, cost = raw.get("pinned"), raw.get("cost")
    return ProbeReading(
        state=state,
        monotonic_seconds=required(as_number(raw["monotonic_seconds"])),
        torch_version=as_text(raw.get("torch_version")),
        backend=as_text(raw.get("backend")),
        expandable_segments=as_flag(raw.get("expandable_segments")),
        devices=_devices(raw.get("devices")),
        pinned=None if pinned is None else _pinned(as_object(pinned)),
        cost=None if cost is None else _cost(as_object(cost)),
        oom_files=tuple(_oom_files(raw.get("oom_files"))),
        problem=Problem(ProblemCode.NOT_SUPPORTED, reason) if reason else None,
    )


def _reply(raw: Json, _: int) -> Reply:
    is_ok, reason = required(as_flag(raw["ok"])), as_text(raw.get("reason"))
    return Reply(required(as_count(raw["id"])), None if is_ok else reason or "It does not say why.", raw)


_EVENTS: Final[Mapping[str, Callable[[Json, int], Said]]] = {
    "hello": _hello,
    "statistics": _reading,
    "answer": _reply,
}


def _devices(raw: object) -> tuple[AllocatorStatistics, ...]:
    found = as_tuple(_few(raw, _MOST_DEVICES), statistics_of)
    if len({each.ordinal for each in found}) < len(found):
        raise ValueError("it tells of a device twice")
    return found


def _pinned(raw: Json) -> PinnedMemory:
    return PinnedMemory(required(as_count(raw["allocated_bytes"])), required(as_count(raw["active_bytes"])))


def _cost(raw: Json) -> ProbeCost:
    return ProbeCost(
        required(as_number(raw["share"])), required(as_number(raw["seconds"])), required(as_count(raw["reads"]))
    )


def _oom_files(raw: object) -> list[str]:
    """Files that have such a name; what else a process may name is not opened."""
    paths = [path for path in _few(raw, _MOST_OOM_FILES) if type(path) is str and safe_text(path, 4096) == path]
    return [path for path in paths if _OOM_FILE.fullmatch(path)]


def _summary(body: Json) -> str:
    text = body["text"]
    if type(text) is not str:
        raise TypeError("the summary is no text")
    lines = text.split("\n", _MOST_SUMMARY_LINES)[:_MOST_SUMMARY_LINES]
    return "\n".join(safe_text(line) for line in lines)


def _segment_map(body: Json) -> SegmentMap:
    raw = _few(body["segments"], MOST_BLOCKS)
    if sum(len(each["blocks"]) for each in raw) > MOST_BLOCKS:
        raise ValueError("it has too many blocks")
    segments = sorted(as_tuple(raw, segment_of), key=lambda each: (each.ordinal, each.address))
    seconds = as_number(body.get("seconds")) or 0.0
    return SegmentMap(tuple(segments), as_flag(body.get("cut")) or False, seconds)


def _emptied(body: Json) -> EmptiedCache:
    return EmptiedCache(_devices(body["before"]), _devices(body["after"]), required(as_number(body["seconds"])))


_RESULTS: Final[Mapping[Ask, Callable[[Json], str | SegmentMap | EmptiedCache]]] = {
    Ask.SUMMARY: _summary,
    Ask.SEGMENTS: _segment_map,
    Ask.EMPTY_CACHE: _emptied,
}


def _few(raw: object, most: int) -> list[Any]:
    """A list that is not too long; an empty one for null."""
    found = as_list(raw)
    if len(found) > most:
        raise ValueError(f"a list has {len(found)} items")
    return found
