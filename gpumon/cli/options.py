"""Options that several commands have, and the types of their values."""

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, Final

import click
from click.core import ParameterSource

from gpumon.cli.appearance import ThemeName, default_theme
from gpumon.core.ascii_fallback import Symbols, enable_ascii_fallback
from gpumon.core.problems import CommandError, ExitCode
from gpumon.core.timeline import DEFAULT_HISTORY_SECONDS, MAX_HISTORY_SECONDS, MIN_HISTORY_SECONDS
from gpumon.core.units import parse_duration, parse_size

Command = Callable[..., int | None]

_WARNINGS: Final = "gpumon.warnings"
"""The key in click's context of the warnings about unused variables of the environment."""


class NumberRange(click.FloatRange):
    """A range that excludes "nan", which is neither below nor above any limit."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, if it is in the range."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class Seconds(NumberRange):
    """A range of seconds; a value may also be a duration such as ``30s`` or ``5m``."""

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds, if they are in the range."""
        with suppress(ValueError):
            value = parse_duration(str(value))
        return super().convert(value, param, ctx)  # type: ignore[arg-type]  # a number as text, or an error


class Duration(click.ParamType[float]):
    """A duration such as ``90s``, ``10m``, ``2h`` or ``1d``; a number without a unit is in seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds, if they are in the range."""
        if not isinstance(value, str):
            return value
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not MIN_HISTORY_SECONDS <= seconds <= MAX_HISTORY_SECONDS:
            self.fail(f"{value!r} is not between 1m and 7d.", param, ctx)
        return seconds


class AnyDuration(click.ParamType[float]):
    """A duration of any length, such as ``30s`` or ``5m``; a number without a unit is in seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds."""
        try:
            return parse_duration(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType[float]):
    """An amount of memory such as ``20G`` or ``512M``, in multiples of 1024."""

    name = "size"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The bytes."""
        try:
            return parse_size(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class SharedOption(click.Option):
    """An option of `gpumon` itself that also sets the option of the same name of each command.

    An invalid value in the environment is an error only for a command that has the option. For other commands it is a
    warning: a variable that is meant for the screen must not stop `gpumon status` or `gpumon watch`.
    """

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """The value; the default for an invalid variable of the environment that the command does not use."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.BadParameter as error:
            if self._is_used(ctx, args) or ctx.get_parameter_source(str(self.name)) is not ParameterSource.ENVIRONMENT:
                raise
            variable = f"{ctx.auto_envvar_prefix}_{self.name}".upper()
            environment_warnings(ctx).append(f"{variable} is ignored: {error.message}")
        value = self.type_cast_value(ctx, self.get_default(ctx))
        ctx.params[str(self.name)] = value
        ctx.set_parameter_source(str(self.name), ParameterSource.DEFAULT)
        return value, args

    def _is_used(self, ctx: click.Context, args: list[str]) -> bool:
        """Whether the command that follows, if any, has this option."""
        if not isinstance(ctx.command, click.Group) or not args:
            return True
        command = ctx.command.commands.get(args[0])
        return command is None or any(parameter.name == self.name for parameter in command.params)


def environment_warnings(context: click.Context) -> list[str]:
    """The warnings about variables of the environment that the command does not use."""
    warnings: list[str] = context.meta.setdefault(_WARNINGS, [])
    return warnings


def json_option(command_name: str, text: str = "Print one JSON document.") -> Callable[[Command], Command]:
    """The option for JSON output.

    Args:
        command_name: Name of the command, for the environment variable.
        text: The help text.
    """
    return click.option("--json", "as_json", is_flag=True, envvar=f"GPUMON_{command_name.upper()}_JSON", help=text)


def csv_option(command_name: str, text: str) -> Callable[[Command], Command]:
    """The option for CSV output.

    Args:
        command_name: Name of the command, for the environment variable.
        text: The help text.
    """
    return click.option("--csv", "as_csv", is_flag=True, envvar=f"GPUMON_{command_name.upper()}_CSV", help=text)


def plot_option(command: Command) -> Command:
    """The option of every command that can draw plots of results."""
    return click.option(
        "--plot/--no-plot",
        default=None,
        help="Draw plots, or leave them out.  [default: only on a terminal]",
    )(command)


def _show_symbols(_: click.Context, __: click.Parameter, value: str | None) -> None:
    """Draw with the chosen characters from now on."""
    if value is not None:
        for output in (sys.stdout, sys.stderr):
            if isinstance(output, TextIOWrapper):  # not in tests
                enable_ascii_fallback(output, Symbols(value))


def screen_options(command: Command) -> Command:
    """The options of every command that opens the screen."""
    command = click.option(
        "--symbols",
        type=click.Choice([symbols.value for symbols in Symbols]),
        show_envvar=True,
        expose_value=False,
        callback=_show_symbols,
        help="Characters to draw with: blocks in place of braille, or only ASCII.  [default: what the terminal shows]",
    )(command)
    command = click.option(
        "--ascii",
        is_flag=True,
        show_envvar=True,
        expose_value=False,
        callback=lambda context, option, value: _show_symbols(context, option, Symbols.ASCII.value if value else None),
        help="The same as --symbols ascii.",
    )(command)
    command = click.option(
        "--mouse/--no-mouse",
        cls=SharedOption,
        default=True,
        show_envvar=True,
        help="Use the mouse; with --no-mouse, the terminal selects text.",
    )(command)
    return click.option(
        "--theme",
        cls=SharedOption,
        type=ThemeName(),
        default=default_theme,
        show_default="dark; mono if NO_COLOR is set",
        show_envvar=True,
        help="Color theme. ansi uses the colors of the terminal and sends fewer bytes; mono uses no colors. A theme "
        "that is chosen here, in the environment or in the file takes precedence over NO_COLOR.",
    )(command)


def read_only_option(command: Command) -> Command:
    """The option of every command that could change something on this host."""
    return click.option(
        "--read-only",
        cls=SharedOption,
        is_flag=True,
        show_envvar=True,
        help="Offer nothing that changes other processes or uses a GPU: no signals, no empty_cache(), no workloads.",
    )(command)


def load_probe_option(command: Command) -> Command:
    """The option of gpumon and of every command that may load a probe."""
    return click.option(
        "--load-probe",
        cls=SharedOption,
        type=click.Choice(["ask", "own", "never"]),
        default="ask",
        show_default=True,
        show_envvar=True,
        help="Before the probe is loaded into a process that has none: ask; ask only for processes of other users; "
        "never load it.",
    )(command)


def debug_option(command: Command) -> Command:
    """The option of every command for tracebacks: after a failure, users add it at the end of the line."""
    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=_note_debug, help="Show a traceback if gpumon fails."
    )(command)


def _note_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Store the flag where `main` reads it after the command and its context have ended."""
    if value:
        context.find_root().ensure_object(list).append("debug")


def interval_option(command: Command) -> Command:
    """The option for the time between frames."""
    return click.option(
        "--interval",
        cls=SharedOption,
        type=Seconds(0.1, 3600),
        default=1.0,
        show_default=True,
        show_envvar=True,
        metavar="DURATION",
        help="Time between samples: seconds, or such as 30s or 5m.",
    )(command)


def speed_option(command: Command) -> Command:
    """The option for the speed of a replay."""
    return click.option(
        "--speed",
        type=NumberRange(0.1, 100),
        default=1.0,
        show_default=True,
        show_envvar=True,
        metavar="FACTOR",
        help="Playback speed; 2 plays twice as fast as recorded.",
    )(command)


def history_option(command: Command) -> Command:
    """The option for the length of the history."""
    return click.option(
        "--history",
        cls=SharedOption,
        type=Duration(),
        default=DEFAULT_HISTORY_SECONDS,
        show_default="1h",
        show_envvar=True,
        metavar="DURATION",
        help="How much history to keep, from 1m to 7d; older history has a lower resolution.",
    )(command)


def since_option(command: Command) -> Command:
    """The option for the start in a recording."""
    return click.option(
        "--since",
        metavar="DURATION|TIME",
        help="Where to start: a duration before the end, such as 10m, or a time, such as 2026-05-01T14:30.",
    )(command)


def named_hosts(text: str) -> list[str]:
    """The hosts of the option --hosts.

    Raises:
        CommandError: A name is not valid, or there are too many.
    """
    from gpumon.fleet.model import FleetError
    from gpumon.operations.fleet.ssh import parse_hosts

    try:
        return parse_hosts(text, None)
    except FleetError as error:
        raise CommandError(error.problem, ExitCode.USAGE) from error
