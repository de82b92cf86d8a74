"""From what was loaded to what is kept: segments as records, what each stack allocated, the course of each device."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from gpumon.core.allocator import Block, BlockState, Segment
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text
from gpumon.snapshots.compact import compacted
from gpumon.snapshots.loader import Loader
from gpumon.snapshots.machine import Plain, UnreadableError
from gpumon.snapshots.model import NOTHING, Amount, DeviceMemory, Snapshot, Use
from gpumon.snapshots.replay import Replay, Replayed
from gpumon.snapshots.tables import EARLIER, NO_STACK, Events, whole

MOST_BLOCKS: Final = 300_000
_MOST_DEVICES: Final = 128
"""PyTorch itself knows no more."""
_LEAST_BLOCK_BYTES: Final = 8
_MOST_SETTINGS: Final = 100
_MOST_NUMBER: Final = 1 << 64
_LARGE: Final = 1 << 20
_STATES: Final = {
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING_FREE,
    "active_awaiting_free": BlockState.PENDING_FREE,
    "inactive": BlockState.INACTIVE,
}


class _Device:
    """What the segments tell of one device."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.held: dict[int, tuple[int, int]] = {}
        self.left_out = 0


def snapshot(loader: Loader, root: Plain, name: str, size_bytes: int, largest: int = 0) -> Snapshot:
    """What is kept of a file.

    Args:
        loader: What has read it.
        root: What it holds.
        name: Its name.
        size_bytes: Its size.
        largest: How many of the largest allocations of each device are wanted one by one.

    Raises:
        UnreadableError: It is a pickle, but no snapshot.
    """
    if isinstance(root, list) and all(isinstance(each, dict) and "blocks" in each for each in root):
        root = {"segments": root}  # what torch.cuda.memory_snapshot() gives
    segments = root.get("segments") if isinstance(root, dict) else None
    if not isinstance(segments, list):
        raise UnreadableError("is a pickle, but no memory snapshot: it has no segments")
    devices = _devices(segments, loader.offset)
    traces = {
        ordinal: events
        for ordinal, listed in enumerate(_listed(root.get("device_traces"))[:_MOST_DEVICES])
        if (events := loader.events_of(listed))
    }
    ordinals = sorted({*devices, *traces})
    memories = [_memory(each, devices.get(each) or _Device(), traces.get(each), largest) for each in ordinals]
    return compacted(loader.stacks, memories, Snapshot(name, size_bytes, (), (), (), _settings(root)))


def _listed(value: Plain) -> list[Plain]:
    return value if isinstance(value, list) else []


def _devices(segments: Sequence[Plain], read_bytes: int) -> dict[int, _Device]:
    """What there is by device; the same blocks listed again and again would be more than the file has room for."""
    found: defaultdict[int, _Device] = defaultdict(_Device)
    left, room = MOST_BLOCKS, read_bytes // _LEAST_BLOCK_BYTES
    for told in segments:
        if not isinstance(told, dict):
            continue
        ordinal = whole(told.get("device"))
        if ordinal >= _MOST_DEVICES:
            raise UnreadableError("is damaged: it has a device of an impossible number")
        room -= 1 + len(_listed(told.get("blocks")))
        if room < 0:
            raise UnreadableError("is damaged: it lists more blocks than it has room for")
        blocks = [each for each in _listed(told.get("blocks")) if isinstance(each, tuple) and len(each) == 5]
        device = found[ordinal]
        device.held.update(
            (address, (asked, stack))
            for address, _, asked, state, stack in blocks
            if _STATES.get(state) is BlockState.ALLOCATED
        )
        left -= len(blocks)
        device.left_out += left < 0
        device.segments.append(_segment(told, ordinal, blocks if left >= 0 else ()))
    return found


def _segment(told: dict[str, Any], ordinal: int, blocks: Iterable[tuple[int, int, int, str, int]]) -> Segment:
    size = whole(told.get("total_size"))
    pool = told.get("segment_pool_id")
    kind = told.get("segment_type")
    return Segment(
        ordinal=ordinal,
        address=whole(told.get("address")),
        size_bytes=size,
        stream=whole(told.get("stream")),
        pool=(whole(pool[0]), whole(pool[1])) if isinstance(pool, (tuple, list)) and len(pool) == 2 else (0, 0),
        is_large=kind == "large" if isinstance(kind, str) else size > 2 * _LARGE,
        is_expandable=told.get("is_expandable") is True,
        blocks=tuple(
            Block(size, _STATES.get(state, BlockState.INACTIVE), asked if state.startswith("active") else 0)
            for _, size, asked, state, _ in blocks
        ),
    )


def _memory(ordinal: int, device: _Device, events: Events | None, largest: int) -> DeviceMemory:
    replayed = None
    if events is not None:
        reserved = sum(segment.size_bytes for segment in device.segments)
        replayed = Replay(events, device.held, reserved).run(largest)
    return DeviceMemory(
        ordinal=ordinal,
        segments=tuple(device.segments),
        uses=tuple(_uses(_now(device, replayed), replayed)),
        history=None if replayed is None else replayed.history,
        notes=tuple(_notes(device, replayed)),
    )


def _now(device: _Device, replayed: Replayed | None) -> dict[int, Amount]:
    """What is allocated in the end, by stack; a block without one may have it in the history."""
    stacks = {} if replayed is None else replayed.stacks
    without = NO_STACK if replayed is None else EARLIER
    sizes: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    for address, (asked, stack) in device.held.items():
        owner = stack or stacks.get(address, without)
        sizes[owner] += asked
        counts[owner] += 1
    return {stack: Amount(sizes[stack], counts[stack]) for stack in counts}


def _uses(now: dict[int, Amount], replayed: Replayed | None) -> list[Use]:
    """By stack, the largest first."""
    peak = {} if replayed is None else replayed.at_peak
    ever = {} if replayed is None else replayed.ever
    stacks = {*now, *peak, *ever}
    found = [Use(each, now.get(each, NOTHING), peak.get(each, NOTHING), ever.get(each, NOTHING)) for each in stacks]
    found.sort(key=lambda use: (-max(use.now.bytes, use.peak.bytes), -use.ever.bytes, use.stack))
    return found


def _notes(device: _Device, replayed: Replayed | None) -> Iterable[str]:
    if not device.segments:
        yield "It has no segments: PyTorch keeps none with the cudaMallocAsync backend."
    if device.left_out:
        yield f"The blocks of {device.left_out} segments are left out: there are more than {MOST_BLOCKS}."
    if replayed is None:
        yield "No history was recorded: torch.cuda.memory._record_memory_history() turns it on."
    elif replayed.missing_bytes:
        missing = bytes_text(replayed.missing_bytes)
        yield f"The history does not lead to what the segments hold, by {missing}: it ended before the snapshot."


def _settings(root: dict[str, Any]) -> dict[str, str]:
    told = root.get("allocator_settings")
    if not isinstance(told, dict):
        return {}
    found: dict[str, str] = {}
    for name, value in list(told.items())[:_MOST_SETTINGS]:
        is_number = isinstance(value, (int, float)) and abs(value) < _MOST_NUMBER
        if isinstance(name, str) and (isinstance(value, str) or is_number):
            found[safe_text(name, 80)] = safe_text(str(value), 200)
    return found
