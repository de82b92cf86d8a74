"""The group of all commands, and what the configuration file says to each of them."""

from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from gpumon.cli.config import Config, load_config

if TYPE_CHECKING:
    from gpumon.diagnosis.health import Thresholds

_CONFIG: Final = "gpumon.config"
"""Where click's context keeps what the file says."""
_UNSAID: Final = frozenset({ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP})


class Commands(click.Group):
    """The group of all commands."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Reads the configuration file first: what it says holds where neither an option nor the environment does."""
        config = load_config(self)
        context.default_map = dict(config.options)
        context.meta[_CONFIG] = config
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> object:
        """Runs the command; a reader that left is told without a number, by which click would make it an exit of 1."""
        warning = configured().warning
        if warning:
            click.echo(f"gpumon: {warning}", err=True)
        try:
            return super().invoke(context)
        except BrokenPipeError:
            raise BrokenPipeError from None


def configured() -> Config:
    """What the file says."""
    config: Config = click.get_current_context().meta[_CONFIG]
    return config


def thresholds() -> "Thresholds":
    """What it says of health."""
    from gpumon.diagnosis.health import Thresholds  # late: not every command has a use for it

    return Thresholds.of(configured().health)


def handed_down(context: click.Context, command: str) -> dict[str, Any]:
    """What was said before a command's name, for the command; GPUMON_THEME is meant for gpumon demo as well.

    The file says it more closely in the command's own table than at its top.
    """
    options = configured().options
    said = {name: value for name, value in context.params.items() if context.get_parameter_source(name) not in _UNSAID}
    return {**options, **options.get(command, {}), **said}
