"""Which index CUDA gives to each device, from the environment alone: CUDA itself is not touched.

CUDA numbers the devices that it shows from 0. It orders them by ``CUDA_DEVICE_ORDER``, and ``CUDA_VISIBLE_DEVICES``
picks from that order: a list of indices, or of UUIDs that may be cut short. The list ends at its first entry that
names no device, and one that names a device twice shows none. With MIG, CUDA counts instances, not devices, and shows
one of them, the first that the list names.
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
        uuid: NVML's UUID, if it is known.
        kind: What it is; devices of one kind are equally fast. None if that is not known.
        has_instances: Whether MIG is on, so that CUDA shows parts of it and not the whole.
        instance: What it is a part of, or None for a whole GPU.
    """

    uuid: str | None
    kind: str | None
    has_instances: bool = False
    instance: MigInstance | None = None


CudaIndex = int | Problem
"""A device's index under CUDA, or why it has none."""

HIDDEN: Final = Problem(
    ProblemCode.NOT_FOUND, f"{CUDA_VISIBLE_DEVICES} does not show this GPU to programs started from here."
)
TWICE: Final = Problem(
    ProblemCode.NOT_FOUND, f"{CUDA_VISIBLE_DEVICES} names a GPU twice, so that CUDA shows none.", "Name each GPU once."
)
MIXED: Final = Problem(
    ProblemCode.NOT_READ,
    "CUDA puts the fastest GPU first, and only CUDA itself knows which of different GPUs it takes for that.",
    f"Set {CUDA_DEVICE_ORDER}=PCI_BUS_ID to have NVML's order in CUDA too.",
)
INSTANCES: Final = Problem(ProblemCode.NOT_READ, "With MIG, CUDA counts instances, not GPUs.")

_LEADING_NUMBER: Final = re.compile(r"\s*[+]?(\d+)")


def cuda_indices(devices: Sequence[Candidate], environment: Mapping[str, str]) -> list[CudaIndex]:
    """CUDA's index of each device, or why it has none.

    Args:
        devices: All devices, in NVML's order, which is that of the PCI bus, instances among them.
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


def _numbered(devices: Sequence[Candidate], shown: Sequence[int]) -> list[CudaIndex]:
    """The indices, where CUDA shows the GPUs at the positions ``shown``."""
    if len(set(shown)) < len(shown):
        return [TWICE] * len(devices)
    found: list[CudaIndex] = [HIDDEN] * len(devices)
    for index, position in enumerate(shown):
        found[position] = INSTANCES if devices[position].has_instances else index
    split = {devices[position].uuid for position in shown if devices[position].has_instances}
    for position, device in enumerate(devices):
        if device.instance is not None and device.instance.parent in split:
            found[position] = INSTANCES
    return found


def _by_number(count: int, visible: str) -> list[int]:
    """Positions that a list of indices names; what stands behind a number does not count, as with ``strtoul``."""
    shown: list[int] = []
    for entry in visible.split(","):
        number = _LEADING_NUMBER.match(entry)
        position = count if number is None else int(number[1].lstrip("0")[:10] or "0")
        if position >= count:
            break
        shown.append(position)
    return shown


def _by_uuid(devices: Sequence[Candidate], visible: str) -> list[int]:
    """Positions that a list of UUIDs names; one that fits several devices names none."""
    shown: list[int] = []
    for entry in visible.split(","):
        wanted = entry.strip().lower()
        fits = [place for place, device in enumerate(devices) if (device.uuid or "").lower().startswith(wanted)]
        if not wanted.startswith("gpu-") or len(fits) != 1:
            break
        shown += fits
    return shown


def _of_instances(devices: Sequence[Candidate], visible: str) -> list[CudaIndex]:
    """CUDA shows the first instance that the list names, and nothing else."""
    wanted = visible.split(",", maxsplit=1)[0].strip().lower()
    if not any(device.instance is not None for device in devices):  # none has been found yet
        return [_before_instances(device, wanted.removeprefix("mig-")) for device in devices]
    return [
        0 if device.instance is not None and wanted in device.instance.names(device.uuid) else HIDDEN
        for device in devices
    ]


def _before_instances(device: Candidate, wanted: str) -> CudaIndex:
    """What is said of a GPU whose instances are not known; the old form of a name tells whose instance is wanted."""
    is_another = wanted.startswith("gpu-") and (device.uuid or "").lower() != wanted.partition("/")[0]
    return INSTANCES if device.has_instances and not is_another else HIDDEN


def _are_alike(devices: Sequence[Candidate]) -> bool:
    kinds = {device.kind for device in devices}
    return len(devices) < 2 or (len(kinds) == 1 and None not in kinds)


class CudaOrder:
    """Gives devices their CUDA indices, worked out anew only when the devices change.

    Args:
        environment: That of the programs which are told of.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._candidates: list[Candidate] | None = None
        self._indices: list[CudaIndex] = []

    def number(self, devices: Sequence[Device]) -> tuple[Device, ...]:
        """The devices, which are all that NVML lists, with the index of each or why it has none."""
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
