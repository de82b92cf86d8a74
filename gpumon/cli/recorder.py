"""`gpumon recorder` and `gpumon last`: the black box of a host, and what has ended on it."""

import fcntl
import grp
import os
from pathlib import Path

import click

from gpumon.cli.exporter import ending_signals
from gpumon.cli.jobs import show_ended
from gpumon.cli.options import debug_option, options
from gpumon.core.new_files import share_folder
from gpumon.core.problems import SIGNAL_BASE, CommandError, ExitCode, Problem, ProblemCode


@click.command(short_help="Record this host all the time, for days.")
@options("recorder")
@debug_option
def recorder(folder: Path | None, days: float, max_bytes: float, min_free: float, group: str | None) -> int:
    """Record GPUs, processes and events of this host until interrupted. Its cost is below 2 % of a core.

    The last hour has a frame each second, twelve hours have one in ten seconds, and the rest one a minute, with the
    lowest and highest values. gpumon shows it before it was opened, gpumon --at 03:12 opens a moment, and gpumon last
    lists what has ended.
    """
    from gpumon.cli.group import thresholds
    from gpumon.core.heap import collect_rarely, limit_heap
    from gpumon.operations.recorder.events import process_events, read_events
    from gpumon.session.host_recorder import HostRecorder
    from gpumon.streams.live import LineStream
    from gpumon.streams.ring import RingWriter, state_ring

    limit_heap()
    folder = folder or state_ring()
    lock = _open_folder(folder, group)
    os.umask(0o027 if group else 0o077)
    running = process_events(read_events(folder, 0.0, [])).running
    writer = RingWriter(folder, days, max_bytes, min_free, 0o640 if group else 0o600)
    with ending_signals() as stop:
        host = HostRecorder(LineStream(), writer, lambda text: click.echo(f"gpumon: {text}", err=True), thresholds())
        click.echo(f"Recording to {folder}", err=True)
        collect_rarely()
        host.run(stop, running)
    os.close(lock)
    return SIGNAL_BASE + stop.number


def _open_folder(folder: Path, group: str | None) -> int:
    """Make the folder, if there is none, and lock it; returns its descriptor.

    Raises:
        CommandError: It cannot be written, belongs to another user, or has a recorder already.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise _refused(f"{folder} belongs to another user.", "Choose another folder with --dir.")
        if group is None:
            os.fchmod(descriptor, 0o700)
        else:
            share_folder(descriptor, grp.getgrnam(group).gr_gid)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _refused(f"{folder} is read-only.", "Choose another folder with --dir.")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _refused(f"A recorder writes to {folder} already.", "One is enough; see gpumon last.") from None
    except KeyError:
        raise _refused(f"There is no group {group}.", "See getent group.") from None
    except OSError as error:
        reason = f"{folder} cannot be used: {(error.strerror or str(error)).lower()}."
        raise _refused(reason, "Choose another folder with --dir.") from None
    return descriptor


def _refused(reason: str, remedy: str) -> CommandError:
    return CommandError(Problem(ProblemCode.NOT_WRITTEN, reason, remedy), ExitCode.MISSING_PREREQUISITE)


@click.command(short_help="List the programs that used GPUs and have ended.")
@options("last")
@debug_option
def last(folder: Path | None, count: int, since: float, as_json: bool) -> None:
    """List what used GPUs of this host and has ended: user, program, GPUs, time, memory, and how it ended.

    It needs gpumon recorder, which runs all the time. The kernel reports exit statuses since Linux 6.15; without one,
    gpumon knows only that a program has ended.
    """
    from gpumon.present.text.ended import LAST_COLUMNS

    show_ended(folder, since, LAST_COLUMNS, as_json=as_json, count=count)
