"""Where a workload may run: the GPUs of this machine and the CPU, and why one of them is no choice now."""

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.core.model import Device, DeviceState
from gpumon.core.units import bytes_text
from gpumon.jobs.catalogue import WorkloadInfo
from gpumon.ui.jobs import CPU, JobBoard, Place, gpu_place, is_split
from gpumon.ui.view.devices import shares_memory, short_name


class Offer(NamedTuple):
    """A device as a form offers it.

    Attributes:
        key: What identifies it.
        label: What it is, and how much of it is free.
        place: Where that is, or None if nothing can run there at all.
        refusal: Why nothing can be started there now, in a sentence; empty if something can.
    """

    key: str
    label: str
    place: Place | None
    refusal: str

    @property
    def is_free(self) -> bool:
        """Whether something can be started there now."""
        return self.place is not None and not self.refusal


def gpu_offers(board: JobBoard, devices: Sequence[Device]) -> list[Offer]:
    """Every GPU, and every instance of one that is split."""
    offers = []
    for device in devices:
        place = gpu_place(device, devices)
        label = f"GPU {device.label}  {short_name(device)}"
        if place is None:
            offers.append(_no_place(device, label))
            continue
        free, total = device.get("memory_free_bytes"), device.get("memory_total_bytes")
        count = len(device.processes or ())
        others = f", {count} process{'' if count == 1 else 'es'}" if count else ""
        shared = ", shared with the host" if shares_memory(device) else ""
        label += f"  {bytes_text(free)} of {bytes_text(total)} free{shared}{others}"
        offers.append(Offer(device.key, label, place, board.refusal(place)))
    return offers


def _no_place(device: Device, label: str) -> Offer:
    """A GPU on which nothing can run, and why."""
    if device.state is DeviceState.OK and is_split(device):
        refusal = f"GPU {device.label} is split (MIG): choose one of its instances."
        return Offer(device.key, f"{label}  split into instances", None, refusal)
    return Offer(device.key, f"{label}  {device.state.value}", None, f"GPU {device.label} does not answer.")


def cpu_offer(board: JobBoard, workload: WorkloadInfo) -> Offer:
    """The CPU."""
    if workload.why_not_cpu:
        return Offer(CPU.key, f"CPU  not possible: {workload.why_not_cpu}", None, workload.why_not_cpu)
    return Offer(CPU.key, "CPU", CPU, board.refusal(CPU))
