"""The process around a command: standard streams that may be closed, exceptions, and the exit code."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import click

from gpumon.cli.commands import gpumon
from gpumon.core.ascii_fallback import enable_ascii_fallback
from gpumon.core.limits import limit_problem
from gpumon.core.problems import SIGNAL_BASE, CommandError, ExitCode
from gpumon.core.text import safe_text


def main() -> NoReturn:
    """Entry point of the ``gpumon`` command."""
    _open_closed_streams()
    for output in (sys.stdout, sys.stderr):
        enable_ascii_fallback(output)  # type: ignore[arg-type]
    flags: list[str] = []
    sys.exit(_guarded(lambda: gpumon(standalone_mode=False, obj=flags), flags))


def _open_closed_streams() -> None:
    """Open the null device where a shell closed a stream (``>&-``), before a collector pipe gets that descriptor."""
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _guarded(command: Callable[[], object], flags: Sequence[str] = ()) -> int:
    """Run a command; every exception becomes an exit code."""
    try:
        code = command()
        sys.stdout.flush()
    except Exception as error:
        if "debug" in flags and not isinstance(error, (CommandError, click.ClickException)):
            raise
        return _exit_code(error)
    except KeyboardInterrupt:
        return SIGNAL_BASE + signal.SIGINT
    return code if isinstance(code, int) else ExitCode.OK


def _exit_code(error: Exception) -> int:
    """Print the message of an exception, if it needs one; returns its exit code."""
    if isinstance(error, CommandError):
        return _print_error(str(error), error.exit_code)
    if isinstance(error, click.ClickException):
        error.show()
        return ExitCode.USAGE
    if isinstance(error, click.Abort):
        return SIGNAL_BASE + signal.SIGINT
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SIGNAL_BASE + signal.SIGPIPE
    problem = limit_problem(error)
    if problem is not None:
        return _print_error(str(problem), ExitCode.BAD_VERDICT)
    message = f"{type(error).__name__}: {safe_text(str(error), 200)}"
    return _print_error(f"Unexpected error: {message}. Run with --debug for a traceback.", ExitCode.BAD_VERDICT)


def _print_error(sentence: str, code: int) -> int:
    click.echo(f"gpumon: {sentence}", err=True)
    return code
