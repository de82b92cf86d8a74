"""Explains logs: one file, standard input, a pasted text, or the files of all ranks together."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

from gpumon.core.text import safe_text
from gpumon.errors.explanation import Explanation, explanation_of
from gpumon.errors.find import ErrorFinder
from gpumon.errors.load import ERRORS
from gpumon.errors.reader import LogReader
from gpumon.errors.reading import merged
from gpumon.errors.source import log_files, log_pieces, open_log

_MAX_PATH: Final = 4096
_JSON: Final = b"{"
"""The start of the report of a probe, and of few logs."""
_PASTED: Final = "the text"


@cache
def finder() -> ErrorFinder:
    """What finds the known errors, which is made at the first use."""
    return ErrorFinder(ERRORS)


def explain(chunks: Iterable[bytes], name: str = "the log") -> Explanation:
    """Explains a log.

    Args:
        chunks: The log, in chunks of any size.
        name: Its name in the answer.
    """
    return explanation_of(LogReader(finder()).read(chunks), name)


def explain_text(text: str) -> Explanation:
    """Explains a text, such as a pasted one."""
    return explain([text.encode("utf-8", "replace")], _PASTED)


def explain_source(chunks: Iterator[bytes], name: str) -> Explanation:
    """Explains a log, or the report that a probe wrote when a process ran out of memory.

    Raises:
        CommandError: The source is such a report and cannot be read.
    """
    first = next(chunks, b"")
    content = chain((first,), chunks)
    if not first.lstrip().startswith(_JSON):
        return explain(content, name)
    from gpumon.core.oom_file import is_oom_file, read_oom_file  # late: many modules, which few logs need
    from gpumon.errors.oom import explain_oom

    return explain_oom(read_oom_file(content, name)) if is_oom_file(first) else explain(content, name)


def explain_paths(paths: Sequence[Path]) -> Explanation:
    """Explains a file, or several files or a folder: the logs of the ranks of one run.

    Raises:
        CommandError: A file cannot be read, or a folder has no file.
    """
    files = log_files(paths)
    with ExitStack() as stack:
        logs = [(str(file), log_pieces(stack.enter_context(open_log(file)), str(file))) for file in files]
        if len(logs) > 1:
            readings = [(name, LogReader(finder()).read(chunks)) for name, chunks in logs]
            return explanation_of(merged(readings), f"{len(logs):,} logs")
        return explain_source(logs[0][1], safe_text(files[0].name, _MAX_PATH))
