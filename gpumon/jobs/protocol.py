"""The events that a workload sends: JSON lines from outside, so they are checked, bounded and made safe here.

A line that is torn, too long, of another schema or of no known kind is counted and passed over; it never ends a run.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from gpumon.core.text import safe_text

SCHEMA: Final = 1
MAX_EVENT_BYTES: Final = 1 << 18
_MAX_ITEMS: Final = 4096
_MAX_DEPTH: Final = 6
_MAX_TEXT: Final = 4096


class EventKind(str, Enum):
    """What an event is about; public names, they stand in ``gpumon run --json``."""

    HELLO = "hello"
    PLAN = "plan"
    PROGRESS = "progress"
    METRIC = "metric"
    MEMORY = "memory"
    TIMING = "timing"
    STEP = "step"
    ERROR = "error"
    RESULT = "result"
    BYE = "bye"


class VerdictKind(str, Enum):
    """How a run ended; public names."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    CANCELLED = "cancelled"


_Types = tuple[type, ...]
_NUMBER: Final[_Types] = (int, float)
_REQUIRED: Final[Mapping[EventKind, Mapping[str, _Types]]] = {
    EventKind.HELLO: {"workload": (str,), "pid": (int,)},
    EventKind.PLAN: {"torch": (str,), "device": (str,), "uses": (dict,), "parameters": (dict,)},
    EventKind.PROGRESS: {"done": _NUMBER, "total": _NUMBER},
    EventKind.METRIC: {"name": (str,), "value": _NUMBER, "unit": (str,)},
    EventKind.MEMORY: {},
    EventKind.TIMING: {"name": (str,), "host_seconds": _NUMBER, "device_seconds": _NUMBER},
    EventKind.STEP: {"text": (str,)},
    EventKind.ERROR: {"class": (str,), "text": (str,)},
    EventKind.RESULT: {"verdict": (str,), "why": (str,), "figures": (list,)},
    EventKind.BYE: {},
}
_FIGURE: Final[Mapping[str, _Types]] = {"name": (str,), "value": _NUMBER, "unit": (str,), "repetitions": (int,)}
_FIGURE_LIMIT: Final[Mapping[str, _Types]] = {"limit": (int, float, type(None)), "limit_source": (str,)}


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event.

    Attributes:
        kind: What it is about.
        time_seconds: Unix time at which the workload told it.
        fields: What it says, by the names of the public format; every text is safe to show.
    """

    kind: EventKind
    time_seconds: float
    fields: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """The event as ``gpumon run --json`` prints it."""
        return {"schema": SCHEMA, "event": self.kind.value, "time_seconds": self.time_seconds, **self.fields}


def parse(line: bytes) -> JobEvent | None:
    """The event that a line holds, or None if it holds none."""
    try:
        said = json.loads(line)
        kind = EventKind(said["event"])
        if said["schema"] != SCHEMA or not _is_whole(kind, said):
            return None
        seconds = float(said["time_seconds"])
        if not math.isfinite(seconds):
            return None
        fields = {
            safe_text(str(name), 64): safe_json(value, 1)
            for name, value in said.items()
            if name not in {"schema", "event", "time_seconds"}
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    return JobEvent(kind, seconds, fields)


def _is_whole(kind: EventKind, said: Mapping[str, Any]) -> bool:
    """Whether the fields that readers rely on are there, of their types, and finite."""
    if not _has(said, _REQUIRED[kind]):
        return False
    if kind is EventKind.RESULT:
        VerdictKind(said["verdict"])
        return all(is_figure(figure) for figure in said["figures"])
    return True


def is_figure(said: object) -> bool:
    """Whether a JSON value is a figure of a result."""
    if not isinstance(said, dict) or not said.keys() >= _FIGURE.keys():
        return False
    limit = {name: types for name, types in _FIGURE_LIMIT.items() if name in said}
    return _has(said, {**_FIGURE, **limit})


def _has(said: Mapping[str, Any], required: Mapping[str, _Types]) -> bool:
    for name, types in required.items():
        value = said[name]
        if not isinstance(value, types) or isinstance(value, bool):
            return False
        if not _is_finite(value):
            return False
    return True


def _is_finite(value: object) -> bool:
    """Whether a value is no number, or one that a float can hold: JSON knows whole numbers of any size."""
    try:
        return not isinstance(value, (int, float)) or math.isfinite(value)
    except OverflowError:
        return False


def safe_json(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """A JSON value with every text made safe, and everything bounded."""
    if isinstance(value, str):
        return "\n".join(safe_text(line, _MAX_TEXT) for line in value.split("\n", _MAX_ITEMS)[:_MAX_ITEMS])
    if not _is_finite(value) or (isinstance(value, (list, dict)) and depth >= _MAX_DEPTH):
        return None
    if isinstance(value, list):
        return [safe_json(each, depth + 1) for each in value[:_MAX_ITEMS]]
    if isinstance(value, dict):
        items = list(value.items())[:_MAX_ITEMS]
        return {safe_text(str(name), 64): safe_json(each, depth + 1) for name, each in items}
    return value


class EventReader:
    """Puts events together from bytes as they come.

    Attributes:
        foreign: Lines that held no event, so far.
    """

    def __init__(self) -> None:
        self.foreign = 0
        self._partial = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[JobEvent]:
        """The events that ``data`` completes."""
        events = []
        *whole, rest = data.split(b"\n")
        for piece in whole:
            line = bytes(self._partial) + piece
            self._partial.clear()
            if self._skipping:
                self._skipping = False
                continue
            event = parse(line) if len(line) <= MAX_EVENT_BYTES else None
            if event is not None:
                events.append(event)
            elif line.strip():
                self.foreign += 1
        self._hold(rest)
        return events

    def end(self) -> None:
        """There is nothing more: a line without its end is torn."""
        self.foreign += bool(self._partial)
        self._partial.clear()

    def _hold(self, rest: bytes) -> None:
        if self._skipping:
            return
        self._partial += rest
        if len(self._partial) > MAX_EVENT_BYTES:
            self._partial.clear()
            self._skipping = True
            self.foreign += 1
