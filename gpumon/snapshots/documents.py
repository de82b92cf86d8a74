"""A snapshot, and the changes between two of them, as a JSON document with public names."""

from collections.abc import Sequence
from typing import Any, Final

from gpumon.core.holes import Holes, SegmentLayout
from gpumon.snapshots.model import Amount, DeviceMemory, History, Snapshot, SnapshotFrame
from gpumon.snapshots.stack_tree import Measure, stack_changes

_SCHEMA: Final = 1


def snapshot_document(snapshot: Snapshot, top: int, earlier: Snapshot | None = None) -> dict[str, Any]:
    """The JSON document of a snapshot.

    ``top`` limits the stacks, changes, segment groups and failed allocations of each device.
    """
    devices = [_device_document(snapshot, device, top) for device in snapshot.devices]
    document = {
        "schema": _SCHEMA,
        "file": snapshot.name,
        "size_bytes": snapshot.size_bytes,
        "settings": snapshot.settings,
        "notes": list(snapshot.notes),
        "compared_with": None if earlier is None else earlier.name,
        "devices": devices,
    }
    if earlier is not None:
        for device, device_document in zip(snapshot.devices, devices, strict=True):
            device_document["changes"] = _changes(earlier, (snapshot, device), top)
    return document


def _device_document(snapshot: Snapshot, device: DeviceMemory, top: int) -> dict[str, Any]:
    layout = SegmentLayout(device.segments, device.ordinal)
    uses = sorted(device.uses, key=lambda use: -max(use.now.bytes, use.peak.bytes))
    return {
        "device": device.ordinal,
        "segments": {"segments_count": len(layout.segments), **_holes_document(layout.holes)},
        "pools": [
            {
                "pool": list(group.pool),
                "stream": group.stream,
                "is_large": group.is_large,
                "segments_count": len(group.segments),
                **_holes_document(group.holes),
            }
            for group in layout.groups[:top]
        ],
        "history": None if device.history is None else _history_document(snapshot, device.history, top),
        "stacks_count": len(uses),
        "stacks": [
            {
                **_amount_document("allocated", use.now),
                **_amount_document("peak", use.peak),
                **_amount_document("history", use.ever),
                "frames": _frame_documents(snapshot.frames_of(use.stack)),
            }
            for use in uses[:top]
        ],
        "notes": list(device.notes),
    }


def _history_document(snapshot: Snapshot, history: History, top: int) -> dict[str, Any]:
    return {
        "events_count": history.events,
        "begin_seconds": history.begin_seconds or None,
        "duration_seconds": history.duration_seconds if history.has_times else None,
        **_amount_document("peak", history.peak),
        "peak_after_seconds": history.peak_seconds if history.has_times else None,
        "peak_reserved_bytes": history.peak_reserved_bytes,
        "allocated_before_bytes": history.earlier_bytes,
        "ooms_count": len(history.ooms),
        "ooms": [
            {
                "after_seconds": oom.seconds if history.has_times else None,
                "requested_bytes": oom.bytes,
                "free_bytes": oom.free_bytes,
                "frames": _frame_documents(snapshot.frames_of(oom.stack)),
            }
            for oom in history.ooms[:top]
        ],
    }


def _changes(earlier: Snapshot, now: tuple[Snapshot, DeviceMemory], top: int) -> list[dict[str, Any]]:
    before = next((device for device in earlier.devices if device.ordinal == now[1].ordinal), None)
    shares = stack_changes((earlier, before), now, Measure.NOW, innermost_first=True)
    shares.sort(key=lambda share: -share.weight)
    return [
        {
            "change_bytes": share.amount.bytes - share.before.bytes,
            **_amount_document("allocated", share.amount),
            **_amount_document("before", share.before),
            "frames": _frame_documents(share.frames),
        }
        for share in shares[:top]
    ]


def _holes_document(holes: Holes) -> dict[str, Any]:
    return {
        "reserved_bytes": holes.size,
        "allocated_bytes": holes.active,
        "pending_free_bytes": holes.pending,
        "free_bytes": holes.free,
        "largest_hole_bytes": holes.largest,
        "releasable_bytes": holes.releasable,
        "fragmentation_ratio": round(holes.fragmentation, 4),
    }


def _amount_document(name: str, amount: Amount) -> dict[str, int]:
    return {f"{name}_bytes": amount.bytes, f"{name}_blocks_count": amount.blocks}


def _frame_documents(frames: Sequence[SnapshotFrame]) -> list[dict[str, Any]]:
    return [{"name": frame.name, "file": frame.file or None, "line": frame.line or None} for frame in frames]
