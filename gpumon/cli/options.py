"""What several commands take, and how a number is read."""

import math
from collections.abc import Callable
from typing import Final

import click

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
