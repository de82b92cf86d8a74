"""Words that several checks share."""

from collections.abc import Iterable

from gpumon.core.model import Device
from gpumon.diagnosis.health.alert import ranges_text


def gpus_text(devices: Iterable[Device]) -> str:
    """Devices by NVML's index, neighbours joined: ``GPU 3``, ``GPUs 0-3, 6``."""
    indices = sorted(device.index for device in devices)
    return f"GPU{'s' if len(indices) > 1 else ''} {ranges_text(indices)}"


def counted(count: int, what: str) -> str:
    """A number of things: ``1 GPU``, ``8 GPUs``, ``2 processes``."""
    ending = "es" if what.endswith("s") else "s"
    return f"{count} {what}{'' if count == 1 else ending}"


def sentences(parts: Iterable[str]) -> str:
    """The parts as one text, without those that are empty or were there already."""
    return " ".join(dict.fromkeys(part for part in parts if part))
