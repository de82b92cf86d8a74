"""Finds what failed in a block of a log: exceptions, known errors, signals, exit codes and lines of errors."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple

from gpumon.core.text import safe_text
from gpumon.errors import signs
from gpumon.errors.candidate import PatternHit
from gpumon.errors.entry import ContextState
from gpumon.errors.match import Match, is_warning, match_of, timestamp_at
from gpumon.errors.patterns import LetterWords
from gpumon.errors.raised import Raised
from gpumon.errors.reading import FailureKind, LogFailure, NumberedLine
from gpumon.errors.scan import LogBlock
from gpumon.errors.signs import has_sign
from gpumon.errors.tracebacks import exceptions

_MAX_TEXT: Final = 400
_MAX_LINES_PER_SIGN: Final = 512
"""Lines per block and sign that are examined, from the end."""
_MAX_OF_RANK: Final = 128
"""Hits per block, error and rank that are read, half of them from the end."""
_MAX_OF_ERROR: Final = 1024
"""The same for all ranks together."""
_LINES_BEFORE: Final = 40
"""Lines above one that only reports that something failed, such as a build, whose output they are."""
_LINES_AFTER: Final = 4
_LINES_ABOVE: Final = 5
"""Lines above a traceback, from the last one of an exception that caused this one."""


class FailureLines(NamedTuple):
    """A failure and the positions of its lines in a block; without one, lines that are only passed over.

    Attributes:
        position: The line that names the error.
    """

    start: int
    stop: int
    failure: LogFailure | None
    position: int


@dataclass(slots=True)
class BlockFailures:
    """What failed in a block.

    Attributes:
        at_end: The last error whose message is a sign of it only if the log ends with it.
        first_failed_rank: The rank that a launcher calls the first one that failed; its summary names it last.
        kept: The ids of the notices, each with its rank.
    """

    failures: list[FailureLines] = field(default_factory=list)
    notices: list[Match] = field(default_factory=list)
    lasting: list[LogFailure] = field(default_factory=list)
    at_end: Match | None = None
    first_failed_rank: int | None = None
    kept: set[tuple[str, int | None]] = field(default_factory=set)


def failures_in(block: LogBlock, hits: Sequence[PatternHit]) -> BlockFailures:
    """What failed in a block, with the known errors in it."""
    result, rows = BlockFailures(), block.by_rank
    notices = {row for hit in hits if hit.error.is_warning for row in hit.rows}
    own = exceptions(block, notices)
    raised = [item for item in own if block.first <= rows.positions[item.row] < block.end]
    by_row = {row: item for item in reversed(raised) for row in range(item.first_row, item.end_row)}
    of_raised: dict[int, list[PatternHit]] = {id(item): [] for item in raised}
    covered = {rows.positions[row] for row in by_row}
    alone = [hit for hit in hits if hit.start[0] not in by_row]
    covered.update(hit.position for hit in alone)
    read = _without_floods(alone, lambda hit: (hit.error.id, block.ranks[hit.position]), _MAX_OF_RANK)
    read = _without_floods(read, lambda hit: hit.error.id, _MAX_OF_ERROR)
    for hit in read:
        _add_known(block, hit, result)
    passed = {hit.position for hit in alone}.difference(hit.position for hit in read)
    result.failures += [FailureLines(position, position + 1, None, position) for position in passed]
    for hit in hits:
        item = by_row.get(hit.start[0])
        if item is not None and hit.start[0] >= item.row:
            of_raised[id(item)].append(hit)
    for item in raised:
        _add_raised(block, item, of_raised[id(item)], result)
    _add_others(block, covered, notices, result)
    result.failures.sort(key=attrgetter("start"))
    return result


def _without_floods(
    hits: Sequence[PatternHit], kind_of: Callable[[PatternHit], object], most: int
) -> Sequence[PatternHit]:
    """The hits without those between the first and the last ones of a kind that the block is full of."""
    if len(hits) <= most:
        return hits
    kinds: dict[object, list[PatternHit]] = defaultdict(list)
    for hit in hits:
        kinds[kind_of(hit)].append(hit)
    ends = (some if len(some) <= most else (*some[: most // 2], *some[-most // 2 :]) for some in kinds.values())
    return sorted(chain.from_iterable(ends), key=attrgetter("position"))


def _failure(
    block: LogBlock, kind: FailureKind, position: int, text: str, matches: tuple[Match, ...] = ()
) -> LogFailure:
    """A failure in a line."""
    return LogFailure(kind, block.numbers[position], text, block.ranks[position], matches=matches)


def with_surroundings(failure: LogFailure, block: LogBlock, position: int) -> LogFailure:
    """A failure with its time and, if no entry has it, the lines around it: only for those that are kept."""
    rows = block.by_rank
    row = first = rows.rows[position]
    rank_rows = rows.of_rank(row)  # the lines of the same rank
    first -= failure.raised.row - failure.raised.first_row  # those of its traceback are known
    lines = _LINES_ABOVE if failure.is_raised else _LINES_BEFORE
    before = range(max(rank_rows.start, first - lines), first)
    near = chain(before, range(row, min(rank_rows.stop, row + _LINES_AFTER + 1)))
    is_known = bool(failure.matches) and not (failure.raised.has_traceback or failure.is_echo)
    around = () if is_known else tuple(numbered(block, rows.positions[other]) for other in near)
    return replace(failure, timestamp=timestamp_at(block, position), around=around)


def _add_raised(block: LogBlock, raised: Raised, hits: Sequence[PatternHit], result: BlockFailures) -> None:
    positions = block.by_rank.positions
    first, matches = positions[raised.first_row], _matches(block, hits)
    text = f"{raised.name}: {raised.message}" if raised.message else raised.name
    position = positions[raised.row]
    failure = _failure(block, FailureKind.RAISED, position, text, matches)
    failure = replace(failure, raised=raised, first_line=block.numbers[first])
    is_warning = raised.name.endswith("Warning") or (matches and all(match.error.is_warning for match in matches))
    result.lasting += [replace(failure, matches=(match,)) for match in matches if is_lasting(match)]
    is_notice = is_warning and not raised.is_uncaught
    if is_notice:
        result.notices += matches
    stop = positions[raised.end_row - 1] + 1
    result.failures.append(FailureLines(first, stop, None if is_notice else failure, position))


def _matches(block: LogBlock, hits: Sequence[PatternHit]) -> tuple[Match, ...]:
    """The known errors in the message of an exception, each once: that of the first line first, an echo last."""
    matches: dict[str, Match] = {}
    for hit in hits:
        match, first = match_of(block, hit), matches.get(hit.error.id)
        matches[hit.error.id] = match if first is None else with_values(first, match)
    return tuple(sorted(matches.values(), key=lambda match: (match.error.is_echo, match.error.is_warning)))


def with_values(first: Match, later: Match) -> Match:
    """A match with the values of a further line of its message; the message is quoted, not the code that raises it."""
    shown = later if first.is_code and not later.is_code else first
    return replace(first, line=shown.line, text=shown.text, values={**later.values, **first.values})


def _add_known(block: LogBlock, hit: PatternHit, result: BlockFailures) -> None:
    """Adds a known error outside an exception; warnings are kept apart, each once per rank."""
    is_last = hit.line_match.candidate.pattern.is_last
    key = (hit.error.id, block.ranks[hit.position])
    if key in result.kept and not is_last and is_warning(block, hit):
        return
    match = match_of(block, hit)
    ended = signs.ended(block.lines[hit.position], block.texts[hit.position])
    kind = FailureKind.KNOWN if ended is None else FailureKind.ENDED
    failure = replace(_failure(block, kind, hit.position, match.text, (match,)), ended=ended)
    if is_last:
        result.at_end = match
        return
    if is_lasting(match):
        result.lasting.append(failure)
    is_notice = match.is_warning or match.is_code or has_sign("falls back", match.text)
    if is_notice:
        result.notices.append(match)
        result.kept.add(key)
    result.failures.append(FailureLines(hit.position, hit.position + 1, None if is_notice else failure, hit.position))


def is_lasting(match: Match) -> bool:
    """Whether an error is of a kind that may end the program later."""
    return match.error.is_leading or match.error.context is ContextState.RESET


def with_letters(texts: Iterable[str]) -> dict[str, bytes]:
    """Texts, each with the letters of its longest word, in lower case: a log without these does not contain it."""
    return {text: max(LetterWords(text).words, key=len, default=b"") for text in texts}


_SIGNS: Final = {**with_letters(signs.sign("failure").texts), **dict.fromkeys(("ERROR", "CRITICAL", "FATAL"), b"")}
"""Parts of lines about the end of a process, or about an error; a level may stand in a prefix."""


def _add_others(block: LogBlock, covered: set[int], notices: set[int], result: BlockFailures) -> None:
    """Adds signals, exit codes and lines of errors, apart from those that were read already."""
    for position in positions_with(block, _SIGNS):
        if position in covered or not block.first <= position < block.end:
            continue
        line, text = block.lines[position], block.texts[position]
        first = signs.first_failed_rank(text)
        if first is not None:
            result.first_failed_rank = first
            continue
        ended = signs.ended(line, text)
        if ended is not None and has_sign("goes on", line.lower()):
            continue
        if ended is not None:
            kind = FailureKind.ENDED
        elif has_sign("failed tests", text) or signs.is_reported_error(text):
            kind = FailureKind.REPORTED
        elif signs.has_error_level(line) and not (has_sign("caught above", line) or has_sign("ends nothing", text)):
            kind = FailureKind.REPORTED if line.startswith("ERROR: ") else FailureKind.LOGGED
        else:
            continue
        if ended is None and has_sign("metric", text) and not has_sign("failed tests", text):
            continue
        failure = _failure(block, kind, position, safe_text(_with_announced(block, position, notices), _MAX_TEXT))
        result.failures.append(FailureLines(position, position + 1, replace(failure, ended=ended), position))


def _with_announced(block: LogBlock, position: int, notices: set[int]) -> str:
    """A line, with the one below it that is no notice if it only announces that, as those of CMake, R and jest do."""
    rows = block.by_rank
    row, text = rows.rows[position], block.texts[position].strip()
    below = range(row + 1, min(row + 1 + _LINES_AFTER, rows.of_rank(row).stop)) if has_sign("announces", text) else ()
    own = (other for other in below if other not in notices)
    said = (rows.texts[other].strip() for other in own if not has_sign("warning", rows.lines[other]))
    announced = next((line for line in said if line[:1] not in {"", "["} or " " in line), "")
    return text if announced.startswith("Traceback") else f"{text} {announced}".strip()


def numbered(block: LogBlock, position: int) -> NumberedLine:
    """A line of a block, with its number."""
    return NumberedLine(block.numbers[position], safe_text(block.lines[position].rstrip(), _MAX_TEXT))


def positions_with(block: LogBlock, signs_of_lines: Mapping[str, bytes]) -> list[int]:
    """The lines of a block that contain one of some texts, for each at most a fixed number, from the end."""
    positions: set[int] = set()
    for sign, letters in signs_of_lines.items():
        end = len(block.text) if letters in block.words.vocabulary else 0
        for _ in range(_MAX_LINES_PER_SIGN):
            index = block.text.rfind(sign, 0, end)
            if index < 0:
                break
            position = bisect_right(block.starts, index) - 1
            positions.add(position)
            end = block.starts[position]
    return sorted(positions)
