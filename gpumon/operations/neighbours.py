"""Who else works on the GPUs that a workload is about to use."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpumon.core.model import Device, Frame, Process
from gpumon.core.problems import ProblemCode
from gpumon.diagnosis.health import is_much_unattributed


class Neighbour(NamedTuple):
    """Somebody else on a GPU.

    Attributes:
        device: The GPU.
        process: The process, or None for memory whose owner cannot be seen from here.
        memory_bytes: Device memory held, or None where that is not told.
    """

    device: Device
    process: Process | None
    memory_bytes: float | None


def neighbours_on(devices: Iterable[Device], before: Frame | None, own_pid: int | None) -> Iterator[Neighbour]:
    """Everybody on the devices but the workload itself.

    In a container the driver lists processes by PIDs that mean nothing there, the workload's own among them. So a
    process that cannot be seen counts only if it was there before the workload was.

    Args:
        devices: As they are now.
        before: A frame from before the workload had a CUDA context, or None.
        own_pid: PID of the workload.
    """
    earlier = {} if before is None else {device.key: device for device in before.devices}
    for device in devices:
        first = earlier.get(device.key)
        known = {process.pid for process in first.processes or ()} if first is not None else None
        for process in device.processes or ():
            is_new_and_unseen = known is not None and process.pid not in known and _is_unseen(process)
            if process.pid != own_pid and not is_new_and_unseen:
                yield Neighbour(device, process, process.memory_bytes)
        if first is not None and is_much_unattributed(first):
            yield Neighbour(device, None, first.get("memory_unattributed_bytes"))


def _is_unseen(process: Process) -> bool:
    problem = process.problems.get("command")
    return problem is not None and problem.code is ProblemCode.PROCESS_NOT_VISIBLE
