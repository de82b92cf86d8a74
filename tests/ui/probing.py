"""Probes without processes: a test sets the statistics of PyTorch's allocator and answers requests."""

from dataclasses import replace
from typing import Any

from gpumon.core.allocator import (
    AllocatorStatistics,
    BlockState,
    PinnedMemory,
    PoolBytes,
    ProbedProcess,
    ProbeReading,
    ProbeState,
    Segment,
    SegmentBlock,
)
from gpumon.core.inbox import Inbox
from gpumon.core.model import Device, Frame
from gpumon.core.problems import Problem
from gpumon.probe.messages import Answer, Probe, ProbeMessage, RequestKind
from tests import builders

MIB, GIB = 1 << 20, 1 << 30
BEGAN = 1000.0
PID = 4000


class FakeWatcher:
    """A watcher without a thread."""

    def __init__(self) -> None:
        self.inbox: Inbox[ProbeMessage] = Inbox()
        self.problems: tuple[Problem, ...] = ()
        self.probes: dict[int, Probe] = {}
        self.asked: list[tuple[int, RequestKind, dict[str, Any]]] = []
        self.paces: list[float] = []
        self.started = 0
        self.closed = 0

    def start(self) -> None:
        self.started += 1

    def close(self) -> None:
        self.closed += 1

    def set_pace(self, seconds: float) -> None:
        self.paces.append(seconds)

    def ask(self, pid: int, ask: RequestKind, **more: Any) -> int:  # noqa: ANN401
        self.asked.append((pid, ask, more))
        return len(self.asked)

    def answer(self, result: Any = None, problem: Problem | None = None) -> None:  # noqa: ANN401
        """Answers what was asked last."""
        pid, ask, _ = self.asked[-1]
        self.inbox.put(Answer(pid, len(self.asked), ask, result, problem))


def statistics(**changes: Any) -> AllocatorStatistics:  # noqa: ANN401
    values: dict[str, Any] = {
        "ordinal": 0, "uuid": builders.device(0).uuid, "name": "NVIDIA H200", "allocated_bytes": 43 * GIB,
        "reserved_bytes": 60 * GIB, "active_bytes": 43 * GIB + 512 * MIB, "inactive_split_bytes": 4 * GIB,
        "requested_bytes": 42 * GIB, "allocated_peak_bytes": 57 * GIB, "reserved_peak_bytes": 60 * GIB,
        "alloc_retries_count": 0, "ooms_count": 0, "segments_count": 400, "small_pool": PoolBytes(GIB, GIB, GIB, 0),
    }  # fmt: skip
    return AllocatorStatistics(**(values | changes))


def probe(
    pid: int = PID,
    *devices: AllocatorStatistics,
    at: float = BEGAN,
    state: ProbeState = ProbeState.LIVE,
    process: dict[str, Any] | None = None,
    **changes: Any,  # noqa: ANN401
) -> Probe:
    who: dict[str, Any] = {"command": "python train.py", "python_version": "3.12.3", **(process or {})}
    reading: dict[str, Any] = {
        "torch_version": "2.11.0+cu130",
        "backend": "native",
        "expandable_segments": False,
        "pinned": PinnedMemory(2 * GIB, GIB),
    }
    return Probe(
        ProbedProcess(pid, pid, **who),
        ProbeReading(state, at, devices=devices, **(reading | changes)),
        arrived_monotonic=at,
    )


def silent(connected: Probe) -> Probe:
    """The same one, gone."""
    return replace(connected, connected=False)


def gpu(held: int = 61 * GIB, **changes: Any) -> Device:  # noqa: ANN401
    """A GPU of which a training job with a probe holds most, and a server without a probe some."""
    total = int(builders.READINGS["memory_total_bytes"])
    driver = int(builders.READINGS["memory_reserved_bytes"])
    used = held + 12 * GIB + 9 * MIB
    readings = {"memory_used_bytes": used, "memory_free_bytes": total - driver - used}
    processes = (
        builders.process(PID, memory_bytes=held, command="python train.py --config large.yaml"),
        builders.process(5000, memory_bytes=12 * GIB, user="bob", command="python serve.py --port 8080"),
    )
    return builders.device(0, **{"readings": readings, "processes": processes, **changes})


def moment(second: float = 0.0, *devices: Device) -> Frame:
    return builders.frame(
        devices=devices or (gpu(), builders.device(1)),
        monotonic_seconds=BEGAN + second,
        time_seconds=1_800_000_000.0 + second,
    )


def segment(address: int, *blocks: tuple[int, BlockState], **changes: Any) -> Segment:  # noqa: ANN401
    values: dict[str, Any] = {
        "ordinal": 0,
        "size_bytes": sum(size for size, _ in blocks),
        "stream": 0,
        "pool": (0, 0),
        "is_large": True,
        "is_expandable": False,
        "blocks": tuple(SegmentBlock(size, state, size) for size, state in blocks),
    }
    return Segment(address=address, **(values | changes))


def segments() -> tuple[Segment, ...]:
    """What a training leaves: full ones, one with holes, an empty one, a stream's own, small ones, and a graph's."""
    used, pending, hole = BlockState.ALLOCATED, BlockState.PENDING_FREE, BlockState.INACTIVE
    holed = [(64 * MIB, used), (200 * MIB, hole), (16 * MIB, used), (232 * MIB, hole)]
    small = [(MIB // 64, state) for _ in range(40) for state in (used, hole, used)] + [(MIB // 8, hole)]
    return (
        segment(0x7F00_0000_0000, (512 * MIB, used)),
        segment(0x7F00_4000_0000, *holed),
        segment(0x7F00_8000_0000, (256 * MIB, hole)),
        segment(0x7F00_C000_0000, (128 * MIB, used), (64 * MIB, pending), (64 * MIB, hole), stream=0x55D0),
        segment(0x7F01_0000_0000, *small, is_large=False),
        segment(0x7F01_4000_0000, (20 * MIB, used), (44 * MIB, hole), pool=(0, 1)),
        segment(0x7F01_8000_0000, (2 * MIB, used), ordinal=1),
    )
