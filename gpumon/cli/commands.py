"""The commands. What a command needs is imported when it runs, so that each starts fast."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from gpumon import __version__
from gpumon.cli.attach import attach
from gpumon.cli.doctor import doctor
from gpumon.cli.explain import explain
from gpumon.cli.group import Commands, configured, handed_down, thresholds
from gpumon.cli.memory import memory
from gpumon.cli.options import (
    NumberRange,
    debug_option,
    history_option,
    interval_option,
    screen_options,
    since_option,
    speed_option,
)
from gpumon.cli.snapshot import snapshot
from gpumon.cli.watch import watch
from gpumon.core.exits import CommandError, ExitCode
from gpumon.streams.base import Stream

if TYPE_CHECKING:
    from gpumon.ui.selftest import Check

DEMO_SECONDS: Final = 100.0
"""Where in the bundled recording the most can be seen."""

_EPILOG: Final = (
    "Exit codes: 0 fine; 1 it ran and the verdict is bad; 2 wrong usage; 3 what it needs is not there "
    "(no driver, no GPU, no torch); 128+n ended by signal n. Every option can be set in the environment, such as "
    "GPUMON_INTERVAL or GPUMON_DEMO_SPEED, and all but --yes and --debug in $XDG_CONFIG_HOME/gpumon/config.toml, "
    "such as interval = 2."
)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GPUMON"},
    epilog=_EPILOG,
)
@click.version_option(__version__, prog_name="gpumon")
@interval_option
@history_option
@screen_options
@debug_option
@click.pass_context
def gpumon(context: click.Context, interval: float, history: float, theme: str, mouse: bool) -> None:
    """Watch the NVIDIA GPUs of this machine, live.

    Without a terminal it prints what `gpumon status` prints.
    """
    if context.invoked_subcommand is not None:
        context.default_map = {context.invoked_subcommand: handed_down(context, context.invoked_subcommand)}
        return
    if not sys.stdout.isatty() or os.environ.get("TERM", "") in {"", "dumb"}:
        context.invoke(status)
        return
    from gpumon.streams.live import LiveStream

    _show(LiveStream(interval), theme, mouse, history)


@gpumon.command(short_help="Play the bundled recording.")
@speed_option
@history_option
@screen_options
@debug_option
def demo(speed: float, history: float, theme: str, mouse: bool) -> None:
    """Play the bundled recording of a real machine with eight GPUs."""
    from gpumon.streams.replay import open_demo

    _show(open_demo(speed), theme, mouse, history)


@gpumon.command(short_help="Print one look at this machine.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="GPUMON_STATUS_JSON",
    help="One JSON document, missing values null with their reason.",
)
@debug_option
def status(as_json: bool) -> None:
    """Print one look at this machine's GPUs."""
    limits = thresholds()
    if as_json:
        from gpumon.operations.sight import look_with_probes
        from gpumon.operations.status import document

        frame, probes, _ = look_with_probes()
        click.echo(json.dumps(document(frame, limits, probes), indent=2, ensure_ascii=False))
    else:
        from gpumon.operations.status import look

        frame = look()
        if frame.devices:
            from gpumon.ui.report import report

            click.echo(report(frame, limits))
    problem = frame.problems.get("driver")
    if problem is not None:
        raise CommandError(problem, ExitCode.NOT_THERE)


@gpumon.command(short_help="Record this machine to a file or a pipe.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@interval_option
@click.option("--duration", type=NumberRange(0, min_open=True), metavar="SECONDS", help="When to stop.")
@click.option("--anonymize", is_flag=True, help="Leave out host and user names, UUIDs, folders and arguments.")
@debug_option
def record(file: Path, interval: float, duration: float | None, anonymize: bool) -> None:
    """Record this machine to FILE (compressed if it ends in .gz), or to standard output if FILE is -.

    To watch another machine: ssh box gpumon record - | gpumon replay -
    """
    from gpumon.operations.record import record as run
    from gpumon.streams.live import LiveStream

    run(LiveStream(interval), file, duration, anonymize)


@gpumon.command(short_help="Play a recording, or frames from a pipe.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@speed_option
@since_option
@history_option
@screen_options
@debug_option
def replay(  # noqa: PLR0917 - click passes them by name
    file: Path, speed: float, since: str | None, history: float, theme: str, mouse: bool
) -> None:
    """Play a recording in the same screen, or frames from standard input if FILE is -."""
    from gpumon.operations.export import begin_of, open_replay_since

    _show(open_replay_since(file, speed, begin_of(since)), theme, mouse, history)


@gpumon.command(short_help="Write a recording as CSV or JSON lines.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--metrics", metavar="NAME,NAME", help="The columns, by their names in --json; all if not given.")
@click.option(
    "--csv/--json",
    "as_csv",
    default=True,
    envvar="GPUMON_EXPORT_CSV",
    show_default=True,
    help="A table, or a JSON line a GPU and moment.",
)
@since_option
@debug_option
def export(file: Path, metrics: str | None, as_csv: bool, since: str | None) -> None:
    """Write the figures of the recording FILE, or of standard input if FILE is -, to standard output.

    What was not measured stays empty. For example: gpumon export run.jsonl.gz --metrics power_watts --since 10m
    """
    from gpumon.operations.export import begin_of, chosen_metrics
    from gpumon.operations.export import export as run

    run(file, chosen_metrics(metrics), begin_of(since), sys.stdout, as_json=not as_csv)


@gpumon.command(short_help="Walk every screen headless and check what is there.")
@click.option(
    "--demo",
    "use_demo",
    is_flag=True,
    envvar="GPUMON_SELFTEST_DEMO",
    help="On the bundled recording instead of this machine.",
)
@click.option("--size", default="160x50", show_default=True, metavar="COLUMNSxROWS", help="Size of the terminal.")
@click.option("--theme", type=click.Choice(["dark", "light", "ansi"]), default="dark", show_default=True)
@click.option(
    "--screens", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER", help="Save an SVG of each screen."
)
@click.option("--json", "as_json", is_flag=True, envvar="GPUMON_SELFTEST_JSON", help="One JSON document.")
@debug_option
def selftest(use_demo: bool, size: str, theme: str, screens: Path | None, as_json: bool) -> None:
    """Test the real screen on this machine, without a terminal: open every screen, press every key, check every value.

    Ends within 45 seconds whatever hangs, and exits 0 or 1.
    """
    columns, _, rows = size.partition("x")
    if not (columns.isdecimal() and rows.isdecimal() and 0 < int(columns) <= 1000 and 0 < int(rows) <= 1000):
        raise click.BadParameter(f"{size!r} is not a size such as 160x50.", param_hint="--size")
    if screens is not None:
        screens.mkdir(parents=True, exist_ok=True)
    checks = _selftest(use_demo, (int(columns), int(rows)), theme, screens)
    if as_json:
        from gpumon.ui.selftest import document

        click.echo(json.dumps(document(checks), indent=2))
    else:
        for check in checks:
            click.echo(f"{check.status.value:<5} {check.id:<22} {check.detail}")
    if any(check.status.value == "fail" for check in checks):
        raise click.exceptions.Exit(ExitCode.BAD_VERDICT)


@gpumon.command(short_help="List the workloads that can be run.")
@click.option("--json", "as_json", is_flag=True, envvar="GPUMON_WORKLOADS_JSON", help="One JSON document.")
@debug_option
def workloads(as_json: bool) -> None:
    """List what can be run, with its parameters; files that are no workload are named with the reason."""
    from gpumon.cli.workloads import listing

    click.echo(listing(as_json=as_json))


@gpumon.command(short_help="Run a workload and judge what came out.")
@click.argument("name")
@click.option(
    "--device",
    "devices",
    multiple=True,
    default=("cuda:0",),
    show_default=True,
    metavar="DEVICE",
    envvar="GPUMON_RUN_DEVICE",
    help="cpu, cuda:N as CUDA numbers them, or cuda:all; may be given several times.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    envvar="GPUMON_RUN_SET",
    help="A parameter; see gpumon workloads.",
)
@click.option("--duration", type=NumberRange(0, min_open=True), metavar="SECONDS", help="How long it may run.")
@click.option("--python", metavar="PATH", help="The interpreter with torch; else the first one found that has it.")
@click.option("--yes", is_flag=True, help="Begin without asking, even where others work on the GPU.")
@click.option("--json", "as_json", is_flag=True, envvar="GPUMON_RUN_JSON", help="A JSON line an event.")
@debug_option
def run(  # noqa: PLR0917 - click passes them by name
    name: str,
    devices: tuple[str, ...],
    settings: tuple[str, ...],
    duration: float | None,
    python: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Run the workload NAME in a process of its own, beside the GPU's own figures.

    Exits with 0 if its verdict is good, 1 if it is bad, 3 if it cannot run here.
    """
    from gpumon.cli.workloads import Wish, run_wish

    return run_wish(Wish(name, devices, settings, duration, python, yes=yes, as_json=as_json))


gpumon.add_command(explain)


def _selftest(use_demo: bool, size: tuple[int, int], theme: str, screens: Path | None) -> "list[Check]":
    import asyncio

    from gpumon.streams.live import LiveStream
    from gpumon.streams.replay import ReplayStream, open_demo

    stream: LiveStream | ReplayStream = open_demo() if use_demo else LiveStream(0.5)
    stream.start()
    try:
        if isinstance(stream, ReplayStream):
            stream.seek(DEMO_SECONDS)
        from gpumon.ui.selftest import selftest as walk

        return asyncio.run(walk(stream, size, theme, screens))
    finally:
        stream.close()


def _show(stream: Stream, theme: str, mouse: bool, history: float) -> NoReturn:
    """Opens the screen; the stream is started first, so that both get ready at once."""
    from gpumon.ui import terminal

    terminal.require()
    terminal.frugal()
    stream.start()
    try:
        from gpumon.ui.app import GpumonApp

        app = GpumonApp(stream, theme, history, notice=configured().warning, thresholds=thresholds())
        code = terminal.run(app, stream.close, mouse=mouse)
    finally:
        stream.close()
    os._exit(code)  # all is given back; an ordinary exit would still wait for threads that wait for the driver


gpumon.add_command(attach)
gpumon.add_command(doctor)
gpumon.add_command(memory)
gpumon.add_command(snapshot)
gpumon.add_command(watch)
