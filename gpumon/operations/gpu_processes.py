"""The processes on a GPU: those that NVML lists, matched with the probes, and those next to a workload.

NVML and gpumon usually see a process under the same PID. In a container without the host's PID namespace they do not;
there only a single possible match counts as one, and a note says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.core.device_use import is_much_unattributed
from gpumon.core.model import Device, Process, same_uuid
from gpumon.core.problems import ProblemCode
from gpumon.core.units import bytes_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpumon.core.allocator import AllocatorStatistics
    from gpumon.core.model import Frame
    from gpumon.core.steps import StepProgress
    from gpumon.probe.messages import Probe


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


class Owner(NamedTuple):
    """A process that holds memory of a GPU.

    Attributes:
        pid: PID as gpumon sees it; NVML's where there is no probe.
        process: Its entry in NVML's list, or None where NVML lists none.
        probe: Its probe, if it has one.
        statistics: The statistics of its allocator for this GPU.
    """

    pid: int
    process: Process | None
    probe: Probe | None = None
    statistics: AllocatorStatistics | None = None

    @property
    def memory_bytes(self) -> int | None:
        """The device memory that it holds, as NVML reports."""
        return None if self.process is None else self.process.memory_bytes

    @property
    def training(self) -> StepProgress | None:
        """The training run in the process, if its probe reports one."""
        reading = None if self.probe is None else self.probe.reading
        return None if reading is None else reading.training


class GpuOwners(NamedTuple):
    """The processes that hold memory of one GPU, by PID.

    Attributes:
        owners: Every process in NVML's list, and the processes with a probe that NVML does not list.
        notes: What could not be matched for certain, in sentences.
    """

    owners: tuple[Owner, ...]
    notes: tuple[str, ...] = ()


def owners_of(device: Device, probes: Mapping[int, Probe]) -> GpuOwners:
    """The processes that hold memory of a GPU.

    Probes that are not connected do not count.
    """
    notes: list[str] = []
    connected = {pid: probe for pid, probe in sorted(probes.items()) if probe.connected}
    listed = {process.pid: process for process in device.processes or ()}
    probed: dict[int, AllocatorStatistics] = {}
    for pid, probe in connected.items():
        if (statistics := _statistics(device, probe, pid in listed, notes)) is not None:
            probed[pid] = statistics
    matches = {pid: listed[pid] for pid in probed if pid in listed}
    unlisted = {pid: statistics.reserved_bytes for pid, statistics in probed.items() if pid not in listed}
    unseen = [process for process in listed.values() if process.pid not in connected and is_unseen(process)]
    unmatched = _match_unlisted(unlisted, unseen, matches, _unattributed_bytes(device), notes)
    matched_pids = {process.pid for process in matches.values()}
    owners = [Owner(pid, process, connected.get(pid)) for pid, process in listed.items() if pid not in matched_pids]
    owners += [
        Owner(pid, matches.get(pid), connected[pid], statistics)
        for pid, statistics in probed.items()
        if pid not in unmatched
    ]
    return GpuOwners(tuple(sorted(owners, key=lambda owner: owner.pid)), tuple(notes))


def largest_allocator(device: Device, probes: Mapping[int, Probe]) -> AllocatorStatistics | None:
    """The allocator that reserves the most memory of a GPU, or None without a probe."""
    owners = owners_of(device, probes).owners if probes else ()
    known = [owner.statistics for owner in owners if owner.statistics is not None]
    return max(known, key=lambda statistics: statistics.reserved_bytes, default=None)


def _statistics(device: Device, probe: Probe, is_listed: bool, notes: list[str]) -> AllocatorStatistics | None:
    """The probe's statistics for a device; an old PyTorch does not report the UUIDs of its devices."""
    reported = () if probe.reading is None else probe.reading.devices
    for statistics in reported:
        if same_uuid(statistics.uuid, device.uuid):
            return statistics
    unnamed = [statistics for statistics in reported if statistics.uuid is None]
    if not is_listed or not unnamed:
        return None
    if len(reported) == 1 and unnamed[0].name in {None, device.name}:
        return unnamed[0]
    notes.append(
        f"PyTorch in process {probe.pid} does not report which of its GPUs is this one: its memory is shown as one "
        "part."
    )
    return None


def _match_unlisted(
    unlisted: Mapping[int, int],
    unseen: Sequence[Process],
    matches: dict[int, Process],
    unattributed_bytes: float,
    notes: list[str],
) -> set[int]:
    """Match probes with the processes of NVML's list that /proc does not show; returns the PIDs without a match.

    ``unlisted`` has the bytes that PyTorch reserves in processes that NVML does not list under their PID; ``unseen``,
    those of NVML's list that could be one of them. Matches, and notes for the user, are added.
    """
    unmatched = set()
    for pid, reserved in unlisted.items():
        candidates = [
            process for process in unseen if process.memory_bytes is not None and process.memory_bytes >= reserved
        ]
        if not candidates and reserved <= unattributed_bytes:
            notes.append(
                f"The driver lists no process that could be {pid}, which reserves {bytes_text(reserved)} here; what it "
                "holds in addition to PyTorch's memory is part of the unattributed memory."
            )
        elif not candidates:
            unmatched.add(pid)
            notes.append(
                f"Process {pid} reserves {bytes_text(reserved)} here, and none of the processes that the driver lists "
                "holds as much; it is left out."
            )
        elif len(candidates) == 1 and len(unlisted) == 1:
            matches[pid] = candidates[0]
            notes.append(f"Process {pid} is shown as the driver's process {candidates[0].pid}: no other one matches.")
        else:
            unmatched.add(pid)
            pids = ", ".join(str(process.pid) for process in candidates)
            notes.append(
                f"Process {pid} reserves {bytes_text(reserved)} here, under another PID in the driver's list: it is "
                f"one of {pids}. Run gpumon in the host's PID namespace."
            )
    return unmatched


def _unattributed_bytes(device: Device) -> float:
    """Memory in use that may belong to processes which the driver does not list, or without a reported size."""
    used = device.get("memory_used_bytes") or 0.0
    return max(0.0, used - sum(process.memory_bytes or 0 for process in device.processes or ()))
