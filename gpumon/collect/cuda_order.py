"""The CUDA index of each device, computed from the environment without a call to CUDA.

CUDA numbers its visible devices from 0. ``CUDA_DEVICE_ORDER`` sets their order, and ``CUDA_VISIBLE_DEVICES`` selects
from that order: a list of indices, or of UUIDs that may be abbreviated. The list ends at its first entry that matches
no device; a list with a duplicate makes no device visible. In MIG mode, CUDA enumerates instances instead of devices,
and only the first instance of the list is visible.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.model import Device, MigInstance, Switch
from gpumon.core.problems import Problem, ProblemCode

CUDA_DEVICE_ORDER: Final = "CUDA_DEVICE_ORDER"
CUDA_VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"


class Candidate(NamedTuple):
    """A device as NVML lists it.

    Attributes:
        uuid: NVML's UUID, if known.
        kind: Product name; devices of the same kind are equally fast. None if unknown.
        has_instances: Whether the device is in MIG mode, so that CUDA enumerates its instances.
        instance: The MIG instance that this is, or None for a GPU.
    """

    uuid: str | None
    kind: str | None
    has_instances: bool = False
    instance: MigInstance | None = None


CudaIndex = int | Problem
"""A device's CUDA index, or why the device has none."""

HIDDEN: Final = Problem(
    ProblemCode.NOT_FOUND, f"{CUDA_VISIBLE_DEVICES} hides this GPU from programs that are started from here."
)
TWICE: Final = Problem(
    ProblemCode.NOT_FOUND,
    f"{CUDA_VISIBLE_DEVICES} lists a GPU twice, so no GPU is visible to CUDA.",
    "List each GPU once.",
)
MIXED: Final = Problem(
    ProblemCode.NOT_READ,
    "CUDA sorts GPUs of different models by speed, the fastest first, and only CUDA knows the ranking.",
    f"Set {CUDA_DEVICE_ORDER}=PCI_BUS_ID, so that CUDA uses the same order as NVML.",
)
INSTANCES: Final = Problem(ProblemCode.NOT_READ, "In MIG mode, CUDA enumerates instances, not GPUs.")

_LEADING_NUMBER: Final = re.compile(r"\s*[+]?(\d+)")


def cuda_indices(devices: Sequence[Candidate], environment: Mapping[str, str]) -> list[CudaIndex]:
    """The CUDA index of each device, or why the device has none.

    Args:
        devices: All devices and instances in NVML's order, which is the order on the PCI bus.
        environment: Environment of the program that uses CUDA.
    """
    visible = environment.get(CUDA_VISIBLE_DEVICES)
    if visible is not None and visible.lstrip().startswith("MIG-"):
        return _of_instances(devices, visible)
    if visible is not None and visible.lstrip().startswith("GPU-"):
        return _numbered(devices, _by_uuid(devices, visible))
    if any(device.has_instances for device in devices):
        return [INSTANCES] * len(devices)
    if environment.get(CUDA_DEVICE_ORDER) != "PCI_BUS_ID" and not _are_alike(devices):
        return [HIDDEN if visible is not None and not visible.strip() else MIXED] * len(devices)
    return _numbered(devices, list(range(len(devices))) if visible is None else _by_number(len(devices), visible))


def _numbered(devices: Sequence[Candidate], visible: Sequence[int]) -> list[CudaIndex]:
    """The indices, if the devices at the positions ``visible`` are visible, in this order."""
    if len(set(visible)) < len(visible):
        return [TWICE] * len(devices)
    indices: list[CudaIndex] = [HIDDEN] * len(devices)
    for index, position in enumerate(visible):
        indices[position] = INSTANCES if devices[position].has_instances else index
    split = {devices[position].uuid for position in visible if devices[position].has_instances}
    for position, device in enumerate(devices):
        if device.instance is not None and device.instance.parent in split:
            indices[position] = INSTANCES
    return indices


def _by_number(count: int, visible: str) -> list[int]:
    """The positions in a list of indices; text after a number is ignored, as by ``strtoul``."""
    positions: list[int] = []
    for entry in visible.split(","):
        number = _LEADING_NUMBER.match(entry)
        position = count if number is None else int(number[1].lstrip("0")[:10] or "0")
        if position >= count:
            break
        positions.append(position)
    return positions


def _by_uuid(devices: Sequence[Candidate], visible: str) -> list[int]:
    """The positions in a list of UUIDs; an abbreviation that matches several devices is invalid."""
    positions: list[int] = []
    for entry in visible.split(","):
        wanted = entry.strip().lower()
        matches = [index for index, device in enumerate(devices) if (device.uuid or "").lower().startswith(wanted)]
        if not wanted.startswith("gpu-") or len(matches) != 1:
            break
        positions += matches
    return positions


def _of_instances(devices: Sequence[Candidate], visible: str) -> list[CudaIndex]:
    """Only the first instance of the list is visible."""
    wanted = visible.split(",", maxsplit=1)[0].strip().lower()
    if not any(device.instance is not None for device in devices):  # gpumon has not read the instances yet
        return [_before_instances(device, wanted.removeprefix("mig-")) for device in devices]
    return [
        0 if device.instance is not None and wanted in device.instance.names(device.uuid) else HIDDEN
        for device in devices
    ]


def _before_instances(device: Candidate, wanted: str) -> CudaIndex:
    """The result for a GPU whose instances are unknown; the old form of a MIG UUID contains the UUID of its GPU."""
    is_another = wanted.startswith("gpu-") and (device.uuid or "").lower() != wanted.partition("/")[0]
    return INSTANCES if device.has_instances and not is_another else HIDDEN


def _are_alike(devices: Sequence[Candidate]) -> bool:
    kinds = {device.kind for device in devices}
    return len(devices) < 2 or (len(kinds) == 1 and None not in kinds)


class CudaOrder:
    """The CUDA indices of the devices, which are computed again only when the devices change.

    Args:
        environment: Environment of the programs that use CUDA.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._candidates: list[Candidate] | None = None
        self._indices: list[CudaIndex] = []

    def number(self, devices: Sequence[Device]) -> tuple[Device, ...]:
        """The devices, which must be all that NVML lists, each with its index or the reason why it has none."""
        candidates = [_candidate(device) for device in devices]
        if candidates != self._candidates:
            self._candidates = candidates
            self._indices = cuda_indices(candidates, self._environment)
        return tuple(
            dataclasses.replace(device, problems={**device.problems, "cuda_index": index})
            if isinstance(index, Problem)
            else dataclasses.replace(device, cuda_index=index)
            for device, index in zip(devices, self._indices, strict=True)
        )


def _candidate(device: Device) -> Candidate:
    return Candidate(device.uuid, device.name, device.mig_mode is Switch.ENABLED, device.instance)
