"""`%%gpumem`: what a cell of a notebook did to the memory of GPUs: peak, change, and the tensors of the peak.

The history of PyTorch's allocator is recorded while the cell runs, unless the program records it itself, and stopped
afterwards. Nothing is imported for it, and no CUDA context is created.
"""

import linecache
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from gpumon.core.stacks import StackFrame
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text, counted
from gpumon.probe.agent.allocator import Allocator
from gpumon.probe.agent.allocator_history import MAX_ENTRIES
from gpumon.probe.agent.pytorch import Torch
from gpumon.stacks.tables import line_text, program_frame

_MAX_LINES: Final = 5
_FREED: Final = frozenset({"free", "free_requested"})


class CellPeak(NamedTuple):
    """The peak of a cell on one GPU.

    Attributes:
        bytes: Allocated at the peak in addition to what was allocated before the cell; never below 0.
        lines: Bytes at the peak by the frame of the program that allocated them; None without one.
        tensors: Their number, in the same way.
    """

    bytes: int
    lines: Mapping[StackFrame | None, int]
    tensors: Mapping[StackFrame | None, int]


def peak_of(events: Sequence[Mapping[str, Any]]) -> CellPeak:
    """Replay the events of an allocator, which `torch.cuda.memory._snapshot` returns for each device."""
    level = highest = end = 0
    for index, event in enumerate(events, 1):
        level += event["size"] * ((event["action"] == "alloc") - (event["action"] in _FREED))
        if level > highest:
            highest, end = level, index
    alive: dict[int, Mapping[str, Any]] = {}
    for event in events[:end]:
        if event["action"] == "alloc":
            alive[event["addr"]] = event
        elif event["action"] in _FREED:
            alive.pop(event["addr"], None)
    lines, tensors = Counter[StackFrame | None](), Counter[StackFrame | None]()
    for event in alive.values():
        stack = (StackFrame(frame["filename"], frame["line"], frame["name"]) for frame in event.get("frames", ()))
        frame = program_frame(tuple(stack))
        lines[frame] += event["size"]
        tensors[frame] += 1
    return CellPeak(highest, lines, tensors)


@contextmanager
def _history() -> Iterator[list[Sequence[Mapping[str, Any]]]]:
    """Record the history; at the end, the list has the events of each device, or is empty without a history."""
    torch, events = Torch(), list[Sequence[Mapping[str, Any]]]()
    memory = vars(sys.modules.get("torch.cuda.memory", object))
    is_recorded = getattr(torch.library, "_cuda_isHistoryEnabled", None)
    if torch.state != "live" or not torch.has_native_backend or is_recorded is None or "_snapshot" not in memory:
        yield events
        return
    record, began_us = memory["_record_memory_history"], time.time() * 1e6
    is_foreign = is_recorded()
    if not is_foreign:
        record(enabled="all", context="alloc", stacks="python", max_entries=MAX_ENTRIES)
    try:
        yield events
        for trace in memory["_snapshot"]()["device_traces"]:
            events.append([event for event in trace if not is_foreign or event.get("time_us", 0) >= began_us])
    finally:
        if not is_foreign:
            record(enabled=None)


def gpumem(shell: Any, cell: str) -> None:  # noqa: ANN401 - IPython has no types here, and need not be installed
    """Run a cell and print a report; what the cell raises is raised again, so that "Run All" stops."""
    before = _devices()
    with _history() as events:
        result = shell.run_cell(cell)
    after = _devices()
    if not after:
        print("gpumem: PyTorch has not used CUDA in this kernel, so there is nothing to measure.")
    cells = getattr(shell.compile, "_filename_map", {})
    for ordinal, statistics in after.items():
        start, left = before.get(ordinal, {}).get("allocated_bytes", 0), statistics["allocated_bytes"]
        peak = peak_of(events[ordinal]) if ordinal < len(events) else None
        highest = statistics["allocated_peak_bytes"] if peak is None else start + peak.bytes
        change = f"{'+' if left >= start else '-'}{bytes_text(abs(left - start))}"
        name = safe_text(statistics["name"])
        print(f"GPU {ordinal} ({name}): peak {bytes_text(highest)}, before {bytes_text(start)}, change {change}")
        if peak is None:
            print("  Which lines allocated it is shown from the next cell on, after PyTorch's first use of CUDA.")
            continue
        if len(events[ordinal]) >= MAX_ENTRIES:
            print(
                f"  Only the last {MAX_ENTRIES:,} allocations and frees were recorded: the peak may have been higher."
            )
        for frame, size in sorted(peak.lines.items(), key=lambda item: -item[1])[:_MAX_LINES]:
            print(f"  {bytes_text(size):>10}  {counted(peak.tensors[frame], 'tensor'):<11} {_place(frame, cells)}")
    result.raise_error()


def _devices() -> dict[int, dict[str, Any]]:
    """The statistics of the GPUs that PyTorch uses now, by ordinal."""
    torch = Torch()
    return {row["ordinal"]: row for row in Allocator(torch).devices()} if torch.state == "live" else {}


def _place(frame: StackFrame | None, cells: Mapping[str, int]) -> str:
    """Where a frame is, and its source: ``In [3], line 2: y = model(x)``."""
    if frame is None:
        return "by no Python of the program, such as in a backward pass"
    number = cells.get(frame.file)
    place = line_text(frame) if number is None else f"In [{number}], line {frame.line}"
    return safe_text(f"{place}: {linecache.getline(frame.file, frame.line).strip()}".removesuffix(": "))
