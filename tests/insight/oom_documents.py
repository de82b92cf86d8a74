"""Files as a probe writes them when memory runs out: an 80 GiB GPU, and a document for each way to fill it."""

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

MIB: Final = 1 << 20
GIB: Final = 1 << 30
TOTAL: Final = 80 * GIB
CONTEXT: Final = GIB // 2
"""What the process's own context and libraries hold."""
MOST: Final = TOTAL - CONTEXT - 12 * MIB
"""What a job has reserved that fills the GPU."""
ALLOCATED, PENDING, INACTIVE = range(3)
TRAINING_STACK: Final = [
    ["/opt/env/lib/python3.12/site-packages/torch/nn/functional.py", 2480, "layer_norm"],
    ["/opt/env/lib/python3.12/site-packages/torch/nn/modules/module.py", 1750, "_call_impl"],
    ["/home/ada/train/model.py", 88, "forward"],
    ["/home/ada/train/train.py", 41, "step"],
    ["/home/ada/train/train.py", 77, "<module>"],
]


def segment(size: int, blocks: Iterable[Sequence[int]], **more: object) -> Json:
    """A segment; what its blocks leave of it is in use."""
    cut = [list(block) for block in blocks]
    rest = size - sum(block[0] for block in cut)
    raw = {"ordinal": 0, "address": 0x7F0000000000, "size_bytes": size, "stream": 0, "pool": [0, 0]}
    whole = cut + ([[rest, rest, ALLOCATED]] if rest else [])
    return {**raw, "is_large": True, "is_expandable": False, "blocks": whole, **more}


def used(size: int, **more: object) -> Json:
    """A segment that is completely in use."""
    return segment(size, [], **more)


def pieces(count: int, hole: int, **more: object) -> Json:
    """A segment with ``count`` holes, each next to a block in use of the same size."""
    return segment(2 * count * hole, [[hole, hole, ALLOCATED], [hole, 0, INACTIVE]] * count, **more)


def history(allocated: Callable[[float], int], seconds: float = 60.0, retries: int = 0) -> list[Json]:
    """Two samples a second; ``allocated`` is asked with the seconds since the first."""
    count = int(seconds * 2)
    return [
        {
            "seconds_before": (count - number) / 2,
            "allocated_bytes": allocated(number / 2),
            "reserved_bytes": allocated(number / 2),
            "inactive_split_bytes": 0,
            "alloc_retries_count": retries,
        }
        for number in range(count)
    ]


def steps(low: int, high: int, growth: float = 0.0, period: float = 3.4) -> Callable[[float], int]:
    """A training run: memory rises and falls within a step, and ``growth`` bytes a second stay."""
    return lambda seconds: int(low + growth * seconds + (high - low) * (1 - abs(seconds % period / period * 2 - 1)))


def document(segments: Sequence[Json], asked: int, *, others: int = 0, limit: int = TOTAL, **more: object) -> Json:
    """A document whose values agree with its segments.

    Args:
        segments: Of ``cuda:0``.
        asked: What was asked for.
        others: What other processes hold.
        limit: The process's cap.
        more: What stands in the document in place of what would.
    """
    reserved = sum(part["size_bytes"] for part in segments)
    states = [0, 0, 0]
    for part in segments:
        for size, _, code in part["blocks"]:
            states[code] += size
    return {
        "schema": 1,
        "kind": "gpumon-oom",
        "time_seconds": 1_795_000_000.25,
        "process": {
            "pid": 4242,
            "argv": ["python", "train.py", "--batch", "64"],
            "python_version": "3.12.3",
            "rank": 0,
            "local_rank": 0,
            "world_size": 2,
            "settings": {},
        },
        "torch_version": "2.11.0+cu130",
        "backend": "native",
        "device": {"ordinal": 0, "uuid": "GPU-1b2c", "name": "NVIDIA H100 80GB HBM3", "total_bytes": TOTAL},
        "request": {"bytes": asked, "limit_bytes": limit, "free_bytes": TOTAL - CONTEXT - reserved - others},
        "statistics": {
            "ordinal": 0,
            "allocated_bytes": states[ALLOCATED],
            "reserved_bytes": reserved,
            "active_bytes": states[ALLOCATED] + states[PENDING],
            "inactive_split_bytes": states[INACTIVE],
            "alloc_retries_count": 3,
        },
        "pinned": None,
        "history": history(steps(states[ALLOCATED] // 2, states[ALLOCATED])),
        "settings": {"PYTORCH_ALLOC_CONF": "expandable_segments:False"},
        "expandable_segments": False,
        "stack": TRAINING_STACK,
        "segments": list(segments),
        "cut": False,
        **more,
    }


def write(folder: Path, raw: Json | bytes, name: str = "oom-1795000000-4242-1.json.gz") -> Path:
    """Puts a document, or whatever is in its place, where a probe would."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(raw if isinstance(raw, bytes) else gzip.compress(json.dumps(raw).encode()))
    return path


FRAGMENTED: Final = document([used(64 * GIB), pieces(600, 10 * MIB), used(2 * GIB)], 2 * GIB)
"""6000 MiB in 600 pieces, 10 MiB each, and 2 GiB in one asked for."""
FULL: Final = document([used(MOST)], 4 * GIB)
