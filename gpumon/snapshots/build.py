"""Builds the `Snapshot` from what was loaded: segments, what each stack allocated, and the history of each device.

Of millions of stacks only the largest are kept, and of the frames only those that these stacks contain.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

from gpumon.core.allocator import BlockState, Segment, SegmentBlock
from gpumon.core.source_file import UnreadableError
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text
from gpumon.snapshots.loader import SnapshotLoader
from gpumon.snapshots.model import NO_AMOUNT, Amount, DeviceMemory, Snapshot, SnapshotFrame, StackUse
from gpumon.snapshots.pickle_reader import PickleValue
from gpumon.snapshots.replay import Replay, ReplayResult
from gpumon.snapshots.trace_table import EARLIER, NO_STACK, StackTable, TraceEvents, whole

MAX_BLOCKS: Final = 300_000
MAX_USES: Final = 50_000
"""Stacks kept of one device."""
MAX_FRAMES: Final = 3_000_000
"""Frames of all stacks kept, of all devices."""
_MAX_DEVICES: Final = 128
"""PyTorch stores a device index as a signed 8-bit number."""
_MIN_BLOCK_BYTES: Final = 8
"""A block takes at least this many bytes in the file."""
_MAX_SETTINGS: Final = 100
_MAX_NUMBER: Final = 1 << 64
_LARGE_SEGMENT_BYTES: Final = 2 << 20
"""PyTorch's small segments have this size; older releases do not write the kind of a segment."""
_STATES: Final = {
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING_FREE,
    "active_awaiting_free": BlockState.PENDING_FREE,
    "inactive": BlockState.INACTIVE,
}


class _DeviceBlocks:
    """The segments of one device.

    Attributes:
        segments: As records.
        allocated: Requested bytes and stack of each allocated block, by address.
        skipped_segments: How many segments have no blocks here, because there are too many.
    """

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.allocated: dict[int, tuple[int, int]] = {}
        self.skipped_segments = 0


def build_snapshot(loader: SnapshotLoader, root: PickleValue, name: str, size_bytes: int, largest: int = 0) -> Snapshot:
    """Build the snapshot of a file.

    ``largest`` is how many of the largest allocations of each device are kept individually.

    Raises:
        UnreadableError: The pickle is not a memory snapshot.
    """
    if isinstance(root, list) and all(isinstance(item, dict) and "blocks" in item for item in root):
        root = {"segments": root}  # what torch.cuda.memory_snapshot() returns
    segments = root.get("segments") if isinstance(root, dict) else None
    if not isinstance(segments, list):
        raise UnreadableError("is a pickle, but not a memory snapshot: it has no segments")
    devices = _devices(segments, loader.offset)
    traces = {
        ordinal: events
        for ordinal, trace in enumerate(_as_list(root.get("device_traces"))[:_MAX_DEVICES])
        if (events := loader.events_of(trace))
    }
    ordinals = sorted({*devices, *traces})
    memories = [
        _memory(ordinal, devices.get(ordinal) or _DeviceBlocks(), traces.get(ordinal), largest) for ordinal in ordinals
    ]
    return compact(loader.stacks, memories, Snapshot(name, size_bytes, (), (), (), _settings(root)))


def _as_list(value: PickleValue) -> list[PickleValue]:
    return value if isinstance(value, list) else []


def _devices(segments: Sequence[PickleValue], read_bytes: int) -> dict[int, _DeviceBlocks]:
    """The segments by device. A pickle may refer to one list many times, so blocks are limited by the file's size."""
    devices: defaultdict[int, _DeviceBlocks] = defaultdict(_DeviceBlocks)
    left, limit = MAX_BLOCKS, read_bytes // _MIN_BLOCK_BYTES
    for raw in segments:
        if not isinstance(raw, dict):
            continue
        ordinal = whole(raw.get("device"))
        if ordinal >= _MAX_DEVICES:
            raise UnreadableError("is damaged: it contains an impossible device number")
        limit -= 1 + len(_as_list(raw.get("blocks")))
        if limit < 0:
            raise UnreadableError("is damaged: it lists more blocks than fit into the file")
        blocks = [block for block in _as_list(raw.get("blocks")) if isinstance(block, tuple) and len(block) == 5]
        device = devices[ordinal]
        device.allocated.update(
            (address, (requested, stack))
            for address, _, requested, state, stack in blocks
            if _STATES.get(state) is BlockState.ALLOCATED
        )
        left -= len(blocks)
        device.skipped_segments += left < 0
        device.segments.append(_segment(raw, ordinal, blocks if left >= 0 else ()))
    return devices


def _segment(raw: dict[str, Any], ordinal: int, blocks: Iterable[tuple[int, int, int, str, int]]) -> Segment:
    size = whole(raw.get("total_size"))
    pool = raw.get("segment_pool_id")
    kind = raw.get("segment_type")
    return Segment(
        ordinal=ordinal,
        address=whole(raw.get("address")),
        size_bytes=size,
        stream=whole(raw.get("stream")),
        pool=(whole(pool[0]), whole(pool[1])) if isinstance(pool, (tuple, list)) and len(pool) == 2 else (0, 0),
        is_large=kind == "large" if isinstance(kind, str) else size > _LARGE_SEGMENT_BYTES,
        is_expandable=raw.get("is_expandable") is True,
        blocks=tuple(
            SegmentBlock(size, _STATES.get(state, BlockState.INACTIVE), requested if state.startswith("active") else 0)
            for _, size, requested, state, _ in blocks
        ),
    )


def _memory(ordinal: int, device: _DeviceBlocks, events: TraceEvents | None, largest: int) -> DeviceMemory:
    result = None
    if events is not None:
        reserved = sum(segment.size_bytes for segment in device.segments)
        result = Replay(events, device.allocated, reserved).run(largest)
    return DeviceMemory(
        ordinal=ordinal,
        segments=tuple(device.segments),
        uses=tuple(_uses(_allocated_now(device, result), result)),
        history=None if result is None else result.history,
        notes=tuple(_notes(device, result)),
    )


def _allocated_now(device: _DeviceBlocks, result: ReplayResult | None) -> dict[int, Amount]:
    """What is still allocated, by stack. A block without a stack may have one in the history."""
    stacks = {} if result is None else result.stacks
    unknown = NO_STACK if result is None else EARLIER
    sizes: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    for address, (requested, block_stack) in device.allocated.items():
        stack = block_stack or stacks.get(address, unknown)
        sizes[stack] += requested
        counts[stack] += 1
    return {stack: Amount(sizes[stack], counts[stack]) for stack in counts}


def _uses(now: dict[int, Amount], result: ReplayResult | None) -> list[StackUse]:
    """What each stack allocated, largest first."""
    peak = {} if result is None else result.at_peak
    ever = {} if result is None else result.ever
    uses = [
        StackUse(stack, now.get(stack, NO_AMOUNT), peak.get(stack, NO_AMOUNT), ever.get(stack, NO_AMOUNT))
        for stack in {**now, **peak, **ever}
    ]
    uses.sort(key=lambda use: (-max(use.now.bytes, use.peak.bytes), -use.ever.bytes, use.stack))
    return uses


def _notes(device: _DeviceBlocks, result: ReplayResult | None) -> Iterable[str]:
    if not device.segments:
        yield "There are no segments: PyTorch reports none with the cudaMallocAsync backend."
    if device.skipped_segments:
        yield f"The blocks of {device.skipped_segments} segments are not shown: there are more than {MAX_BLOCKS}."
    if result is None:
        yield "No history was recorded. Call torch.cuda.memory._record_memory_history() to record one."
    elif result.missing_bytes:
        missing = bytes_text(result.missing_bytes)
        yield f"History and segments differ by {missing}: the recording stopped before the snapshot was taken."


def _settings(root: dict[str, Any]) -> dict[str, str]:
    raw = root.get("allocator_settings")
    if not isinstance(raw, dict):
        return {}
    settings: dict[str, str] = {}
    for name, value in list(raw.items())[:_MAX_SETTINGS]:
        is_number = isinstance(value, (int, float)) and abs(value) < _MAX_NUMBER
        if isinstance(name, str) and (isinstance(value, str) or is_number):
            settings[safe_text(name, 80)] = safe_text(str(value), 200)
    return settings


def compact(table: StackTable, memories: Sequence[DeviceMemory], empty: Snapshot) -> Snapshot:
    """Keep the largest stacks and their frames, and number both again."""
    stacks = list(table.stacks)
    others = len(stacks)
    stacks.append((len(table.frames),))
    all_frames = (*table.frames, SnapshotFrame("all other stacks, each smaller than these"))
    max_frames = MAX_FRAMES // max(1, len(memories))
    counts = [_kept_stacks([len(stacks[use.stack]) for use in memory.uses], max_frames) for memory in memories]
    shortened = [
        replace(memory, uses=_shortened(memory.uses, others, count))
        for memory, count in zip(memories, counts, strict=True)
    ]
    kept = dict.fromkeys(stack for memory in shortened for stack in _stacks_in(memory))
    numbers = {old: new for new, old in enumerate(kept)}
    needed = dict.fromkeys(frame for stack in numbers for frame in stacks[stack])
    frames = {old: new for new, old in enumerate(needed)}
    return replace(
        empty,
        frames=tuple(all_frames[frame] for frame in frames),
        stacks=tuple(tuple(frames[frame] for frame in stacks[stack]) for stack in numbers),
        devices=tuple(_renumbered(memory, numbers) for memory in shortened),
    )


def _kept_stacks(depths: Sequence[int], max_frames: int) -> int:
    """How many stacks to keep, from the first one on."""
    return min(MAX_USES, bisect_right(list(accumulate(depths)), max_frames))


def _shortened(uses: Sequence[StackUse], others: int, count: int) -> tuple[StackUse, ...]:
    """The largest stacks, and the sum of the others."""
    if len(uses) <= count:
        return tuple(uses)
    now, peak, ever = (sum(amounts, NO_AMOUNT) for amounts in zip(*(use[1:] for use in uses[count:]), strict=True))
    return (*uses[:count], StackUse(others, now, peak, ever))


def _stacks_in(memory: DeviceMemory) -> Iterable[int]:
    yield from (use.stack for use in memory.uses)
    if memory.history is not None:
        yield from (oom.stack for oom in memory.history.ooms)
        yield from (allocation.stack for allocation in memory.history.largest)


def _renumbered(memory: DeviceMemory, numbers: dict[int, int]) -> DeviceMemory:
    uses = tuple(use._replace(stack=numbers[use.stack]) for use in memory.uses)
    history = memory.history
    if history is not None:
        ooms = tuple(oom._replace(stack=numbers[oom.stack]) for oom in history.ooms)
        largest = tuple(allocation._replace(stack=numbers[allocation.stack]) for allocation in history.largest)
        history = replace(history, ooms=ooms, largest=largest)
    return replace(memory, uses=uses, history=history)
