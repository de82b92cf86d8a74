"""`gpumon workloads` and `gpumon run`: what was asked for becomes requests, and what came of it an exit code."""

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from types import FrameType
from typing import Final

from gpumon.cli.narrators import JsonNarrator, TextNarrator
from gpumon.core.exits import SIGNAL_BASE, CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.jobs.catalogue import Catalogue, WorkloadInfo, load_catalogue
from gpumon.jobs.interpreter import find_interpreter
from gpumon.jobs.parameters import Parameter, Value, chosen_values
from gpumon.jobs.request import JobRequest
from gpumon.operations.runs import FRAME_SECONDS, Headless, expand_devices, visible_gpus
from gpumon.operations.status import look
from gpumon.operations.workload import WorkloadRun
from gpumon.streams.live import LiveStream

SCHEMA: Final = 1
_DURATION: Final = "duration"
_WIDTH: Final = 110


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for on the command line.

    Attributes:
        name: The workload.
        devices: As given.
        settings: ``KEY=VALUE`` each.
        duration: Seconds, or None.
        python: Interpreter, or None.
        yes: Whether to begin where others work.
        as_json: Whether events are printed as JSON.
    """

    name: str
    devices: tuple[str, ...]
    settings: tuple[str, ...]
    duration: float | None
    python: str | None
    yes: bool
    as_json: bool


def run_wish(wish: Wish) -> int:
    """Runs a workload on each device; returns the exit code.

    Raises:
        CommandError: What was asked for makes no sense, or is not there.
    """
    catalogue = load_catalogue()
    info = catalogue.get(wish.name)
    if info is None:
        raise CommandError(_unknown(wish.name, catalogue), ExitCode.USAGE)
    devices = expand_devices(wish.devices, lambda: visible_gpus(len(look().devices)))
    requests = [_request(wish, info, device) for device in devices]
    interpreter = find_interpreter(wish.python)
    runs = [WorkloadRun(replace(request, python=interpreter.path)) for request in requests]
    narrator = JsonNarrator(yes=wish.yes) if wish.as_json else TextNarrator(yes=wish.yes)
    stream = LiveStream(FRAME_SECONDS)
    headless = Headless(runs, stream, narrator)
    with _stopped_by_signals(headless) as received:
        stream.start()
        code: int = headless.run()
    return SIGNAL_BASE + received[0] if received else code


def listing(*, as_json: bool) -> str:
    """All workloads with their parameters, for people or as a JSON document."""
    catalogue = load_catalogue()
    if as_json:
        return json.dumps(_document(catalogue), indent=2, ensure_ascii=False)
    lines: list[str] = []
    for info in catalogue.workloads:
        origin = "" if info.origin == "gpumon" else f"  ({info.origin})"
        lines += [f"{info.name}{origin}", *_paragraph(info.purpose), *_paragraph(f"Needs: {info.needs}")]
        lines += [line for parameter in info.parameters for line in _parameter_lines(parameter)]
        lines.append("")
    lines += [f"! {each.file}: {each.reason}" for each in catalogue.broken]
    return "\n".join(lines).rstrip()


def _request(wish: Wish, info: WorkloadInfo, device: str) -> JobRequest:
    if device == "cpu" and info.why_not_cpu:
        raise CommandError(Problem(ProblemCode.NOT_SUPPORTED, info.why_not_cpu), ExitCode.NOT_THERE)
    texts = _texts(wish.settings)
    limit = wish.duration
    if wish.duration is not None and any(each.name == _DURATION for each in info.parameters):
        texts = {_DURATION: f"{wish.duration:g}", **texts}
        limit = None
    try:
        values: Mapping[str, Value] = chosen_values(info.parameters, device, texts)
    except ValueError as error:
        raise CommandError(
            Problem(ProblemCode.INVALID_VALUE, str(error), "gpumon workloads lists all parameters."), ExitCode.USAGE
        ) from error
    return JobRequest(info, device, values, Path(), limit_seconds=limit)


def _texts(settings: Sequence[str]) -> dict[str, str]:
    texts = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            problem = Problem(ProblemCode.INVALID_VALUE, f"--set {safe_text(setting, 60)} is not KEY=VALUE.")
            raise CommandError(problem, ExitCode.USAGE)
        texts[name.strip()] = text
    return texts


@contextmanager
def _stopped_by_signals(headless: Headless) -> Iterator[list[int]]:
    """While it runs, signals stop the workloads and are noted, so that each can still tell what it found."""
    received: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        received.append(number)
        headless.stop()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN and threading.current_thread() is threading.main_thread():
            signal.signal(number, stop)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _unknown(name: str, catalogue: Catalogue) -> Problem:
    names = ", ".join(each.name for each in catalogue.workloads)
    broken = next((each for each in catalogue.broken if each.file.stem == name), None)
    reason = f"There is no workload {safe_text(name, 60)!r}."
    if broken is not None:
        reason = f"{broken.file} is no workload: {broken.reason}"
    return Problem(ProblemCode.NOT_FOUND, reason, f"There are {names}." if names else "")


def _document(catalogue: Catalogue) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "workloads": [
            {
                "name": info.name,
                "purpose": info.purpose,
                "needs": info.needs,
                "origin": info.origin,
                "file": str(info.file),
                "why_not_cpu": info.why_not_cpu,
                "parameters": [_parameter_document(each) for each in info.parameters],
            }
            for info in catalogue.workloads
        ],
        "broken": [{"file": str(each.file), "reason": each.reason} for each in catalogue.broken],
    }


def _parameter_document(parameter: Parameter) -> dict[str, object]:
    return {
        "name": parameter.name,
        "kind": parameter.kind.value,
        "default": parameter.default,
        "default_cpu": parameter.default_cpu,
        "help": parameter.help,
        "unit": parameter.unit,
        "minimum": parameter.minimum,
        "maximum": parameter.maximum,
        "choices": list(parameter.choices),
    }


def _parameter_lines(parameter: Parameter) -> list[str]:
    on_cpu = "" if parameter.default_cpu == parameter.default else f", on the CPU {parameter.default_cpu}"
    head = f"{parameter.name}={parameter.default}{on_cpu}"
    return wrap(
        f"{head}  {parameter.help} ({parameter.range_text})",
        _WIDTH,
        initial_indent="    --set ",
        subsequent_indent="          ",
    )


def _paragraph(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")
