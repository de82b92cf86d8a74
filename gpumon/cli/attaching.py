"""What commands that need a probe share: who is meant, the question before it is loaded, and files that it wrote."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpumon.cli.options import Command, options
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text, file_stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.operations.recorded_file import RecordedFile
    from gpumon.operations.targets import TrainingTarget


def attach_options(command: Command) -> Command:
    """The options of every command that may load a probe."""
    return options("load-probe")(options("attach-or-ask")(command))


def chosen_target(text: str | None) -> "TrainingTarget":
    """The processes that the user means; asks where there are several training runs.

    Raises:
        CommandError: There are none, or there is no terminal to ask on.
    """
    from gpumon.operations.targets import SeveralTargetsError, find_target

    try:
        target = find_target(text)
    except SeveralTargetsError as error:
        for number, candidate in enumerate(error.targets, 1):
            click.echo(f"{number:>3}  {candidate}  {' '.join(map(str, candidate.pids[:8]))}", err=True)
        if not _has_terminal():
            raise
        number = click.prompt("Which one", type=click.IntRange(1, len(error.targets)), err=True)
        target = error.targets[number - 1]
    if target.note:
        click.echo(target.note, err=True)
    return target


def slower_allowed() -> "Callable[[str], bool] | None":
    """Asks on the terminal whether to record a process that is slower afterwards; None without a terminal."""
    return (lambda reason: click.confirm(f"{reason} Record it?", err=True)) if _has_terminal() else None


def load_missing_probes(target: "TrainingTarget", *, attach: bool, policy: str) -> Problem | None:
    """Load the probe into the processes that have none, if the user agrees; returns why some have none now.

    Args:
        target: The processes.
        attach: Whether the user has agreed on the command line.
        policy: Whether to ask; ``ask``, ``own`` for other users only, or ``never``.
    """
    from gpumon.operations.attaching import load_probes, plan_probes, waiting_text

    plan = plan_probes(target.name, target.pids)
    if not plan.possible:
        return plan.refusal
    if not attach and policy == "never":
        return _no_probe(plan.possible, "never loads it: --load-probe never.")
    if not attach and not (policy == "own" and plan.is_own):
        if not _has_terminal():
            return _no_probe(plan.possible, "loads it only if --attach is given.")
        if not click.confirm(plan.question, err=True):
            return _no_probe(plan.possible, "was not allowed to load it.")
    results = load_probes(plan.possible, lambda waiting: click.echo(waiting_text(waiting), err=True))
    return next((result.problem for result in results.values() if isinstance(result, CommandError)), None)


def require_probes(target: "TrainingTarget", *, attach: bool, policy: str) -> None:
    """Likewise, for a command that cannot do without.

    Raises:
        CommandError: A process has no probe.
    """
    problem = load_missing_probes(target, attach=attach, policy=policy)
    if problem is not None:
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)


def _no_probe(pids: "tuple[int, ...]", clause: str) -> Problem:
    subject = f"Process {pids[0]} has" if len(pids) == 1 else f"{len(pids)} processes have"
    return Problem(ProblemCode.NOT_FOUND, f"{subject} no probe, and gpumon {clause}")


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def default_path(kind: str, pid: int, suffix: str) -> Path:
    """A name in the current folder, such as ``trace-4711-20260501-143000.json.gz``."""
    return Path(f"{kind}-{pid}-{file_stamp()}{suffix}")


def path_of(output: Path, pid: int) -> Path:
    """The file of one of several processes: the PID comes before the suffixes."""
    stem, dot, suffixes = output.name.partition(".")
    return output.with_name(f"{stem}-{pid}{dot}{suffixes}")


def save(file: "RecordedFile", target: Path, hint: str) -> None:
    """Move a file to its path, and print where it is and what its reader must know.

    Raises:
        CommandError: There is no file, or it cannot be written.
    """
    from gpumon.operations.recorded_file import move_file

    if file.path is None:
        assert file.problem is not None
        reason = f"Process {file.pid}: {file.problem.reason}"
        raise CommandError.missing(file.problem.code, reason, file.problem.remedy)
    move_file(file.path, target)
    size = bytes_text(target.stat().st_size)
    click.echo(f"Wrote {safe_text(str(target), 200)} ({size}). {hint}", err=True)
    for note in file.notes:
        click.echo(f"Process {file.pid}: {note}", err=True)
