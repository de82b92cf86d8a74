"""`gpumon explain`: the meaning of the errors in a log, and how to fix them."""

import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.options import debug_option, options
from gpumon.cli.output import print_json
from gpumon.cli.shell_support import complete_error
from gpumon.core.problems import CommandError, ExitCode, ProblemCode
from gpumon.core.text import safe_text

if TYPE_CHECKING:
    from gpumon.errors.explanation import Explanation
    from gpumon.errors.narrative import Section

_MAX_WIDTH: Final = 100
_MAX_PATH: Final = 4096
_DRIVER_FILES: Final = Path("/proc/driver/nvidia")
"""Exists if the driver is loaded."""
_FILE_NAME: Final = re.compile(r"\S*[./]\S*")
_ID: Final = re.compile(r"[a-z][a-z0-9-]*")
_XID: Final = re.compile(r"xid-\d+")


@click.command(short_help="Explain an error and how to fix it.")
@click.argument("paths", metavar="[FILE|TEXT|ID]...", type=click.Path(path_type=Path, allow_dash=True), nargs=-1)
@options("explain")
@click.option(
    "--id",
    "error_id",
    metavar="ID",
    envvar="GPUMON_EXPLAIN_ID",
    shell_complete=complete_error,
    help="Explain the known error with this id, such as oom or xid-79.",
)
@debug_option
def explain(  # noqa: PLR0917 - click passes them by name
    paths: tuple[Path, ...],
    is_long: bool,
    as_json: bool,
    is_live: bool | None,
    as_list: bool,
    error_id: str | None,
    is_newest: bool,
) -> int:
    """Read the log or traceback FILE, or standard input, and say how its last run ended, why, and what to do.

    In place of a file: the text of an error, or a known error: gpumon explain "CUDA error: out of memory", gpumon
    explain xid 79, gpumon explain oom.

    The log can be of any size, and can be compressed, colored, wrapped, or from several ranks. Several files, or a
    folder, are the logs of the ranks of one run. For example: python train.py 2>&1 | gpumon explain

    FILE may also be the report that gpumon's probe writes when a process runs out of memory; --oom reads the newest.

    The exit status is 0 if the log does not end in a failure or its cause is a known error, and 1 if it is unknown.
    """
    if sum((bool(paths), as_list, error_id is not None, is_newest)) > 1:
        raise click.UsageError("Give only one of FILE, --list, --id and --oom.")
    if as_list:
        _print_list(as_json=as_json)
        return ExitCode.OK
    if error_id is not None:
        _print_entry(error_id, as_json=as_json)
        return ExitCode.OK
    if is_newest:
        return _print_newest_report(is_live, as_json=as_json, is_long=is_long)
    words = _words(paths)
    known = _known_error(words)
    if known:
        _print_entry(known, as_json=as_json)
        return ExitCode.OK
    explanation = _explanation_of(paths, words)
    if as_json or is_long:
        explanation = _with_evidence(explanation, is_live)
    return _print_explanation(explanation, as_json=as_json, is_long=is_long)


def _words(paths: tuple[Path, ...]) -> str:
    """The arguments as one text; empty if they are files, or could be names of files."""
    names = [str(path) for path in paths]
    are_files = any(name == "-" or os.path.exists(name) for name in names)  # noqa: PTH110 - False for a name too long
    return "" if are_files or all(_FILE_NAME.fullmatch(name) for name in names) else " ".join(names)


def _known_error(words: str) -> str:
    """The id of the known error that a text names, such as ``xid 79``; empty if the text is not an id."""
    if not words:
        return ""
    from gpumon.errors.load import ERRORS
    from gpumon.health.alerts.errors import OTHER_XID

    error_id = "-".join(words.lower().split())
    if error_id in ERRORS or _ID.fullmatch(words):
        return error_id
    return OTHER_XID if _XID.fullmatch(error_id) else ""


def _explanation_of(paths: tuple[Path, ...], words: str) -> "Explanation":
    from gpumon.errors.explain import explain_paths, explain_source, explain_text
    from gpumon.errors.source import log_pieces

    if words:
        return explain_text(words)
    if paths and paths != (Path("-"),):
        return explain_paths(paths)
    if sys.stdin.isatty():
        click.echo("Paste the error, then press Ctrl-D on an empty line.", err=True)
    name = "Standard input"
    return explain_source(log_pieces(io.BufferedReader(io.FileIO(0, closefd=False)), name), name)


def _print_newest_report(is_live: bool | None, *, as_json: bool, is_long: bool) -> int:
    """Prints the newest out-of-memory report, with its file name and the number of reports."""
    from gpumon.errors.explain import explain_paths
    from gpumon.operations.oom_files import oom_files

    files = oom_files()
    if not files:
        reason = "None of your processes has written an out-of-memory report."
        raise CommandError.missing(
            ProblemCode.NOT_FOUND, reason, "The probe writes one: gpumon watch -- python train.py"
        )
    name = safe_text(str(files[-1]), _MAX_PATH)
    explanation = explain_paths(files[-1:])
    if not as_json:
        click.echo(f"{'The only file' if len(files) == 1 else f'The newest of {len(files)} files'}: {name}\n")
    more = {"file": name, "files": len(files)}
    return _print_explanation(_with_evidence(explanation, is_live), as_json=as_json, is_long=is_long, more=more)


def _with_evidence(explanation: "Explanation", is_live: bool | None) -> "Explanation":
    """Adds what this host reports now, if requested, or by default if the driver is loaded."""
    if not (_DRIVER_FILES.exists() if is_live is None else is_live):
        return explanation
    from gpumon.operations.evidence import with_evidence  # late, because it imports what queries this host

    return with_evidence(explanation)


def _print_explanation(
    explanation: "Explanation", *, as_json: bool, is_long: bool, more: Mapping[str, object] = MappingProxyType({})
) -> int:
    from gpumon.errors.documents import explanation_document
    from gpumon.errors.narrative import sections

    if as_json:
        print_json({**explanation_document(explanation), **more})
    else:
        from gpumon.present.explain_text import AnswerRole, answer_lines

        for line in answer_lines(explanation.answer, _width()):
            is_bold = line.role in {AnswerRole.HEADLINE, AnswerRole.CODE}
            click.secho(f"{line.label}{line.text}".rstrip(), bold=is_bold or None)
        if is_long:
            click.echo()
            _print_sections(sections(explanation))
    is_unknown = explanation.is_failure and explanation.cause is None
    return ExitCode.BAD_VERDICT if is_unknown else ExitCode.OK


def _width() -> int:
    return min(_MAX_WIDTH, shutil.get_terminal_size((_MAX_WIDTH, 24)).columns)


def _print_list(*, as_json: bool) -> None:
    from gpumon.errors.load import ERRORS

    sections = list(dict.fromkeys(error.section for error in ERRORS.values()))
    errors = sorted(ERRORS.values(), key=lambda error: sections.index(error.section))
    if as_json:
        from gpumon.errors.documents import catalogue_document

        print_json(catalogue_document(errors))
        return
    width = max(map(len, ERRORS))
    for section, some in groupby(errors, key=attrgetter("section")):
        click.secho(section, bold=True)
        for error in some:
            click.echo(f"  {error.id:<{width}}  {error.title}")


def _print_entry(error_id: str, *, as_json: bool) -> None:
    from gpumon.errors.documents import catalogue_document
    from gpumon.errors.load import ERRORS
    from gpumon.errors.narrative import error_sections

    error = ERRORS.get(error_id)
    if error is None:
        similar = get_close_matches(error_id, ERRORS, n=4, cutoff=0.4)
        remedy = f"Similar ids: {', '.join(similar)}." if similar else "gpumon explain --list prints all ids."
        raise CommandError.usage(ProblemCode.NOT_FOUND, f"There is no known error {safe_text(error_id, 60)}.", remedy)
    if as_json:
        print_json(catalogue_document([error]))
    else:
        _print_sections(error_sections(error))


def _print_sections(sections: "Iterable[Section]") -> None:
    from gpumon.present.explain_text import layout

    for line in layout(sections, _width(), indent="  ", is_for_copying=True):
        click.secho(f"{line.margin}{line.text}".rstrip(), bold=line.kind is None or None)
