"""Reads one GPU: identity once, readings in their lanes, processes, memory that no process owns, and its instances."""

from collections.abc import Mapping
from typing import Any, Final

from gpumon.collect import nvml
from gpumon.collect.attention import Attention
from gpumon.collect.identity import Questions
from gpumon.collect.instances import InstancesReader
from gpumon.collect.lanes import LaneReadings
from gpumon.collect.look import CloseLook, Shares
from gpumon.collect.nvml import Handle, Nvml
from gpumon.collect.owners import Owners, OwnersReader, fresh
from gpumon.collect.processes import ProcessTable
from gpumon.collect.throttle import ThrottleReasons
from gpumon.collect.traits import TraitReadings
from gpumon.collect.unified import SHARED, is_unified, share_host_memory
from gpumon.core.model import Device, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

_NO_UTILIZATION: Final = Problem(
    ProblemCode.NOT_SUPPORTED, "NVML tells no utilization of a GPU that is split into instances (MIG)."
)
_OF_INSTANCES: Final = Problem(ProblemCode.NOT_READ, "With MIG, the rows of the instances tell it, each its own.")
_UTILIZATION: Final = ("utilization_gpu_percent", "utilization_memory_percent")


class _Open:
    """What reads a device that was looked up.

    Args:
        api: The choke point.
        index: NVML's index of the device.
        processes: Facts of processes.
        attention: Tells whether somebody looks at it.
    """

    def __init__(self, api: Nvml, index: int, processes: ProcessTable, attention: Attention) -> None:
        self.handle = api.call("nvmlDeviceGetHandleByIndex", index)
        self.lanes = LaneReadings(api, self.handle)
        self.traits = TraitReadings(api, self.handle)
        self.throttle = ThrottleReasons(api, self.handle)
        self.look = CloseLook(api, self.handle, index, attention)
        self.owners = OwnersReader(api, self.handle, processes)
        self.instances = InstancesReader(api, self.handle, processes)

    @property
    def is_split(self) -> bool:
        """Whether the GPU is split into instances."""
        return self.traits.values.get("mig_mode") is Switch.ENABLED


class DeviceReader:
    """One GPU of one NVML session. Its CUDA index is left to others: it depends on all devices.

    Args:
        api: The choke point.
        index: NVML's index.
        processes: Facts of processes, shared by all devices.
        attention: Tells whether somebody looks at it, shared by all devices; nobody does without it.

    Attributes:
        index: NVML's index.
        instances: Its instances at the last reading, if it is split.
    """

    def __init__(self, api: Nvml, index: int, processes: ProcessTable, attention: Attention | None = None) -> None:
        self._api = api
        self._processes = processes
        self._attention = attention or Attention(api.flights.clock)
        self.index = index
        self.instances: tuple[Device, ...] = ()
        self._identity = Device(index)
        self._open: _Open | None = None

    @property
    def identity(self) -> Device:
        """What is known of the device even while it cannot be read: index, UUID, PCI bus id, name, architecture."""
        return self._identity

    @property
    def handle(self) -> Handle | None:
        """NVML's handle of the device, or None while it was not looked up."""
        return None if self._open is None else self._open.handle

    def forget_handle(self) -> None:
        """Looks the device up anew at the next read; a handle does not survive the loss of its device.

        What the driver's library holds for the device is given back, so no other thread may be in a call on it.
        """
        forgotten, self._open = self._open, None
        if forgotten is not None:
            forgotten.look.close()

    def read(self, now: float, uptime: float) -> Device:
        """The device at ``now``.

        Args:
            now: Monotonic seconds.
            uptime: Seconds since boot.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
            ReadingError: The device cannot be looked up.
        """
        opened = self._open or self._look_up()
        readings, problems = opened.lanes.read(now)
        opened.traits.read(now)
        identity = self._identity
        if is_unified(identity.name, opened.traits.values.get("compute_capability")):
            share_host_memory(readings, problems)
        shares = opened.look.read(identity.key, now, readings, problems)
        owners = self._owners(opened, now, uptime, fresh(readings, problems), shares)
        if owners.unattributed_bytes is not None:
            readings["memory_unattributed_bytes"] = owners.unattributed_bytes
        throttle_reasons, problem = opened.throttle.read(now)
        if problem is not None:
            problems["throttle_reasons"] = problem
        for more in (owners.problems, identity.problems, opened.traits.problems):
            if more:
                problems.update(more)
        _explain(readings, problems, is_split=opened.is_split)
        found = Device(
            index=self.index,
            uuid=identity.uuid,
            pci_bus_id=identity.pci_bus_id,
            name=identity.name,
            architecture=identity.architecture,
            readings=readings,
            throttle_reasons=throttle_reasons,
            processes=owners.processes,
            problems=problems,
            **opened.traits.values,
        )
        self.instances = tuple(opened.instances.read(found, now, uptime)) if opened.is_split else ()
        return found

    def _owners(
        self, opened: _Open, now: float, uptime: float, readings: Mapping[str, float], shares: Shares
    ) -> Owners:
        """Who holds the memory; of a GPU that is split, its instances tell that."""
        if not opened.is_split:
            return opened.owners.read(now, uptime, readings, shares)
        problem = opened.instances.find(now)
        if problem is None:
            return Owners((), None, {"memory_unattributed_bytes": _OF_INSTANCES})
        return Owners(None, None, dict.fromkeys(("processes", "memory_unattributed_bytes"), problem))

    def _look_up(self) -> _Open:
        """Looks the device up, asks who it is, and makes what reads it."""
        opened = _Open(self._api, self.index, self._processes, self._attention)
        questions = Questions(self._api, opened.handle)
        architecture = questions.ask("architecture", "nvmlDeviceGetArchitecture", int)
        self._identity = Device(
            self.index,
            uuid=questions.ask("uuid", "nvmlDeviceGetUUID", safe_text),
            pci_bus_id=questions.ask("pci_bus_id", "nvmlDeviceGetPciInfo", _bus_id),
            name=questions.ask("name", "nvmlDeviceGetName", safe_text),
            architecture=None if architecture is None else nvml.ARCHITECTURES.get(architecture, str(architecture)),
            problems=questions.problems,
        )
        self._open = opened
        return opened


def _explain(readings: dict[str, float], problems: dict[str, Problem], *, is_split: bool) -> None:
    """Says why the chip itself has no such figure, in place of what the driver says of the call."""
    if is_split:
        problems |= {metric: _NO_UTILIZATION for metric in _UTILIZATION if metric not in readings}
    if problems.get("memory_reserved_bytes") is SHARED:
        problems["memory_unattributed_bytes"] = SHARED


def _bus_id(info: Any) -> str:
    raw = info.busId
    return safe_text(raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(raw), 32)
