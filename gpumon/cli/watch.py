"""`gpumon watch` and `gpumon attach`: the probe in the PyTorch processes of a command, or in a running process."""

import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.attaching import chosen_target
from gpumon.cli.options import debug_option, options
from gpumon.core.problems import SIGNAL_BASE, CommandError, ExitCode, ProblemCode
from gpumon.core.text import safe_text

if TYPE_CHECKING:
    from gpumon.probe.attach import Attached

SITE: Final = Path(__file__).parents[1] / "probe" / "site"
"""The folder with the ``sitecustomize`` that Python imports at its start."""
RECORDER_SIZE: Final = "2000"
"""Entries of the flight recorder: PyTorch's default since 2.13."""
_RECORDER_VARIABLES: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Set its size since PyTorch 2.8, and before; a newer PyTorch calls the older name deprecated, on stderr."""
_DUMP_VARIABLES: Final = ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE")
"""Where the watchdog writes the flight recorder, before and since PyTorch 2.9."""


@click.command(
    short_help="Run a command with the memory probe.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@options("watch")
@debug_option
def watch(command: tuple[str, ...], report: Path | None, no_flight_recorder: bool) -> int:
    """Run COMMAND in place of gpumon, with the probe in every PyTorch process, including child processes and workers.

    For example: gpumon watch -- torchrun --nproc-per-node 8 train.py

    With the probe, the Memory screen of any gpumon on this host shows the memory of the PyTorch allocator. When memory
    runs out, the probe writes a file that "gpumon explain --oom" reads. The probe starts with the first CUDA context of
    a process; also on the CPU, with its first optimizer step, DataLoader or process group. Signals, output and exit
    code are those of the command. python -I and -E disable the probe.

    PyTorch's flight recorder, which shows why a distributed job hangs, is turned on where it is off: watch sets
    TORCH_FR_BUFFER_SIZE=2000 unless the environment has a size.

    With --report, gpumon stays and writes DIR/report.html, report.md and report.json: steps, memory, GPUs, energy, what
    a step consists of, and why the run failed. What the command prints to the terminal goes through DIR/output.log.
    """
    program = shutil.which(command[0])
    if program is None:
        reason = f"Command not found: {safe_text(command[0], 200)}."
        raise CommandError.missing(ProblemCode.NOT_FOUND, reason, "Check the name of the command and PATH.")
    environment = watched_environment(os.environ, has_recorder=not no_flight_recorder)
    if report is not None:
        return _report(report, program, command, environment)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ"):
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, command, environment)  # noqa: S606 - the command needs no shell
    except OSError as error:
        reason = f"{safe_text(program, 200)} cannot be run: {error.strerror}."
        raise CommandError.missing(
            ProblemCode.NOT_FOUND, reason, "The first line of a script must name its interpreter."
        ) from None


def _report(folder: Path, program: str, command: tuple[str, ...], environment: dict[str, str]) -> int:
    """Run the command, and report it; the exit status is that of the command."""
    from gpumon.operations.run_report.watched import DUMPS, watch_run
    from gpumon.present.report.write import write_report

    dumps = dict.fromkeys(_DUMP_VARIABLES, str(folder.absolute() / DUMPS))
    own = {**dumps, "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "PYTHONUNBUFFERED": "1"}
    status, failure = watch_run(folder, program, command, {**own, **environment}, write_report)
    click.echo(f"gpumon: {failure or f'The report is {folder}/report.html.'}", err=True)
    return status if status >= 0 else SIGNAL_BASE - status


def watched_environment(environment: Mapping[str, str], *, has_recorder: bool = True) -> dict[str, str]:
    """The environment in which every Python starts with the probe.

    Args:
        environment: The environment of gpumon.
        has_recorder: Whether to set the size of PyTorch's flight recorder, if the environment does not.
    """
    path = environment.get("PYTHONPATH")
    others = (
        [folder for folder in path.split(os.pathsep) if folder != str(SITE)] if path else []
    )  # an empty entry is kept
    is_set = not has_recorder or any(name in environment for name in _RECORDER_VARIABLES)
    recorder = {} if is_set else {_RECORDER_VARIABLES[0]: RECORDER_SIZE}
    return {**environment, **recorder, "PYTHONPATH": os.pathsep.join([str(SITE), *others])}


@click.command(short_help="Load the probe into a running process.")
@click.argument("target", required=False)
@options("attach")
@debug_option
def attach(target: str | None, timeout: float, detach: bool, verbose: bool, report: Path | None) -> int:
    """Load the probe into a running training run, so that gpumon shows its memory, its steps and its lines of code.

    TARGET is a PID (of a rank, a worker of a DataLoader, or a launcher for all of its ranks) or the name of a job;
    without it, the only training run of this host.

    The process must run CPython 3.8 or later. Up to 3.13 its main thread stands still for about a millisecond; the
    process continues as before. It needs no preparation and no package of gpumon.

    With --report, gpumon stays until the processes end or ctrl+c, and keeps a report as gpumon watch --report does.

    Exits with 0 if the probe answers, 1 if it does not answer yet, 3 if it cannot be loaded.
    """
    if detach and report is not None:
        raise click.UsageError("--report needs the probe that --detach ends.")
    chosen = chosen_target(target)
    if target is None:
        click.confirm(f"{'End the probe in' if detach else 'Load the probe into'} {chosen}?", abort=True, err=True)
    if os.getpid() in chosen.pids:
        raise click.UsageError(f"PID {os.getpid()} is gpumon itself.")
    if detach:
        _unload(chosen.pids, timeout)
    else:
        _load(chosen.pids, timeout, is_verbose=verbose)
    return ExitCode.OK if report is None else _follow(report, chosen.pids)


def _follow(folder: Path, pids: "tuple[int, ...]") -> int:
    """Report processes until they end, or until a signal."""
    from gpumon.cli.exporter import ending_signals
    from gpumon.operations.run_report.watched import follow_run
    from gpumon.present.report.write import write_report

    with ending_signals() as stop:
        has_ended = follow_run(folder, pids, stop, write_report)
    click.echo(f"gpumon: The report is {folder / 'report.html'}.", err=True)
    return ExitCode.OK if has_ended else SIGNAL_BASE + stop.number


def _unload(pids: "tuple[int, ...]", timeout: float) -> None:
    from gpumon.probe.attach import detach

    for pid in pids:
        process = detach(pid, timeout)
        left = f"No probe listens in process {pid}." if process is None else f"The probe has left {process.name}."
        click.echo(left)


def _load(pids: "tuple[int, ...]", timeout: float, *, is_verbose: bool) -> None:
    """Load the probe into processes, all at the same time, and print what came of it.

    Raises:
        CommandError: One of them has no probe now.
    """
    from gpumon.operations.attaching import load_probes, waiting_text

    results = load_probes(pids, lambda process: click.echo(waiting_text(process), err=True), timeout)
    good = [result for result in results.values() if not isinstance(result, CommandError)]
    for number, attached in enumerate(good, 1):
        click.echo(_text(attached, has_next=number == len(good)))
        if is_verbose and attached.stopped_seconds:
            click.echo(f"The main thread stood still for {1000 * attached.stopped_seconds:.2f} ms.")
    for result in results.values():
        if isinstance(result, CommandError):
            raise result


def _text(attached: "Attached", *, has_next: bool) -> str:
    """The result, and what to do next."""
    runs = "already runs" if attached.was_there else "runs"
    step = f"\n{_next_step(attached)}" if has_next else ""
    return f"The probe {runs} in {attached.target.name}.{step}"


def _next_step(attached: "Attached") -> str:
    from gpumon.probe.socket_dir import candidates

    if attached.folder is None:
        return "The probe does not listen. It waits for the first CUDA context of the process, or has failed."
    is_found = attached.target.is_foreign and attached.target.shares_mounts
    if attached.folder not in candidates() and not is_found:
        return f"Run GPUMON_PROBE_DIR={attached.folder} gpumon memory, or gpumon why."
    return "Next: gpumon memory, gpumon why, or the Memory screen of gpumon (3)."
