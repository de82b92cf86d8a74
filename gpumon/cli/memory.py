"""`gpumon memory`: where the memory of each GPU is, who holds it for what, and what would free it."""

import json
import shutil
from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.options import debug_option
from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.model import Device
from gpumon.core.text import safe_text
from gpumon.core.units import MISSING, age_text, bytes_text

if TYPE_CHECKING:
    from gpumon.operations.memory import Part, Waterfall
    from gpumon.operations.sight import Sight
    from gpumon.probe.news import Probe

_WIDEST: Final = 100
_BAR: Final = 32
_OLD_SECONDS: Final = 3.0
"""Figures that are older are marked: their process is in a long call."""


@click.command(short_help="Show where the memory of each GPU is.")
@click.option("--json", "as_json", is_flag=True, envvar="GPUMON_MEMORY_JSON", help="One JSON document.")
@debug_option
def memory(as_json: bool) -> None:
    """Print where the memory of each GPU is: who holds it, for what, and what would free it.

    Inside of a process it sees what PyTorch tells a probe. Start the training with gpumon watch to have one in it.
    """
    from gpumon.operations.sight import look_with_probes

    sight = look_with_probes()
    if as_json:
        from gpumon.operations.memory_document import memory_document

        click.echo(json.dumps(memory_document(*sight), indent=2, ensure_ascii=False))
    elif sight.frame.devices:
        click.echo("\n".join(_report(sight)))
    problem = sight.frame.problems.get("driver")
    if problem is not None:
        raise CommandError(problem, ExitCode.NOT_THERE)


def _report(sight: "Sight") -> Iterator[str]:
    from gpumon.operations.memory import waterfall

    width = min(max(shutil.get_terminal_size((_WIDEST, 40)).columns, 60), _WIDEST)
    shown: dict[Part, None] = {}
    for device in sight.frame.devices:
        found = waterfall(device, sight.probes)
        yield from (safe_text(line, width) for line in _gpu(device, found, sight))
        yield from (line for note in found.notes for line in _wrapped(note, "  i ", width))
        if found.problem is not None:
            yield from _wrapped(str(found.problem), "  ! ", width)
        yield ""
        shown.update((part, None) for part in found.parts if part.bytes)
    yield from _words(shown, width)
    yield from (line for problem in sight.problems for line in _wrapped(str(problem), "! ", width))


def _gpu(device: Device, found: "Waterfall", sight: "Sight") -> Iterator[str]:
    yield f"GPU {device.label} · {device.name or 'GPU'} · {bytes_text(found.total_bytes or None)}"
    commands = {process.pid: process.command for process in device.processes or ()}
    start, before = 0, None
    for part in found.parts:
        if part.pid is not None and part.pid != before:
            probe = sight.probes.get(part.pid)
            command = commands.get(part.pid) or MISSING
            yield f"  {part.pid} {command if probe is None else _probed(probe, sight.frame.monotonic_seconds)}"
        before = part.pid
        if part.bytes:
            share = 100 * part.bytes / found.total_bytes
            bar = _bar(start / found.total_bytes, (start + part.bytes) / found.total_bytes)
            yield f"  {bytes_text(part.bytes):>9} {share:5.1f} % {bar} {part.label}"
        start += part.bytes


def _probed(probe: "Probe", now: float) -> str:
    """A process with a probe: which one of the training it is comes first, for a command line may be long."""
    rank = "" if probe.process.rank is None else f"rank {probe.process.rank} · "
    age = probe.age_seconds(now)
    old = f"told {age_text(age)} ago · " if age > _OLD_SECONDS else ""
    return f"{rank}{old}{probe.process.command or MISSING}"


def _bar(begin: float, end: float) -> str:
    """A part between zero and the total, at least a cell of it."""
    first = min(int(begin * _BAR), _BAR - 1)
    last = max(round(end * _BAR), first + 1)
    return "·" * first + "█" * (last - first) + "·" * (_BAR - last)


def _words(parts: Mapping["Part", None], width: int) -> Iterator[str]:
    """What the parts are and what would free them, each once."""
    told = dict.fromkeys((part.label, part.meaning, part.remedy) for part in parts)
    for label, meaning, remedy in told:
        yield from _wrapped(meaning, f"{label}: ", width)
        if remedy:
            yield from _wrapped(remedy, "  → ", width)


def _wrapped(text: str, first: str, width: int) -> list[str]:
    return wrap(f"{first}{text}", width, subsequent_indent="    ", drop_whitespace=True)
