"""What several commands take, and how a number is read."""

import math
from collections.abc import Callable
from typing import Final

import click

from gpumon.core.durations import HISTORY_SECONDS, LEAST_HISTORY_SECONDS, MOST_HISTORY_SECONDS, duration_seconds

Command = Callable[..., int | None]


class NumberRange(click.FloatRange):
    """A range that does not take "nan", which is neither below nor above anything."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, in range."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


INTERVAL: Final = NumberRange(0.1, 3600)
SPEED: Final = NumberRange(0.1, 100)


def screen_options(command: Command) -> Command:
    """The options of every command that opens the screen."""
    command = click.option(
        "--mouse/--no-mouse",
        default=True,
        show_envvar=True,
        help="Take the mouse; without it, the terminal selects text.",
    )(command)
    return click.option(
        "--theme",
        type=click.Choice(["dark", "light", "ansi"]),
        default="dark",
        show_default=True,
        show_envvar=True,
        help="Colours; ansi takes those of your terminal and sends fewer bytes.",
    )(command)


def debug_option(command: Command) -> Command:
    """Taken by every command: after a failure people add it at the end of the line."""
    return click.option("--debug", is_flag=True, expose_value=False, callback=_note_debug, help="Show tracebacks.")(
        command
    )


def _note_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Keeps the wish where `main` finds it when the command and its context have ended."""
    if value:
        context.find_root().ensure_object(list).append("debug")


def interval_option(command: Command) -> Command:
    """How often."""
    return click.option(
        "--interval",
        type=INTERVAL,
        default=1.0,
        show_default=True,
        show_envvar=True,
        metavar="SECONDS",
        help="Seconds from frame to frame, 0.1 to 3600.",
    )(command)


def speed_option(command: Command) -> Command:
    """How fast a recording plays."""
    return click.option(
        "--speed",
        type=SPEED,
        default=1.0,
        show_default=True,
        show_envvar=True,
        metavar="FACTOR",
        help="Recorded seconds per second, 0.1 to 100.",
    )(command)


class Duration(click.ParamType[float]):
    """A stretch of time such as ``90s``, ``10m``, ``2h`` or ``1d``; a plain number is seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds, in range."""
        if not isinstance(value, str):
            return value
        try:
            seconds = duration_seconds(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not LEAST_HISTORY_SECONDS <= seconds <= MOST_HISTORY_SECONDS:
            self.fail(f"{value!r} is not between 1m and 7d.", param, ctx)
        return seconds


def history_option(command: Command) -> Command:
    """How much is remembered."""
    return click.option(
        "--history",
        type=Duration(),
        default=HISTORY_SECONDS,
        show_default="1h",
        show_envvar=True,
        metavar="DURATION",
        help="How much to remember of every figure, such as 30m or 12h: 1m to 7d, coarser with age.",
    )(command)


def since_option(command: Command) -> Command:
    """Where in a recording to begin."""
    return click.option(
        "--since",
        metavar="DURATION|TIME",
        help="Begin so long before the end, such as 10m, or at a time, such as 2026-05-01T14:30.",
    )(command)
