"""The MIG instances of a GPU: which ones exist, their memory and their processes.

NVML reports neither power nor clocks of an instance, and its utilization only as hardware counters (GPM), of which a
sample takes half a millisecond. They are sampled every two seconds, within the budget of on-demand samples. An
instance is found by its position, and positions may be empty. Instances are created and destroyed while the driver is
loaded, so gpumon searches for them every ten seconds.
"""

from collections.abc import Iterator
from typing import Final

from gpumon.collect import nvml
from gpumon.collect.activity import INSTANCE_COUNTERS, GpmCounters
from gpumon.collect.attributes import IdentityQueries
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.on_demand import SAMPLE_SECONDS, SampledSource, SamplingBudget
from gpumon.collect.process_lists import ProcessListReader, current_readings
from gpumon.collect.processes import ProcessTable
from gpumon.collect.readers import MEMORY_READER, MetricsReader
from gpumon.collect.schedule import NEEDS_TWO_SAMPLES, Period, PolledValue
from gpumon.core.metrics import METRICS
from gpumon.core.model import DEVICE_ATTRIBUTES, Device, MigInstance
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

NOT_OF_INSTANCE: Final = Problem(
    ProblemCode.NOT_SUPPORTED,
    "NVML does not report this value for a MIG instance; the row of the GPU shows the value of the complete chip.",
)
_NO_SHARES: Final = Problem(
    ProblemCode.NOT_SUPPORTED, "NVML does not report the SM activity of a process on a MIG instance."
)
_OF_GPU_ONLY: Final = frozenset({"mig_mode", "mig_mode_pending"})
_MISSING: Final = dict.fromkeys((*METRICS, "throttle_reasons", *_OF_GPU_ONLY), NOT_OF_INSTANCE)
_SHARED_FIELDS: Final = tuple(field for field in DEVICE_ATTRIBUTES if field not in _OF_GPU_ONLY)
"""Attributes that an instance has in common with its GPU."""
_EMPTY_POSITION: Final = frozenset({nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT})
"""NVML's return codes for a position without an instance."""


class _Instance:
    """The readers of one instance of the GPU with the handle ``gpu``."""

    def __init__(
        self, api: Nvml, handle: Handle, position: int, processes: ProcessTable, *, gpu: Handle, budget: SamplingBudget
    ) -> None:
        self._metrics = MetricsReader(api, handle, (MEMORY_READER,))
        self._processes = ProcessListReader(api, handle, processes)
        self._api = api
        self._handle = handle
        self.position = position
        queries = IdentityQueries(api, handle)
        self._uuid = queries.query("uuid", "nvmlDeviceGetUUID", safe_text)
        self._name = queries.query("name", "nvmlDeviceGetName", safe_text)
        self._gpu_instance_id = queries.query("gpu_instance_id", "nvmlDeviceGetGpuInstanceId", int)
        self._compute_instance_id = queries.query("compute_instance_id", "nvmlDeviceGetComputeInstanceId", int)
        self._problems = queries.problems
        self._budget = budget
        self._turn = object()
        self._counters = SampledSource(
            GpmCounters(api, gpu, INSTANCE_COUNTERS, self._gpu_instance_id), Period.TWO_SECONDS
        )

    def has_handle(self, handle: Handle) -> bool:
        """Whether a handle belongs to this instance, and every identity query of the instance has succeeded."""
        if self._problems or nvml.address(handle) != nvml.address(self._handle):
            return False
        return IdentityQueries(self._api, handle).query("uuid", "nvmlDeviceGetUUID", safe_text) in {None, self._uuid}

    def read(self, gpu: Device, now: float, uptime: float) -> Device:
        """The instance of ``gpu``; raises what `MetricsReader.read` raises."""
        readings, problems = self._metrics.read(now)
        processes = self._processes.read(now, uptime, current_readings(readings, problems), _NO_SHARES)
        if processes.unattributed_bytes is not None:
            readings["memory_unattributed_bytes"] = processes.unattributed_bytes
        self._sample_counters(now)
        self._counters.publish(readings, problems)
        missing = {field: problem for field, problem in _MISSING.items() if field not in readings}
        inherited = {field: gpu.problems[field] for field in (*_SHARED_FIELDS, "architecture") if field in gpu.problems}
        return Device(
            index=gpu.index,
            uuid=self._uuid,
            instance=MigInstance(gpu.key, self.position, self._gpu_instance_id, self._compute_instance_id),
            pci_bus_id=gpu.pci_bus_id,
            name=self._name,
            architecture=gpu.architecture,
            readings=readings,
            processes=processes.processes,
            problems={**missing, **inherited, **problems, **processes.problems, **self._problems},
            **{field: getattr(gpu, field) for field in _SHARED_FIELDS},
        )

    def _sample_counters(self, now: float) -> None:
        """Sample the counters if that is due, and other samples leave time for it."""
        polled = self._counters.polled
        if self._gpu_instance_id is None or now < polled.due or not self._budget.has_turn(self._turn, now):
            return
        with self._budget.charge(self._turn, now):
            self._counters.poll(now)
        if polled.value is not None and NEEDS_TWO_SAMPLES in polled.value.values():
            polled.due = now + SAMPLE_SECONDS

    def close(self) -> None:
        """Free what the driver library holds for the instance."""
        self._counters.source.close()
        self._budget.release(self._turn)


class InstancesReader:
    """Reader of the MIG instances of one GPU.

    Args:
        api: The choke point.
        handle: NVML's handle of the GPU.
        processes: Facts about processes, shared by all devices.
        budget: Grants the samples of the counters, shared by all devices.
    """

    def __init__(self, api: Nvml, handle: Handle, processes: ProcessTable, budget: SamplingBudget) -> None:
        self._api = api
        self._handle = handle
        self._processes = processes
        self._budget = budget
        self._instances = PolledValue[tuple[_Instance, ...] | None](Period.TEN_SECONDS)

    def find(self, now: float) -> Problem | None:
        """Search for the instances when the search is due; return why they are unknown or stale, if they are.

        Raises:
            DeviceLostError: The GPU is gone.
            DriverGoneError: The driver is gone.
        """
        before = self._instances.value or ()
        after = self._instances.poll(now, lambda: tuple(self._find()) or None) or ()
        for instance in before:
            if instance not in after:
                instance.close()
        return self._instances.problem

    def read(self, gpu: Device, now: float, uptime: float) -> Iterator[Device]:
        """The instances of a GPU that was read at ``now``, without those that were destroyed since the last search.

        Args:
            gpu: The GPU.
            now: Monotonic seconds.
            uptime: Seconds since boot.

        Raises:
            DeviceLostError: The GPU is gone.
            DriverGoneError: The driver is gone.
        """
        for instance in self._instances.value or ():
            try:
                yield instance.read(gpu, now, uptime)
            except ReadingError:  # every call rejected the handle: the instance was destroyed
                self._instances.due = now
                remaining = tuple(other for other in self._instances.value or () if other is not instance)
                self._instances.value = remaining or None
                instance.close()

    def close(self) -> None:
        """Free what the driver library holds for the instances."""
        for instance in self._instances.value or ():
            instance.close()

    def _find(self) -> Iterator[_Instance]:
        """The instances that exist. A known instance is kept after a check that it is still the same one."""
        known = {instance.position: instance for instance in self._instances.value or ()}
        for position in range(self._api.call("nvmlDeviceGetMaxMigDeviceCount", self._handle)):
            try:
                handle = self._api.call("nvmlDeviceGetMigDeviceHandleByIndex", self._handle, position)
            except ReadingError as error:
                if error.code not in _EMPTY_POSITION:
                    raise
                continue
            instance = known.get(position)
            if instance is None or not instance.has_handle(handle):
                instance = _Instance(
                    self._api, handle, position, self._processes, gpu=self._handle, budget=self._budget
                )
            yield instance
