"""Options that say where a fleet comes from: Prometheus, or hosts through ssh."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from gpumon.cli.group import config
from gpumon.cli.options import Command, Seconds, options
from gpumon.core.problems import CommandError, ExitCode, ProblemCode

if TYPE_CHECKING:
    from gpumon.fleet.model import FleetSnapshot
    from gpumon.fleet.settings import FleetSettings, FleetSource

TOKEN_VARIABLE: Final = "GPUMON_FLEET_TOKEN"  # noqa: S105 - the name of a variable
PASSWORD_VARIABLE: Final = "GPUMON_FLEET_PASSWORD"  # noqa: S105 - the name of a variable
SOURCE_MISSING: Final = (
    "Name the hosts with --hosts or --hostfile, or the Prometheus with --prometheus URL, or either in [fleet] of the "
    "configuration file."
)


class _QueryInterval(click.Option):
    """``--interval`` of a fleet: another value than the interval of this host, whose name it has in the environment."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """The variable of the command, such as ``GPUMON_FLEET_INTERVAL``."""
        return os.environ.get(f"{ctx.auto_envvar_prefix}_INTERVAL") or None


_PROMETHEUS: Final = ("prometheus",)
_SSH: Final = ("hosts", "hostfile")
_QUERY_INTERVAL: Final = click.option(
    "--interval",
    "query_interval",
    cls=_QueryInterval,
    type=Seconds(1, 3600),
    show_default="15; 1 through ssh",
    metavar="DURATION",
    help="Seconds between two queries, or two samples through ssh.",
)


def source_options(command: Command) -> Command:
    """The options of every command that reads a fleet."""
    return options("fleet-source")(_QUERY_INTERVAL(command))


def given_options(context: click.Context, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options, with those of the table ``fleet`` of the configuration file where none was given.

    Raises:
        click.UsageError: Prometheus and hosts are both given.
    """
    file = config().options.get("fleet", {})
    given = {
        name: value
        for name, value in options.items()
        if context.get_parameter_source(name) in {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT}
    }
    has_prometheus, has_hosts = (any(given.get(name) for name in names) for names in (_PROMETHEUS, _SSH))
    if has_prometheus and has_hosts:
        raise click.UsageError("--prometheus excludes --hosts and --hostfile.", context)
    overridden = (*_SSH, "query_interval") if has_prometheus else (*_PROMETHEUS, *_SSH, "query_interval")
    if has_prometheus or has_hosts:
        file = {name: value for name, value in file.items() if name not in overridden}
    return {**file, **given}


def fleet_source(options: Mapping[str, Any]) -> "FleetSource | None":
    """The settings in values of the options, with the secrets; None without hosts and without a Prometheus.

    Raises:
        CommandError: The URL or the name of a host is not valid, or a secret cannot be read.
    """
    if not any(options.get(name) for name in (*_SSH, *_PROMETHEUS)):
        return None
    from gpumon.fleet.model import FleetError

    try:
        if options.get("hosts") or options.get("hostfile"):
            from gpumon.fleet.settings import HOSTS_INTERVAL_SECONDS, HostsSettings
            from gpumon.operations.fleet.ssh import parse_hosts

            file = options.get("hostfile")
            hosts = parse_hosts(options.get("hosts") or None, None if file is None else Path(file))
            return HostsSettings(tuple(hosts), options.get("query_interval") or HOSTS_INTERVAL_SECONDS)
        return _prometheus(options)
    except FleetError as error:
        raise CommandError(error.problem, ExitCode.USAGE) from error


def _prometheus(options: Mapping[str, Any]) -> "FleetSettings":
    """The settings of Prometheus.

    Raises:
        FleetError: The URL or a file cannot be used.
    """
    from gpumon.fleet.prometheus import Prometheus, read_secret
    from gpumon.fleet.settings import DEFAULT_INTERVAL_SECONDS, FleetSettings, PrometheusAddress

    user = options.get("user") or ""
    address = PrometheusAddress(
        options["prometheus"],
        read_secret(options.get("token_file"), "" if user else TOKEN_VARIABLE),
        user,
        read_secret(options.get("password_file"), PASSWORD_VARIABLE) if user else "",
        ca_file=str(options.get("ca_file") or ""),
        certificate_file=str(options.get("certificate") or ""),
        key_file=str(options.get("key") or ""),
    )
    Prometheus(address)  # a URL or a file of TLS that cannot be used is an error of the command line
    interval = options.get("query_interval") or DEFAULT_INTERVAL_SECONDS
    return FleetSettings(address, options.get("match") or "", interval)


def configured_fleet() -> "FleetSource | None":
    """The fleet in the table ``fleet`` of the configuration file; None without one, or if it cannot be used."""
    try:
        return fleet_source(config().options.get("fleet", {}))
    except CommandError as error:
        click.echo(f"gpumon: {error}", err=True)
        return None


def read_source(source: "FleetSource") -> "FleetSnapshot":
    """The fleet at this moment.

    Raises:
        CommandError: Prometheus cannot be read.
    """
    from gpumon.fleet.model import FleetError
    from gpumon.fleet.settings import HostsSettings

    if isinstance(source, HostsSettings):
        from gpumon.operations.fleet.ssh import read_hosts

        return read_hosts(source)
    from gpumon.fleet.__main__ import read_snapshot

    try:
        return read_snapshot(source.address, source.match, source.idle_seconds)
    except FleetError as error:
        raise CommandError(error.problem, ExitCode.MISSING_PREREQUISITE) from error
    except MemoryError:
        raise CommandError.missing(ProblemCode.NOT_READ, "The answer of Prometheus does not fit into memory.") from None
