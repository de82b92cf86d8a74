"""The process around a command: standard streams that may be closed, exceptions, and the exit code."""

import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TextIO

import click

from gpumon.cli.commands import gpumon
from gpumon.core.ascii_fallback import Symbols, enable_ascii_fallback, symbols_for
from gpumon.core.limits import limit_problem
from gpumon.core.problems import SIGNAL_BASE, CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.text import safe_text


class OutputError(OSError):
    """Standard output cannot be written, for a reason other than a reader that is gone."""


class _StandardOutput(io.FileIO):
    """Standard output, whose errors can be distinguished from those of other files."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer
        """Write as much as the file accepts.

        Raises:
            OutputError: The file cannot be written.
            BrokenPipeError: The reader is gone.
        """
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None


def main() -> NoReturn:
    """Entry point of the ``gpumon`` command."""
    _open_closed_streams()
    sys.stdout = _with_output_errors(sys.stdout)  # type: ignore[arg-type]
    symbols = symbols_for(os.environ)
    for output in (sys.stdout, sys.stderr):
        enable_ascii_fallback(output, symbols if output.isatty() else Symbols.UNICODE)  # type: ignore[arg-type]
    flags: list[str] = []
    sys.exit(_guarded(lambda: gpumon(standalone_mode=False, obj=flags), flags))


def _open_closed_streams() -> None:
    """Open the null device where a shell closed a stream (``>&-``), before a collector pipe gets that descriptor."""
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _with_output_errors(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """The same stream, buffered in the same way, with `OutputError`."""
    raw = _StandardOutput(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),  # as Python does with -u
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


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
        return _print_to_stderr(error.show, ExitCode.USAGE)
    if isinstance(error, click.Abort):
        return SIGNAL_BASE + signal.SIGINT
    if isinstance(error, BrokenPipeError):
        _discard(sys.stdout)
        return SIGNAL_BASE + signal.SIGPIPE
    problem = limit_problem(error)
    if isinstance(error, OutputError):
        _discard(sys.stdout)
        reason = f"{error.strerror} while writing standard output."
        problem = Problem(ProblemCode.NOT_WRITTEN, reason, "Write to a file or a pipe that accepts the output.")
    if problem is not None:
        return _print_error(str(problem), ExitCode.BAD_VERDICT)
    message = f"{type(error).__name__}: {safe_text(str(error), 200)}"
    return _print_error(f"Unexpected error: {message}. Run with --debug for a traceback.", ExitCode.BAD_VERDICT)


def _print_error(sentence: str, code: int) -> int:
    return _print_to_stderr(lambda: click.echo(f"gpumon: {sentence}", err=True), code)


def _print_to_stderr(show: Callable[[], None], code: int) -> int:
    """Print something; the exit code is what remains if standard error cannot be written."""
    try:
        show()
    except OSError:
        _discard(sys.stderr)
    return code


def _discard(stream: TextIO) -> None:
    """Discard what is not written yet: Python would try again at the end, and exit with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
