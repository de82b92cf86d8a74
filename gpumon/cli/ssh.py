"""`gpumon ssh`: the GPUs of one other host."""

import click

from gpumon.cli.group import thresholds
from gpumon.cli.options import debug_option, history_option, interval_option, options, screen_options
from gpumon.cli.output import print_json
from gpumon.cli.screen import has_screen, show
from gpumon.core.problems import CommandError, ExitCode


@click.command(short_help="Show the GPUs of another host, through ssh.")
@click.argument("host")
@interval_option
@options("ssh")
@history_option
@screen_options
@debug_option
def ssh(host: str, interval: float, as_json: bool, history: float, theme: str, mouse: bool) -> None:  # noqa: PLR0917 - click passes them by name
    """Show the GPUs of HOST, a name as for ssh, which needs a key without a password.

    HOST needs an NVIDIA driver, and gpumon or Python 3.6 or later; nothing is written there. Without a terminal, gpumon
    prints one sample.
    """
    from gpumon.streams.remote.stream import RemoteStream

    if not as_json and has_screen(reads_keys=False):
        show(RemoteStream(host, interval), theme, mouse, history, is_read_only=True)
    from gpumon.operations.one_shot import live_frames

    with live_frames(interval, lambda seconds: RemoteStream(host, seconds)) as source:
        frame = next(source.frames())
    if as_json:
        from gpumon.operations.status import status_document

        print_json(status_document(frame, thresholds()))
    elif frame.devices:
        from gpumon.present.text.status import status_text

        click.echo(status_text(frame, thresholds()))
    problem = frame.problems.get("driver")
    if problem is not None:
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)
