"""The GPUs that a user names: the one parser of every ``--device`` and ``--gpu``, and what a workload runs on."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.groups import grouped
from gpumon.core.model import Device, DeviceState, Switch, bare_uuid
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.text import safe_text

SYNTAX: Final = "an index such as 3, a range such as 0-3, a UUID or its beginning, cuda:0, all, or a list of these"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_INDEX: Final = re.compile(r"[0-9]{1,4}(:[0-9]{1,4})?", re.ASCII)
_RANGE: Final = re.compile(r"([0-9]{1,4})-([0-9]{1,4})", re.ASCII)
_CUDA: Final = re.compile(r"cuda:([0-9]{1,4})", re.ASCII)
_MIN_PREFIX: Final = 3
"""Shorter beginnings of a UUID would often name several devices."""


def select_devices(text: str, devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices that a text names, each once, in the order of the text.

    An index is that of ``nvidia-smi``; ``3:0`` is the MIG instance at position 0 of GPU 3. ``cuda:0`` is
    CUDA's first device. ``all`` is every GPU without its MIG instances.

    Raises:
        CommandError: A part of the text is no device, names none, or names several.
    """
    chosen = [device for part in text.split(",") for device in _named(part.strip(), devices)]
    return tuple({device.key: device for device in chosen}.values())


def with_instances(chosen: Iterable[Device], devices: Iterable[Device]) -> list[Device]:
    """The devices, with the instances of a GPU in place of the GPU: they have its processes, and run programs."""
    parts = grouped((device.instance.parent, device) for device in devices if device.instance is not None)
    return [part for device in chosen for part in parts.get(device.key, [device])]


def _named(part: str, devices: Sequence[Device]) -> Iterator[Device]:
    gpus = [device for device in devices if device.instance is None]
    if part == "all":
        if not gpus:
            raise _not_found("This host has no GPU.", devices)
        yield from gpus
    elif match := _RANGE.fullmatch(part):
        first, last = int(match[1]), int(match[2])
        if first > last:
            raise _usage(f"{part!r} is a range that ends before it begins.")
        missing = [index for index in (first, last) if index not in {gpu.index for gpu in gpus}]
        if missing:
            raise _not_found(f"There is no GPU {missing[0]}.", devices)
        yield from (gpu for gpu in gpus if first <= gpu.index <= last)
    elif _INDEX.fullmatch(part):
        label = ":".join(str(int(number)) for number in part.split(":"))
        yield _only([device for device in devices if device.label == label], f"There is no GPU {label}.", devices)
    elif match := _CUDA.fullmatch(part):
        ordinal = int(match[1])
        matches = [device for device in devices if device.cuda_index == ordinal]
        unknown = next((device.problems["cuda_index"].reason for device in gpus if "cuda_index" in device.problems), "")
        yield _only(matches, f"No GPU is known to be CUDA's device {ordinal} here. {unknown}".rstrip(), devices)
    else:
        yield _with_uuid(part, devices)


def _with_uuid(part: str, devices: Sequence[Device]) -> Device:
    shown = safe_text(part, 60)
    prefix = bare_uuid(part)
    if len(prefix) < _MIN_PREFIX or not re.fullmatch(r"[0-9a-f-]+(/[0-9/]*)?", prefix):
        raise _usage(f"{shown!r} is not a device: give {SYNTAX}.")
    is_instance = part.lower().startswith("mig-")
    kinds = [device for device in devices if not is_instance or device.instance is not None]
    matches = [device for device in kinds if device.uuid is not None and bare_uuid(device.uuid).startswith(prefix)]
    if len(matches) > 1:
        labels = ", ".join(f"GPU {device.label}" for device in matches)
        raise _usage(f"{shown!r} is the beginning of several UUIDs: {labels}.")
    return _only(matches, f"No device has a UUID that begins with {shown}.", devices)


def _only(matches: Sequence[Device], reason: str, devices: Sequence[Device]) -> Device:
    if not matches:
        raise _not_found(reason, devices)
    return matches[0]


def _usage(reason: str) -> CommandError:
    return CommandError.usage(ProblemCode.NOT_FOUND, reason)


def _not_found(reason: str, devices: Sequence[Device]) -> CommandError:
    labels = ", ".join(device.label for device in devices)
    return CommandError.missing(
        ProblemCode.NOT_FOUND, reason, f"Devices of this host: {labels}." if labels else "See gpumon status."
    )


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
