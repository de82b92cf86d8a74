"""The output of ``gpumon memory``: the parts of each GPU's memory, what they mean, and what would free them."""

from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from gpumon.core.model import Device
from gpumon.core.text import safe_text
from gpumon.core.units import MISSING, age_text, bytes_text
from gpumon.operations.one_shot import HostSample
from gpumon.operations.waterfall import MemoryPart, Waterfall, waterfall
from gpumon.present.paint.bar import extents
from gpumon.present.probe_text import MAX_FRESH_SECONDS, process_text
from gpumon.probe.messages import Probe

_BAR_WIDTH: Final = 32


def memory_report_lines(sample: HostSample, width: int) -> list[str]:
    """Return a block per GPU, the meaning of the parts, and why some probes are missing.

    Args:
        sample: The GPUs and the probes.
        width: Maximum number of characters per line.
    """
    lines: list[str] = []
    shown: dict[MemoryPart, None] = {}
    for device in sample.frame.devices:
        memory = waterfall(device, sample.probes)
        lines += [safe_text(line, width) for line in _gpu_lines(device, memory, sample)]
        lines += [line for note in memory.notes for line in _wrapped("  i ", note, width)]
        if memory.problem is not None:
            lines += _wrapped("  ! ", str(memory.problem), width)
        lines.append("")
        shown.update((part, None) for part in memory.parts if part.bytes)
    lines += _legend_lines(shown, width)
    lines += [line for problem in sample.problems for line in _wrapped("! ", str(problem), width)]
    return lines


def _gpu_lines(device: Device, memory: Waterfall, sample: HostSample) -> Iterator[str]:
    yield f"GPU {device.label} · {device.name or 'GPU'} · {bytes_text(memory.total_bytes or None)}"
    commands = {process.pid: process.command for process in device.processes or ()}
    places = extents([part.bytes for part in memory.parts], memory.total_bytes, _BAR_WIDTH)
    pid = None
    for part, (begin, end) in zip(memory.parts, places, strict=True):
        if part.pid is not None and part.pid != pid:
            probe = sample.probes.get(part.pid)
            if probe is None:
                yield f"  PID {part.pid} · {commands.get(part.pid) or MISSING}"
            else:
                yield f"  {_probe_text(probe, sample.frame.monotonic_seconds)}"
        pid = part.pid
        if part.bytes:
            share = 100 * part.bytes / memory.total_bytes
            bar = "·" * begin + "█" * (end - begin) + "·" * (_BAR_WIDTH - end)
            yield f"  {bytes_text(part.bytes):>9} {share:5.1f} % {bar} {part.label}"


def _probe_text(probe: Probe, now: float) -> str:
    """A process with a probe: its rank precedes the command line, which may be long."""
    age = probe.age_seconds(now)
    old = f"{age_text(age)} old · " if age > MAX_FRESH_SECONDS else ""
    return f"{process_text(probe)} · {old}{probe.process.command or MISSING}"


def _legend_lines(parts: dict[MemoryPart, None], width: int) -> Iterator[str]:
    """What the parts are and what would free them, each once."""
    for label, meaning, remedy in dict.fromkeys((part.label, part.meaning, part.remedy) for part in parts):
        yield from _wrapped(f"{label}: ", meaning, width)
        if remedy:
            yield from _wrapped("  → ", remedy, width)


def _wrapped(mark: str, text: str, width: int) -> list[str]:
    return wrap(f"{mark}{text}", width, subsequent_indent="    ")
