"""`gpumon workloads` and `gpumon run`: from command-line options to requests, and from runs to an exit code."""

import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Final

import click
from click.core import ParameterSource

from gpumon.cli.output import print_json
from gpumon.cli.run_output import CsvRunOutput, JsonRunOutput, TextRunOutput
from gpumon.core.problems import SIGNAL_BASE, CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.operations.device_selection import CPU
from gpumon.operations.one_shot import sample_frame
from gpumon.operations.runs import FRAME_SECONDS, HeadlessRuns, RunOutput, expand_devices, has_driver, no_gpu_reason
from gpumon.operations.workload import WorkloadRun
from gpumon.present.workload_text import code_text, workload_list_lines
from gpumon.streams.live import LiveStream
from gpumon.workload_runs.catalogue import Catalogue, RunRequest, WorkloadInfo, load_catalogue
from gpumon.workload_runs.interpreter import find_interpreter
from gpumon.workload_runs.parameters import Value, chosen_values

SCHEMA: Final = 1
_DURATION: Final = "duration"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of ``gpumon run``.

    Attributes:
        name: Name of the workload.
        devices: Devices as given.
        settings: Parameters as given, each ``KEY=VALUE``.
        duration: Maximum run time in seconds, or None.
        python: Path of the Python interpreter, or None.
        yes: Whether to start on GPUs that other processes use.
        as_json: Whether to print events as JSON.
        as_csv: Whether to print the metrics of the results as CSV.
        plot: Whether to draw plots; None for only on a terminal.
    """

    name: str
    devices: tuple[str, ...]
    settings: tuple[str, ...]
    duration: float | None
    python: str | None
    yes: bool
    as_json: bool
    as_csv: bool = False
    plot: bool | None = None


def refuse_if_read_only(*, is_read_only: bool) -> None:
    """End the command if gpumon may not change anything on this host.

    Raises:
        CommandError: It may not.
    """
    if is_read_only:
        reason = "Workloads are disabled: gpumon is read-only."
        remedy = "Remove --read-only, GPUMON_READ_ONLY or read_only = true in the configuration file."
        raise CommandError.usage(ProblemCode.NO_PERMISSION, reason, remedy)


def run_workloads(options: RunOptions) -> int:
    """Run a workload on each device; returns the exit code.

    Raises:
        CommandError: An option is not valid, or a prerequisite is missing.
    """
    info = _workload(options.name, load_catalogue())
    targets = expand_devices(_chosen_devices(options, info), lambda: sample_frame().devices)
    requests = [replace(_request(options, info, item.device), environment=item.environment) for item in targets]
    interpreter = find_interpreter(options.python)
    runs = [
        WorkloadRun(replace(request, python=interpreter.path), target)
        for request, target in zip(requests, targets, strict=True)
    ]
    output = _output(options)
    stream = LiveStream(FRAME_SECONDS)
    headless = HeadlessRuns(runs, stream, output)
    with _stopped_by_signals(headless) as received:
        stream.start()
        code: int = headless.run()
    return SIGNAL_BASE + received[0] if received else code


def _output(options: RunOptions) -> RunOutput:
    if options.as_json:
        return JsonRunOutput(yes=options.yes)
    return CsvRunOutput(yes=options.yes) if options.as_csv else TextRunOutput(yes=options.yes, plot=options.plot)


def _chosen_devices(options: RunOptions, info: WorkloadInfo) -> tuple[str, ...]:
    """The devices as given; on a host without a GPU, the CPU if none was given.

    Raises:
        CommandError: The workload needs a GPU, and this host has none.
    """
    if CPU.device in options.devices and not info.why_not_cpu:
        return options.devices
    reason = no_gpu_reason(lambda: sample_frame().devices)
    if reason and info.why_not_cpu:
        remedy = "gpumon workloads lists those that also run on the CPU."
        raise CommandError.missing(ProblemCode.NO_DEVICES, f"{reason} {info.why_not_cpu}", remedy)
    context = click.get_current_context(silent=True)
    is_given = context is None or context.get_parameter_source("devices") is not ParameterSource.DEFAULT
    if is_given or not reason:
        return options.devices
    click.echo(f"{reason} Running on the CPU.", err=True)
    return (CPU.device,)


def print_workloads(name: str | None, *, as_json: bool) -> None:
    """Print all workloads, or one, with their parameters, as text or as a JSON document.

    Raises:
        CommandError: There is no workload of that name.
    """
    catalogue = load_catalogue()
    if name is not None:
        catalogue = Catalogue((_workload(name, catalogue),))
    if as_json:
        print_json(_document(catalogue))
    else:
        click.echo("\n".join(workload_list_lines(catalogue, has_gpu=has_driver())))


def print_code(name: str) -> None:
    """Print the code that a workload measures.

    Raises:
        CommandError: There is no workload of that name, or its file does not name any code.
    """
    workload = _workload(name, load_catalogue())
    if not workload.code:
        reason = f"The file of {workload.name} names no code to show."
        raise CommandError.usage(ProblemCode.NOT_FOUND, reason, f"The file is {safe_text(str(workload.file))}.")
    click.echo(code_text(workload))


def _workload(name: str, catalogue: Catalogue) -> WorkloadInfo:
    """The workload of a name.

    Raises:
        CommandError: There is none.
    """
    info = catalogue.get(name)
    if info is None:
        raise CommandError(_unknown_workload(name, catalogue), ExitCode.USAGE)
    return info


def _request(options: RunOptions, info: WorkloadInfo, device: str) -> RunRequest:
    if device == "cpu" and info.why_not_cpu:
        raise CommandError.missing(ProblemCode.NOT_SUPPORTED, info.why_not_cpu)
    texts = _parsed_settings(options.settings)
    limit = options.duration
    if limit is not None and any(parameter.name == _DURATION for parameter in info.parameters):
        texts = {_DURATION: f"{limit:g}", **texts}
        limit = None
    try:
        values: Mapping[str, Value] = chosen_values(info.parameters, device, texts)
    except ValueError as error:
        raise CommandError.usage(
            ProblemCode.INVALID_VALUE, str(error), "gpumon workloads lists all parameters."
        ) from error
    return RunRequest(info, device, values, Path(), limit_seconds=limit)


def _parsed_settings(settings: Sequence[str]) -> dict[str, str]:
    texts = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise CommandError.usage(ProblemCode.INVALID_VALUE, f"--set {safe_text(setting, 60)} is not KEY=VALUE.")
        texts[name.strip()] = text
    return texts


@contextmanager
def _stopped_by_signals(headless: HeadlessRuns) -> Iterator[list[int]]:
    """Stop the workloads when a signal arrives, so that each still reports its result; yields the received signals."""
    received: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        received.append(number)
        headless.stop()

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN and threading.current_thread() is threading.main_thread():
            signal.signal(number, stop)
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _unknown_workload(name: str, catalogue: Catalogue) -> Problem:
    broken = next((broken for broken in catalogue.broken if broken.file.stem == name), None)
    reason = f"There is no workload {safe_text(name, 60)!r}."
    if broken is not None:
        reason = f"{safe_text(str(broken.file))} is not a valid workload: {broken.reason}"
    names = ", ".join(workload.name for workload in catalogue.workloads)
    return Problem(ProblemCode.NOT_FOUND, reason, f"Workloads: {names}." if names else "")


def _document(catalogue: Catalogue) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "workloads": [
            {
                "name": workload.name,
                "purpose": workload.purpose,
                "needs": workload.needs,
                "origin": workload.origin,
                "file": str(workload.file),
                "why_not_cpu": workload.why_not_cpu,
                "code": workload.code,
                "program": workload.program,
                "parameters": [asdict(parameter) for parameter in workload.parameters],
                "metrics": [asdict(metric) for metric in workload.metrics],
            }
            for workload in catalogue.workloads
        ],
        "broken": [{"file": str(broken.file), "reason": broken.reason} for broken in catalogue.broken],
    }
