"""Which process of NVML's list is the one that a probe runs in, and which of its allocators is that of a GPU.

Both sides mostly name a process by the same PID. In a container that does not see the host's processes they do not;
then only a single possible match counts as one, and it is told.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.core.allocator import AllocatorStatistics
from gpumon.core.model import Device, Process, bare_uuid
from gpumon.core.problems import ProblemCode
from gpumon.core.units import bytes_text
from gpumon.probe.news import Probe


class Owner(NamedTuple):
    """Somebody who holds memory of a GPU.

    Attributes:
        pid: PID as gpumon sees it; NVML's where there is no probe.
        process: Its entry in NVML's list, or None where NVML lists none.
        probe: Its probe, if it has one.
        statistics: What its allocator says of this GPU.
    """

    pid: int
    process: Process | None
    probe: Probe | None = None
    statistics: AllocatorStatistics | None = None

    @property
    def memory_bytes(self) -> int | None:
        """What NVML says that it holds."""
        return None if self.process is None else self.process.memory_bytes


class Owners(NamedTuple):
    """Those of one GPU, by PID.

    Attributes:
        owners: Every process of NVML's list, and the probed ones that NVML does not list.
        notes: What could not be matched for certain, in sentences.
    """

    owners: tuple[Owner, ...]
    notes: tuple[str, ...] = ()


def owners_of(device: Device, probes: Mapping[int, Probe]) -> Owners:
    """Who holds memory of a GPU.

    Args:
        device: The GPU, or an instance of one.
        probes: All that are known, by PID as gpumon sees it; those that are gone do not count.
    """
    notes: list[str] = []
    live = {pid: probe for pid, probe in sorted(probes.items()) if probe.connected}
    listed = {process.pid: process for process in device.processes or ()}
    here: dict[int, AllocatorStatistics] = {}
    for pid, probe in live.items():
        if (found := _statistics(device, probe, pid in listed, notes)) is not None:
            here[pid] = found
    found_for = {pid: listed[pid] for pid in here if pid in listed}
    strays = {pid: statistics.reserved_bytes for pid, statistics in here.items() if pid not in listed}
    unseen = [process for process in listed.values() if process.pid not in live and _is_unseen(process)]
    unplaced = _place(strays, unseen, found_for, _unowned(device), notes)
    taken = {process.pid for process in found_for.values()}
    owners = [Owner(pid, process, live.get(pid)) for pid, process in listed.items() if pid not in taken]
    owners += [
        Owner(pid, found_for.get(pid), live[pid], statistics) for pid, statistics in here.items() if pid not in unplaced
    ]
    return Owners(tuple(sorted(owners, key=lambda owner: owner.pid)), tuple(notes))


def _statistics(device: Device, probe: Probe, is_listed: bool, notes: list[str]) -> AllocatorStatistics | None:
    """What a probe says of a device; an old PyTorch does not tell which device it speaks of."""
    told = () if probe.reading is None else probe.reading.devices
    for each in told:
        if each.uuid is not None and device.uuid is not None and bare_uuid(each.uuid) == bare_uuid(device.uuid):
            return each
    unnamed = [each for each in told if each.uuid is None]
    if not is_listed or not unnamed:
        return None
    if len(told) == 1 and unnamed[0].name in {None, device.name}:
        return unnamed[0]
    notes.append(f"PyTorch in process {probe.pid} does not tell which of its GPUs is this one, so it is one block.")
    return None


def _place(
    strays: Mapping[int, int],
    unseen: Sequence[Process],
    found_for: dict[int, Process],
    unowned: float,
    notes: list[str],
) -> set[int]:
    """Looks for probed processes among those of NVML's list that /proc does not show; returns those left out.

    Args:
        strays: The probed processes that NVML does not list under their PID, and what PyTorch reserves in them.
        unseen: Those of NVML's list that could be one.
        found_for: Takes the match of each.
        unowned: As much may be of processes that NVML does not list at all.
        notes: Takes what is to be told.
    """
    unplaced = set()
    for pid, reserved in strays.items():
        fitting = [each for each in unseen if each.memory_bytes is not None and each.memory_bytes >= reserved]
        if not fitting and reserved <= unowned:
            notes.append(
                f"The driver lists no process that could be {pid}, which reserves {bytes_text(reserved)} here; what it "
                "holds beside PyTorch's memory is among what nobody owns."
            )
        elif not fitting:
            unplaced.add(pid)
            notes.append(
                f"Process {pid} reserves {bytes_text(reserved)} here, and none of the processes that the driver lists "
                "holds as much; it is left out."
            )
        elif len(fitting) == 1 and len(strays) == 1:
            found_for[pid] = fitting[0]
            notes.append(f"Process {pid} is taken for the one that the driver calls {fitting[0].pid}: no other fits.")
        else:
            unplaced.add(pid)
            notes.append(
                f"Process {pid} reserves {bytes_text(reserved)} here, under another PID in the driver's list: it is "
                f"one of {', '.join(str(each.pid) for each in fitting)}. Run gpumon where it sees the host's processes."
            )
    return unplaced


def _unowned(device: Device) -> float:
    """How much memory in use may be of processes that the driver does not list, or of which it does not tell."""
    used = device.get("memory_used_bytes") or 0.0
    return max(0.0, used - sum(process.memory_bytes or 0 for process in device.processes or ()))


def _is_unseen(process: Process) -> bool:
    problem = process.problems.get("command")
    return problem is not None and problem.code is ProblemCode.PROCESS_NOT_VISIBLE
