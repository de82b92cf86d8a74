"""From the shell and back to it: streams that may be closed, everything that can end a command, and its exit code."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import click

from gpumon.cli.commands import gpumon
from gpumon.core.exits import SIGNAL_BASE, CommandError, ExitCode
from gpumon.core.glyphs import adapt
from gpumon.core.text import safe_text


def main() -> NoReturn:
    """Entry point of the ``gpumon`` command."""
    _open_closed_streams()
    for output in (sys.stdout, sys.stderr):
        adapt(output)  # type: ignore[arg-type]
    wishes: list[str] = []
    sys.exit(_guarded(lambda: gpumon(standalone_mode=False, obj=wishes), wishes))


def _open_closed_streams() -> None:
    """Opens the null device where a shell closed a stream (``>&-``), before a pipe to the collector takes its place."""
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _guarded(command: Callable[[], object], wishes: Sequence[str] = ()) -> int:
    """Runs a command and turns everything that can end it into an exit code."""
    try:
        ended = command()
        sys.stdout.flush()
    except Exception as error:
        if "debug" in wishes and not isinstance(error, (CommandError, click.ClickException)):
            raise
        return _exit_code(error)
    except KeyboardInterrupt:
        return SIGNAL_BASE + signal.SIGINT
    return ended if isinstance(ended, int) else ExitCode.OK


def _exit_code(error: Exception) -> int:
    """Says what ended a command, where there is something to say, and what it exits with."""
    if isinstance(error, CommandError):
        return _say(str(error), error.exit_code)
    if isinstance(error, click.ClickException):
        error.show()
        return ExitCode.USAGE
    if isinstance(error, click.Abort):
        return SIGNAL_BASE + signal.SIGINT
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SIGNAL_BASE + signal.SIGPIPE
    what = f"{type(error).__name__}: {safe_text(str(error), 200)}"
    return _say(f"It failed: {what}. Run it again with --debug to see where.", ExitCode.BAD_VERDICT)


def _say(sentence: str, code: int) -> int:
    click.echo(f"gpumon: {sentence}", err=True)
    return code
