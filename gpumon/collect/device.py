"""Reads one GPU: identity once, readings in their lanes, processes, and memory that no process owns."""

from collections.abc import Callable
from typing import Any, Final

from gpumon.collect import nvml
from gpumon.collect.lanes import LaneReadings
from gpumon.collect.look import Attention, CloseLook
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.owners import OwnersReader
from gpumon.collect.processes import ProcessTable
from gpumon.collect.traits import TraitReadings
from gpumon.core.model import Device
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

_NO_TEXT: Final = Problem(ProblemCode.INVALID_VALUE, "The driver answers with an empty text.")


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
        self.look = CloseLook(api, self.handle, index, attention)
        self.owners = OwnersReader(api, self.handle, processes)


class DeviceReader:
    """One GPU of one NVML session. Its CUDA index is left to others: it depends on all devices.

    Args:
        api: The choke point.
        index: NVML's index.
        processes: Facts of processes, shared by all devices.
        attention: Tells whether somebody looks at it, shared by all devices; nobody does without it.
    """

    def __init__(self, api: Nvml, index: int, processes: ProcessTable, attention: Attention | None = None) -> None:
        self._api = api
        self._processes = processes
        self._attention = attention or Attention(api.flights.clock)
        self.index = index
        self._identity = Device(index)
        self._open: _Open | None = None

    @property
    def identity(self) -> Device:
        """What is known of the device even while it cannot be read: index, UUID, PCI bus id, name, architecture."""
        return self._identity

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
        shares = opened.look.read(identity.key, now, readings, problems)
        owners = opened.owners.read(now, uptime, readings, shares)
        if owners.unattributed_bytes is not None:
            readings["memory_unattributed_bytes"] = owners.unattributed_bytes
        throttle_reasons = self._throttle_reasons(opened.handle, problems)
        for more in (owners.problems, identity.problems, opened.traits.problems):
            if more:
                problems.update(more)
        return Device(
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

    def _look_up(self) -> _Open:
        """Looks the device up, asks who it is, and makes what reads it."""
        opened = _Open(self._api, self.index, self._processes, self._attention)
        handle = opened.handle
        problems: dict[str, Problem] = {}
        architecture = self._identify(problems, "architecture", "nvmlDeviceGetArchitecture", handle, str)
        self._identity = Device(
            self.index,
            uuid=self._identify(problems, "uuid", "nvmlDeviceGetUUID", handle, safe_text),
            pci_bus_id=self._identify(problems, "pci_bus_id", "nvmlDeviceGetPciInfo", handle, _bus_id),
            name=self._identify(problems, "name", "nvmlDeviceGetName", handle, safe_text),
            architecture=None if architecture is None else nvml.ARCHITECTURES.get(int(architecture), architecture),
            problems=problems,
        )
        self._open = opened
        return opened

    def _identify(
        self, problems: dict[str, Problem], field: str, call: str, handle: Handle, convert: Callable[[Any], str]
    ) -> str | None:
        try:
            text = convert(self._api.call(call, handle))
        except ReadingError as failed:
            problems[field] = failed.problem
            return None
        if not text:
            problems[field] = _NO_TEXT
        return text or None

    def _throttle_reasons(self, handle: Handle, problems: dict[str, Problem]) -> tuple[str, ...] | None:
        try:
            bits = self._api.call_newest(
                "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", handle
            )
        except ReadingError as failed:
            problems["throttle_reasons"] = failed.problem
            return None
        return tuple(name for bit, name in nvml.THROTTLE_REASONS if bits & bit)


def _bus_id(info: Any) -> str:
    raw = info.busId
    return safe_text(raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(raw), 32)
