"""What PyTorch's allocator says of itself in a process that a probe runs in, from the socket to the screen.

PyTorch's own terms: bytes are *allocated* while a tensor holds them, *active* while a tensor or a stream still needs
them, *reserved* while the allocator keeps them from the driver, and *inactive split* where they are free, but in a
segment of which another part is in use, so that they cannot go back to the driver.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gpumon.core.problems import Problem


class ProbeState(str, Enum):
    """How far PyTorch is in the process of a probe. Stable, public names."""

    WAITING_FOR_TORCH = "waiting_for_torch"
    CPU_ONLY = "cpu_only"
    """PyTorch is there and was built without CUDA."""
    WAITING_FOR_CUDA = "waiting_for_cuda"
    """PyTorch is there and has made no CUDA context yet."""
    LIVE = "live"
    FAILED = "failed"
    """PyTorch is one that the probe cannot read."""


@dataclass(frozen=True, slots=True)
class PoolBytes:
    """One of the allocator's two pools, that of small blocks (up to 1 MiB) and that of large ones, in bytes."""

    allocated_bytes: int
    reserved_bytes: int
    active_bytes: int
    inactive_split_bytes: int


@dataclass(frozen=True, slots=True)
class AllocatorStatistics:
    """One device's allocator in one process, at one moment; what this PyTorch does not keep is None.

    Attributes:
        ordinal: The process's own number of the device, as in ``cuda:0``.
        uuid: NVML's UUID of it, or None with a PyTorch that does not tell.
        name: Product name.
        allocated_bytes: Held by live tensors, after rounding.
        reserved_bytes: Taken from the driver.
        active_bytes: Allocated, or freed and still waited for by a stream.
        inactive_split_bytes: Free in segments of which a part is in use. Not kept for expandable segments.
        requested_bytes: What the tensors asked for before rounding.
        allocated_peak_bytes: Highest so far; the user's own peak, which a probe never resets.
        reserved_peak_bytes: Highest so far.
        private_pools_bytes: Reserved for CUDA graphs and the process's own pools.
        alloc_retries_count: How often the driver had no memory until the cache was given back.
        ooms_count: How often an allocation failed.
        device_allocs_count: How often memory was taken from the driver.
        device_frees_count: How often it was given back.
        segments_count: Pieces of memory taken from the driver.
        allocations_count: Live blocks.
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
    private_pools_bytes: int | None = None
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
        """Freed by the program, and kept because a stream may still use it."""
        return None if self.active_bytes is None else max(0, self.active_bytes - self.allocated_bytes)

    @property
    def releasable_bytes(self) -> int | None:
        """What ``empty_cache`` would give back; None where the allocator does not keep the books for it."""
        if self.active_bytes is None or self.inactive_split_bytes is None:
            return None
        return max(0, self.reserved_bytes - self.active_bytes - self.inactive_split_bytes)


@dataclass(frozen=True, slots=True)
class PinnedMemory:
    """Host memory that PyTorch holds pinned for copies, in bytes.

    Attributes:
        allocated_bytes: Taken from the system.
        active_bytes: Of that, in use.
    """

    allocated_bytes: int
    active_bytes: int


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """What the probe itself takes from the process.

    Attributes:
        share: Its processor time, as a share of the time since it began.
        seconds: What one reading takes.
        reads: Readings so far.
    """

    share: float
    seconds: float
    reads: int


@dataclass(frozen=True, slots=True)
class ProbedProcess:
    """Who a probe runs in. It does not change while the process runs.

    Attributes:
        pid: PID as this machine's gpumon sees it, told by the kernel and not by the process.
        own_pid: PID as the process itself sees it; another one in a container.
        command: Its command line, made safe.
        python_version: Such as ``3.12.3``.
        rank: Its number among all processes of the training (``RANK``), if it is one of several.
        local_rank: Its number among those of this machine.
        world_size: How many there are.
        settings: Variables that steer the allocator, by name, as they stand in its environment.
        problems: Why something is missing, by name.
    """

    pid: int
    own_pid: int
    command: str = ""
    python_version: str = ""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, Problem] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """What a probe has told last.

    Attributes:
        state: How far PyTorch is.
        monotonic_seconds: When it was read, by the machine's monotonic clock.
        torch_version: Such as ``2.11.0+cu130``, or None while there is none.
        backend: ``native`` or ``cudaMallocAsync``; None while it is not known.
        expandable_segments: Whether the allocator uses them; None where it is not known.
        devices: The devices on which the process has a CUDA context.
        pinned: Pinned host memory, or None where this PyTorch does not keep books of it.
        cost: What the probe takes.
        oom_files: Files that it has left on running out of memory, the newest last.
        problem: Why it reads nothing, if so.
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
    problem: Problem | None = None


class BlockState(str, Enum):
    """What becomes of a piece of a segment. PyTorch's own names."""

    ALLOCATED = "active_allocated"
    PENDING_FREE = "active_pending_free"
    INACTIVE = "inactive"


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a segment.

    Attributes:
        size_bytes: Its size.
        state: What it is used for.
        requested_bytes: What was asked for, where it is allocated.
    """

    size_bytes: int
    state: BlockState
    requested_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of memory that the allocator has taken from the driver.

    Attributes:
        ordinal: The process's own number of the device.
        address: Where it begins.
        size_bytes: Its size.
        stream: The stream that it serves; 0 is the default one.
        pool: PyTorch's id of the pool; all share ``(0, 0)``, others belong to CUDA graphs and ``MemPool``.
        is_large: Whether it is for blocks of more than 1 MiB.
        is_expandable: Whether it can grow.
        blocks: What it is cut into, by address.
    """

    ordinal: int
    address: int
    size_bytes: int
    stream: int
    pool: tuple[int, int]
    is_large: bool
    is_expandable: bool
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class EmptiedCache:
    """What ``empty_cache`` has done, by the allocator's own books; by ordinal.

    Attributes:
        before: The statistics before.
        after: The statistics after.
        seconds: How long it took.
    """

    before: tuple[AllocatorStatistics, ...]
    after: tuple[AllocatorStatistics, ...]
    seconds: float
