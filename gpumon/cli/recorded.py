"""What `gpumon trace --pid` and `gpumon snapshot --pid` share: names of files, and what is printed about them."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpumon.core.problems import CommandError
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text, file_stamp

if TYPE_CHECKING:
    from gpumon.operations.recorded_file import RecordedFile


def default_path(kind: str, pid: int, suffix: str) -> Path:
    """A name in the current folder, such as ``trace-4711-20260501-143000.json.gz``."""
    return Path(f"{kind}-{pid}-{file_stamp()}{suffix}")


def path_of(output: Path, pid: int) -> Path:
    """The file of one of several processes: the PID comes before the suffixes."""
    stem, dot, suffixes = output.name.partition(".")
    return output.with_name(f"{stem}-{pid}{dot}{suffixes}")


def save(file: "RecordedFile", target: Path, hint: str) -> None:
    """Move a file to its path, and print where it is and what its reader must know.

    Raises:
        CommandError: There is no file, or it cannot be written.
    """
    from gpumon.operations.recorded_file import move_file

    if file.path is None:
        assert file.problem is not None
        reason = f"Process {file.pid}: {file.problem.reason}"
        raise CommandError.missing(file.problem.code, reason, file.problem.remedy)
    move_file(file.path, target)
    size = bytes_text(target.stat().st_size)
    click.echo(f"Wrote {safe_text(str(target), 200)} ({size}). {hint}", err=True)
    for note in file.notes:
        click.echo(f"Process {file.pid}: {note}", err=True)
