"""Words that several checks share."""

from collections.abc import Iterable, Sequence

from gpumon.core.model import Device


def gpus_text(devices: Iterable[Device]) -> str:
    """Devices by NVML's index, neighbours joined: ``GPU 3``, ``GPUs 0-3, 6``."""
    indices = sorted(device.index for device in devices)
    return f"GPU{'s' if len(indices) > 1 else ''} {_ranges(indices)}"


def counted(count: int, what: str) -> str:
    """A number of things: ``1 GPU``, ``8 GPUs``, ``2 processes``."""
    ending = "es" if what.endswith("s") else "s"
    return f"{count} {what}{'' if count == 1 else ending}"


def sentences(parts: Iterable[str]) -> str:
    """The parts as one text, without those that are empty or were there already."""
    return " ".join(dict.fromkeys(part for part in parts if part))


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
