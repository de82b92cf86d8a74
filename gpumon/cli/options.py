"""Options that several commands have, and the types of their values."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from gpumon.cli.appearance import ThemeName, default_theme
from gpumon.core.ascii_fallback import Symbols, enable_ascii_fallback
from gpumon.core.text_table import table
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


class Parsed(click.ParamType[float]):
    """A number that a function reads from a text.

    Args:
        name: What it is: ``duration``, ``size`` or ``percent``.
        parse: Reads it, or raises a ValueError whose text is a sentence.
    """

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _parse_history(text: str) -> float:
    seconds = parse_duration(text)
    if not MIN_HISTORY_SECONDS <= seconds <= MAX_HISTORY_SECONDS:
        raise ValueError(f"{text!r} is not between 1m and 7d.")
    return seconds


def _parse_percent(text: str) -> float:
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ValueError(f"{text!r} is not a percentage such as 90%.")
    return percent


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


def options(section: str) -> Callable[[Command], Command]:
    """The options that ``options.txt`` declares in a section, in the order of the help."""

    def add(command: Command) -> Command:
        for row in reversed(_declared()[section]):
            command = _option(section, row)(command)
        return command

    return add


@cache
def _declared() -> Mapping[str, Sequence[str]]:
    sections: dict[str, list[str]] = {}
    for row in table("gpumon.cli", "options"):
        if row.startswith("==="):
            sections[row[4:]] = rows = []
        else:
            rows.append(row)
    return sections


def _option(section: str, row: str) -> Callable[[Command], Command]:
    """An option; one whose parameter is called differently still has the variable ``GPUMON_COMMAND_OPTION``."""
    names, kind, metavar, text = (cell.strip() for cell in row.split(" | "))
    declared, _, parameter = names.partition(" = ")
    kind, *words = kind.split()
    attributes: dict[str, Any] = {"metavar": metavar or None, "help": text, "show_envvar": "env" in words}
    if parameter:
        longs = (name[2:].partition("/")[0] for name in declared.split() if name.startswith("--"))
        variables = [f"GPUMON_{section}_{name}".upper().replace("-", "_") for name in longs]
        attributes["envvar"] = variables if len(variables) > 1 else variables[0]
    if kind == "flag":
        attributes["is_flag"] = True
    elif kind == "switch":
        attributes["default"] = None if "unset" in words else True
    else:
        attributes["type"] = _TYPES[kind](next(iter(words), ""))
    if "shared" in words:
        attributes["cls"] = SharedOption
    for word in words:
        name, is_default, value = word.partition("=")
        if is_default:
            attributes |= {"default": True if value == "on" else _literal(value), "show_default": True}
        elif name in _HIDDEN_DEFAULTS:
            attributes["default"] = _HIDDEN_DEFAULTS[name]
        elif name == "multiple":
            attributes["multiple"] = True
    return click.option(*declared.split(), *([parameter] if parameter else []), **attributes)


def _literal(text: str) -> str | float:
    """A number as a number, as the configuration file has it."""
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return text


def _bounds(text: str) -> list[Any]:
    return [float(bound) if "." in bound else int(bound) for bound in text.split("..") if bound]


_TYPES: Final[Mapping[str, Callable[[str], click.ParamType[Any]]]] = {
    "text": lambda _: click.STRING,
    "int": lambda bounds: click.IntRange(*_bounds(bounds)),
    "number": lambda bounds: NumberRange(*_bounds(bounds)),
    "seconds": lambda bounds: Seconds(*_bounds(bounds)),
    "duration": lambda _: Parsed("duration", parse_duration),
    "size": lambda _: Parsed("size", parse_size),
    "percent": lambda _: Parsed("percent", _parse_percent),
    "path": lambda _: click.Path(path_type=Path),
    "file": lambda _: click.Path(path_type=Path, dir_okay=False),
    "folder": lambda _: click.Path(path_type=Path, file_okay=False),
    "choice": lambda choices: click.Choice(choices.split(",")),
}
_HIDDEN_DEFAULTS: Final = {"empty": "", "zero": 0.0}
interval_option: Final = options("interval")
"""The option for the time between frames."""
read_only_option: Final = options("read-only")
"""The option of every command that could change something on this host."""


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


def debug_option(command: Command) -> Command:
    """The option of every command for tracebacks: after a failure, users add it at the end of the line."""
    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=_note_debug, help="Show a traceback if gpumon fails."
    )(command)


def _note_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Store the flag where `main` reads it after the command and its context have ended."""
    if value:
        context.find_root().ensure_object(list).append("debug")


def history_option(command: Command) -> Command:
    """The option for the length of the history."""
    return click.option(
        "--history",
        cls=SharedOption,
        type=Parsed("duration", _parse_history),
        default=DEFAULT_HISTORY_SECONDS,
        show_default="1h",
        show_envvar=True,
        metavar="DURATION",
        help="How much history to keep, from 1m to 7d; older history has a lower resolution.",
    )(command)
