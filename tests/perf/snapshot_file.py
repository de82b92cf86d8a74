"""Writes a memory snapshot of any size as torch does: ``python -m tests.perf.snapshot_file FILE [MEGABYTES]``.

The snapshot is of a simulated training run whose weights were allocated before the history was recorded. Its structure
is that of torch 2.11, which determines the size of the file: `pickle.dump` with the default protocol; event keys and
the dict of a frame are pickled once and referred to afterwards; each allocation has a separate list of frames, and both
events of a freed block share another one; each event that was not compiled has a separate text.
"""

import gc
import pickle
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final, NamedTuple

_MIB: Final = 1 << 20
_LAYERS: Final = 40
_WEIGHT: Final = 8 * _MIB
_BEGIN_US: Final = 1_795_290_051_000_000
_EVENT_US: Final = 9
_BYTES_PER_STEP: Final = 102_000
"""Approximate size of the events of one step in the file."""
_NO_FRAMES: Final[list[Any]] = []


class ExpectedContent(NamedTuple):
    """What a reader must find in the file.

    Attributes:
        events: Number of events.
        weights_bytes: Bytes allocated before the history was recorded.
        peak_bytes: Peak of the allocated bytes.
        peak_blocks: Number of blocks at the peak.
        end_bytes: Bytes allocated at the end.
        reserved_bytes: Bytes reserved at the end.
    """

    events: int
    weights_bytes: int
    peak_bytes: int
    peak_blocks: int
    end_bytes: int
    reserved_bytes: int


class _Allocator:
    """Allocates and frees, and records the events that torch would record."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.blocks: dict[int, tuple[int, int, list[Any]]] = {}
        """Size, requested size and frames of each live block, by address."""
        self.segments: dict[int, int] = {}
        self.level = self.peak = self.peak_blocks = 0
        self._free: dict[int, list[int]] = defaultdict(list)
        self._next = 140_000_000_000_000
        self._frames: dict[tuple[str, str, int], dict[str, Any]] = {}
        self._is_recorded = False

    def record(self) -> None:
        """Start the history."""
        self._is_recorded = True
        self.peak, self.peak_blocks = self.level, len(self.blocks)

    def alloc(self, requested: int, stack: list[Any]) -> int:
        """Allocate a block, reusing a freed block of the same size; returns its address."""
        size = -(-requested // 512) * 512
        frames = list(stack) if self._is_recorded else _NO_FRAMES
        if self._free[size]:
            address = self._free[size].pop()
        else:
            address = self._next
            self.segments[address] = -(-size // (2 * _MIB)) * 2 * _MIB
            self._next += self.segments[address]
            self._record_event("segment_alloc", address, self.segments[address], frames)
        self.blocks[address] = (size, requested, frames)
        self.level += requested
        if self.level > self.peak:
            self.peak, self.peak_blocks = self.level, len(self.blocks)
        self._record_event("alloc", address, requested, frames)
        return address

    def free(self, address: int) -> None:
        """Free a block; every third time from Python code, whose frames are recorded."""
        size, requested, frames = self.blocks.pop(address)
        self._free[size].append(address)
        self.level -= requested
        frames = frames[-5:] if len(self.blocks) % 3 == 0 else []
        self._record_event("free_requested", address, requested, frames)
        self._record_event("free_completed", address, requested, frames)

    def stack(self, *names: str) -> list[Any]:
        """A stack of 15 to 40 frames; the innermost frames have these names."""
        depth = 15 + sum(map(len, names)) % 26
        outer = [("__call__", "/opt/torch/nn/modules/module.py", 1500 + level) for level in range(depth - len(names))]
        inner = [(name, "/home/user/train/model.py", 10 * len(name)) for name in names]
        return [
            self._frames.setdefault((name, file, line), {"name": name, "filename": file, "line": line})
            for name, file, line in (*inner, *outer)
        ]

    def snapshot(self) -> dict[str, Any]:
        """The return value of `torch.cuda.memory._snapshot()`."""
        return {
            "segments": [self._segment(address, size) for address, size in self.segments.items()],
            "device_traces": [self.events],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
            "external_annotations": [],
        }

    def _record_event(self, action: str, address: int, size: int, frames: list[Any]) -> None:
        if self._is_recorded:
            self.events.append(
                {
                    "action": action,
                    "addr": address,
                    "size": size,
                    "stream": 0,
                    "time_us": _BEGIN_US + _EVENT_US * len(self.events),
                    "compile_context": "N/A!"[:3],  # a new object each time
                    "user_metadata": "",
                    "frames": frames,
                }
            )

    def _segment(self, address: int, size: int) -> dict[str, Any]:
        held, requested, frames = self.blocks.get(address, (0, 0, _NO_FRAMES))
        blocks = []
        if held:
            state = "active_allocated"
            block = {"address": address, "size": held, "requested_size": requested, "state": state, "frames": frames}
            blocks.append(block)
        if held < size:
            free = size - held
            blocks.append({"address": address + held, "size": free, "requested_size": 0, "state": "inactive"})
        return {
            "device": 0,
            "address": address,
            "total_size": size,
            "allocated_size": held,
            "active_size": held,
            "requested_size": requested,
            "stream": 0,
            "segment_type": "large" if size > 2 * _MIB else "small",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": _NO_FRAMES,
            "blocks": blocks,
        }


def write(path: Path, size_bytes: int) -> ExpectedContent:
    """Write a snapshot of about ``size_bytes``; returns what a reader must find in it."""
    gc.disable()  # collecting millions of live dicts takes long and frees nothing
    try:
        allocator = _run(max(1, size_bytes // _BYTES_PER_STEP))
        with path.open("wb") as file:
            pickle.dump(allocator.snapshot(), file)
    finally:
        gc.enable()
    weights = _WEIGHT * _LAYERS
    reserved = sum(allocator.segments.values())
    return ExpectedContent(
        len(allocator.events), weights, allocator.peak, allocator.peak_blocks, allocator.level, reserved
    )


def _run(steps: int) -> _Allocator:
    allocator = _Allocator()
    for _ in range(_LAYERS):
        allocator.alloc(_WEIGHT, [])
    allocator.record()
    for step in range(steps):
        _step(allocator, step)
    return allocator


def _step(allocator: _Allocator, step: int) -> None:
    """A forward and a backward pass, and in the first step the optimizer states."""
    held: list[list[int]] = []
    for layer in range(_LAYERS):
        names = ("linear", f"attention_{layer}", "forward")
        sizes = (_MIB, 3 * _MIB + 100 * layer, 500_000, 1000 + step % 7)
        held.append([allocator.alloc(size, allocator.stack(*names)) for size in sizes])
    for layer in reversed(range(_LAYERS)):
        gradients = [allocator.alloc(_MIB, allocator.stack("backward", f"layer_{layer}")) for _ in range(2)]
        for address in (*held.pop(), *gradients):
            allocator.free(address)
    if not step:
        for layer in range(_LAYERS):
            allocator.alloc(2 * _WEIGHT, allocator.stack("adam", f"parameter_{layer}", "step"))


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), int(sys.argv[2] if len(sys.argv) > 2 else 1000) * 1_000_000))
