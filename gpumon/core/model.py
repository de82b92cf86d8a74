"""Frozen records of measurements, from the collector to the screen.

A stream carries only these records. They contain values and reasons, never text formatted for a screen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from gpumon.core.metrics import METRICS, unknown_metric_text
from gpumon.core.notebook import NotebookTable
from gpumon.core.problems import Problem, ProblemCode


class DeviceState(str, Enum):
    """Whether a device responds."""

    OK = "ok"
    LOST = "lost"
    UNRESPONSIVE = "unresponsive"
    EXCLUDED = "excluded"


class ProcessKind(str, Enum):
    """The NVML process list that contains a process."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


class Switch(str, Enum):
    """Whether a feature of a device is enabled."""

    DISABLED = "disabled"
    ENABLED = "enabled"


class ComputeMode(str, Enum):
    """Which processes may use a device for compute, in NVML's terms."""

    DEFAULT = "default"
    EXCLUSIVE_THREAD = "exclusive_thread"
    PROHIBITED = "prohibited"
    EXCLUSIVE_PROCESS = "exclusive_process"


@dataclass(frozen=True, slots=True)
class Process(NotebookTable):
    """One process on one device.

    Attributes:
        pid: PID in the PID namespace of the driver, which is that of the host.
        kinds: The NVML process lists that contain the process.
        memory_bytes: Memory that the process uses on this device.
        user: Login name of the owner, or the UID as text if there is no name.
        command: Command line, made safe.
        cpu_percent: CPU utilization on the host since the previous frame; 100 is one core.
        host_memory_bytes: Resident host memory.
        age_seconds: Time since the process started.
        sm_percent: Share of time in which the process ran kernels on the device.
        start_ticks: Start time in clock ticks since boot, as in /proc/PID/stat; with the PID, it identifies the
            process. None if the process is not identified, for the reason of ``command``, and in older recordings.
        problems: Why a field is None, by field name.
    """

    shown = ("pid", "user", "command", "memory_bytes", "cpu_percent", "host_memory_bytes")

    pid: int
    kinds: tuple[ProcessKind, ...] = (ProcessKind.COMPUTE,)
    memory_bytes: int | None = None
    user: str | None = None
    command: str | None = None
    cpu_percent: float | None = None
    host_memory_bytes: int | None = None
    age_seconds: float | None = None
    sm_percent: float | None = None
    start_ticks: int | None = None
    problems: Mapping[str, Problem] = field(default_factory=dict)

    @property
    def is_zombie(self) -> bool:
        """Whether the process has ended and waits for its parent: only then does a process occupy no memory."""
        return self.host_memory_bytes == 0

    @property
    def computes(self) -> bool:
        """Whether it uses the device for more than graphics."""
        return self.kinds != (ProcessKind.GRAPHICS,)


@dataclass(frozen=True, slots=True)
class MigInstance:
    """The identity of a MIG device within its GPU.

    Attributes:
        parent: `Device.key` of the GPU.
        position: NVML's index of the instance on its GPU.
        gpu_instance_id: NVML's id of the GPU instance.
        compute_instance_id: NVML's id of the compute instance.
    """

    parent: str
    position: int
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None

    def names(self, uuid: str | None) -> tuple[str, ...]:
        """Lowercase names of the instance in ``CUDA_VISIBLE_DEVICES``: its UUID, and the older ``MIG-GPU-.../7/0``."""
        old_form = f"MIG-{self.parent}/{self.gpu_instance_id}/{self.compute_instance_id}".lower()
        return (old_form,) if uuid is None else (uuid.lower(), old_form)


@dataclass(frozen=True, slots=True)
class Device(NotebookTable):
    """One GPU, or one MIG device of a GPU, at one moment.

    Attributes:
        index: NVML's index; a MIG device has the index of its GPU.
        cuda_index: CUDA's index of the device for programs with gpumon's environment; CUDA orders devices differently.
        uuid: NVML's UUID; None for a lost GPU whose UUID was never read.
        instance: Identity within its GPU, or None for a complete GPU.
        pci_bus_id: PCI bus id in NVML's format, such as ``00000000:1B:00.0``.
        name: Product name.
        architecture: GPU architecture, such as ``Hopper``.
        compute_capability: CUDA compute capability, such as ``9.0``.
        vbios_version: Version of the VBIOS.
        persistence_mode: Whether the driver stays loaded while no process uses the device.
        compute_mode: Which processes may use the device for compute.
        ecc_mode: Whether ECC is enabled.
        ecc_mode_pending: ECC mode after the next reset.
        mig_mode: Whether MIG is enabled.
        mig_mode_pending: MIG mode after the next reset.
        state: Whether the device responds.
        age_seconds: Age of the readings; None if there has never been a reading.
        sm_age_seconds: Age of `Process.sm_percent` of its processes; None if it is not sampled.
        readings: Value by metric id; contains only metrics that could be read.
        ranges: Lowest and highest value by metric id, where ``readings`` are means over a time: in merged frames.
        throttle_reasons: NVML's clocks event reasons in force, or None if unknown.
        processes: Processes that NVML lists for the device, or None if unknown.
        problems: Why a value is missing or stale, by metric id or field name.
    """

    shown = (
        *("label", "name", "utilization_gpu_percent", "memory_used_bytes", "memory_total_bytes"),
        *("power_watts", "temperature_celsius", "state"),
    )

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
    sm_age_seconds: float | None = None
    readings: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    throttle_reasons: tuple[str, ...] | None = None
    processes: tuple[Process, ...] | None = None
    problems: Mapping[str, Problem] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Identifies the device over time: its UUID, or its index until the UUID was read."""
        return self.uuid or f"index:{self.index}"

    @property
    def label(self) -> str:
        """NVML's index, followed for a MIG device by its position on the GPU, such as ``3:0``."""
        return str(self.index) if self.instance is None else f"{self.index}:{self.instance.position}"

    def get(self, metric_id: str) -> float | None:
        """The reading of a metric, or None; `problems` then contains the reason.

        Raises:
            ValueError: There is no such metric.
        """
        value = self.readings.get(metric_id)
        if value is None and metric_id not in METRICS:
            raise ValueError(unknown_metric_text(metric_id))
        return value

    def peak(self, metric_id: str) -> float | None:
        """The highest value of a metric over the time of the frame; None if it was not read."""
        known = self.ranges.get(metric_id)
        return self.get(metric_id) if known is None else known[1]

    def is_stale(self, name: str) -> bool:
        """Whether a reading or field is the last known value and not a current one."""
        problem = self.problems.get(name)
        return problem is not None and problem.code is ProblemCode.STALE


@dataclass(frozen=True, slots=True)
class Host:
    """The host of the GPUs.

    Attributes:
        name: Host name.
        cpu_count: Number of logical CPUs.
        cpu_percent: Utilization of all CPUs since the previous frame, 0 to 100.
        load: Load averages of 1, 5 and 15 minutes.
        memory_total_bytes: Installed memory.
        memory_available_bytes: Memory available without swapping.
        uptime_seconds: Time since boot.
        network_receive_bytes_per_second: Data received by all physical network interfaces and InfiniBand ports.
        network_transmit_bytes_per_second: Data sent by them.
        disk_read_bytes_per_second: Data read from all disks.
        disk_write_bytes_per_second: Data written to them.
        problems: Why a field is None, by field name.
    """

    name: str | None = None
    cpu_count: int | None = None
    cpu_percent: float | None = None
    load: tuple[float, float, float] | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    uptime_seconds: float | None = None
    network_receive_bytes_per_second: float | None = None
    network_transmit_bytes_per_second: float | None = None
    disk_read_bytes_per_second: float | None = None
    disk_write_bytes_per_second: float | None = None
    problems: Mapping[str, Problem] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallCost:
    """The cost of one NVML function since the collector started.

    Attributes:
        call: Name of the function.
        count: Number of calls.
        errors: Number of failed calls.
        seconds: Total duration of the calls.
        longest_seconds: Duration of the longest call.
    """

    call: str
    count: int
    errors: int
    seconds: float
    longest_seconds: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """The cost of reading the devices.

    Attributes:
        seconds: Duration of the last sweep, or None before the first one.
        calls: Number of NVML calls since the collector started.
        errors: Number of failed calls.
        threads_stuck: Number of threads blocked in a driver call that does not return.
        calls_by_name: Cost of each NVML function while a screen shows the costs; otherwise empty.
        refused: Number of out-of-range values since the collector started; a persistent one counts in every frame.
    """

    seconds: float | None = None
    calls: int = 0
    errors: int = 0
    threads_stuck: int = 0
    calls_by_name: tuple[CallCost, ...] = ()
    refused: int = 0


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """An error that the driver reported for a device: an Xid, as in the kernel log.

    Attributes:
        device_key: `Device.key` of the device.
        xid: NVIDIA's number of the error.
        time_seconds: Unix time, for labels only.
        monotonic_seconds: Arrival on the host's monotonic clock.
    """

    device_key: str
    xid: int
    time_seconds: float
    monotonic_seconds: float


@dataclass(frozen=True, slots=True)
class Frame(NotebookTable):
    """All measurements of one moment.

    Attributes:
        time_seconds: Unix time, for labels only.
        monotonic_seconds: The host's monotonic clock, for ages and intervals.
        interval_seconds: The requested interval.
        host: The host.
        driver_version: Version of the NVIDIA driver, or None without a driver.
        cuda_driver_version: Highest CUDA version that the driver supports, such as ``13.0``.
        devices: In NVML's order, each GPU followed by its MIG devices.
        sweep: Cost of reading the devices.
        events: Errors that the driver reported since the previous frame; each event is in one frame.
        problems: Problems of the driver or the collector, by subject.
        reports: What the processes of the host report, as JSON that is not checked; only recordings have it.
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
    reports: Mapping[str, Any] = field(default_factory=dict)

    def table_rows(self) -> tuple[Device, ...]:
        """The devices."""
        return self.devices

    def table_title(self) -> str:
        """What is wrong with the driver or the collector."""
        return " ".join(map(str, self.problems.values()))

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The devices without MIG devices, so that nothing is counted twice."""
        return tuple(device for device in self.devices if device.instance is None)

    def device(self, key: str | None) -> Device | None:
        """The device with a key, or None."""
        return next((device for device in self.devices if device.key == key), None)

    def is_fresh(self, device: Device) -> bool:
        """Whether the readings of a device are current: the device responds and was read in the latest sweep."""
        limit = 1.5 * self.interval_seconds + (self.sweep.seconds or 0.0)
        return device.state is DeviceState.OK and device.age_seconds is not None and device.age_seconds <= limit


def bare_uuid(uuid: str) -> str:
    """A UUID without the prefix ``GPU-`` or ``MIG-``, which CUDA and NVML write differently for a MIG device."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def same_uuid(one: str | None, other: str | None) -> bool:
    """Whether two UUIDs name the same device, whatever their prefixes; False if one is None."""
    return one is not None and other is not None and bare_uuid(one) == bare_uuid(other)


def short_product_name(name: str | None) -> str:
    """A product name without the vendor: ``H100 80GB HBM3``; empty for None."""
    return (name or "").removeprefix("NVIDIA ")


HOST_RATES: Final = (
    "network_receive_bytes_per_second",
    "network_transmit_bytes_per_second",
    "disk_read_bytes_per_second",
    "disk_write_bytes_per_second",
)
"""The rates of a host: fields of `Host`, in bytes per second."""
DEVICE_ATTRIBUTES: Final[Mapping[str, Callable[[str], str]]] = {
    "compute_capability": str,
    "vbios_version": str,
    "persistence_mode": Switch,
    "compute_mode": ComputeMode,
    "ecc_mode": Switch,
    "ecc_mode_pending": Switch,
    "mig_mode": Switch,
    "mig_mode_pending": Switch,
}
"""Parser of each device field that is neither identity nor a reading."""
