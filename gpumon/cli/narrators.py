"""How `gpumon run` tells what happens: lines and a bar for people, a JSON line an event for programs."""

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import click

from gpumon.core.units import age_text, bytes_text
from gpumon.jobs.protocol import EventKind, JobEvent
from gpumon.operations.neighbours import Neighbour
from gpumon.operations.workload import WorkloadRun
from gpumon.ui.view import figures

_BAR_CELLS: Final = 24
_MARKS: Final = {"ok": "ok", "warn": "warning", "fail": "FAILED", "cancelled": "cancelled"}


class JsonNarrator:
    """A JSON line an event, with the device on which it happened.

    Args:
        yes: Whether to begin on GPUs on which others work.
    """

    def __init__(self, *, yes: bool) -> None:
        self._yes = yes

    def told(self, run: WorkloadRun, event: JobEvent) -> None:
        """Prints the event."""
        document = {**event.document(), "workload": run.request.workload.name, "device": run.request.device}
        click.echo(json.dumps(document, ensure_ascii=False))
        sys.stdout.flush()

    def moment(self, runs: Sequence[WorkloadRun]) -> None:
        """Nothing: events tell everything."""

    def may_begin(self, run: WorkloadRun, neighbours: Sequence[Neighbour]) -> bool:
        """As was said beforehand: a program cannot be asked."""
        if not self._yes:
            click.echo(f"gpumon: {refusal(run, neighbours)}", err=True)
        return self._yes


class TextNarrator:
    """Lines, a bar where there is a terminal, and a table of figures at the end.

    Args:
        yes: Whether to begin on GPUs on which others work, without asking.
    """

    def __init__(self, *, yes: bool) -> None:
        self._yes = yes
        self._several = False
        self._bar = ""
        self._to_terminal = sys.stderr.isatty()

    def told(self, run: WorkloadRun, event: JobEvent) -> None:
        """Prints what a person wants to read of it."""
        if event.kind is EventKind.ERROR and run.state.not_here == event.fields["text"]:
            self._draw("")
            click.echo(f"gpumon: {event.fields['text']}", err=True)
            return
        line = self._line(run, event)
        if line is not None:
            self._say(f"{run.request.device}: {line}" if self._several else line)

    def moment(self, runs: Sequence[WorkloadRun]) -> None:
        """Draws the bar of what runs."""
        self._several = len(runs) > 1
        if not self._to_terminal:
            return
        running = [run for run in runs if not run.ended and run.state.began_seconds is not None]
        self._draw("  ".join(bar_text(run) for run in running))

    def may_begin(self, run: WorkloadRun, neighbours: Sequence[Neighbour]) -> bool:
        """Asks, where there is somebody to ask."""
        if self._yes:
            return True
        self._draw("")
        if not sys.stdin.isatty():
            click.echo(f"gpumon: {refusal(run, neighbours)}", err=True)
            return False
        with suppress(click.Abort):
            return click.confirm(f"{reasons_text(run, neighbours)} {uses_text(run)} Begin?", err=True)
        return False

    def _line(self, run: WorkloadRun, event: JobEvent) -> str | None:
        fields = event.fields
        if event.kind is EventKind.PLAN:
            return plan_text(run)
        if event.kind is EventKind.STEP:
            return str(fields["text"])
        if event.kind is EventKind.ERROR:
            return explained_text(f"{fields['class']}: {fields['text']}")
        if event.kind is EventKind.TIMING:
            host, device = fields["host_seconds"], fields["device_seconds"]
            return f"{fields['name']}: returned after {_seconds(host)}, done after {_seconds(device)}"
        if event.kind is EventKind.RESULT:
            return result_text(run)
        return None

    def _say(self, text: str) -> None:
        self._draw("")
        click.echo(text)
        sys.stdout.flush()

    def _draw(self, text: str) -> None:
        """Puts the bar's line in place of the one before."""
        if text == self._bar:
            return
        width = max(20, _terminal_columns() - 1)
        sys.stderr.write("\r\x1b[K" + text[:width])
        sys.stderr.flush()
        self._bar = text


def bar_text(run: WorkloadRun) -> str:
    """Progress, remaining time and live figures in one line."""
    state = run.state
    share = state.share_done
    parts = [run.request.device]
    if share is not None:
        done = round(share * _BAR_CELLS)
        parts.append(f"[{'#' * done}{'-' * (_BAR_CELLS - done)}] {share:4.0%}")
        remaining = state.remaining_seconds(_now(run))
        if remaining is not None:
            parts.append(f"{age_text(remaining)} left")
    for name, samples in list(state.metrics.items())[-1:]:
        parts.append(f"{name} {figures.figure_text(samples[-1].value, state.units[name])}")
    if run.samples:
        sample = run.samples[-1]
        if sample.power_watts is not None:
            parts.append(f"{sample.power_watts:.0f} W")
        if sample.clock_hertz is not None:
            parts.append(f"{sample.clock_hertz / 1e6:.0f} MHz")
    return "  ".join(parts)


def explained_text(text: str) -> str:
    """An error, and what is known of it in a sentence."""
    from gpumon.ui.view.explain import recognised  # it brings the catalogue of errors, which few runs need

    known = recognised(text)
    return text if known is None else f"{text}\n  {known.title}: {known.summary} (gpumon explain --id {known.id})"


def plan_text(run: WorkloadRun) -> str:
    """What will be used, before anything is."""
    plan: Mapping[str, Any] = run.state.plan or {}
    chip = plan.get("chip") or {}
    where = chip.get("name") or "the CPU"
    return f"{run.request.workload.name} on {where}, torch {plan.get('torch')}. {uses_text(run)}"


def uses_text(run: WorkloadRun) -> str:
    """What a run will take at most, in a sentence."""
    plan: Mapping[str, Any] = run.state.plan or {}
    free = plan.get("memory_free_bytes")
    are_free = "" if free is None else f"; {bytes_text(free)} of it are free"
    return f"It will use at most: {figures.uses_text(plan)}{are_free}."


def result_text(run: WorkloadRun) -> str:
    """Verdict, reasons and figures."""
    result = run.state.result
    assert result is not None
    changes = {each.name: each.share for each in run.changes}
    rows = [("figure", "value", "limit", "share", "n", "last run")]
    for figure in result.figures:
        limit = figure.get("limit")
        change = changes.get(figure["name"])
        rows.append(
            (
                str(figure["name"]),
                figures.figure_text(figure["value"], str(figure["unit"])),
                f"{figures.figure_text(limit)} ({figure['limit_source']})" if limit else "",
                figures.share_text(figures.share_of_limit(figure)) if limit else "",
                str(figure["repetitions"]),
                figures.change_text(change),
            )
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines = ["", *(table if result.figures else []), "" if result.figures else None, _verdict_line(run)]
    if run.problem is not None:
        lines.append(str(run.problem))
    return "\n".join(line for line in lines if line is not None)


def _verdict_line(run: WorkloadRun) -> str:
    result = run.state.result
    assert result is not None
    return f"{run.request.workload.name}: {_MARKS[result.verdict.value]}. {result.why}"


def reasons_text(run: WorkloadRun, neighbours: Sequence[Neighbour]) -> str:
    """Why it is asked whether it may begin."""
    return " ".join(filter(None, [run.state.asks, neighbours_text(neighbours) if neighbours else ""]))


def neighbours_text(neighbours: Sequence[Neighbour]) -> str:
    """Who works there."""
    told = ", ".join(_neighbour_text(each) for each in neighbours[:3])
    more = f" and {len(neighbours) - 3} more" if len(neighbours) > 3 else ""
    places = ", ".join(str(index) for index in sorted({each.device.index for each in neighbours}))
    return f"Others work on GPU {places}: {told}{more}."


def _neighbour_text(neighbour: Neighbour) -> str:
    process, held = neighbour.process, bytes_text(neighbour.memory_bytes)
    if process is None:
        return f"somebody who cannot be seen from here ({held})"
    return f"PID {process.pid} ({process.user or 'unknown user'}, {held})"


def refusal(run: WorkloadRun, neighbours: Sequence[Neighbour]) -> str:
    """Why it does not begin, and how it would."""
    remedy = "Choose another device, or add --yes to run beside them." if neighbours else "Add --yes to run it."
    return f"{run.request.workload.name} was not begun. {reasons_text(run, neighbours)} {remedy}"


def _seconds(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _now(run: WorkloadRun) -> float:
    return min(time.time(), run.state.ended_seconds or float("inf"))


def _terminal_columns() -> int:
    return shutil.get_terminal_size((120, 24)).columns
