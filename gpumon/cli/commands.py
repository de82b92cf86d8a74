"""The commands. Each imports what it needs when it runs, so that every command starts fast."""

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpumon import __version__
from gpumon.cli.appearance import ThemeName
from gpumon.cli.group import CommandGroup, LateCommands, appearance, command_defaults
from gpumon.cli.options import (
    Seconds,
    debug_option,
    history_option,
    interval_option,
    options,
    read_only_option,
    screen_options,
)
from gpumon.cli.output import print_json
from gpumon.cli.screen import has_screen, show
from gpumon.core.problems import ExitCode

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from gpumon.ui.selftest import Check, Pictures

DEMO_SECONDS: Final = 396.0
"""The position in the bundled recording at which the screens show the most."""
_MAX_SIZE: Final = 1000


@click.group(
    cls=CommandGroup,
    commands=LateCommands(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GPUMON"},
    epilog=(
        "Exit codes: 0 success; 1 completed with a bad verdict; 2 usage error; 3 a prerequisite is missing (no driver, "
        "no GPU, no torch); 128+n ended by signal n; gpumon check has those of Nagios plugins. "
        "Every option can be set in the environment, such as "
        "GPUMON_INTERVAL or GPUMON_DEMO_SPEED, and all except --yes, --attach and --debug in "
        "$XDG_CONFIG_HOME/gpumon/config.toml, such as interval = 2."
    ),
)
@click.version_option(__version__, prog_name="gpumon")
@interval_option
@history_option
@screen_options
@read_only_option
@options("load-probe")
@options("at")
@debug_option
@click.pass_context
def gpumon(  # noqa: PLR0917 - click passes them by name
    context: click.Context,
    interval: float,
    history: float,
    theme: str,
    mouse: bool,
    read_only: bool,
    load_probe: str,
    at: str | None,
) -> None:
    """Monitor the NVIDIA GPUs of this host.

    Without a terminal, gpumon prints the output of gpumon status.
    """
    if context.invoked_subcommand is not None:
        context.default_map = {context.invoked_subcommand: command_defaults(context, context.invoked_subcommand)}
        return
    if at is not None:
        from gpumon.streams.replay import open_moment
        from gpumon.streams.ring import host_ring

        show(open_moment(host_ring(), at), theme, mouse, history, is_read_only=read_only)
    if not has_screen(reads_keys=False):
        from gpumon.cli.status import status  # late, as all commands

        context.invoke(status)
        return
    from gpumon.cli.fleet_source import configured_fleet
    from gpumon.streams.live import LiveStream

    show(
        LiveStream(interval),
        theme,
        mouse,
        history,
        is_read_only=read_only,
        load_probe=load_probe,
        fleet=configured_fleet(),
    )


@gpumon.command(short_help="Play the bundled recording.")
@options("speed")
@history_option
@screen_options
@read_only_option
@debug_option
def demo(speed: float, history: float, theme: str, mouse: bool, read_only: bool) -> None:
    """Play the bundled recording of eight H200 GPUs: two real recordings of four, side by side.

    What each GPU shows was measured, but not all at the same time; the values of the host are those of the first four.
    """
    from gpumon.streams.replay import open_demo

    show(open_demo(speed), theme, mouse, history, is_read_only=read_only)


@gpumon.command(short_help="Record this host to a file or a pipe.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@interval_option
@click.option(
    "--duration",
    type=Seconds(0, min_open=True),
    metavar="DURATION",
    help="How long to record.  [default: until interrupted]",
)
@options("record")
@debug_option
def record(file: Path, interval: float, duration: float | None, anonymize: bool, activity: bool) -> None:
    """Record this host to FILE, compressed if the name ends in .gz, or to standard output if FILE is -.

    To watch another host: ssh box gpumon record - | gpumon replay -
    """
    from gpumon.operations.record import record as run
    from gpumon.session.host_reports import HostReports
    from gpumon.streams.live import LiveStream

    with closing(HostReports()) as reports:
        run(LiveStream(interval), file, duration, anonymize=anonymize, activity=activity, reports=reports.read)


@gpumon.command(short_help="Play a recording, or frames from a pipe.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@options("speed")
@options("since")
@history_option
@screen_options
@read_only_option
@debug_option
def replay(  # noqa: PLR0917 - click passes them by name
    file: Path, speed: float, since: str | None, history: float, theme: str, mouse: bool, read_only: bool
) -> None:
    """Play the recording FILE on the screens of gpumon, or frames from standard input if FILE is -.

    A recording starts after five minutes, or in the middle of a shorter one, and the charts show the time before.
    """
    from gpumon.operations.export import open_replay_since, parse_since

    show(open_replay_since(file, speed, parse_since(since)), theme, mouse, history, is_read_only=read_only)


def _complete_metrics(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    from gpumon.cli.shell_support import complete_metrics

    return complete_metrics(context, parameter, incomplete)


@gpumon.command(short_help="Write a recording as CSV or JSON lines.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--metrics",
    metavar="NAME,NAME",
    shell_complete=_complete_metrics,
    help="Metrics to write, by their names in JSON output.  [default: all]",
)
@options("export")
@options("since")
@debug_option
def export(file: Path, metrics: str | None, as_csv: bool, since: str | None) -> None:
    """Write the metrics of the recording FILE, or of standard input if FILE is -, to standard output.

    A value that was not measured is an empty cell. Example: gpumon export run.jsonl.gz --metrics power_watts --since
    10m
    """
    from gpumon.operations.export import export as run
    from gpumon.operations.export import parse_metrics, parse_since

    run(file, parse_metrics(metrics), parse_since(since), sys.stdout, as_json=not as_csv)


@gpumon.command(short_help="Open every screen without a terminal and check it.")
@options("selftest")
@click.option("--theme", type=ThemeName(), default="dark", show_default=True, help="Color theme.")
@debug_option
def selftest(  # noqa: PLR0917 - click passes them by name
    use_demo: bool, size: str, theme: str, screens: Path | None, only: str | None, movie: Path | None, as_json: bool
) -> None:
    """Test the screens on this host without a terminal: open every screen, press every key, check every value.

    With a GPU, a short workload also runs, and a process that gpumon starts empties its cache. Without a driver, the
    screens are those of the demo. Ends within 45 seconds (with --movie, 85; with a GPU, 2 minutes more), even if the
    driver does not respond. Exits with 0; 1 if a check failed; 3 without a driver.
    """
    columns, _, rows = size.partition("x")
    if not (columns.isdecimal() and rows.isdecimal() and 0 < int(columns) <= _MAX_SIZE and 0 < int(rows) <= _MAX_SIZE):
        raise click.BadParameter(f"{size!r} is not a size such as 160x50.", param_hint="--size")
    if screens is not None:
        screens.mkdir(parents=True, exist_ok=True)
    from gpumon.ui.selftest import Pictures, document

    if use_demo:
        os.environ["XDG_STATE_HOME"] = os.devnull  # a picture does not show how this user has sorted a table
    names = tuple(filter(None, (only or "").split(",")))
    pictures = None if screens is None else Pictures(screens, names)
    missing = None if use_demo else _missing_driver()
    checks = _selftest(use_demo or missing is not None, (int(columns), int(rows)), theme, pictures, movie)
    if missing is not None:
        checks.insert(0, missing)
    elif not use_demo and not any(check.status.value == "fail" for check in checks):
        from gpumon.operations.gpu_selftest import gpu_checks

        checks += gpu_checks()
    if as_json:
        print_json(document(checks))
    else:
        for check in checks:
            click.echo(f"{check.status.value:<5} {check.id:<22} {check.detail}")
    if any(check.status.value == "fail" for check in checks):
        raise click.exceptions.Exit(ExitCode.BAD_VERDICT)
    if missing is not None:
        raise click.exceptions.Exit(ExitCode.MISSING_PREREQUISITE)


gpumon.commands.update(
    attach="watch:attach",
    check="check:check",
    compare="report:compare",
    completion="shell_support:completion",
    config="config_command:config_command",
    devices="host_reports:devices",
    disable="enable:disable",
    **{"empty-cache": "empty_cache:empty_cache"},
    doctor="doctor:doctor",
    enable="enable:enable",
    explain="explain:explain",
    exporter="exporter:exporter",
    fleet="fleet:fleet",
    hang="jobs:hang",
    job="jobs:job",
    jobs="jobs:jobs",
    last="recorder:last",
    man="shell_support:man",
    mcp="mcp:mcp",
    memory="host_reports:memory",
    pick="choosing:pick",
    recorder="recorder:recorder",
    report="report:report",
    results="results:results",
    run="run:run",
    snapshot="snapshot:snapshot",
    ssh="ssh:ssh",
    status="status:status",
    topology="host_reports:topology",
    trace="trace:trace",
    **{"try": "experiment:try_command"},
    wait="choosing:wait",
    watch="watch:watch",
    why="why:why",
    workloads="run:workloads",
)


def _missing_driver() -> "Check | None":
    """The check that stands for all that needs a driver, on a host without one."""
    from gpumon.core.problems import CommandError, ProblemCode
    from gpumon.health.checks import Check, Status
    from gpumon.operations.one_shot import sample_frame

    try:
        problem = sample_frame().problems.get("driver")
    except CommandError:  # the checks report it
        return None
    if problem is None or problem.code is ProblemCode.UNRESPONSIVE:
        return None
    return Check("driver", Status.SKIP, f"{problem.reason} The screens below show the demo.")


def _selftest(
    use_demo: bool, size: tuple[int, int], theme: str, pictures: "Pictures | None", movie: Path | None
) -> "list[Check]":
    import asyncio

    from gpumon.streams.live import LiveStream
    from gpumon.streams.replay import ReplayStream, open_demo

    stream: LiveStream | ReplayStream = open_demo() if use_demo else LiveStream(0.5)
    stream.start()
    try:
        if isinstance(stream, ReplayStream):
            stream.seek(DEMO_SECONDS)
        from gpumon.cli.fleet_source import configured_fleet
        from gpumon.ui.selftest import selftest as walk

        fleet = None if use_demo else configured_fleet()
        return asyncio.run(walk(stream, size, theme, pictures, appearance().palettes(), movie=movie, fleet=fleet))
    finally:
        stream.close()
