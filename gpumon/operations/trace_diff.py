"""What differs between two traces: classes of a step, and kernels or operators added, removed or slower."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.traces.model import Trace

_HEAD_BYTES: Final = 4096
_MARKS: Final = (b'"schemaVersion"', b'"traceEvents"', b'"deviceProperties"')
_MIN_SHARE: Final = 1e-3
"""What changes a step by less than this part of it is not listed."""
_MIN_CHANGE: Final = 0.05
"""Two runs of a kernel differ by this part."""
_SECONDS: Final = 1e-9


class NameChange(NamedTuple):
    """A class, a kernel, an operator or a call of the host in two traces; times are seconds per step.

    Attributes:
        name: Its name.
        group: The class that it belongs to; of an operator that launches kernels, ``host``.
        state: ``added``, ``removed``, ``slower`` or ``faster``.
        base_seconds: Its time in the first trace.
        new_seconds: Its time in the second.
        base_count: How often it ran per step in the first.
        new_count: How often in the second.
        line: The line of the program in the second trace, or else in the first; empty where they have no stacks.
    """

    name: str
    group: str
    state: str
    base_seconds: float
    new_seconds: float
    base_count: float
    new_count: float
    line: str

    @property
    def change_seconds(self) -> float:
        """How much longer a step takes with it."""
        return self.new_seconds - self.base_seconds


def is_trace(path: Path) -> bool:
    """Whether a file begins as a trace of PyTorch does, plain or compressed; False if it is not a readable file."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head.startswith(b"\x1f\x8b"):
            head = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, _HEAD_BYTES)
    except (OSError, zlib.error):
        return False
    return head.lstrip().startswith((b"{", b"[")) and any(mark in head for mark in _MARKS)


def trace_changes(base: Trace, new: Trace) -> list[NameChange]:
    """Kernels, on a CPU operators, and operators of the host whose time per step differs, the largest change first."""
    sides = [_sums(trace) for trace in (base, new)]
    changes = []
    for name, group in {**sides[0], **sides[1]}:
        seconds, counts, lines = zip(*(side.get((name, group), (0.0, 0.0, "")) for side in sides), strict=True)
        change = seconds[1] - seconds[0]
        is_both = counts[0] > 0 and counts[1] > 0
        if is_both and abs(change) < max(_MIN_SHARE * base.step_ns * _SECONDS, _MIN_CHANGE * seconds[0]):
            continue
        state = ("slower" if change > 0 else "faster") if is_both else "removed" if counts[0] else "added"
        line = lines[1] or lines[0]
        changes.append(NameChange(name, group, state, seconds[0], seconds[1], counts[0], counts[1], line))
    return sorted(changes, key=lambda change: -abs(change.change_seconds))


def class_changes(base: Trace, new: Trace) -> Iterator[dict[str, Any]]:
    """The classes of the median steps."""
    for item in {item.name: None for item in (*base.classes, *new.classes)}:
        seconds = [trace.class_time(item).time_ns * _SECONDS for trace in (base, new)]
        if any(seconds):
            yield {"name": item, "base_seconds": seconds[0], "new_seconds": seconds[1]}


def diff_document(base: Trace, new: Trace) -> dict[str, Any]:
    """Two traces as a JSON document."""
    return {
        "schema": 1,
        "kind": "gpumon_trace_diff",
        "base": {"file": base.name, "steps": len(base.steps), "step_seconds": base.step_ns * _SECONDS},
        "new": {"file": new.name, "steps": len(new.steps), "step_seconds": new.step_ns * _SECONDS},
        "classes": list(class_changes(base, new)),
        "changes": [{**item._asdict(), "change_seconds": item.change_seconds} for item in trace_changes(base, new)],
        "problems": [f"{trace.name}: {text}" for trace in (base, new) for text in trace.problems],
    }


def _sums(trace: Trace) -> dict[tuple[str, str], tuple[float, float, str]]:
    """Seconds and calls per step, and the line, by name and class: of the complete trace, divided by its steps."""
    lines = {part.name: part.line for item in trace.classes for part in item.top if part.line}
    steps = max(1, len(trace.steps))
    sums: dict[tuple[str, str], tuple[float, float, str]] = {}
    for total in (*trace.totals, *trace.operators):
        if not total.name.startswith("ProfilerStep#"):
            seconds, count = total.time_ns * _SECONDS / steps, total.count / steps
            sums[total.name, total.kind] = (seconds, count, lines.get(total.name, ""))
    return sums
