"""The device that a workload runs on: the CPU, a GPU, or a MIG instance of one."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.model import Device, DeviceState, Switch

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


class RunTarget(NamedTuple):
    """A device that a workload runs on.

    Attributes:
        key: `Device.key`, or ``cpu``.
        label: Its name on the screen, such as ``GPU 3``.
        device: The device string that the workload receives, such as ``cuda:0``.
        environment: Environment variables that the workload receives.
    """

    key: str
    label: str
    device: str
    environment: Mapping[str, str]


CPU: Final = RunTarget("cpu", "CPU", "cpu", {})


def is_split(device: Device) -> bool:
    """Whether MIG is enabled on a GPU, so that only its instances can be used."""
    return device.instance is None and device.mig_mode is Switch.ENABLED


def gpu_target(device: Device, devices: Sequence[Device]) -> RunTarget | None:
    """A GPU or a MIG instance as a target; None while it does not answer, has no known UUID, or is split itself.

    CUDA and NVML number GPUs differently, so ``CUDA_VISIBLE_DEVICES`` names the GPU by its UUID and lists it first: it
    becomes the workload's ``cuda:0``. The other GPUs follow, so that a workload that copies between GPUs sees them.
    CUDA shows nothing in addition to a MIG instance.

    Args:
        device: The GPU or instance.
        devices: All devices of this host.
    """
    if device.uuid is None or device.state is not DeviceState.OK or is_split(device):
        return None
    others = [
        other.uuid
        for other in devices
        if other.uuid is not None
        and other.uuid != device.uuid
        and other.state is DeviceState.OK
        and other.instance is None
        and not is_split(other)
    ]
    visible = ",".join([device.uuid, *(others if device.instance is None else ())])
    return RunTarget(device.key, f"GPU {device.label}", "cuda:0", {VISIBLE: visible})
