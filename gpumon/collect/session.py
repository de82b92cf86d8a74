"""One NVML session: from initialisation until the driver goes away, and the slots of its devices."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpumon.collect import nvml
from gpumon.collect.attention import Attention
from gpumon.collect.device import DeviceReader
from gpumon.collect.nvml import DeviceLostError, DriverGoneError, Nvml, NvmlError, ReadingError
from gpumon.collect.processes import ProcessTable
from gpumon.collect.readers import Lane
from gpumon.collect.xids import Xid, XidWatch
from gpumon.core.metrics import METRICS
from gpumon.core.model import TRAITS, Device, DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

LOST_RETRY_SECONDS: Final = 5.0
_IDENTITY: Final = ("uuid", "pci_bus_id", "name", "architecture", *TRAITS)
_NEVER_READ: Final = Problem(ProblemCode.NOT_READ, "It has never been read.")


class Slot:
    """One device of a session, with its last reading.

    Args:
        reader: Reads it.
        clock: Monotonic seconds.
        xids: Tells when it must not be asked any more.

    Attributes:
        reader: Reads it.
        device: The last reading, or what stands in for it.
        instances: The same of the instances of a GPU that is split.
        read_at: When its last good reading was complete, monotonic seconds; None if it has never been.
        quarantined: A driver call on it has not returned; nothing else is asked of it.
    """

    def __init__(self, reader: DeviceReader, clock: Callable[[], float], xids: XidWatch | None = None) -> None:
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
        """The device, and its instances."""
        return (self.device, *self.instances)

    @property
    def fatal(self) -> Problem | None:
        """What befell the device that it does not survive, so that it is not asked any more."""
        return None if self._xids is None else self._xids.fatal.get(self.reader.index)

    def read(self, now: float, uptime: float) -> None:
        """Reads the device. A failure costs this device alone.

        Raises:
            DriverGoneError: The driver is gone.
        """
        if now < self._retry_at or self._has_died():
            return
        try:
            self.device = self.reader.read(now, uptime)
        except (ReadingError, DeviceLostError) as failed:
            if self._has_died():
                return
            if failed.code == nvml.ERROR_INVALID_ARGUMENT and self._handle_worked:
                # Only a handle that was good can have become void, and only a reload of the driver makes it so.
                raise DriverGoneError(failed.problem, failed.code) from None
            excluded = failed.problem.code is ProblemCode.NO_PERMISSION
            self.give_up(failed.problem, DeviceState.EXCLUDED if excluded else DeviceState.LOST, now)
        else:
            self.instances = self.reader.instances
            self.read_at = self._clock()
            self._handle_worked = True
            if self._xids is not None:
                self._xids.watch(self.reader.index, self.reader.handle)

    def _has_died(self) -> bool:
        """Asked twice, since the news of it come from another thread."""
        return self.fatal is not None

    def forget(self) -> None:
        """Gives back what is held for the device, unless a call on it has not returned: that call may use it."""
        if not self.quarantined:
            self.reader.forget_handle()

    def give_up(self, problem: Problem, state: DeviceState, now: float) -> None:
        """Shows the device without readings and leaves it in peace for `LOST_RETRY_SECONDS`."""
        self.reader.forget_handle()
        self._handle_worked = False
        self._retry_at = now + LOST_RETRY_SECONDS
        self.device = _without_readings(_identity(self.reader.identity, self.device), problem, state)
        self.instances = tuple(_without_readings(_identity(each, each), problem, state) for each in self.instances)


class Session:
    """An initialised NVML.

    Args:
        api: The choke point.
        processes: Facts of processes.
        attention: Tells which devices somebody looks at; nobody looks without it.
        xids: Takes the Xids of its devices; without it, nobody waits for them.

    Attributes:
        driver_version: As NVML says it.
        cuda_driver_version: Such as ``13.0``.
        problems: Why one of the two is None, by its name.
        slots: Its devices.
    """

    def __init__(
        self,
        api: Nvml,
        processes: ProcessTable,
        attention: Attention | None = None,
        xids: deque[Xid] | None = None,
    ) -> None:
        self._api = api
        self._xids = None if xids is None else XidWatch(api, xids)
        self._processes = processes
        self._attention = attention or Attention(api.flights.clock)
        self.problems: dict[str, Problem] = {}
        self.driver_version = self._version("driver_version", _driver_version)
        self.cuda_driver_version = self._version("cuda_driver_version", _cuda_driver_version)
        self.slots: list[Slot] = []
        self._count_due = 0.0

    @classmethod
    def open(
        cls,
        api: Nvml,
        processes: ProcessTable,
        attention: Attention | None = None,
        xids: deque[Xid] | None = None,
    ) -> "Session":
        """Initialises NVML.

        Raises:
            NvmlError: It cannot be; `driver.start_problem` says why.
        """
        try:
            api.call("nvmlInitWithFlags", nvml.INIT_FLAG_NO_GPUS)
        except NvmlError as failed:
            if failed.problem.code is not ProblemCode.DRIVER_TOO_OLD:
                raise
            api.call("nvmlInit")
        return cls(api, processes, attention, xids)

    def close(self) -> None:
        """Lets NVML forget its handles, so that the next session gets new ones."""
        if self._xids is not None:
            self._xids.end()
        for slot in self.slots:
            slot.forget()
        with suppress(NvmlError):  # a driver that is gone has nothing left to shut down
            self._api.call("nvmlShutdown")

    def count_devices(self, now: float) -> None:
        """Follows devices that were added or removed, about once a second.

        Raises:
            NvmlError: The driver does not tell.
        """
        if now < self._count_due:
            return
        self._count_due = now + Lane.PROCESSES.value
        count = self._api.call("nvmlDeviceGetCount")
        for slot in self.slots[count:]:
            slot.forget()
        del self.slots[count:]
        while len(self.slots) < count:
            reader = DeviceReader(self._api, len(self.slots), self._processes, self._attention)
            self.slots.append(Slot(reader, self._api.flights.clock, self._xids))

    def _version(self, field: str, read: Callable[[Nvml], str]) -> str | None:
        try:
            return read(self._api)
        except NvmlError as failed:
            self.problems[field] = failed.problem
            return None


def outage(devices: list[Device], problem: Problem) -> list[Device]:
    """The devices of a session that is over: known, but without readings."""
    return [_without_readings(_identity(device, device), problem, DeviceState.LOST) for device in devices]


def _identity(told: Device, last: Device) -> Device:
    """Who a device is, from what it told of itself, from its last reading, or from the kernel."""
    return Device(
        index=told.index,
        uuid=told.uuid or last.uuid,
        instance=told.instance,
        pci_bus_id=told.pci_bus_id or last.pci_bus_id or _bus_id_from_sysfs(told.index),
        name=told.name or last.name,
        architecture=told.architecture or last.architecture,
        compute_capability=last.compute_capability,
        vbios_version=last.vbios_version,
    )


def _without_readings(identity: Device, problem: Problem, state: DeviceState) -> Device:
    """A device of which nothing but ``identity`` is known, because of ``problem``."""
    unknown = [field for field in _IDENTITY if getattr(identity, field) is None]
    problems = dict.fromkeys(("state", "age_seconds", "throttle_reasons", "processes", *METRICS, *unknown), problem)
    return replace(identity, state=state, age_seconds=None, problems=problems)


def _bus_id_from_sysfs(index: int, devices: Path = Path("/sys/bus/pci/devices")) -> str | None:
    """The PCI address of the n-th NVIDIA display or 3D controller; NVML counts them in the same order."""
    try:
        found = sorted(
            device.name
            for device in devices.iterdir()
            if (device / "vendor").read_text().strip() == "0x10de" and (device / "class").read_text().startswith("0x03")
        )
    except OSError:
        return None
    return found[index] if index < len(found) else None


def _driver_version(api: Nvml) -> str:
    return safe_text(api.call("nvmlSystemGetDriverVersion"), 32)


def _cuda_driver_version(api: Nvml) -> str:
    number = api.call("nvmlSystemGetCudaDriverVersion_v2")
    return f"{number // 1000}.{number % 1000 // 10}"
