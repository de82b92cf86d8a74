"""Reads the statistics, the pinned host memory and the segments of PyTorch's allocator."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .pytorch import Torch

_BLOCK_STATES = {"active_allocated": 0, "active_pending_free": 1, "active_awaiting_free": 1}
_INACTIVE = 2
_MAX_GRAPH_BLOCKS = 1_000_000
_POOL_FIELDS = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes")


class Allocator:
    """PyTorch's CUDA allocator in this process. Its methods need a CUDA context.

    Args:
        torch: The PyTorch of this process.
    """

    def __init__(self, torch: Torch) -> None:
        self._torch = torch

    def devices(self) -> list[dict[str, Any]]:
        """The statistics of every device on which this process has a CUDA context."""
        return [self.statistics(ordinal) for ordinal in self._torch.ordinals()]

    def statistics(self, ordinal: int) -> dict[str, Any]:
        """The statistics of one device: the fields of `gpumon.core.allocator.AllocatorStatistics`."""
        statistics: dict[str, Any] = self._torch.library._cuda_memoryStats(ordinal)
        is_native = self._torch.has_native_backend

        def value(metric: str, kind: str = "current", pool: str = "all") -> int | None:
            number: int | None = statistics.get(metric, {}).get(pool, {}).get(kind)
            return number

        def native_value(metric: str) -> int | None:
            return value(metric) if is_native else None

        def pool_bytes(pool: str) -> dict[str, int]:
            return {field: value(field, pool=pool) or 0 for field in _POOL_FIELDS}

        return {
            "ordinal": ordinal,
            **self._torch.device_identity(ordinal)[0],
            "allocated_bytes": value("allocated_bytes") or 0,
            "reserved_bytes": value("reserved_bytes") or 0,
            "allocated_peak_bytes": value("allocated_bytes", "peak"),
            "reserved_peak_bytes": value("reserved_bytes", "peak"),
            "active_bytes": native_value("active_bytes"),
            "inactive_split_bytes": None if self._torch.expandable_segments else native_value("inactive_split_bytes"),
            "requested_bytes": native_value("requested_bytes"),
            "segments_count": native_value("segment"),
            "allocations_count": native_value("allocation"),
            "alloc_retries_count": statistics.get("num_alloc_retries") if is_native else None,
            "ooms_count": statistics.get("num_ooms") if is_native else None,
            "device_allocs_count": statistics.get("num_device_alloc") if is_native else None,
            "device_frees_count": statistics.get("num_device_free") if is_native else None,
            "small_pool": pool_bytes("small_pool") if is_native else None,
            "large_pool": pool_bytes("large_pool") if is_native else None,
        }

    def pinned(self) -> dict[str, int] | None:
        """Pinned host memory, or None where PyTorch keeps no statistics of it."""
        statistics: dict[str, dict[str, int]] = getattr(self._torch.library, "_cuda_hostMemoryStats", dict)()
        try:
            return {field: int(statistics[field]["current"]) for field in ("allocated_bytes", "active_bytes")}
        except (KeyError, TypeError):
            return None

    def segments(self, max_blocks: int, ordinals: set[int] | None = None) -> tuple[list[dict[str, Any]], bool]:
        """The allocator's segments with their blocks.

        Args:
            max_blocks: Limit on the number of blocks.
            ordinals: Devices to report, all if None.

        Returns:
            The segments as a message has them, and whether there are more blocks than the limit.
        """
        snapshot = vars(sys.modules["torch.cuda.memory"])["memory_snapshot"]
        has_traces_option = "include_traces" in snapshot.__code__.co_varnames
        segments: list[dict[str, Any]] = []
        blocks_left = max_blocks
        for segment in snapshot(include_traces=False) if has_traces_option else snapshot():
            if ordinals is not None and segment["device"] not in ordinals:
                continue
            if len(segment["blocks"]) > blocks_left:
                return segments, True
            blocks_left -= len(segment["blocks"])
            segments.append(_segment(segment))
        return segments, False

    def has_graphs(self) -> bool:
        """Whether the program has captured CUDA graphs: their memory is in separate pools."""
        if not self._torch.ordinals():
            return False
        return any(tuple(segment["pool"]) != (0, 0) for segment in self.segments(_MAX_GRAPH_BLOCKS)[0])

    def summary(self, ordinal: int) -> str:
        """The text of ``torch.cuda.memory_summary()``."""
        return str(vars(self._torch.cuda)["memory_summary"](ordinal))

    def empty_cache(self) -> None:
        """Call ``torch.cuda.empty_cache()`` on a device that has a context already, so that none is created."""
        with vars(self._torch.cuda)["device"](self._torch.ordinals()[0]):
            vars(self._torch.cuda)["empty_cache"]()


def _segment(segment: Any) -> dict[str, Any]:
    return {
        "ordinal": segment["device"],
        "address": segment["address"],
        "size_bytes": segment["total_size"],
        "stream": segment["stream"],
        "pool": list(segment.get("segment_pool_id", (0, 0))),
        "is_large": segment["segment_type"] == "large",
        "is_expandable": bool(segment.get("is_expandable", False)),
        "blocks": [
            [block["size"], block.get("requested_size", 0), _BLOCK_STATES.get(block["state"], _INACTIVE)]
            for block in segment["blocks"]
        ],
    }
