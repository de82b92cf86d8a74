"""The devices on which a workload can run: GPUs, MIG instances and the CPU, and why one cannot be chosen now."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from gpumon.core.model import Device, DeviceState
from gpumon.core.units import bytes_text, counted, of_text
from gpumon.operations.device_selection import CPU, RunTarget, gpu_target, is_split
from gpumon.operations.workload import WorkloadRun, busy_reason
from gpumon.present.device_table import shares_memory, short_name
from gpumon.workload_runs.catalogue import WorkloadInfo


class DeviceChoice(NamedTuple):
    """A device in the form that starts a workload.

    Attributes:
        key: Identifies the device.
        label: Its name and its free memory.
        target: The device as a target of a run, or None if no workload can ever run there.
        refusal: Why no workload can start there now, in a sentence; empty if one can.
    """

    key: str
    label: str
    target: RunTarget | None
    refusal: str

    @property
    def is_free(self) -> bool:
        """Whether a workload can start there now."""
        return self.target is not None and not self.refusal


def gpu_choices(devices: Sequence[Device], runs: Collection[WorkloadRun]) -> list[DeviceChoice]:
    """Every GPU and every MIG instance.

    Args:
        devices: All devices of this host.
        runs: All runs of this gpumon: a device with a running workload is not free.
    """
    choices = []
    for device in devices:
        target = gpu_target(device, devices)
        label = f"GPU {device.label}  {short_name(device)}"
        if target is None:
            choices.append(_unusable(device, label))
            continue
        free, total = device.get("memory_free_bytes"), device.get("memory_total_bytes")
        processes = f", {counted(len(device.processes), 'process')}" if device.processes else ""
        shared = ", shared with the host" if shares_memory(device) else ""
        label += f"  {of_text(bytes_text(free), bytes_text(total))} free{shared}{processes}"
        choices.append(DeviceChoice(device.key, label, target, busy_reason(runs, target)))
    return choices


def _unusable(device: Device, label: str) -> DeviceChoice:
    """A GPU on which no workload can run, and why."""
    if device.state is DeviceState.OK and is_split(device):
        refusal = f"MIG is enabled on GPU {device.label}: choose one of its instances."
        return DeviceChoice(device.key, f"{label}  MIG enabled", None, refusal)
    state = "not usable: its UUID is unknown" if device.state is DeviceState.OK else device.state.value
    return DeviceChoice(device.key, f"{label}  {device.state.value}", None, f"GPU {device.label} is {state}.")


def cpu_choice(workload: WorkloadInfo, runs: Collection[WorkloadRun]) -> DeviceChoice:
    """The CPU, for a workload."""
    if workload.why_not_cpu:
        return DeviceChoice(CPU.key, f"CPU  not possible: {workload.why_not_cpu}", None, workload.why_not_cpu)
    return DeviceChoice(CPU.key, "CPU", CPU, busy_reason(runs, CPU))
