"""The group of all commands: it reads the configuration file, and prints warnings before a command runs."""

from collections import UserDict
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpumon.cli.appearance import CONFIG, Appearance
from gpumon.cli.config import Config, load_config
from gpumon.cli.options import environment_warnings

if TYPE_CHECKING:
    from gpumon.health.alerts import Thresholds
    from gpumon.session.alert_notifier import NotifySettings


class LateCommands(UserDict[str, Any]):
    """The commands by name; one that is given as ``module:function`` is imported when it is first used."""

    def __getitem__(self, name: str) -> click.Command:
        """The command."""
        command = self.data[name]
        if isinstance(command, str):
            module, _, function = command.partition(":")
            command = self.data[name] = getattr(import_module(f"gpumon.cli.{module}"), function)
        assert isinstance(command, click.Command)
        return command


class CommandGroup(click.Group):
    """The group of all commands."""

    commands: LateCommands

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the configuration file first: command line and environment take precedence over its values."""
        content = load_config(self)
        ctx.default_map = dict(content.options)
        ctx.meta[CONFIG] = content
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-")
            if name not in self.commands:
                raise
            raise click.UsageError(f"{name} is a command. Run: gpumon {name}", ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. A closed pipe is raised without an errno, because click exits with 1 for EPIPE."""
        for warning in warnings():
            click.echo(f"gpumon: {warning}", err=True)
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise BrokenPipeError from None


def config() -> Config:
    """The content of the configuration file."""
    content: Config = click.get_current_context().meta[CONFIG]
    return content


def warnings() -> list[str]:
    """What is ignored of the configuration file and of the environment, in sentences."""
    config_warning = config().warning
    return [*([config_warning] if config_warning else []), *environment_warnings(click.get_current_context())]


def appearance() -> Appearance:
    """Themes, columns and keys of the configuration file."""
    return config().appearance


def notices() -> "NotifySettings":
    """How the configuration file wants new alerts to reach people."""
    from gpumon.cli.notify_config import notify_settings  # imported late: only the screen needs it

    return notify_settings(config().notify)


def thresholds() -> "Thresholds":
    """The alert thresholds of the configuration file."""
    from gpumon.health.alerts import Thresholds  # imported late: few commands need it

    return Thresholds.of(config().alerts)


def command_defaults(context: click.Context, command_name: str) -> dict[str, Any]:
    """The defaults of a command: options before its name and variables such as GPUMON_THEME also set its options.

    In the file, the table of the command takes precedence over the top of the file.
    """
    options = config().options
    explicit = {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) not in {ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP}
    }
    return {**options, **options.get(command_name, {}), **explicit}
