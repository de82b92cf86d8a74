"""What is known of the ranks of a distributed job, and the verdict on whether the job hangs."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpumon.core.collectives import FlightRecording
from gpumon.core.problems import Problem
from gpumon.core.stacks import StackFrame, ThreadStack
from gpumon.core.steps import StepProgress


class HangKind(str, Enum):
    """What a verdict says of a job. The values are those of ``gpumon jobs --json``."""

    RUNNING = "running"
    """The job makes progress, or has not been without progress for long enough."""
    SLOW = "slow"
    """The job makes progress, with more than ten times its usual step time."""
    STRAGGLER = "straggler"
    """The job makes progress, and the others wait for one rank, or for its GPU, at every step."""
    FINISHED = "finished"
    """All ranks have ended without an error."""
    UNDECIDED = "undecided"
    """There is no progress, and the evidence does not show why."""
    NOT_ENTERED = "not_entered"
    """A rank has not entered a collective in which others wait; its main thread runs or sleeps elsewhere."""
    MISMATCHED = "mismatched"
    """Ranks are in different collectives, or in the same one with different shapes, at the same place."""
    DEAD = "dead"
    """A rank has ended while others wait for it."""
    STOPPED = "stopped"
    """A rank is stopped by a signal or a debugger (state T)."""
    BLOCKED = "blocked"
    """A rank is in a system call that does not return: a pipe, a socket, a file lock, a disk, a child process."""
    GIL_HELD = "gil_held"
    """A rank is in C code that does not return and holds the GIL."""
    WAITING_FOR_LOCK = "waiting_for_lock"
    """The main thread of a rank waits for a lock, a queue, an event or another thread."""
    WAITING_FOR_DATA = "waiting_for_data"
    """A rank, or every rank, waits for its DataLoader."""
    DEADLOCK = "deadlock"
    """Ranks wait for each other, in two or more process groups."""
    TRANSPORT = "transport"
    """Every rank has entered the collective, and it does not complete: the network or NVLink transport of NCCL."""


@dataclass(frozen=True, slots=True)
class GpuSignature:
    """What the GPU of a rank does. A value that is unknown is None.

    Attributes:
        label: Its label, such as ``0``.
        utilization_percent: Utilization.
        power_watts: Power.
        tensor_active_percent: Tensor activity.
        clock_sm_hertz: SM clock.
        throttle_reasons: Why the driver lowers its clocks, by NVML's names.
        pcie_generation: Generation of its PCIe link as it runs now.
        pcie_width: Lanes of that link.
        foreign_pid: The process of another job that runs most on it; None if there is none.
        foreign_sm_percent: Share of time in which that process runs kernels.
        ecc_uncorrected_count: Memory errors that could not be corrected since the driver was loaded.
    """

    label: str = ""
    utilization_percent: float | None = None
    power_watts: float | None = None
    tensor_active_percent: float | None = None
    clock_sm_hertz: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    pcie_generation: float | None = None
    pcie_width: float | None = None
    foreign_pid: int | None = None
    foreign_sm_percent: float | None = None
    ecc_uncorrected_count: float | None = None


NO_GPU: Final = GpuSignature()


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """What is known of one rank of a job. A value that is unknown is None (an empty text or tuple).

    Attributes:
        rank: The global rank.
        host: The host on which it runs; empty for this host.
        pid: The PID of its process on that host.
        exited: Whether its process has ended.
        exit_status: Its exit status, or minus the number of the signal that ended it.
        has_probe: Whether a probe runs, or ran, in the process.
        is_reachable: Whether the probe answers; None without a probe.
        state_code: State of the main thread as in ``/proc``: R, S, D, T, t, Z.
        kernel_function: The kernel function in which the main thread sleeps (``wchan``).
        system_call: Name of the system call in which the main thread is.
        system_call_target: What the call is about: ``a pipe``, ``a socket to 10.0.0.2:22``, a path.
        stack: The Python stack of the main thread, innermost first.
        stack_is_stale: Whether the stack is from a probe that has not answered since.
        stack_problem: Why the stack could not be read from outside, where there is no probe.
        gil_is_held: Whether the stack was written because no Python thread could run.
        threads: The stacks of the other threads.
        progress: Its steps and batches.
        recording: Its flight recorder.
        recording_age_seconds: Age of the recorder's content.
        progressed_monotonic: When it was last seen to make progress (a step, a batch, a collective, or the start of
            watching), in seconds of the monotonic clock of gpumon; None if it is not watched.
        has_progressed: Whether it was seen to make progress since the watch began.
        typical_step_seconds: Its typical step time, or the typical time between two collectives where no step is known.
        shortest_step_seconds: The shortest of its typical step times so far, which stays when the job becomes slow.
        latest_step_seconds: The time between the latest two signs of progress.
        cpu_share: CPU time of its main thread per second, lately.
        io_bytes_per_second: Bytes that its process read and wrote, lately; those of pipes and sockets included.
        functions_count: In how many different functions its main thread was sampled in the last seconds.
        worked_monotonic: When it was last seen to work without progress, by its CPU time, its functions and its files.
        core_wait_share: Share of time in which its main thread could run and had no core, lately.
        cpu_hertz: Clock of the core on which its main thread ran last.
        gpu: What its GPU does.
        ras_counts: Number of collectives by name, as NCCL's RAS reports them.
        evidence_age_seconds: Age of the oldest part of the evidence that changes.
    """

    rank: int
    host: str = ""
    pid: int | None = None
    exited: bool = False
    exit_status: int | None = None
    has_probe: bool = False
    is_reachable: bool | None = None
    state_code: str = ""
    kernel_function: str = ""
    system_call: str = ""
    system_call_target: str = ""
    stack: tuple[StackFrame, ...] = ()
    stack_is_stale: bool = False
    stack_problem: Problem | None = None
    gil_is_held: bool = False
    threads: tuple[ThreadStack, ...] = ()
    progress: StepProgress | None = None
    recording: FlightRecording | None = None
    recording_age_seconds: float | None = None
    progressed_monotonic: float | None = None
    has_progressed: bool = False
    typical_step_seconds: float | None = None
    shortest_step_seconds: float | None = None
    latest_step_seconds: float | None = None
    cpu_share: float | None = None
    io_bytes_per_second: float | None = None
    functions_count: int | None = None
    worked_monotonic: float | None = None
    core_wait_share: float | None = None
    cpu_hertz: float | None = None
    gpu: GpuSignature = NO_GPU
    ras_counts: Mapping[str, int] | None = None
    evidence_age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class HangVerdict:
    """Whether a job hangs, and which rank is the reason.

    Attributes:
        kind: What the job does.
        is_hang: Whether a person has to act: the job makes no progress, or will not.
        summary: One sentence, with the rank, the collective, the line and the time.
        rank: The rank that is the reason; None if there is none, or more than one.
        collective: The collective in which the others wait, such as ``all_reduce #12 of group dp``; empty if none.
        line: Where that rank stands, such as ``train.py:214``; empty if unknown.
        since_seconds: How long the job has made no progress; None if it does, or if that is unknown.
        evidence: What speaks for the verdict, one sentence each.
        waiting_ranks: The ranks that wait.
    """

    kind: HangKind
    is_hang: bool
    summary: str
    rank: int | None = None
    collective: str = ""
    line: str = ""
    since_seconds: float | None = None
    evidence: tuple[str, ...] = ()
    waiting_ranks: tuple[int, ...] = ()
