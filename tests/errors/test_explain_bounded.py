"""The work per line and the memory are bounded, whatever a log contains. Attempts are counted, not timed."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from gpumon.errors import candidate, scan
from gpumon.errors.candidate import MAX_MATCH
from gpumon.errors.entry import KnownError
from gpumon.errors.explain import explain, explain_text
from gpumon.errors.patterns import dense, exact, literals, wrapped
from gpumon.errors.scan import blocks
from tests.errors.each_error import every_error, some_errors
from tests.errors.hostile import all_needles, almost, repeated
from tests.errors.test_entries import example_strings, widest_match
from tests.errors.texts import samples_of

XID: Final = "NVRM: Xid (PCI:0000:17:00): 13, pid=1234, name=python, Graphics Exception: ESR 0x504730=0x10009"
OOM: Final = samples_of("oom")[0].splitlines()[0]
LINES: Final = 3
MAX_ATTEMPTS: Final = 80
"""Per line. The needle with the most patterns has 39."""


class Work:
    """Counts how often patterns are tried, and on how many characters."""

    def __init__(self) -> None:
        self.attempts = 0
        self.characters = 0

    def counting(self, compiled: Callable[[str], re.Pattern[str]]) -> Callable[[str], "CountingPattern"]:
        """A function whose patterns are counted."""
        return lambda regex: CountingPattern(compiled(regex), self)


class CountingPattern:
    """A pattern that counts how often it is tried."""

    def __init__(self, pattern: re.Pattern[str], work: Work) -> None:
        self._pattern = pattern
        self._work = work

    def search(self, text: str, start: int) -> re.Match[str] | None:
        self._count(len(text) - start)
        return self._pattern.search(text, start)

    def finditer(self, text: str, start: int, end: int) -> Iterator[re.Match[str]]:
        self._count(min(len(text), end) - start)
        return self._pattern.finditer(text, start, end)

    def _count(self, characters: int) -> None:
        self._work.attempts += 1
        self._work.characters += characters


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    counted = Work()
    monkeypatch.setattr(candidate, "exact", counted.counting(exact))
    monkeypatch.setattr(candidate, "wrapped", counted.counting(wrapped))
    return counted


@some_errors
def test_what_a_pattern_matches_contains_its_literals(error: KnownError) -> None:
    for pattern in error.wordings:
        head, texts, _ = literals(pattern.regex)
        matches = [re.search(pattern.regex, text, re.MULTILINE) for text in example_strings(pattern.regex)]
        matched = [match[0] for match in matches if match is not None]
        assert matched
        for text in matched:
            assert text.startswith(head)
            assert all(literal in text for literal in texts)
            assert all(dense(literal) in dense(text) for literal in texts)


@pytest.mark.parametrize(
    ("regex", "head", "texts"),
    [
        (r"a b{2}c\.d(?: e)f?g \(h", "a ", ("a ", "g (h", "c.d e")),
        (r"\bname\b", "name", ("name",)),
        (r"(?:a|b) c", "", (" c", "c")),
        (r"ab|cd", "", ("",)),
        (r"a[\])]b(?=c(?:d))(?<=e)f", "a", ("b", "f", "a")),
    ],
)
def test_the_literals_of_a_pattern(regex: str, head: str, texts: tuple[str, ...]) -> None:
    assert literals(regex) == (head, texts, texts[-1])


@every_error
def test_a_match_is_shorter_than_the_searched_text(error: KnownError) -> None:
    for pattern in (wording for wording in error.wordings if not wording.raised_in):
        assert widest_match(pattern.regex) <= MAX_MATCH


@some_errors
def test_a_line_full_of_a_needle_is_tried_once(error: KnownError, work: Work) -> None:
    work.attempts = work.characters = 0
    lines = [repeated(pattern) for pattern in error.wordings]
    explain_text("".join(f"{line}\n" * LINES for line in lines))
    assert work.attempts <= MAX_ATTEMPTS * LINES * len(lines)
    assert work.characters <= MAX_ATTEMPTS * LINES * sum(map(len, lines))


@some_errors
def test_a_log_full_of_an_incomplete_error_is_tried_a_bounded_number_of_times(error: KnownError, work: Work) -> None:
    work.attempts = 0
    explain_text("".join(f"{almost(pattern)}\n" * 4 * LINES for pattern in error.wordings))
    assert work.attempts <= (4 * LINES * 2 + MAX_ATTEMPTS * LINES) * len(error.wordings)


@some_errors
def test_incomplete_errors_that_differ_are_tried_a_bounded_number_of_times(error: KnownError, work: Work) -> None:
    """Lines with another word each, so that the result of an earlier line does not help."""
    work.attempts = 0
    words = ["".join(chr(ord("a") + int(digit)) for digit in str(number)) for number in range(4 * LINES)]
    explain_text("".join(f"{almost(pattern)} {word}\n" for pattern in error.wordings for word in words))
    assert work.attempts <= MAX_ATTEMPTS // 2 * len(words) * len(error.wordings), "each pattern of a needle once"


def test_an_incomplete_xid_is_not_tried(work: Work) -> None:
    explain_text("NVRM: Xid (PCI:a" * 5000)
    assert work.attempts == 0


def test_a_line_with_all_needles_is_tried_a_bounded_number_of_times(work: Work) -> None:
    line = all_needles()
    explain_text(f"{line}\n")
    pieces = len(line) // scan.MAX_LINE + 1
    assert work.attempts <= 2 * MAX_ATTEMPTS * pieces


def test_an_error_after_many_of_its_needles_in_a_line_is_recognized() -> None:
    match = explain_text("NVRM: Xid (PCI:a" * 200 + XID).cause
    assert match is not None
    assert match.error.id == "xid-13"


# Escaped line ends


@pytest.mark.parametrize("line_end", [r"\n", r"\r\n", r"\\n"])
def test_an_escaped_line_end_ends_a_line(line_end: str) -> None:
    lines = [f"{XID} {number}" for number in range(LINES)]
    record = '{"level":"error","msg":"' + line_end.join(lines) + '"}'
    (match,) = explain_text(f"first\n{record}\n").matches
    assert (match.error.id, match.line, match.count) == ("xid-13", 2, LINES)
    assert len(match.text) < 2 * len(XID)


def test_the_records_of_a_container_are_explained_as_their_lines() -> None:
    lines = ["Traceback (most recent call last):", '  File "train.py", line 1, in <module>', OOM]
    log = "".join(
        json.dumps({"log": f"[rank3]: {line}\n", "stream": "stderr", "time": f"2026-11-20T12:00:0{second}.5Z"}) + "\n"
        for second, line in enumerate(lines)
    ).replace('": "', '":"')
    (match,) = explain_text(log).matches
    assert (match.error.id, match.line, match.rank) == ("oom", 3, 3)
    assert "asked_bytes" in match.values


@pytest.mark.parametrize(
    "line", ['{"log":"', '{"log":1}', '{"log":"a', '{"log":"' + "[" * 100_000, '{"log":null,"log":3}']
)
def test_what_only_starts_like_a_record_is_a_line(line: str) -> None:
    assert explain_text(f"{line}\n{OOM}\n").reading.lines == 2


def test_a_traceback_in_one_record_is_explained_as_its_lines() -> None:
    record = json.dumps({"time": "2026-11-20T12:00:01Z", "level": "ERROR", "message": f"step failed\n  at 1\n{OOM}"})
    match = explain_text(f"{record}\n").cause
    assert match is not None
    assert (match.error.id, match.line, match.is_warning) == ("oom", 1, False)
    assert match.text.startswith("CUDA out of memory")
    assert match.timestamp is not None
    assert match.timestamp.text == "2026-11-20T12:00:01"


def test_a_line_of_a_record_has_the_level_of_the_record() -> None:
    record = json.dumps({"level": "WARNING", "message": f"batch skipped\n{OOM}"})
    match = explain_text(f"{record}\n").cause
    assert match is not None
    assert match.is_warning


# Memory


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "unit", [b"\n", b"\r\n", b"\r", rb"\n", rb"\\n", b"a\n", b" \n", b"x\r", rb"x\n", b"\xff\n", b"x", b"\x1b["]
)
def test_a_block_has_a_bounded_number_of_lines_and_characters(unit: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(scan, "MAX_BLOCK_LINES", 1 << 11)
    monkeypatch.setattr(scan, "OVERLAP_CHARACTERS", 1 << 13)
    data = unit * (3 * scan.BLOCK_BYTES // len(unit))
    for block in blocks([data]):
        assert len(block.lines) <= scan.MAX_BLOCK_LINES + scan.BLOCK_BYTES // scan.MAX_LINE + 2 * scan.OVERLAP_LINES
        assert sum(map(len, block.lines)) <= scan.BLOCK_BYTES + 2 * (scan.OVERLAP_CHARACTERS + scan.MAX_LINE)


@pytest.mark.parametrize("blank_lines", [1, 63, 64, 65, 66, 67, 1000, scan.BLOCK_BYTES])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_lines_after_blank_lines_have_their_numbers(blank_lines: int, line_end: str) -> None:
    blank = line_end * blank_lines
    explanation = explain_text(f"first{line_end}{blank}{OOM}{line_end}{blank}last")
    (match,) = explanation.matches
    assert (match.line, explanation.reading.lines) == (blank_lines + 2, 2 * blank_lines + 3)
    assert explain([blank.encode()]).reading.lines == blank_lines
