"""One GPU: identity, attributes, metrics, processes, unattributed memory, and MIG instances.

Some chips share the host's memory, and NVML reports no memory for them. On these chips only, the memory of the host
stands in; on any other chip, memory that NVML does not report is unknown.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gpumon.collect import nvml
from gpumon.collect.activity import SmShares
from gpumon.collect.attributes import AttributesReader, IdentityQueries
from gpumon.collect.instances import InstancesReader
from gpumon.collect.nvml import Handle, Nvml
from gpumon.collect.on_demand import OnDemandReader, SamplingBudget
from gpumon.collect.process_lists import DeviceProcesses, ProcessListReader, current_readings
from gpumon.collect.processes import ProcessTable
from gpumon.collect.readers import BACKGROUND_READERS, READERS, MetricsReader, read_throttle_reasons
from gpumon.collect.schedule import Period, PolledValue
from gpumon.core.model import Device, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import read_meminfo
from gpumon.core.text import safe_text

_NO_UTILIZATION: Final = Problem(
    ProblemCode.NOT_SUPPORTED, "NVML does not report the utilization of a GPU in MIG mode."
)
_IN_INSTANCES: Final = Problem(ProblemCode.NOT_READ, "In MIG mode, the rows of the instances show this value.")
_UTILIZATION: Final = ("utilization_gpu_percent", "utilization_memory_percent")

SHARED_MEMORY: Final = Problem(
    ProblemCode.MEMORY_SHARED, "This GPU shares the host's memory: the values are the host's and include all programs."
)
"""Why such a chip has neither reserved nor unattributed memory."""

_SHARED_CAPABILITIES: Final = frozenset({"5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1"})
"""Compute capabilities of Tegra X1, X2, Xavier, Orin, Thor (two numbers) and GB10. No graphics card has them."""
_SHARED_NAMES: Final = re.compile(r"\b(GB10|Tegra|Xavier|Orin|Thor|Jetson|nvgpu)\b", re.IGNORECASE)


class _OpenDevice:
    """The readers of a device for which NVML has returned a handle."""

    def __init__(self, api: Nvml, index: int, processes: ProcessTable, budget: SamplingBudget) -> None:
        self.handle = api.call("nvmlDeviceGetHandleByIndex", index)
        self.metrics = MetricsReader(api, self.handle, BACKGROUND_READERS if budget.is_background else READERS)
        self.attributes = AttributesReader(api, self.handle)
        self.throttle_reasons = PolledValue[tuple[str, ...]](Period.EVERY_SWEEP)
        self.on_demand = OnDemandReader(api, self.handle, index, budget)
        period = Period.TWO_SECONDS if budget.is_background else Period.ONE_SECOND
        self.processes = ProcessListReader(api, self.handle, processes, period)
        self.instances = InstancesReader(api, self.handle, processes, budget)

    @property
    def is_split(self) -> bool:
        """Whether the GPU is in MIG mode."""
        return self.attributes.values.get("mig_mode") is Switch.ENABLED


class DeviceReader:
    """Reader of one GPU of one NVML session. The CUDA index is not set here, because it depends on all devices.

    Args:
        api: The choke point.
        index: NVML's index.
        processes: Facts about processes, shared by all devices.
        budget: Grants on-demand samples, shared by all devices; without it no device is selected.

    Attributes:
        index: NVML's index.
        instances: The MIG instances at the last reading.
    """

    def __init__(self, api: Nvml, index: int, processes: ProcessTable, budget: SamplingBudget | None = None) -> None:
        self._api = api
        self._processes = processes
        self._budget = budget or SamplingBudget(api.in_flight.clock)
        self.index = index
        self.instances: tuple[Device, ...] = ()
        self._identity = Device(index)
        self._identity_due = 0.0
        self._open: _OpenDevice | None = None

    @property
    def identity(self) -> Device:
        """What is known even while the device cannot be read: index, UUID, PCI bus ID, name, architecture."""
        return self._identity

    @property
    def handle(self) -> Handle | None:
        """NVML's handle of the device, or None before the first reading."""
        return None if self._open is None else self._open.handle

    def forget_handle(self) -> None:
        """Request a new handle at the next reading; a handle becomes invalid when its device is lost.

        This frees what the driver library holds for the device, so no other thread may be in a call on the device.
        """
        closing, self._open = self._open, None
        if closing is not None:
            closing.on_demand.close()
            closing.instances.close()

    def read(self, now: float, uptime: float) -> Device:
        """The device at ``now``.

        Args:
            now: Monotonic seconds.
            uptime: Seconds since boot.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
            ReadingError: NVML returns no handle for the device, or rejects the handle.
        """
        device = self._open or self._open_device(now)
        if self._identity.problems and now >= self._identity_due:  # a fault that has passed may have hidden it
            self._identify(device.handle, self._identity, now)
        readings, problems = device.metrics.read(now)
        device.attributes.read(now)
        identity = self._identity
        if has_shared_memory(identity.name, device.attributes.values.get("compute_capability")):
            add_host_memory(readings, problems)
        shares = device.on_demand.read(identity.key, now, readings, problems)
        processes = self._read_processes(device, now, uptime, current_readings(readings, problems), shares)
        if processes.unattributed_bytes is not None:
            readings["memory_unattributed_bytes"] = processes.unattributed_bytes
        throttle = device.throttle_reasons
        throttle.poll(now, lambda: read_throttle_reasons(self._api, device.handle))
        if throttle.problem is not None:
            problems["throttle_reasons"] = throttle.problem
        for more in (processes.problems, identity.problems, device.attributes.problems):
            if more:
                problems.update(more)
        _explain(readings, problems, is_split=device.is_split)
        result = Device(
            index=self.index,
            uuid=identity.uuid,
            pci_bus_id=identity.pci_bus_id,
            name=identity.name,
            architecture=identity.architecture,
            readings=readings,
            throttle_reasons=throttle.value,
            processes=processes.processes,
            sm_age_seconds=device.on_demand.shares_age(now),
            problems=problems,
            **device.attributes.values,
        )
        self.instances = tuple(device.instances.read(result, now, uptime)) if device.is_split else ()
        return result

    def _read_processes(
        self, device: _OpenDevice, now: float, uptime: float, readings: Mapping[str, float], shares: SmShares
    ) -> DeviceProcesses:
        """The processes on the GPU; in MIG mode, the instances have the processes."""
        if not device.is_split:
            return device.processes.read(now, uptime, readings, shares)
        problem = device.instances.find(now)
        if problem is None:
            return DeviceProcesses((), None, {"memory_unattributed_bytes": _IN_INSTANCES})
        return DeviceProcesses(None, None, dict.fromkeys(("processes", "memory_unattributed_bytes"), problem))

    def _open_device(self, now: float) -> _OpenDevice:
        """Request a handle, query the identity, and create the readers."""
        device = _OpenDevice(self._api, self.index, self._processes, self._budget)
        self._identify(device.handle, Device(self.index), now)
        self._open = device
        return device

    def _identify(self, handle: Handle, known: Device, now: float) -> None:
        """Query what is missing of the identity."""
        queries = IdentityQueries(self._api, handle)
        fields: dict[str, Any] = {
            field: queries.query(field, call, convert)
            for field, call, convert in IDENTITY_CALLS
            if getattr(known, field) is None
        }
        self._identity = replace(known, **fields, problems=queries.problems)
        self._identity_due = now + Period.TEN_SECONDS


def _explain(readings: dict[str, float], problems: dict[str, Problem], *, is_split: bool) -> None:
    """Replace the driver's error by the reason why this kind of chip has no such value."""
    if is_split:
        problems |= {metric: _NO_UTILIZATION for metric in _UTILIZATION if metric not in readings}
    if problems.get("memory_reserved_bytes") is SHARED_MEMORY:
        problems["memory_unattributed_bytes"] = SHARED_MEMORY


def bus_id(info: Any) -> str:
    """The PCI bus ID in NVML's structure."""
    raw = info.busId
    return safe_text(raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(raw), 32)


def _architecture(number: int) -> str:
    name: str = nvml.ARCHITECTURES.get(number, str(number))
    return name


IDENTITY_CALLS: Final = (
    ("uuid", "nvmlDeviceGetUUID", safe_text),
    ("pci_bus_id", "nvmlDeviceGetPciInfo", bus_id),
    ("name", "nvmlDeviceGetName", safe_text),
    ("architecture", "nvmlDeviceGetArchitecture", _architecture),
)
"""Field, NVML function and conversion of what a device is."""


def has_shared_memory(name: str | None, compute_capability: str | None) -> bool:
    """Whether a chip shares the host's memory, judged by its name and compute capability."""
    return compute_capability in _SHARED_CAPABILITIES or (name is not None and _SHARED_NAMES.search(name) is not None)


def host_memory(proc: Path = Path("/proc")) -> dict[str, float]:
    """Total, used and free memory of the host by metric, cache counted as free; empty if the kernel reports none."""
    try:
        sizes = read_meminfo(proc)
        total, free = sizes["MemTotal"], sizes["MemAvailable"]
    except (OSError, KeyError):
        return {}
    return {"memory_total_bytes": total, "memory_used_bytes": total - free, "memory_free_bytes": free}


def add_host_memory(
    readings: dict[str, float], problems: dict[str, Problem], read: Callable[[], dict[str, float]] = host_memory
) -> None:
    """Add the host's memory to the readings of a chip that shares it, unless NVML reports memory."""
    if "memory_total_bytes" in readings:
        return
    memory = read()
    readings.update(memory)
    for metric in memory:
        problems.pop(metric, None)
    problems["memory_reserved_bytes"] = SHARED_MEMORY
