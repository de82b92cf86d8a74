"""Instances of a GPU that is split (MIG): which there are, the memory of each and who holds it.

NVML tells nothing else of an instance: no utilization, no power, no clocks. It is found by its position, and positions
may be empty. Instances are made and destroyed while the driver runs, so they are looked for again every ten seconds.
"""

from collections.abc import Iterator
from typing import Final

from gpumon.collect import nvml
from gpumon.collect.identity import Questions
from gpumon.collect.lanes import LaneReadings, retry_after
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.owners import OwnersReader, fresh
from gpumon.collect.patience import Patience
from gpumon.collect.processes import ProcessTable
from gpumon.collect.readers import MEMORY_READER, Lane
from gpumon.core.metrics import METRICS
from gpumon.core.model import TRAITS, Device, MigInstance
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

NOT_TOLD: Final = Problem(
    ProblemCode.NOT_SUPPORTED,
    "NVML does not tell it of an instance (MIG); the row of its GPU shows what it tells of the whole chip.",
)
_OF_THE_WHOLE: Final = frozenset({"mig_mode", "mig_mode_pending"})
_UNTOLD: Final = dict.fromkeys((*METRICS, "throttle_reasons", *_OF_THE_WHOLE), NOT_TOLD)
_EMPTY: Final = frozenset({nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT})
"""How NVML says that there is no instance at a position."""


class _Opened:
    """What reads one instance.

    Args:
        api: The choke point.
        handle: NVML's handle of the instance.
        position: Where it was found.
        processes: Facts of processes.
    """

    def __init__(self, api: Nvml, handle: Handle, position: int, processes: ProcessTable) -> None:
        self._lanes = LaneReadings(api, handle, (MEMORY_READER,))
        self._owners = OwnersReader(api, handle, processes)
        self._api = api
        self._handle = handle
        self.position = position
        questions = Questions(api, handle)
        self._uuid = questions.ask("uuid", "nvmlDeviceGetUUID", safe_text)
        self._name = questions.ask("name", "nvmlDeviceGetName", safe_text)
        self._part = questions.ask("gpu_instance_id", "nvmlDeviceGetGpuInstanceId", int)
        self._share = questions.ask("compute_instance_id", "nvmlDeviceGetComputeInstanceId", int)
        self._problems = questions.problems

    def is_at(self, handle: Handle) -> bool:
        """Whether a handle is of this very instance, and nothing is left to be asked of it."""
        if self._problems or nvml.address(handle) != nvml.address(self._handle):
            return False
        return Questions(self._api, handle).ask("uuid", "nvmlDeviceGetUUID", safe_text) in {None, self._uuid}

    def read(self, whole: Device, now: float, uptime: float) -> Device:
        """The instance of ``whole``; raises what `LaneReadings.read` raises."""
        readings, problems = self._lanes.read(now)
        owners = self._owners.read(now, uptime, fresh(readings, problems))
        if owners.unattributed_bytes is not None:
            readings["memory_unattributed_bytes"] = owners.unattributed_bytes
        untold = {field: problem for field, problem in _UNTOLD.items() if field not in readings}
        traits = [field for field in TRAITS if field not in _OF_THE_WHOLE]
        told = {field: whole.problems[field] for field in (*traits, "architecture") if field in whole.problems}
        return Device(
            index=whole.index,
            uuid=self._uuid,
            instance=MigInstance(whole.key, self.position, self._part, self._share),
            pci_bus_id=whole.pci_bus_id,
            name=self._name,
            architecture=whole.architecture,
            readings=readings,
            processes=owners.processes,
            problems={**untold, **told, **problems, **owners.problems, **self._problems},
            **{field: getattr(whole, field) for field in traits},
        )


class InstancesReader:
    """The instances of one GPU.

    Args:
        api: The choke point.
        handle: NVML's handle of the GPU.
        processes: Facts of processes, shared by all devices.
    """

    def __init__(self, api: Nvml, handle: Handle, processes: ProcessTable) -> None:
        self._api = api
        self._handle = handle
        self._processes = processes
        self._opened: tuple[_Opened, ...] = ()
        self._due = 0.0
        self._patience = Patience()
        self._problem: Problem | None = None

    def find(self, now: float) -> Problem | None:
        """Looks for the instances when it is time to; returns why they are not known, if they are not.

        Raises:
            DeviceLostError: The GPU is gone.
            DriverGoneError: The driver is gone.
        """
        if now < self._due:
            return self._problem
        try:
            self._opened = tuple(self._look())
        except ReadingError as failed:
            excuse = self._patience.excuse(failed.problem)
            if excuse is None:
                self._opened = ()
            self._problem = excuse if self._opened else failed.problem
            self._due = now + retry_after(failed.problem, Lane.MEDIUM)
        else:
            self._patience.succeeded()
            self._problem = None
            self._due = now + Lane.MEDIUM.value
        return self._problem

    def read(self, whole: Device, now: float, uptime: float) -> Iterator[Device]:
        """The instances that were found, of a GPU that was read at ``now``; one that was destroyed is left out.

        Args:
            whole: The GPU.
            now: Monotonic seconds.
            uptime: Seconds since boot.

        Raises:
            DeviceLostError: The GPU is gone.
            DriverGoneError: The driver is gone.
        """
        for opened in self._opened:
            try:
                yield opened.read(whole, now, uptime)
            except ReadingError:  # not one call knows its handle any more
                self._due = now
                self._opened = tuple(each for each in self._opened if each is not opened)

    def _look(self) -> Iterator[_Opened]:
        """The instances that there are; one that was there before is asked no more than whether it is the same."""
        before = {opened.position: opened for opened in self._opened}
        for position in range(self._api.call("nvmlDeviceGetMaxMigDeviceCount", self._handle)):
            try:
                handle = self._api.call("nvmlDeviceGetMigDeviceHandleByIndex", self._handle, position)
            except ReadingError as failed:
                if failed.code not in _EMPTY:
                    raise
                continue
            known = before.get(position)
            if known is None or not known.is_at(handle):
                known = _Opened(self._api, handle, position, self._processes)
            yield known
