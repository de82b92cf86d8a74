"""Frozen records of what was measured, from the collector to the screen.

Everything that a stream carries is one of these. They hold values and reasons, never text made for a screen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gpumon.core.problems import Problem, ProblemCode


class DeviceState(str, Enum):
    """Whether a device answers."""

    OK = "ok"
    LOST = "lost"
    UNRESPONSIVE = "unresponsive"
    EXCLUDED = "excluded"


class ProcessKind(str, Enum):
    """In which of NVML's three lists a process stands."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


class Switch(str, Enum):
    """Whether a feature of a device is on."""

    DISABLED = "disabled"
    ENABLED = "enabled"


class ComputeMode(str, Enum):
    """Which processes may compute on a device."""

    DEFAULT = "default"
    EXCLUSIVE_THREAD = "exclusive_thread"
    PROHIBITED = "prohibited"
    EXCLUSIVE_PROCESS = "exclusive_process"


@dataclass(frozen=True, slots=True)
class Process:
    """One process on one device.

    Attributes:
        pid: PID in the namespace of the driver, which is the host's.
        kinds: The NVML lists in which it stands.
        memory_bytes: Device memory that it holds on this device.
        user: Owner's login name, or the uid as text where there is no name.
        command: Command line, made safe.
        cpu_percent: Host CPU since the previous frame; 100 is one core.
        host_memory_bytes: Resident host memory.
        age_seconds: Time since the process started.
        sm_percent: Share of time in which it had work on the device's multiprocessors.
        problems: Why a field is None, by field name.
    """

    pid: int
    kinds: tuple[ProcessKind, ...] = (ProcessKind.COMPUTE,)
    memory_bytes: int | None = None
    user: str | None = None
    command: str | None = None
    cpu_percent: float | None = None
    host_memory_bytes: int | None = None
    age_seconds: float | None = None
    sm_percent: float | None = None
    problems: Mapping[str, Problem] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MigInstance:
    """What a device is that is a part of a GPU (MIG).

    Attributes:
        parent: `Device.key` of the GPU.
        position: NVML's index of it among the instances of its GPU.
        gpu_instance_id: NVML's id of the part of the chip that it has.
        compute_instance_id: NVML's id of its share of that part.
    """

    parent: str
    position: int
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None

    def names(self, uuid: str | None) -> tuple[str, ...]:
        """How CUDA may be told to show it, in lower case: by its UUID, or in the old form, ``MIG-GPU-.../7/0``."""
        old_form = f"MIG-{self.parent}/{self.gpu_instance_id}/{self.compute_instance_id}".lower()
        return (old_form,) if uuid is None else (uuid.lower(), old_form)


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or an instance of one that is split (MIG), at one moment.

    Attributes:
        index: NVML's index; an instance has that of its GPU.
        cuda_index: The index that CUDA gives it to programs with gpumon's environment; its rules are of its own.
        uuid: NVML's UUID; None while a lost GPU has not told it.
        instance: What it is a part of, or None for a whole GPU.
        pci_bus_id: PCI bus id as NVML writes it, such as ``00000000:1B:00.0``.
        name: Product name.
        architecture: Chip family, such as ``Hopper``.
        compute_capability: CUDA's version of what the chip can do, such as ``9.0``.
        vbios_version: Version of the board's own firmware.
        persistence_mode: Whether the driver stays loaded while nobody uses the device.
        compute_mode: Which processes may compute on it.
        ecc_mode: Whether errors of its memory are corrected.
        ecc_mode_pending: The same after the next reset.
        mig_mode: Whether it may be split into instances.
        mig_mode_pending: The same after the next reset.
        state: Whether it answers.
        age_seconds: Age of the readings; None when there has never been one.
        readings: Metric id to value, only those that could be read.
        throttle_reasons: NVML's clocks-event reasons in force, or None when not known.
        processes: Processes that NVML lists for it, or None when not known.
        problems: Why something is missing, or stale, by metric id or field name.
    """

    index: int
    cuda_index: int | None = None
    uuid: str | None = None
    instance: MigInstance | None = None
    pci_bus_id: str | None = None
    name: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    vbios_version: str | None = None
    persistence_mode: Switch | None = None
    compute_mode: ComputeMode | None = None
    ecc_mode: Switch | None = None
    ecc_mode_pending: Switch | None = None
    mig_mode: Switch | None = None
    mig_mode_pending: Switch | None = None
    state: DeviceState = DeviceState.OK
    age_seconds: float | None = 0.0
    readings: Mapping[str, float] = field(default_factory=dict)
    throttle_reasons: tuple[str, ...] | None = None
    processes: tuple[Process, ...] | None = None
    problems: Mapping[str, Problem] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What identifies the device over time: its UUID, or its index until it has told one."""
        return self.uuid or f"index:{self.index}"

    @property
    def label(self) -> str:
        """Which one it is: NVML's index, and for an instance its place on its GPU, such as ``3:0``."""
        return str(self.index) if self.instance is None else f"{self.index}:{self.instance.position}"

    def get(self, metric_id: str) -> float | None:
        """The reading of a metric, or None; `problems` then says why."""
        return self.readings.get(metric_id)

    def is_stale(self, name: str) -> bool:
        """Whether a reading or field is the last one known, and not of this moment."""
        problem = self.problems.get(name)
        return problem is not None and problem.code is ProblemCode.STALE


@dataclass(frozen=True, slots=True)
class Host:
    """The machine around the GPUs.

    Attributes:
        name: Host name.
        cpu_count: Logical processors.
        cpu_percent: All processors together since the previous frame, 0 to 100.
        load: Load averages of 1, 5 and 15 minutes.
        memory_total_bytes: Installed memory.
        memory_available_bytes: Memory that can be taken without swapping.
        uptime_seconds: Time since boot.
        problems: Why a field is None, by field name.
    """

    name: str | None = None
    cpu_count: int | None = None
    cpu_percent: float | None = None
    load: tuple[float, float, float] | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    uptime_seconds: float | None = None
    problems: Mapping[str, Problem] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallCost:
    """What one NVML call has cost since the collector started.

    Attributes:
        call: Its name.
        count: How often it was made.
        errors: How often it failed.
        seconds: Time spent in it.
        longest_seconds: The longest time that it took.
    """

    call: str
    count: int
    errors: int
    seconds: float
    longest_seconds: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """What reading the devices cost.

    Attributes:
        seconds: Duration of the last sweep, or None while there was none.
        calls: NVML calls since the collector started.
        errors: Those of them that failed.
        threads_stuck: Threads that wait in a driver call that does not return.
        calls_by_name: What each call has cost, while somebody looks at it; else empty.
        refused: Values since the collector started that cannot be true; one that stays so counts in every frame.
    """

    seconds: float | None = None
    calls: int = 0
    errors: int = 0
    threads_stuck: int = 0
    calls_by_name: tuple[CallCost, ...] = ()
    refused: int = 0


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """An error that the driver has told of a device: an Xid, as the kernel log has it.

    Attributes:
        device_key: `Device.key` of the device.
        xid: NVIDIA's number of the error.
        time_seconds: Unix time, for labels only.
        monotonic_seconds: When it came, by the machine's monotonic clock.
    """

    device_key: str
    xid: int
    time_seconds: float
    monotonic_seconds: float


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything at one moment.

    Attributes:
        time_seconds: Unix time, for labels only.
        monotonic_seconds: The machine's monotonic clock, for ages and intervals.
        interval_seconds: The interval that was asked for.
        host: The machine.
        driver_version: NVIDIA driver, or None without one.
        cuda_driver_version: Highest CUDA version that the driver can run, such as ``13.0``.
        devices: In NVML's order, each GPU followed by its instances if it is split.
        sweep: Cost of the reading.
        events: What the driver has told of the devices since the frame before; each event is in one frame.
        problems: What is wrong with the driver or the collector as a whole, by subject.
    """

    time_seconds: float
    monotonic_seconds: float
    interval_seconds: float
    host: Host = Host()
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    devices: tuple[Device, ...] = ()
    sweep: Sweep = Sweep()
    events: tuple[DeviceEvent, ...] = ()
    problems: Mapping[str, Problem] = field(default_factory=dict)

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The devices without those that are parts of others, so that nothing counts twice."""
        return tuple(device for device in self.devices if device.instance is None)

    def is_fresh(self, device: Device) -> bool:
        """Whether a device's readings belong to this moment: it answers, and its turn in the sweep has come."""
        limit = 1.5 * self.interval_seconds + (self.sweep.seconds or 0.0)
        return device.state is DeviceState.OK and device.age_seconds is not None and device.age_seconds <= limit


def bare_uuid(uuid: str) -> str:
    """A UUID without its kind, ``GPU-`` or ``MIG-``: CUDA does not tell that of an instance as NVML does."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


TRAITS: Final[Mapping[str, Callable[[str], str]]] = {
    "compute_capability": str,
    "vbios_version": str,
    "persistence_mode": Switch,
    "compute_mode": ComputeMode,
    "ecc_mode": Switch,
    "ecc_mode_pending": Switch,
    "mig_mode": Switch,
    "mig_mode_pending": Switch,
}
"""Fields of a device that are neither identity nor readings, and what they are made of."""
