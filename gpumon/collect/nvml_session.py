"""One NVML session, from initialization until the driver goes away, and the slots of its devices."""

import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpumon.collect import nvml
from gpumon.collect.device import DeviceReader
from gpumon.collect.nvml import DeviceLostError, DriverGoneError, Nvml, NvmlError, ReadingError
from gpumon.collect.on_demand import SamplingBudget
from gpumon.collect.processes import ProcessTable
from gpumon.collect.schedule import Period
from gpumon.collect.xids import Xid, XidWatcher
from gpumon.core.metrics import METRICS
from gpumon.core.model import DEVICE_ATTRIBUTES, Device, DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

LOST_RETRY_SECONDS: Final = 5.0
_IDENTITY: Final = ("uuid", "pci_bus_id", "name", "architecture", *DEVICE_ATTRIBUTES)
_NEVER_READ: Final = Problem(ProblemCode.NOT_READ, "gpumon has not read this GPU yet.")
_CONTAINER_LOST_GPU: Final = Problem(
    ProblemCode.CONTAINER_LOST_GPU,
    "NVML does not start and returns no cause (unknown error), as in a container that has lost its GPU devices.",
    "In a container, restart it; otherwise check that /dev/nvidiactl and /dev/nvidia0 can be opened.",
)


class Slot:
    """One device of a session and its last reading.

    Args:
        reader: Reads the device.
        clock: Monotonic seconds.
        xids: Reports Xids after which the device must not be queried.

    Attributes:
        reader: Reads the device.
        device: The last reading, or a device without readings.
        instances: The same for the MIG instances of the device.
        read_at: End of the last successful reading, monotonic seconds; None before the first one.
        quarantined: Whether a driver call on the device has not returned; gpumon makes no other call on the device.
    """

    def __init__(self, reader: DeviceReader, clock: Callable[[], float], xids: XidWatcher | None = None) -> None:
        self.reader = reader
        self.device = _without_readings(Device(reader.index), _NEVER_READ, DeviceState.UNRESPONSIVE)
        self.instances: tuple[Device, ...] = ()
        self.read_at: float | None = None
        self.quarantined = False
        self._clock = clock
        self._xids = xids
        self._handle_worked = False
        self._retry_at = 0.0

    @property
    def devices(self) -> tuple[Device, ...]:
        """The device and its instances."""
        return (self.device, *self.instances)

    @property
    def fatal(self) -> Problem | None:
        """The Xid that the device does not survive, after which gpumon does not query it."""
        return None if self._xids is None else self._xids.fatal.get(self.reader.index)

    def read(self, now: float, uptime: float) -> None:
        """Read the device. A failure affects this device only.

        Raises:
            DriverGoneError: The driver is gone.
        """
        if now < self._retry_at or self._has_died():
            return
        try:
            self.device = self.reader.read(now, uptime)
        except (ReadingError, DeviceLostError) as error:
            if self._has_died():
                return
            if error.code == nvml.ERROR_INVALID_ARGUMENT and self._handle_worked:
                # A handle that has worked becomes invalid only when the driver is reloaded.
                raise DriverGoneError(error.problem, error.code) from None
            is_excluded = error.problem.code is ProblemCode.NO_PERMISSION
            self.give_up(error.problem, DeviceState.EXCLUDED if is_excluded else DeviceState.LOST, now)
        else:
            self.instances = self.reader.instances
            self.read_at = self._clock()
            self._handle_worked = True
            if self._xids is not None:
                self._xids.watch(self.reader.index, self.reader.handle)

    def _has_died(self) -> bool:
        """Whether there was a fatal Xid; a method, because another thread may report one between two checks."""
        return self.fatal is not None

    def forget(self) -> None:
        """Free what is held for the device, unless a call on it has not returned: that call may use it."""
        if not self.quarantined:
            self.reader.forget_handle()

    def give_up(self, problem: Problem, state: DeviceState, now: float) -> None:
        """Show the device without readings and do not query it for `LOST_RETRY_SECONDS`."""
        self.reader.forget_handle()
        self._handle_worked = False
        self._retry_at = now + LOST_RETRY_SECONDS
        self.device = _without_readings(_identity(self.reader.identity, self.device), problem, state)
        self.instances = tuple(
            _without_readings(_identity(instance, instance), problem, state) for instance in self.instances
        )


class NvmlSession:
    """An initialized NVML.

    Args:
        api: The choke point.
        processes: Facts about processes.
        budget: Selects the devices for on-demand samples; without it no device is selected.
        xids: Receives the Xids of the devices; without it gpumon does not wait for Xids.

    Attributes:
        driver_version: NVML's driver version.
        cuda_driver_version: The newest CUDA version that the driver supports, such as ``13.0``.
        problems: Why one of the two versions is None, by its name.
        slots: The devices.
    """

    def __init__(
        self, api: Nvml, processes: ProcessTable, budget: SamplingBudget | None = None, xids: deque[Xid] | None = None
    ) -> None:
        self._api = api
        self._xids = None if xids is None else XidWatcher(api, xids)
        self._processes = processes
        self._budget = budget or SamplingBudget(api.in_flight.clock)
        self.problems: dict[str, Problem] = {}
        self.driver_version = self._version(
            "driver_version", lambda api: safe_text(api.call("nvmlSystemGetDriverVersion"), 32)
        )
        self.cuda_driver_version = self._version("cuda_driver_version", _cuda_driver_version)
        self.slots: list[Slot] = []
        self._count_due = 0.0
        processes.set_driver_version(self.driver_version)

    @classmethod
    def open(
        cls, api: Nvml, processes: ProcessTable, budget: SamplingBudget | None = None, xids: deque[Xid] | None = None
    ) -> "NvmlSession":
        """Initialize NVML.

        Raises:
            NvmlError: NVML cannot be initialized; `start_problem` returns the reason.
        """
        try:
            api.call("nvmlInitWithFlags", nvml.INIT_FLAG_NO_GPUS)
        except NvmlError as error:
            if error.problem.code is not ProblemCode.DRIVER_TOO_OLD:
                raise
            api.call("nvmlInit")
        return cls(api, processes, budget, xids)

    def close(self) -> None:
        """Shut NVML down, which invalidates its handles, so that the next session gets new ones."""
        if self._xids is not None:
            self._xids.stop()
        for slot in self.slots:
            slot.forget()
        with suppress(NvmlError):  # a driver that is gone cannot be shut down
            self._api.call("nvmlShutdown")

    def count_devices(self, now: float) -> None:
        """Add and remove slots for devices that came or went, about once a second.

        Raises:
            NvmlError: The call failed.
        """
        if now < self._count_due:
            return
        self._count_due = now + Period.ONE_SECOND
        count = self._api.call("nvmlDeviceGetCount")
        for slot in self.slots[count:]:
            slot.forget()
        del self.slots[count:]
        while len(self.slots) < count:
            reader = DeviceReader(self._api, len(self.slots), self._processes, self._budget)
            self.slots.append(Slot(reader, self._api.in_flight.clock, self._xids))

    def _version(self, field: str, read: Callable[[Nvml], str]) -> str | None:
        try:
            return read(self._api)
        except NvmlError as error:
            self.problems[field] = error.problem
            return None


def outage(devices: list[Device], problem: Problem) -> list[Device]:
    """The devices of a session that has ended: known, but without readings."""
    return [_without_readings(_identity(device, device), problem, DeviceState.LOST) for device in devices]


def start_problem(error: NvmlError, proc: Path = Path("/proc")) -> Problem:
    """Why NVML could not be initialized.

    At initialization, an unknown error has a usual cause. A version mismatch is described with both versions.
    """
    if error.code == nvml.ERROR_UNKNOWN:
        return _CONTAINER_LOST_GPU
    if error.problem.code is ProblemCode.LIBRARY_MISMATCH:
        library = library_version(proc) or "version unknown"
        kernel = kernel_driver_version(proc) or "version unknown"
        return replace(
            error.problem,
            reason=f"The versions of the NVIDIA library ({library}) and the loaded kernel driver ({kernel}) differ.",
        )
    return error.problem


def kernel_driver_version(proc: Path = Path("/proc")) -> str | None:
    """Version of the loaded NVIDIA kernel module, or None."""
    return _first_match(proc / "driver/nvidia/version", r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)")


def library_version(proc: Path = Path("/proc")) -> str | None:
    """Version of the NVML library that this process has mapped, from its file name; None if the name has none."""
    return _first_match(proc / "self/maps", r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)")


def _first_match(path: Path, pattern: str) -> str | None:
    try:
        match = re.search(pattern, path.read_text())
    except OSError:
        return None
    return match and match[1]


def _identity(reported: Device, last: Device) -> Device:
    """The identity of a device, from what NVML reported, from its last reading, or from the kernel."""
    return Device(
        index=reported.index,
        uuid=reported.uuid or last.uuid,
        instance=reported.instance,
        pci_bus_id=reported.pci_bus_id or last.pci_bus_id or _bus_id_from_sysfs(reported.index),
        name=reported.name or last.name,
        architecture=reported.architecture or last.architecture,
        compute_capability=last.compute_capability,
        vbios_version=last.vbios_version,
    )


def _without_readings(identity: Device, problem: Problem, state: DeviceState) -> Device:
    """A device with nothing but its ``identity``, because of ``problem``."""
    unknown = [field for field in _IDENTITY if getattr(identity, field) is None]
    problems = dict.fromkeys(("state", "age_seconds", "throttle_reasons", "processes", *METRICS, *unknown), problem)
    return replace(identity, state=state, age_seconds=None, problems=problems)


def _bus_id_from_sysfs(index: int) -> str | None:
    """The PCI address of the n-th NVIDIA display or 3D controller; NVML counts them in the same order."""
    try:
        addresses = sorted(
            device.name
            for device in Path("/sys/bus/pci/devices").iterdir()
            if (device / "vendor").read_text().strip() == "0x10de" and (device / "class").read_text().startswith("0x03")
        )
    except OSError:
        return None
    return addresses[index] if index < len(addresses) else None


def _cuda_driver_version(api: Nvml) -> str:
    number = api.call("nvmlSystemGetCudaDriverVersion_v2")
    return f"{number // 1000}.{number % 1000 // 10}"
