"""The output of `gpumon run`: text with a progress bar for users, one JSON line per event for programs."""

import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import click

from gpumon.cli.output import plot_width, terminal_width
from gpumon.core.json_text import json_line
from gpumon.operations.csv_table import FIGURE_COLUMNS, figure_rows, write_rows
from gpumon.operations.gpu_processes import OtherProcess
from gpumon.operations.workload import WorkloadRun
from gpumon.present.text.run import (
    confirmation_text,
    explained_text,
    outcome_lines,
    plan_text,
    progress_text,
    refusal_text,
    result_lines,
    timing_text,
)
from gpumon.workload_runs.protocol import RunEvent, RunEventKind
from gpumon.workload_runs.state import UNSUPPORTED_ERROR


def _report_not_saved(run: WorkloadRun, event: RunEvent) -> None:
    """Print why a result was not saved, which changes neither the verdict nor the exit code."""
    if event.kind is RunEventKind.RESULT and run.problem is not None:
        click.echo(f"gpumon: {run.problem}", err=True)


class JsonRunOutput:
    """One JSON line per event, with the device of the run.

    Args:
        yes: Whether to start on GPUs that other processes use.
    """

    def __init__(self, *, yes: bool) -> None:
        self._yes = yes

    def on_event(self, run: WorkloadRun, event: RunEvent) -> None:
        """Print the event."""
        document = {**event.document(), "workload": run.request.workload.name, "device": run.request.device}
        click.echo(json_line(document))
        sys.stdout.flush()
        _report_not_saved(run, event)

    def on_tick(self, runs: Sequence[WorkloadRun]) -> None:
        """Print nothing: the events contain everything."""

    def confirm_start(self, run: WorkloadRun, others: Sequence[OtherProcess]) -> bool:
        """Whether ``--yes`` was given: a program cannot be asked."""
        if not self._yes:
            click.echo(f"gpumon: {refusal_text(run, others)}", err=True)
        return self._yes


class TextRunOutput:
    """Lines of text, a progress bar if standard error is a terminal, and a table and plots of metrics at the end.

    Args:
        yes: Whether to start without confirmation.
        plot: Whether to draw plots; None for only on a terminal.
    """

    def __init__(self, *, yes: bool, plot: bool | None = None) -> None:
        self._yes = yes
        self._plot = plot
        self._has_several_runs = False
        self._bar = ""
        self._has_terminal = sys.stderr.isatty()
        self._reported: set[str] = set()
        """Why workloads are not supported here; each sentence is printed once."""

    def on_event(self, run: WorkloadRun, event: RunEvent) -> None:
        """Print what a user wants to read about the event."""
        if event.kind is RunEventKind.BYE:
            self._report_unsupported(run)
            return
        text = self._text(run, event)
        if text is not None:
            self._draw("")
            self._print(f"{run.request.device}: {text}" if self._has_several_runs else text)
        _report_not_saved(run, event)

    def on_tick(self, runs: Sequence[WorkloadRun]) -> None:
        """Draw the progress of all runs."""
        self._has_several_runs = len(runs) > 1
        if not self._has_terminal:
            return
        active = [run for run in runs if not run.ended and run.state.began_seconds is not None]
        self._draw("  ".join(progress_text(run, time.time()) for run in active))

    def confirm_start(self, run: WorkloadRun, others: Sequence[OtherProcess]) -> bool:
        """Ask the user, if standard input is a terminal."""
        if self._yes:
            return True
        self._draw("")
        if not sys.stdin.isatty():
            click.echo(f"gpumon: {refusal_text(run, others)}", err=True)
            return False
        with suppress(click.Abort):
            return click.confirm(confirmation_text(run, others), err=True)
        return False

    def _text(self, run: WorkloadRun, event: RunEvent) -> str | None:
        fields = event.fields
        if event.kind is RunEventKind.PLAN:
            return plan_text(run)
        if event.kind is RunEventKind.STEP:
            return str(fields["text"])
        if event.kind is RunEventKind.ERROR and fields["class"] != UNSUPPORTED_ERROR:
            return explained_text(f"{fields['class']}: {fields['text']}")
        if event.kind is RunEventKind.TIMING:
            return timing_text(fields)
        if event.kind is RunEventKind.RESULT:
            return self._result_text(run)
        return None

    def _result_text(self, run: WorkloadRun) -> str:
        return "\n".join(result_lines(run, plot_width(self._plot), terminal_width()))

    def _print(self, text: str) -> None:
        click.echo(text)
        sys.stdout.flush()

    def _report_unsupported(self, run: WorkloadRun) -> None:
        """Print why the workload, or a part of it, is not supported here, unless its result says so."""
        reason = "" if run.state.result is None else run.state.result.why
        for error in run.state.errors:
            if error.kind == UNSUPPORTED_ERROR and error.text not in reason and error.text not in self._reported:
                self._reported.add(error.text)
                self._draw("")
                click.echo(f"gpumon: {error.text}", err=True)

    def _draw(self, text: str) -> None:
        """Replace the line of the progress bar."""
        if text == self._bar:
            return
        width = max(20, shutil.get_terminal_size((120, 24)).columns - 1)
        sys.stderr.write("\r\x1b[K" + text[:width])
        sys.stderr.flush()
        self._bar = text


class CsvRunOutput(TextRunOutput):
    """The metrics of each result as CSV on standard output, and everything else on standard error.

    Args:
        yes: Whether to start without confirmation.
    """

    def __init__(self, *, yes: bool) -> None:
        super().__init__(yes=yes, plot=False)
        write_rows([FIGURE_COLUMNS], sys.stdout)

    def _result_text(self, run: WorkloadRun) -> str:
        write_rows(figure_rows(run.record()), sys.stdout)
        sys.stdout.flush()
        return "\n".join(outcome_lines(run))

    def _print(self, text: str) -> None:
        click.echo(text, err=True)
