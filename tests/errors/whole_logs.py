"""Whole logs as programs wrote them, each with the cause that an engineer gives."""

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.errors.answer import LogAnswer, answer_of
from gpumon.errors.cause import cause_of
from gpumon.errors.explain import finder
from gpumon.errors.reader import LogReader
from gpumon.errors.reading import LogReading

LOGS: Final = Path(__file__).with_name("logs")


class FailedLog(NamedTuple):
    """A log of a run that failed.

    Attributes:
        name: Its name.
        path: Where it is.
        root_lines: The lines that an engineer points to.
        cause: The cause in a sentence.
        expect: What the first lines of a right answer match.
        wrong: What they must not match; may be empty.
        do: What the first advice matches.
    """

    name: str
    path: Path
    root_lines: tuple[int, ...]
    cause: str
    expect: str
    wrong: str
    do: str


class Judgment(NamedTuple):
    """An answer compared with the label of its log."""

    is_right: bool
    is_wrong: bool
    is_useful: bool
    answer: LogAnswer


def failed_logs(folder: Path = LOGS) -> list[FailedLog]:
    """The logs of failed runs, with their labels."""
    return [_failed(folder / "failed", name, label) for name, label in _labels(folder / "failed")]


def healthy_logs(folder: Path = LOGS) -> list[Path]:
    """The logs of healthy runs."""
    return [_path(folder / "healthy", name) for name, _ in _labels(folder / "healthy")]


def read_log(text: str | bytes) -> LogReading:
    """A log that was read."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    return LogReader(finder()).read([data])


def answer(text: str | bytes, name: str = "job.log") -> LogAnswer:
    """The answer to a log."""
    reading = read_log(text)
    return answer_of(reading, cause_of(reading), name)


@cache
def answer_to(path: Path) -> LogAnswer:
    """The answer to the log in a file."""
    return answer(path.read_bytes(), path.name)


def judged(log: FailedLog) -> Judgment:
    """Compares the first lines of an answer with what an engineer says."""
    given = answer_to(log.path)
    action = "" if given.do is None else f"{given.do.text} {given.do.code}"
    first = "\n".join((given.headline, given.place, action))
    is_misled = bool(log.wrong) and _has(log.wrong, first)
    is_right = _has(log.expect, first) and not is_misled
    is_wrong = is_misled or (not is_right and given.is_failure and "unknown" not in given.confidence)
    return Judgment(is_right, is_wrong, _has(log.do, action), given)


def _has(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE | re.DOTALL) is not None


def _labels(folder: Path) -> Iterable[tuple[str, dict[str, Any]]]:
    for path in sorted(folder.glob("labels*.json")):
        yield from json.loads(path.read_text("utf-8")).items()


def _failed(folder: Path, name: str, label: dict[str, Any]) -> FailedLog:
    lines = (label["root_line"], *label.get("also", ()), *label.get("also_lines", ()))
    expect, wrong, do = label["expect"], label.get("wrong") or "", label["do"]
    return FailedLog(name, _path(folder, name), lines, label["cause"], expect, wrong, do)


def _path(folder: Path, name: str) -> Path:
    return folder / (name if name.endswith(".log") else f"{name}.log")
