"""Whether torch has the GPUs that NVML has, under their names, and in which order."""

from collections.abc import Sequence
from typing import Final

from gpumon.core.model import Device, Frame
from gpumon.core.problems import Problem
from gpumon.diagnosis.checks import Finding, fail, ok, skip, warn
from gpumon.diagnosis.doctor.facts import Python
from gpumon.diagnosis.doctor.fit import no_cuda
from gpumon.diagnosis.doctor.wording import counted, gpus_text

_ORDER: Final = "Set CUDA_DEVICE_ORDER=PCI_BUS_ID to have NVML's order in CUDA too."


def devices(python: Python, frame: Frame | Problem) -> Finding:
    """The GPUs of torch are those of NVML that can be seen from here, under their names, in an order that is meant."""
    error = python.steps.error("devices")
    if error:
        return fail(f"torch cannot describe the GPUs: {error}", "dmesg | grep -i xid tells whether a GPU failed.")
    listed = python.steps.value("devices", "devices")
    if listed is None:
        return no_cuda(python)
    if isinstance(frame, Problem) or not frame.devices:
        return skip("NVML shows no GPU to compare them with.")
    if not all(each.get("uuid") for each in listed):
        return skip("This torch is too old to tell UUIDs.")
    by_uuid = {_digits(device.uuid or ""): device for device in frame.devices}
    found = [by_uuid.get(_digits(each["uuid"])) for each in listed]
    known = [device for device in found if device is not None]
    if len(known) < len(found):
        return skip("torch has a device that NVML does not list, as a part of one (MIG) may be.")
    return _compared(known, [str(each.get("name")) for each in listed], frame)


def _compared(found: Sequence[Device], names: Sequence[str], frame: Frame) -> Finding:
    """Compares the GPUs of torch, in its order and with its names, with all that NVML lists."""
    visible = sum(device.cuda_index is not None for device in frame.devices)
    if visible and len(found) != visible:
        return fail(
            f"torch sees {counted(len(found), 'GPU')} where {visible} can be seen from here.",
            "Look at nvidia-smi for a GPU that failed, and at CUDA_VISIBLE_DEVICES.",
        )
    misnamed = [device for device, name in zip(found, names, strict=True) if device.name != name]
    if misnamed:
        fix = "Reboot: most likely the libraries are not the driver's."
        return warn(f"torch and NVML have different names for {gpus_text(misnamed)}.", fix)
    indices = [device.index for device in found]
    if indices == sorted(indices):
        return ok(f"{counted(len(found), 'GPU')}, by UUID and name those of NVML, in its order")
    told = ", ".join(f"cuda:{place} is GPU {index}" for place, index in enumerate(indices) if place != index)
    if all(device.cuda_index == place for place, device in enumerate(found)):
        return ok(f"in the order of CUDA_VISIBLE_DEVICES: {told}")
    return warn(f"The order is not NVML's: {told}.", _ORDER)


def _digits(uuid: str) -> str:
    """A UUID without what stands before it: ``GPU-``, or ``MIG-`` for a part of one."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")
