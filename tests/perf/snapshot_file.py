"""Writes a snapshot as torch does, of any size: ``python -m tests.perf.snapshot_file FILE [MEGABYTES]``.

A made-up training whose weights were allocated before the history began. What makes up the size of a real file is as in
torch 2.11: `pickle.dump` with the default protocol, an event's keys and the dict of a frame made once and referred to
afterwards, a list of frames of its own for each allocation, another for both events of a block that is freed, and a
text of its own for each event that was not compiled.
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
_BYTES_A_STEP: Final = 102_000
"""What the events of a step take in the file, about."""
_NO_FRAMES: Final[list[Any]] = []


class Truth(NamedTuple):
    """What must be found in the file.

    Attributes:
        events: Number of events.
        weights_bytes: Allocated before the history began.
        peak_bytes: The most that was allocated at a time, of which ``peak_blocks`` blocks.
        peak_blocks: How many.
        end_bytes: What is allocated in the end.
        reserved_bytes: What is reserved in the end.
    """

    events: int
    weights_bytes: int
    peak_bytes: int
    peak_blocks: int
    end_bytes: int
    reserved_bytes: int


class _Training:
    """Allocates and frees, and writes down what torch would."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.blocks: dict[int, tuple[int, int, list[Any]]] = {}
        """Size, size that was asked for and frames of each live block, by address."""
        self.segments: dict[int, int] = {}
        self.level = self.peak = self.peak_blocks = 0
        self._free: dict[int, list[int]] = defaultdict(list)
        self._next = 140_000_000_000_000
        self._frames: dict[tuple[str, str, int], dict[str, Any]] = {}
        self._is_recorded = False

    def record(self) -> None:
        """The history begins here."""
        self._is_recorded = True
        self.peak, self.peak_blocks = self.level, len(self.blocks)

    def alloc(self, asked: int, stack: list[Any]) -> int:
        """Allocates, from what was freed if there is something of the size."""
        size = -(-asked // 512) * 512
        frames = list(stack) if self._is_recorded else _NO_FRAMES
        if self._free[size]:
            address = self._free[size].pop()
        else:
            address = self._next
            self.segments[address] = -(-size // (2 * _MIB)) * 2 * _MIB
            self._next += self.segments[address]
            self._tell("segment_alloc", address, self.segments[address], frames)
        self.blocks[address] = (size, asked, frames)
        self.level += asked
        if self.level > self.peak:
            self.peak, self.peak_blocks = self.level, len(self.blocks)
        self._tell("alloc", address, asked, frames)
        return address

    def free(self, address: int) -> None:
        """Frees; every third time it is Python that does, whose frames are told."""
        size, asked, frames = self.blocks.pop(address)
        self._free[size].append(address)
        self.level -= asked
        frames = frames[-5:] if len(self.blocks) % 3 == 0 else []
        self._tell("free_requested", address, asked, frames)
        self._tell("free_completed", address, asked, frames)

    def stack(self, *names: str) -> list[Any]:
        """A stack of 15 to 40 frames whose innermost ones have these names."""
        depth = 15 + sum(map(len, names)) % 26
        outer = [("__call__", "/opt/torch/nn/modules/module.py", 1500 + level) for level in range(depth - len(names))]
        inner = [(name, "/home/user/train/model.py", 10 * len(name)) for name in names]
        return [
            self._frames.setdefault((name, file, line), {"name": name, "filename": file, "line": line})
            for name, file, line in (*inner, *outer)
        ]

    def snapshot(self) -> dict[str, Any]:
        """What `_snapshot()` gives."""
        return {
            "segments": [self._segment(address, size) for address, size in self.segments.items()],
            "device_traces": [self.events],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
            "external_annotations": [],
        }

    def _tell(self, action: str, address: int, size: int, frames: list[Any]) -> None:
        if self._is_recorded:
            self.events.append(
                {
                    "action": action,
                    "addr": address,
                    "size": size,
                    "stream": 0,
                    "time_us": _BEGIN_US + _EVENT_US * len(self.events),
                    "compile_context": "N/A!"[:3],  # another object each time
                    "user_metadata": "",
                    "frames": frames,
                }
            )

    def _segment(self, address: int, size: int) -> dict[str, Any]:
        held, asked, frames = self.blocks.get(address, (0, 0, _NO_FRAMES))
        blocks = []
        if held:
            state = "active_allocated"
            told = {"address": address, "size": held, "requested_size": asked, "state": state, "frames": frames}
            blocks.append(told)
        if held < size:
            free = size - held
            blocks.append({"address": address + held, "size": free, "requested_size": 0, "state": "inactive"})
        return {
            "device": 0,
            "address": address,
            "total_size": size,
            "allocated_size": held,
            "active_size": held,
            "requested_size": asked,
            "stream": 0,
            "segment_type": "large" if size > 2 * _MIB else "small",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": _NO_FRAMES,
            "blocks": blocks,
        }


def write(path: Path, size_bytes: int) -> Truth:
    """Writes a snapshot of about so many bytes, and says what must be found in it."""
    gc.disable()  # millions of dicts are made, and none of them is rubbish
    try:
        training = _trained(max(1, size_bytes // _BYTES_A_STEP))
        with path.open("wb") as file:
            pickle.dump(training.snapshot(), file)
    finally:
        gc.enable()
    weights = _WEIGHT * _LAYERS
    reserved = sum(training.segments.values())
    return Truth(len(training.events), weights, training.peak, training.peak_blocks, training.level, reserved)


def _trained(steps: int) -> _Training:
    training = _Training()
    for _ in range(_LAYERS):
        training.alloc(_WEIGHT, [])
    training.record()
    for step in range(steps):
        _step(training, step)
    return training


def _step(training: _Training, step: int) -> None:
    """Forwards, backwards, and in the first one what the optimiser keeps."""
    held: list[list[int]] = []
    for layer in range(_LAYERS):
        names = ("linear", f"attention_{layer}", "forward")
        sizes = (_MIB, 3 * _MIB + 100 * layer, 500_000, 1000 + step % 7)
        held.append([training.alloc(size, training.stack(*names)) for size in sizes])
    for layer in reversed(range(_LAYERS)):
        gradients = [training.alloc(_MIB, training.stack("backward", f"layer_{layer}")) for _ in range(2)]
        for address in (*held.pop(), *gradients):
            training.free(address)
    if not step:
        for layer in range(_LAYERS):
            training.alloc(2 * _WEIGHT, training.stack("adam", f"parameter_{layer}", "step"))


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), int(sys.argv[2] if len(sys.argv) > 2 else 1000) * 1_000_000))
