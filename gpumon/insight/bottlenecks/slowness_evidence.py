"""What was measured of a training run, as one record that the causes are judged by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpumon.insight.bottlenecks.try_line import StartCommand

_LOWERED: Final = 0.95
"""A power limit below this part of the usual one is lowered."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """What a class consists of: a line of the program, a kernel or a call.

    Attributes:
        name: The source line, or the name of the kernel or call.
        seconds: Its time in the median step.
        line: The line of the program, such as ``train.py:41``; empty if unknown.
        kind: The finer class, such as ``item_per_step``.
    """

    name: str
    seconds: float
    line: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class StepShare:
    """The time of a class.

    Attributes:
        name: The class, one of `gpumon.core.step_classes.LABELS`.
        seconds: Its time in the median step.
        pause_seconds: What it adds to the mean step in addition, because it takes longer in some steps.
        queued_seconds: How long the main thread waited for a core in it; part of the class `CORE_WAIT`.
        top: What it consists of, the largest part first.
    """

    name: str
    seconds: float
    pause_seconds: float = 0.0
    top: tuple[StepPart, ...] = ()
    queued_seconds: float = 0.0

    @property
    def median_seconds(self) -> float:
        """Its time in the median step, with the waits for a core that it would not have without it."""
        return self.seconds + self.queued_seconds

    @property
    def cost_seconds(self) -> float:
        """What it costs per step on average."""
        return self.median_seconds + self.pause_seconds


@dataclass(frozen=True, slots=True)
class StepAccount:
    """The account of the median step, or of an average second where steps are unknown.

    Attributes:
        step_seconds: Duration of the median step; the seconds of the classes add up to it. 1 where steps are unknown.
        mean_seconds: Mean duration of a step.
        steps_count: Number of steps; 0 where they are unknown.
        samples_count: Number of samples of the main thread.
        shares: The classes with their times, in the order of `SAMPLED_CLASSES` or of the trace.
        is_traced: Whether it comes from a trace, so that the times of the GPU are exact without samples.
        overhead_share: Of the samples in operators, those in torch's Python code around them.
    """

    step_seconds: float
    mean_seconds: float
    steps_count: int
    samples_count: int
    shares: tuple[StepShare, ...]
    is_traced: bool = False
    overhead_share: float = 0.0

    @property
    def has_steps(self) -> bool:
        """Whether it is one of a step."""
        return self.is_traced or self.steps_count > 0

    def share_of(self, name: str) -> StepShare:
        """The time of a class; zero if it has none."""
        return next((share for share in self.shares if share.name == name), StepShare(name, 0.0))


@dataclass(frozen=True, slots=True)
class HostEvidence:
    """The host and the process in the time of the observation. A field is None where it could not be read.

    Attributes:
        seconds: Length of that time.
        cpu_count: CPU cores of the host.
        allowed_cores: Cores that the process may use, by its affinity and the quota of its cgroup.
        host_cpu_cores: Cores that all processes of the host used.
        process_cpu_cores: Cores that the process and its children used.
        main_run_queue_share: Part of the time in which the main thread was ready to run and no core was free.
        busy_threads_count: Threads of the process that used at least a tenth of a core, without the main thread.
        quota_throttled_share: Part of the time in which the CPU quota of the cgroup stopped its threads.
        disk_wait_share: Part of the moments in which the main thread was in uninterruptible sleep (D).
        major_faults_count: Pages of the process that had to be read from disk.
        workers_count: Child processes, such as the workers of a DataLoader.
        workers_cpu_cores: Cores that they used.
        workers_queued_share: Of the time in which they were ready to run, the part in which no core was free.
        workers_disk_wait_share: Part of the moments in which they were in uninterruptible sleep, on average.
        busiest_others: Command and cores of the processes outside of this one's that used the most CPU.
        python_threads: Part of the moments in which another Python thread of the process ran, and its line, by name.
        settings: Variables of its environment that matter, such as ``OMP_NUM_THREADS``.
    """

    seconds: float
    cpu_count: int | None = None
    allowed_cores: float | None = None
    host_cpu_cores: float | None = None
    process_cpu_cores: float | None = None
    main_run_queue_share: float | None = None
    busy_threads_count: int | None = None
    quota_throttled_share: float | None = None
    disk_wait_share: float | None = None
    major_faults_count: int | None = None
    workers_count: int | None = None
    workers_cpu_cores: float | None = None
    workers_queued_share: float | None = None
    workers_disk_wait_share: float | None = None
    busiest_others: tuple[tuple[str, float], ...] = ()
    python_threads: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuEvidence:
    """The GPU of the process, as means over the observation. A field is None where it could not be read.

    Attributes:
        label: NVML's index.
        name: Product name.
        utilization_share: Part of the time in which any kernel ran.
        sm_share: Mean share of active multiprocessors.
        tensor_share: Part of the time in which tensor cores were active.
        dram_share: Part of the memory bandwidth in use.
        fp32_share: Part of the time in which the FP32 pipes were active.
        pcie_bytes_per_second: Data over PCIe in both directions.
        power_watts: Power.
        power_limit_watts: Power limit.
        tdp_watts: Thermal design power by the data sheet; None for an unknown product.
        clock_share: Median SM clock as a share of the maximum.
        throttle_reasons: NVML's reasons in force in at least half of the samples.
        others: Command and SM share of other processes on this GPU.
        own_sm_share: SM share of this process.
        memory_used_share: Part of the device memory in use.
        retries_count: How often the allocator of PyTorch freed its cache and tried again in that time.
        ooms_count: How often it then still failed.
    """

    label: str = ""
    name: str = ""
    utilization_share: float | None = None
    sm_share: float | None = None
    tensor_share: float | None = None
    dram_share: float | None = None
    fp32_share: float | None = None
    pcie_bytes_per_second: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    tdp_watts: float | None = None
    clock_share: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    others: tuple[tuple[str, float], ...] = ()
    own_sm_share: float | None = None
    memory_used_share: float | None = None
    retries_count: int | None = None
    ooms_count: int | None = None

    @property
    def is_power_limit_lowered(self) -> bool:
        """Whether the power limit is clearly below that of the data sheet."""
        limit, tdp = self.power_limit_watts, self.tdp_watts
        return limit is not None and tdp is not None and limit < _LOWERED * tdp


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """An operator on the host, with everything that it calls.

    Attributes:
        seconds: Its time per step.
        count: Calls per step.
        max_seconds: Its longest call.
    """

    seconds: float
    count: float
    max_seconds: float


@dataclass(frozen=True, slots=True)
class TraceEvidence:
    """What a trace of some steps shows in addition to its account.

    Attributes:
        kernels_count: Kernels of the median step; of a step on the CPU, operators.
        median_kernel_seconds: Their median duration.
        pageable_copy_seconds: Time of copies from or to pageable memory.
        copied_bytes: What was copied between host and GPU.
        copies_count: Number of these copies.
        sent_bytes: What of it went to the GPU.
        sent_count: Number of these copies.
        free_seconds: Time in cudaFree and cudaMalloc.
        tf32_share: Part of the step in matrix products in TF32.
        elementwise_seconds: Time of the largest elementwise kernels and copies within the GPU.
        compute_seconds: Time in which the GPU computes, as it was recorded.
        queued_seconds: Time in which the GPU does nothing for a moment between two kernels that were queued already.
        without: How long the median step would take with a change, by the names of `gpumon.traces.what_if`.
        calls: Time by name of what the GPU waits for on the host.
        operators: Operators on the host by name, whether the GPU waits for them or not.
    """

    kernels_count: int = 0
    median_kernel_seconds: float | None = None
    pageable_copy_seconds: float = 0.0
    copied_bytes: int = 0
    copies_count: int = 0
    sent_bytes: int = 0
    sent_count: int = 0
    free_seconds: float = 0.0
    tf32_share: float = 0.0
    elementwise_seconds: float = 0.0
    compute_seconds: float = 0.0
    queued_seconds: float = 0.0
    without: Mapping[str, float] = field(default_factory=dict)
    calls: Mapping[str, float] = field(default_factory=dict)
    operators: Mapping[str, OperatorUse] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that the others of a job wait for.

    Attributes:
        rank: The rank.
        excess_seconds: How much longer its work takes per step.
        reason: Why, as a clause.
    """

    rank: int
    excess_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class SlownessEvidence:
    """Everything that a verdict is based on.

    Attributes:
        account: The account of the median step.
        host: The host and the process; without values if only a trace is known.
        gpu: The GPU, perhaps without values; None for a training run on the CPU.
        trace: What a trace shows; None without one.
        rank: The rank, or None.
        world_size: The number of ranks, or None.
        torch_version: PyTorch's version, or None.
        thread_account: The account of the main thread alone, whatever the GPU does; None if it is the same.
        straggler: The rank that the others wait for; None if there is none, or other ranks were not observed.
        start: How the training run was started; None if unknown.
        hints: Settings that the source of the program contains, such as ``find_unused_parameters``, with their lines.
    """

    account: StepAccount
    host: HostEvidence = HostEvidence(0.0)
    gpu: GpuEvidence | None = None
    trace: TraceEvidence | None = None
    rank: int | None = None
    world_size: int | None = None
    torch_version: str | None = None
    thread_account: StepAccount | None = None
    straggler: Straggler | None = None
    start: StartCommand | None = None
    hints: Mapping[str, str] = field(default_factory=dict)
