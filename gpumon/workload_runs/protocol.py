"""The events of a workload: JSON lines from outside, which are validated, bounded and sanitized here.

A line that is truncated, too long, of another schema or of an unknown kind is counted and skipped; it never ends a run.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from gpumon.core.text import safe_text
from gpumon.core.workload_metrics import Measurement

SCHEMA: Final = 1
MAX_EVENT_BYTES: Final = 1 << 18
_MAX_ITEMS: Final = 4096
_MAX_DEPTH: Final = 6
_MAX_TEXT: Final = 4096


class RunEventKind(str, Enum):
    """What an event is about; public names that appear in ``gpumon run --json``."""

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
_REQUIRED: Final[Mapping[RunEventKind, Mapping[str, _Types]]] = {
    RunEventKind.HELLO: {"workload": (str,), "pid": (int,)},
    RunEventKind.PLAN: {"torch": (str,), "device": (str,), "uses": (dict,), "parameters": (dict,)},
    RunEventKind.PROGRESS: {"done": _NUMBER, "total": _NUMBER},
    RunEventKind.METRIC: {"name": (str,), "value": _NUMBER, "unit": (str,)},
    RunEventKind.MEMORY: {},
    RunEventKind.TIMING: {"name": (str,), "host_seconds": _NUMBER, "device_seconds": _NUMBER},
    RunEventKind.STEP: {"text": (str,)},
    RunEventKind.ERROR: {"class": (str,), "text": (str,)},
    RunEventKind.RESULT: {"verdict": (str,), "why": (str,), "figures": (list,)},
    RunEventKind.BYE: {},
}


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event.

    Attributes:
        kind: What the event is about.
        time_seconds: Unix time at which the workload sent the event.
        fields: Values by their names in the public format; every text is safe to show.
    """

    kind: RunEventKind
    time_seconds: float
    fields: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """The event in the format of ``gpumon run --json``."""
        return {"schema": SCHEMA, "event": self.kind.value, "time_seconds": self.time_seconds, **self.fields}


def parse(line: bytes) -> RunEvent | None:
    """Parse the event in a line; returns None for an invalid line."""
    try:
        raw = json.loads(line)
        kind = RunEventKind(raw["event"])
        if raw["schema"] != SCHEMA or not _is_complete(kind, raw):
            return None
        seconds = float(raw["time_seconds"])
        if not math.isfinite(seconds):
            return None
        fields = {
            safe_text(str(name), 64): safe_json(value, 1)
            for name, value in raw.items()
            if name not in {"schema", "event", "time_seconds"}
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    return RunEvent(kind, seconds, fields)


def _is_complete(kind: RunEventKind, raw: Mapping[str, Any]) -> bool:
    """Whether all required fields are present, of the right types, and finite."""
    if not _has(raw, _REQUIRED[kind]):
        return False
    if kind is RunEventKind.RESULT:
        VerdictKind(raw["verdict"])
        return all(Measurement.of(result) is not None for result in raw["figures"])
    return True


def _has(raw: Mapping[str, Any], required: Mapping[str, _Types]) -> bool:
    for name, types in required.items():
        value = raw[name]
        if not isinstance(value, types) or isinstance(value, bool):
            return False
        if not _is_finite(value):
            return False
    return True


def _is_finite(value: object) -> bool:
    """Whether a value is not a number, or fits into a float: JSON integers are unbounded."""
    try:
        return not isinstance(value, (int, float)) or math.isfinite(value)
    except OverflowError:
        return False


def safe_json(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """Sanitize every text of a JSON value, and bound its size and depth."""
    if isinstance(value, str):
        return "\n".join(safe_text(line, _MAX_TEXT) for line in value.split("\n", _MAX_ITEMS)[:_MAX_ITEMS])
    if not _is_finite(value) or (isinstance(value, (list, dict)) and depth >= _MAX_DEPTH):
        return None
    if isinstance(value, list):
        return [safe_json(item, depth + 1) for item in value[:_MAX_ITEMS]]
    if isinstance(value, dict):
        items = list(value.items())[:_MAX_ITEMS]
        return {safe_text(str(name), 64): safe_json(item, depth + 1) for name, item in items}
    return value


class EventReader:
    """Assembles events from bytes as they arrive.

    Attributes:
        invalid_lines: Number of lines without a valid event so far.
    """

    def __init__(self) -> None:
        self.invalid_lines = 0
        self._partial = bytearray()
        self._is_skipping = False

    def feed(self, data: bytes) -> list[RunEvent]:
        """Return the events that ``data`` completes."""
        events = []
        *complete, rest = data.split(b"\n")
        for piece in complete:
            line = bytes(self._partial) + piece
            self._partial.clear()
            if self._is_skipping:
                self._is_skipping = False
                continue
            event = parse(line) if len(line) <= MAX_EVENT_BYTES else None
            if event is not None:
                events.append(event)
            elif line.strip():
                self.invalid_lines += 1
        self._keep(rest)
        return events

    def end(self) -> None:
        """Handle the end of the data: a line without a line feed is truncated."""
        self.invalid_lines += bool(self._partial)
        self._partial.clear()

    def _keep(self, rest: bytes) -> None:
        if self._is_skipping:
            return
        self._partial += rest
        if len(self._partial) > MAX_EVENT_BYTES:
            self._partial.clear()
            self._is_skipping = True
            self.invalid_lines += 1
