"""`gpumon trace`: where the time of a training step goes, from a trace of torch.profiler or Kineto.

The trace is a file, or is recorded now from a running process.
"""

from pathlib import Path
from typing import Final

import click

from gpumon.cli.attaching import (
    attach_options,
    chosen_target,
    default_path,
    path_of,
    require_probes,
    save,
    slower_allowed,
)
from gpumon.cli.options import debug_option, options, screen_options
from gpumon.cli.output import print_json, print_lines, read_shown, report_width
from gpumon.cli.screen import has_screen, show_files
from gpumon.core.problems import CommandError, ExitCode

_DEFAULT_WIDTH: Final = 110


@click.command(short_help="Account for the time of a training step.")
@click.argument("files", type=click.Path(path_type=Path), metavar="[FILE]...", nargs=-1)
@options("trace")
@attach_options
@screen_options
@debug_option
def trace(  # noqa: PLR0917 - click passes them by name
    files: tuple[Path, ...],
    pids: tuple[str, ...],
    seconds: float,
    output: Path | None,
    as_json: bool,
    top: int,
    critical: bool,
    attach: bool,
    load_probe: str,
    theme: str,
    mouse: bool,
) -> int:
    """Account for the median step in FILE, a Chrome trace of torch.profiler or Kineto; FILE may be compressed.

    Every microsecond of the step belongs to one class: kinds of compute, communication, copies, and the reasons why
    the GPU did nothing. Several files are the ranks of one job: the slowest one is named.

    With --pid, or without FILE the only training run of this host, the command first records a running process through
    its probe and writes FILE; it asks before it loads a probe. The process needs PyTorch 2.8 or later and goes on
    meanwhile; some of its steps take longer. A process cannot be traced while its own
    torch.profiler is active, nor, for the first time, after it was.

    Without a terminal, or with --json, the command prints its output and opens no screen.

    Exits with 0; with --pid, 1 if the trace has no kernels although the process uses a GPU, 3 if the process has no
    probe or cannot be traced.
    """
    if files and (pids or output is not None):
        raise click.UsageError("Name either FILE or --pid.")
    if not files:
        targets = [chosen_target(text) for text in pids or (None,)]
        ranks = tuple(dict.fromkeys(pid for target in targets for pid in target.pids))
        files = _outputs(ranks, output)
        for target in targets:
            require_probes(target, attach=attach, policy=load_probe)
        _record(ranks, seconds, files)
    if as_json or critical or not has_screen():
        return _print(files, as_json=as_json, top=top, is_critical=critical)
    return show_files("trace", files, theme, mouse=mouse)


def _outputs(pids: tuple[int, ...], output: Path | None) -> tuple[Path, ...]:
    """The new file of each process.

    Raises:
        CommandError: One exists, or its folder does not.
    """
    from gpumon.operations.recorded_file import refuse_existing

    outputs = [default_path("trace", pid, ".json.gz") if output is None else output for pid in pids]
    if output is not None and len(pids) > 1:
        outputs = [path_of(output, pid) for pid in pids]
    for path in outputs:
        refuse_existing(path)
    return tuple(outputs)


def _record(pids: tuple[int, ...], seconds: float, outputs: tuple[Path, ...]) -> None:
    """Record processes to files.

    Raises:
        CommandError: One of them has no usable trace. Those of the others are written.
    """
    from gpumon.operations.recorded_file import connected_watcher, record_traces

    with connected_watcher(pids) as watcher:
        click.echo(f"Recording {seconds:g} s of {', '.join(map(str, pids))}...", err=True)
        traces = record_traces(watcher, pids, int(1000 * seconds), slower_allowed())
    failure: CommandError | None = None
    for recorded, path in zip(traces, outputs, strict=True):
        try:
            save(recorded, path, "Open it with gpumon trace or in ui.perfetto.dev.")
        except CommandError as error:
            code = ExitCode.BAD_VERDICT if recorded.is_failed else error.exit_code
            failure = failure or CommandError(error.problem, code)
    if failure is not None:
        raise failure


def _print(files: tuple[Path, ...], *, as_json: bool, top: int, is_critical: bool) -> int:
    from gpumon.traces.reader import TraceReader

    readers = [TraceReader(file) for file in files]  # opens all files before it reads the first one
    traces = []
    for reader in readers:
        traces.append(read_shown(reader).trace)
        reader.close()
    if as_json:
        from gpumon.operations.trace_document import traces_document

        print_json(traces_document(traces, top))
        return ExitCode.OK
    from gpumon.present.paint.line import Role
    from gpumon.present.text.trace import critical_lines, report_lines

    lines_of = critical_lines if is_critical else report_lines
    print_lines(lines_of(traces, top, report_width(_DEFAULT_WIDTH, 160)), {Role.HEADING})
    return ExitCode.OK
