"""Records of PyTorch's CUDA caching allocator in a process that runs a probe, and their parsing from a probe's JSON.

Terms are PyTorch's: bytes are *allocated* while a tensor holds them, *active* while a tensor or a stream still uses
them, *reserved* while the allocator keeps them from the driver, and *inactive split* when they are free but belong to a
segment that is partly in use, so that the allocator cannot return them to the driver.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gpumon.core.json_fields import Json, as_count, as_flag, as_integer, as_list, required
from gpumon.core.problems import Problem
from gpumon.core.steps import StepProgress


class ProbeState(str, Enum):
    """How far PyTorch has been initialized in a process that runs a probe. Stable, public names."""

    WAITING_FOR_TORCH = "waiting_for_torch"
    CPU_ONLY = "cpu_only"
    """PyTorch is imported and was built without CUDA."""
    WAITING_FOR_CUDA = "waiting_for_cuda"
    """PyTorch is imported and has not created a CUDA context yet."""
    LIVE = "live"
    FAILED = "failed"
    """The probe cannot read this version of PyTorch."""


@dataclass(frozen=True, slots=True)
class PoolBytes:
    """One of the allocator's two pools, for small blocks (up to 1 MiB) or for large ones, in bytes."""

    allocated_bytes: int
    reserved_bytes: int
    active_bytes: int
    inactive_split_bytes: int


@dataclass(frozen=True, slots=True)
class AllocatorStatistics:
    """The allocator of one device in one process at one moment. Statistics that this PyTorch does not keep are None.

    Attributes:
        ordinal: Device number inside the process, as in ``cuda:0``.
        uuid: NVML's UUID of the device, or None if this PyTorch does not report it.
        name: Product name.
        allocated_bytes: Held by live tensors, after rounding.
        reserved_bytes: Reserved from the driver.
        active_bytes: Allocated, or freed and waiting for a stream.
        inactive_split_bytes: Free in segments that are partly in use. Not kept for expandable segments.
        requested_bytes: Requested by tensors, before rounding.
        allocated_peak_bytes: Highest value so far; the user's own peak statistic, which a probe never resets.
        reserved_peak_bytes: Highest value so far.
        alloc_retries_count: Number of times that the driver had no memory until the cache was emptied.
        ooms_count: Number of failed allocations.
        device_allocs_count: Number of allocations from the driver.
        device_frees_count: Number of times that memory was returned to the driver.
        segments_count: Number of segments reserved from the driver.
        allocations_count: Number of live blocks.
        small_pool: The pool of small blocks.
        large_pool: The pool of large blocks.
    """

    ordinal: int
    allocated_bytes: int
    reserved_bytes: int
    uuid: str | None = None
    name: str | None = None
    active_bytes: int | None = None
    inactive_split_bytes: int | None = None
    requested_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    alloc_retries_count: int | None = None
    ooms_count: int | None = None
    device_allocs_count: int | None = None
    device_frees_count: int | None = None
    segments_count: int | None = None
    allocations_count: int | None = None
    small_pool: PoolBytes | None = None
    large_pool: PoolBytes | None = None

    @property
    def freed_waiting_bytes(self) -> int | None:
        """Bytes that the program freed and that the allocator keeps because a stream may still use them."""
        return None if self.active_bytes is None else max(0, self.active_bytes - self.allocated_bytes)

    @property
    def releasable_bytes(self) -> int | None:
        """Bytes that ``empty_cache`` would return to the driver; None if the allocator keeps no statistics for it."""
        if self.active_bytes is None or self.inactive_split_bytes is None:
            return None
        return max(0, self.reserved_bytes - self.active_bytes - self.inactive_split_bytes)


@dataclass(frozen=True, slots=True)
class PinnedMemory:
    """Pinned host memory that PyTorch holds for copies.

    Attributes:
        allocated_bytes: Allocated from the operating system.
        active_bytes: The part in use.
    """

    allocated_bytes: int
    active_bytes: int


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """The cost of the probe inside the process.

    Attributes:
        share: CPU time of the probe as a share of the time since the probe started.
        seconds: Duration of one reading.
        reads: Number of readings so far.
    """

    share: float
    seconds: float
    reads: int


@dataclass(frozen=True, slots=True)
class ProbedProcess:
    """The process that a probe runs in. The values do not change while the process runs.

    Attributes:
        pid: PID in the PID namespace of gpumon, reported by the kernel and not by the process.
        own_pid: PID in the PID namespace of the process; a different number in a container.
        command: Command line, made safe.
        python_version: Such as ``3.12.3``.
        rank: Rank among all processes of the training job (``RANK``), or None outside a distributed job.
        local_rank: Rank among the job's processes on this host.
        world_size: Number of processes in the job.
        settings: Environment variables that configure the allocator, by name.
        stack_descriptor: The descriptor of the process to which it writes its stacks when no Python thread can run;
            None if it does not.
        main_thread_id: Python's identifier of the main thread, as in those stacks; None if unknown.
        problems: Why a value is missing, by name.
    """

    pid: int
    own_pid: int
    command: str = ""
    python_version: str = ""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    stack_descriptor: int | None = None
    main_thread_id: int | None = None
    problems: Mapping[str, Problem] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """The latest reading of a probe.

    Attributes:
        state: How far PyTorch has been initialized.
        monotonic_seconds: Time of the reading on the host's monotonic clock.
        torch_version: Such as ``2.11.0+cu130``, or None before PyTorch is imported.
        backend: ``native`` or ``cudaMallocAsync``; None while unknown.
        expandable_segments: Whether the allocator uses expandable segments; None if unknown.
        devices: The devices on which the process has a CUDA context.
        pinned: Pinned host memory, or None if this PyTorch keeps no statistics of it.
        cost: The cost of the probe.
        oom_files: Files that the probe wrote when the process ran out of memory, newest last.
        training: The progress of its training run; None if it has no optimizer step yet.
        problem: Why the probe reads nothing, or None.
    """

    state: ProbeState
    monotonic_seconds: float
    torch_version: str | None = None
    backend: str | None = None
    expandable_segments: bool | None = None
    devices: tuple[AllocatorStatistics, ...] = ()
    pinned: PinnedMemory | None = None
    cost: ProbeCost | None = None
    oom_files: tuple[str, ...] = ()
    training: StepProgress | None = None
    problem: Problem | None = None


class BlockState(str, Enum):
    """State of a block of a segment. PyTorch's own names."""

    ALLOCATED = "active_allocated"
    PENDING_FREE = "active_pending_free"
    INACTIVE = "inactive"


@dataclass(frozen=True, slots=True)
class SegmentBlock:
    """A block of a segment.

    Attributes:
        size_bytes: Size.
        state: State of the block.
        requested_bytes: Size that the program requested, if the block is allocated.
    """

    size_bytes: int
    state: BlockState
    requested_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of memory that the allocator reserved from the driver.

    Attributes:
        ordinal: Device number inside the process.
        address: Start address.
        size_bytes: Size.
        stream: The stream that the segment serves; 0 is the default stream.
        pool: PyTorch's pool id; ``(0, 0)`` is the shared pool, other ids belong to CUDA graphs and ``MemPool``.
        is_large: Whether the segment holds blocks of more than 1 MiB.
        is_expandable: Whether the segment can grow.
        blocks: The blocks of the segment, by address.
    """

    ordinal: int
    address: int
    size_bytes: int
    stream: int
    pool: tuple[int, int]
    is_large: bool
    is_expandable: bool
    blocks: tuple[SegmentBlock, ...]


@dataclass(frozen=True, slots=True)
class EmptyCacheResult:
    """The effect of ``empty_cache`` according to the allocator's own statistics, by ordinal.

    Attributes:
        before: The statistics before.
        after: The statistics after.
        seconds: Duration of the call.
    """

    before: tuple[AllocatorStatistics, ...]
    after: tuple[AllocatorStatistics, ...]
    seconds: float


def parse_segment(raw: Json) -> Segment:
    """Parse a segment with its blocks.

    Raises:
        TypeError: A field has the wrong type, or a required field is null.
        ValueError: A number is out of range, or a list has the wrong length.
        KeyError: A field is missing.
        IndexError: The state of a block is unknown.
    """
    first, second = as_list(raw["pool"])
    return Segment(
        ordinal=required(as_count(raw["ordinal"])),
        address=required(as_count(raw["address"])),
        size_bytes=required(as_count(raw["size_bytes"])),
        stream=required(as_integer(raw["stream"])),
        pool=(required(as_integer(first)), required(as_integer(second))),
        is_large=required(as_flag(raw["is_large"])),
        is_expandable=as_flag(raw.get("is_expandable")) or False,
        blocks=tuple(_parse_block(*as_list(block)) for block in as_list(raw["blocks"])),
    )


def _parse_block(size: object, requested: object, code: object) -> SegmentBlock:
    state = _BLOCK_STATES[required(as_count(code))]
    return SegmentBlock(required(as_count(size)), state, required(as_count(requested)))


_BLOCK_STATES: Final = (BlockState.ALLOCATED, BlockState.PENDING_FREE, BlockState.INACTIVE)
"""By the number that represents the state in a probe's JSON."""
