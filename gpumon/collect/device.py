"""Reads one GPU: identity once, readings in their lanes, processes, and memory that no process owns."""

from collections.abc import Callable
from typing import Any, Final

from gpumon.collect import nvml
from gpumon.collect.lanes import LaneReadings
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.owners import OwnersReader
from gpumon.collect.processes import ProcessTable
from gpumon.core.model import Device
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

_NO_CUDA_INDEX: Final = Problem(ProblemCode.NOT_READ, "gpumon does not ask CUDA for its order; this is NVML's alone.")
_NO_TEXT: Final = Problem(ProblemCode.INVALID_VALUE, "The driver answers with an empty text.")


class DeviceReader:
    """One GPU of one NVML session.

    Args:
        api: The choke point.
        index: NVML's index.
        processes: Facts of processes, shared by all devices.
    """

    def __init__(self, api: Nvml, index: int, processes: ProcessTable) -> None:
        self._api = api
        self._processes = processes
        self.index = index
        self._handle: Handle = None
        self._identity = Device(index)
        self._lanes: LaneReadings | None = None
        self._owners: OwnersReader | None = None

    @property
    def identity(self) -> Device:
        """What is known of the device even while it cannot be read: index, UUID, PCI bus id, name, architecture."""
        return self._identity

    def forget_handle(self) -> None:
        """Looks the device up anew at the next read; a handle does not survive the loss of its device."""
        self._lanes = self._owners = None

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
        if self._lanes is None or self._owners is None:
            self._lanes, self._owners = self._open()
        readings, problems = self._lanes.read(now)
        owners = self._owners.read(now, uptime, readings)
        if owners.unattributed_bytes is not None:
            readings["memory_unattributed_bytes"] = owners.unattributed_bytes
        throttle_reasons = self._throttle_reasons(problems)
        identity = self._identity
        return Device(
            index=self.index,
            uuid=identity.uuid,
            pci_bus_id=identity.pci_bus_id,
            name=identity.name,
            architecture=identity.architecture,
            readings=readings,
            throttle_reasons=throttle_reasons,
            processes=owners.processes,
            problems={**problems, **owners.problems, **identity.problems, "cuda_index": _NO_CUDA_INDEX},
        )

    def _open(self) -> tuple[LaneReadings, OwnersReader]:
        """Looks the device up, asks who it is, and makes what reads it."""
        self._handle = self._api.call("nvmlDeviceGetHandleByIndex", self.index)
        problems: dict[str, Problem] = {}
        architecture = self._identify(problems, "architecture", "nvmlDeviceGetArchitecture", str)
        self._identity = Device(
            self.index,
            uuid=self._identify(problems, "uuid", "nvmlDeviceGetUUID", safe_text),
            pci_bus_id=self._identify(problems, "pci_bus_id", "nvmlDeviceGetPciInfo", _bus_id),
            name=self._identify(problems, "name", "nvmlDeviceGetName", safe_text),
            architecture=None if architecture is None else nvml.ARCHITECTURES.get(int(architecture), architecture),
            problems=problems,
        )
        return LaneReadings(self._api, self._handle), OwnersReader(self._api, self._handle, self._processes)

    def _identify(
        self, problems: dict[str, Problem], field: str, call: str, convert: Callable[[Any], str]
    ) -> str | None:
        try:
            text = convert(self._api.call(call, self._handle))
        except ReadingError as failed:
            problems[field] = failed.problem
            return None
        if not text:
            problems[field] = _NO_TEXT
        return text or None

    def _throttle_reasons(self, problems: dict[str, Problem]) -> tuple[str, ...] | None:
        try:
            bits = self._api.call_newest(
                "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", self._handle
            )
        except ReadingError as failed:
            problems["throttle_reasons"] = failed.problem
            return None
        return tuple(name for bit, name in nvml.THROTTLE_REASONS if bits & bit)


def _bus_id(info: Any) -> str:
    raw = info.busId
    return safe_text(raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(raw), 32)
