"""`gpumon snapshot`: what PyTorch's allocator held over time, and which stacks allocated it."""

import sys
from pathlib import Path
from typing import Final

import click

from gpumon.cli.attaching import attach_options, chosen_target, default_path, require_probes, save
from gpumon.cli.options import debug_option, options, screen_options
from gpumon.cli.output import print_json, print_lines, read_shown, report_width
from gpumon.cli.screen import has_screen, show_files
from gpumon.core.problems import ExitCode
from gpumon.core.text import safe_text

_DEFAULT_WIDTH: Final = 110


@click.command(short_help="Show a PyTorch memory snapshot.")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.argument("file2", type=click.Path(path_type=Path), required=False)
@options("snapshot")
@attach_options
@screen_options
@debug_option
def snapshot(  # noqa: PLR0917 - click passes them by name
    file: Path | None,
    file2: Path | None,
    pid: str | None,
    record: float,
    output: Path | None,
    yes: bool,
    as_json: bool,
    top: int,
    perfetto: Path | None,
    attach: bool,
    load_probe: str,
    theme: str,
    mouse: bool,
) -> int:
    """Show which stacks allocated the memory in FILE, a snapshot from torch.cuda.memory._dump_snapshot().

    With FILE2, show that snapshot and its changes since FILE. Files may be compressed with gzip and may be
    gigabytes in size: gpumon reads them with little memory, and never executes anything in them.

    With --pid, or without FILE the only training run of this host, the command first has a running process write FILE
    through its probe; it asks before it loads a probe. The process waits while the
    snapshot is taken, and each allocation takes longer while its history is recorded, so the command asks for
    confirmation.

    Without a terminal, or with --json or --perfetto, the command prints its output and opens no screen.

    Exits with 0; with --pid, 1 if it is not confirmed, 3 if the process has no probe or no CUDA context.
    """
    if file is not None and (pid is not None or record or output is not None or yes):
        raise click.UsageError("Name either FILE or --pid; --record, --output and --yes are for the latter.")
    if file is None:
        if not yes and not sys.stdin.isatty():
            raise click.UsageError("This changes the process; without a terminal, confirm it with --yes.")
        target = chosen_target(pid)
        if len(target.pids) > 1:
            click.echo(f"Process {target.pids[0]} is the first of {len(target.pids)} ranks.", err=True)
        rank = target._replace(pids=target.pids[:1])
        file = _output(rank.pids[0], record, output)
        require_probes(rank, attach=attach, policy=load_probe)
        if not (yes or _is_confirmed(rank.pids[0], record)):
            return ExitCode.BAD_VERDICT
        _record(rank.pids[0], record, file)
    if as_json or perfetto is not None or not has_screen():
        return _print(file, file2, as_json=as_json, top=top, perfetto=perfetto)
    return show_files("snapshot", (file,) if file2 is None else (file, file2), theme, mouse=mouse)


def _is_confirmed(pid: int, seconds: float) -> bool:
    """Whether the user agrees to change a process."""
    change = (
        f"Process {pid} records its allocations for {seconds:g} s, and waits" if seconds else f"Process {pid} waits"
    )
    return click.confirm(f"{change} while PyTorch takes the snapshot, up to some seconds. Continue?", err=True)


def _output(pid: int, seconds: float, output: Path | None) -> Path:
    """The new file of a process.

    Raises:
        click.UsageError: Its history is to be recorded for too long.
        CommandError: The file exists, or its folder does not.
    """
    from gpumon.operations.recorded_file import MAX_SECONDS, refuse_existing

    if seconds > MAX_SECONDS:
        raise click.UsageError(f"--record takes up to {MAX_SECONDS:.0f} s.")
    path = default_path("snapshot", pid, ".pickle") if output is None else output
    refuse_existing(path)
    return path


def _record(pid: int, seconds: float, path: Path) -> None:
    """Have a process write a snapshot."""
    from gpumon.operations.recorded_file import connected_watcher, record_snapshot

    with connected_watcher((pid,)) as watcher:
        save(record_snapshot(watcher, pid, seconds), path, "Open it with gpumon snapshot or on pytorch.org/memory_viz.")


def _print(file: Path, file2: Path | None, *, as_json: bool, top: int, perfetto: Path | None) -> int:
    from gpumon.snapshots import documents as trace
    from gpumon.snapshots.reader import SnapshotReader

    if perfetto is not None:
        trace.refuse_existing(perfetto)
    earlier_reader = None if file2 is None else SnapshotReader(file)  # opens both files before it reads the first one
    reader = SnapshotReader(file2 or file, trace.MAX_ALLOCATIONS if perfetto is not None else 0)
    earlier = None if earlier_reader is None else read_shown(earlier_reader)
    shown = read_shown(reader)
    if as_json:
        from gpumon.snapshots.documents import snapshot_document

        print_json(snapshot_document(shown, top, earlier))
    elif perfetto is None:
        from gpumon.present.paint.line import Role
        from gpumon.present.text.snapshot import report_lines

        print_lines(report_lines(shown, top, report_width(_DEFAULT_WIDTH, 160), earlier), {Role.HEADING})
    if perfetto is not None:
        count = trace.save(shown, perfetto)
        name = safe_text(str(perfetto), 200)
        click.echo(f"Wrote {count:,} events to {name}. Open the file in ui.perfetto.dev.", err=as_json)
    return ExitCode.OK
