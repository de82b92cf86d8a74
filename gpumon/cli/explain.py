"""`gpumon explain`: a log or an error in, what it means and what to do out."""

import io
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.options import debug_option
from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

if TYPE_CHECKING:
    from gpumon.diagnosis.explanation import Explanation
    from gpumon.diagnosis.narrative import Section, TextBlock

_WIDEST: Final = 100
_LONGEST_PATH: Final = 4096
_HINT: Final = "Paste the error, then press Ctrl-D on a line of its own."


@click.command(short_help="Say what an error means and what to do.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), required=False)
@click.option("--json", "as_json", is_flag=True, envvar="GPUMON_EXPLAIN_JSON", help="One JSON document.")
@click.option(
    "--live/--no-live",
    "is_live",
    default=None,
    envvar="GPUMON_EXPLAIN_LIVE",
    help="Ask this machine as well: who holds the memory, driver, Xids. [default: where the driver is loaded]",
)
@click.option("--list", "as_list", is_flag=True, envvar="GPUMON_EXPLAIN_LIST", help="List the errors that are known.")
@click.option(
    "--id",
    "error_id",
    metavar="ID",
    envvar="GPUMON_EXPLAIN_ID",
    help="Explain the known error of this name, such as oom or xid-79.",
)
@click.option(
    "--oom",
    "is_newest",
    is_flag=True,
    envvar="GPUMON_EXPLAIN_OOM",
    help="Explain the newest file that a probe of yours left when memory ran out.",
)
@debug_option
def explain(  # noqa: PLR0917 - click passes them by name
    file: Path | None,
    as_json: bool,
    is_live: bool | None,
    as_list: bool,
    error_id: str | None,
    is_newest: bool,
) -> int:
    """Read the log or traceback FILE, or standard input, and say what its errors mean.

    It tells the first cause from what only followed it, reads the figures of the message, and ranks what mends it.
    The log may be of any size, compressed, colored, wrapped, and of several ranks. For example:
    python train.py 2>&1 | gpumon explain

    FILE may as well be what gpumon's probe leaves when a process runs out of memory; --oom takes the newest of these.

    Exits with 0 if it knows an error in it, with 1 if not.
    """
    if sum((file is not None, as_list, error_id is not None, is_newest)) > 1:
        raise click.UsageError("Give a FILE, --list, --id or --oom, not several of them.")
    if as_list:
        _say_list(as_json=as_json)
        return ExitCode.OK
    if error_id is not None:
        _say_entry(error_id, as_json=as_json)
        return ExitCode.OK
    if is_newest:
        return _say_newest(is_live, as_json=as_json)
    return _say_explanation(_with_evidence(_explained(file), is_live), as_json=as_json)


def _explained(file: Path | None) -> "Explanation":
    from gpumon.diagnosis.explain import explain_source
    from gpumon.diagnosis.source import log_pieces, open_log

    if file is not None and str(file) != "-":
        with open_log(file) as opened:
            return explain_source(log_pieces(opened, str(file)), str(file))
    if sys.stdin.isatty():
        click.echo(_HINT, err=True)
    name = "Standard input"
    return explain_source(log_pieces(io.BufferedReader(io.FileIO(0, closefd=False)), name), name)


def _say_newest(is_live: bool | None, *, as_json: bool) -> int:
    """The newest file that a probe has left, with its name and how many there are."""
    from gpumon.diagnosis.oom import explain_oom
    from gpumon.diagnosis.oom_file import read_oom_file
    from gpumon.diagnosis.source import log_pieces, open_log
    from gpumon.operations.oom_files import oom_files

    files = oom_files()
    if not files:
        reason = "No process of yours has left a file on running out of memory."
        problem = Problem(ProblemCode.NOT_FOUND, reason, "The probe leaves one: gpumon watch -- python train.py")
        raise CommandError(problem, ExitCode.NOT_THERE)
    name = safe_text(str(files[-1]), _LONGEST_PATH)
    with open_log(files[-1]) as opened:
        explanation = explain_oom(read_oom_file(log_pieces(opened, name), name))
    if not as_json:
        click.echo(f"{'The only file' if len(files) == 1 else f'The newest of {len(files)} files'}: {name}\n")
    more = {"file": name, "files": len(files)}
    return _say_explanation(_with_evidence(explanation, is_live), as_json=as_json, more=more)


def _with_evidence(explanation: "Explanation", is_live: bool | None) -> "Explanation":
    """What this machine says, if that was asked for, or if it is a machine with GPUs and nobody said no."""
    from gpumon.operations.evidence import DRIVER_FILES, with_evidence

    is_wanted = DRIVER_FILES.exists() if is_live is None else is_live
    return with_evidence(explanation) if is_wanted else explanation


def _say_explanation(
    explanation: "Explanation", *, as_json: bool, more: Mapping[str, object] = MappingProxyType({})
) -> int:
    from gpumon.diagnosis.documents import explanation_document
    from gpumon.diagnosis.narrative import NOTHING_FOUND, sections

    if as_json:
        _say_json({**explanation_document(explanation), **more})
    elif explanation.matches:
        _say_sections(sections(explanation))
    else:
        lines = "1 line" if explanation.lines == 1 else f"{explanation.lines} lines"
        _say_lines(_wrapped(f"No known error in {lines}. {NOTHING_FOUND}", _width(), "", ""))
    return ExitCode.OK if explanation.matches else ExitCode.BAD_VERDICT


def _say_list(*, as_json: bool) -> None:
    from gpumon.diagnosis.catalogue import ERRORS

    if as_json:
        from gpumon.diagnosis.documents import catalogue_document

        _say_json(catalogue_document(ERRORS))
        return
    width = max(len(error.id) for error in ERRORS)
    for section in dict.fromkeys(error.section for error in ERRORS):
        click.secho(section, bold=True)
        _say_lines(f"  {error.id:<{width}}  {error.title}" for error in ERRORS if error.section == section)


def _say_entry(error_id: str, *, as_json: bool) -> None:
    from gpumon.diagnosis.catalogue import BY_ID
    from gpumon.diagnosis.documents import catalogue_document
    from gpumon.diagnosis.narrative import error_sections

    error = BY_ID.get(error_id)
    if error is None:
        near = get_close_matches(error_id, BY_ID, n=4, cutoff=0.4)
        remedy = f"Near it are: {', '.join(near)}." if near else "gpumon explain --list names all of them."
        problem = Problem(ProblemCode.NOT_FOUND, f"There is no known error {safe_text(error_id, 60)}.", remedy)
        raise CommandError(problem, ExitCode.USAGE)
    if as_json:
        _say_json(catalogue_document([error]))
    else:
        _say_sections(error_sections(error))


def _say_json(document: object) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def _say_sections(told: Iterable["Section"]) -> None:
    width = _width()
    for number, section in enumerate(told):
        if number:
            click.echo()
        click.secho(section.heading, bold=True)
        _say_lines(line for block in section.blocks for line in _block_lines(block, width))


def _say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _block_lines(block: "TextBlock", width: int) -> Iterator[str]:
    """A block as lines, two columns in; code is further in and never broken, so that it can be copied."""
    from gpumon.diagnosis.narrative import BlockKind

    if block.kind is BlockKind.CODE:
        return (f"      {line}".rstrip() for line in block.text.splitlines())
    if block.kind is BlockKind.ROW:
        name, _, value = block.text.partition("\t")
        return _wrapped(f"{name:<26}{value}", width, "  ", " " * 28)
    margins = {BlockKind.ITEM: ("  - ", "    "), BlockKind.QUOTE: ("  > ", "  > ")}
    return _wrapped(block.text, width, *margins.get(block.kind, ("  ", "  ")))


def _wrapped(text: str, width: int, begin: str, after: str) -> Iterator[str]:
    return iter(
        wrap(
            text,
            width,
            initial_indent=begin,
            subsequent_indent=after,
            break_on_hyphens=False,  # an option that is broken cannot be copied
            break_long_words=False,
        )
    )


def _width() -> int:
    return min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
