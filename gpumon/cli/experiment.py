"""`gpumon try`: which of two commands trains faster on this host."""

import os

import click

from gpumon.cli.options import debug_option, options
from gpumon.cli.output import print_json
from gpumon.cli.watch import watched_environment
from gpumon.core.problems import ExitCode
from gpumon.core.units import short_time_text
from gpumon.operations.run_report.experiment import (
    MIN_RUNS,
    Plan,
    TriedRun,
    change_of,
    experiment_document,
    run_experiment,
)


@click.command("try", short_help="Run two commands in turns, and say which one is faster.")
@click.argument("commands", nargs=2, metavar="A B")
@options("try")
@debug_option
def try_command(commands: tuple[str, str], steps: int, rounds: int, max_seconds: float, as_json: bool) -> int:
    """Run the training commands A and B in turns, A B B A, and compare the time of their steps.

    For example: gpumon try 'python train.py --workers 2' 'python train.py --workers 8' --steps 200

    A shell runs each command with the probe, which counts the steps of optimizers. The first steps (a fifth, at least
    10) are left out; after the others gpumon ends the command, with all of its processes. What it prints is shown only
    if it fails. A step of B must do the same work as one of A: the batch size is not compared.

    Exits with 0 if one is shown to be faster, 4 if no difference can be shown, 1 if a command failed, and 3 if it
    reported too few steps.
    """
    environment = watched_environment(os.environ, has_recorder=False)
    plan = Plan(commands, steps, rounds, max_seconds, environment)
    count, number = rounds * MIN_RUNS, iter(range(1, rounds * MIN_RUNS + 1))

    def show(run: TriedRun) -> None:
        others = f"; another program used {'; '.join(run.others)}" if run.others else ""
        time = f"{short_time_text(run.step_seconds)} per step"
        click.echo(f"{next(number):>3} of {count}  {run.side}  {time}{others}", err=True)

    runs = run_experiment(plan, show)
    change = change_of(runs)
    if as_json:
        print_json(experiment_document(plan, runs))
    else:
        from gpumon.present.text.experiment import experiment_lines

        click.echo("\n".join(experiment_lines(runs, change)))
    return ExitCode.OK if change.is_shown else ExitCode.UNDECIDED
