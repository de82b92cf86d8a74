"""Other processes on the GPUs that a workload is about to use."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from gpumon.core.device_use import is_much_unattributed
from gpumon.core.model import Device, Frame, Process
from gpumon.core.problems import ProblemCode


class OtherProcess(NamedTuple):
    """A process on a GPU that is not one of gpumon's workloads.

    Attributes:
        device: The GPU.
        process: The process, or None for memory that no visible process holds.
        memory_bytes: Device memory that it holds, or None where the driver does not report it.
    """

    device: Device
    process: Process | None
    memory_bytes: float | None


def other_processes_on(
    devices: Iterable[Device], before: Frame | None, own_pids: Collection[int | None]
) -> Iterator[OtherProcess]:
    """Processes on the devices, without gpumon's own workloads.

    In a container the driver reports PIDs of another PID namespace, also for the workload itself. Therefore a process
    that /proc does not show counts only if the driver listed it before the workload started.
    ``before`` is a frame from before the workload had a CUDA context, or None.
    """
    earlier = {} if before is None else {device.key: device for device in before.devices}
    for device in devices:
        first = earlier.get(device.key)
        known_pids = {process.pid for process in first.processes or ()} if first is not None else None
        for process in device.processes or ():
            is_new = known_pids is not None and process.pid not in known_pids
            if process.pid not in own_pids and not (is_new and is_unseen(process)):
                yield OtherProcess(device, process, process.memory_bytes)
        if first is not None and is_much_unattributed(first):
            yield OtherProcess(device, None, first.get("memory_unattributed_bytes"))


def is_unseen(process: Process) -> bool:
    """Whether /proc does not show a process that the driver lists: it runs in another PID namespace, or has ended."""
    problem = process.problems.get("command")
    return problem is not None and problem.code is ProblemCode.PROCESS_NOT_VISIBLE
