"""Compares the ranks of a job by what NCCL's watchdog says about their collectives."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpumon.errors.lazy_pattern import lazy_pattern

SIGNS: Final = ("SeqNum=", "ast enqueued")
"""Texts of the lines that are read."""

_WORK: Final = lazy_pattern(
    r"Work(?:NCCL|Gloo)\((?:SeqNum|seq)=(\d{1,12}), OpType=(\w{1,40})"
    r"(?:, NumelIn=(\d{1,15}))?(?:, NumelOut=(\d{1,15}))?"
)
_LAST: Final = lazy_pattern(r"last enqueued (?:NCCL )?work: (-?\d{1,12}), last completed", re.IGNORECASE)
_MAX_NAMED: Final = 4


class RankWork(NamedTuple):
    """The collectives of a rank.

    Attributes:
        waits_for: The number of the collective that timed out.
        elements: The number of elements that it takes.
        enqueued: The number of the last collective that the rank started.
        members: The number of ranks that take part in it, as far as the sizes show.
    """

    waits_for: int | None = None
    operation: str = ""
    elements: int | None = None
    enqueued: int | None = None
    members: int = 0


def with_line(work: RankWork, line: str) -> RankWork:
    """The work of a rank, with what a line of its log says about it."""
    match = _WORK.search(line)
    if match is not None and work.waits_for is None:
        elements = None if match[3] is None else int(match[3])
        members = int(match[4]) // elements if elements and match[4] and "ALLGATHER" in match[2] else 0
        operation = match[2].lstrip("_")
        work = work._replace(waits_for=int(match[1]), operation=operation, elements=elements, members=members)
    match = _LAST.search(line)
    if match is not None:
        work = work._replace(enqueued=int(match[1]))
    return work


class Difference(NamedTuple):
    """How a rank differs from the others."""

    sentence: str
    ranks: str


def comparison(works: Mapping[int, RankWork], ranks: Iterable[int]) -> Difference | None:
    """Which rank differs from the others; None if the log does not show it."""
    waiting = {rank: work for rank, work in works.items() if work.waits_for is not None}
    if not waiting:
        return None
    number = Counter(work.waits_for for work in waiting.values()).most_common(1)[0][0] or 0
    same = {rank: work for rank, work in waiting.items() if work.waits_for == number}
    name = Counter(work.operation for work in same.values()).most_common(1)[0][0]
    started = {rank: work.enqueued for rank, work in works.items() if work.enqueued is not None and rank not in same}
    behind = {rank: enqueued for rank, enqueued in started.items() if enqueued < number}
    if behind:
        lag, verb = number - min(behind.values()), "is" if len(behind) == 1 else "are"
        count = f"{lag} collective{'s' if lag != 1 else ''}"
        sentence = f"{_names(behind)} {verb} {count} behind ({name} #{number:,}); the others wait for it"
        return Difference(sentence, _names(behind))
    other = {rank: work for rank, work in waiting.items() if work.operation != name or work.waits_for != number}
    if other:
        rank, work = min(other.items())
        sentence = f"rank {rank} waits in {work.operation} #{work.waits_for:,}, the others in {name} #{number:,}"
        return Difference(sentence, f"rank {rank}")
    sizes = {rank: work.elements for rank, work in sorted(same.items()) if work.elements is not None}
    usual = Counter(sizes.values()).most_common(1)[0][0] if sizes else 0
    for rank, elements in sizes.items():
        if elements != usual:
            sentence = f"rank {rank} passes {elements:,} elements to {name} #{number:,}, the others {usual:,}"
            return Difference(sentence, f"rank {rank}")
    members = max(work.members for work in same.values())
    ranks = range(members) if members == len(waiting) + 1 > max(waiting) else ranks  # all but one report
    silent = sorted(set(ranks) - set(waiting))
    if not silent or (len(waiting) < 2 and members != len(silent) + 1):
        return None
    verb = "does" if len(silent) == 1 else "do"
    return Difference(
        f"{_names(silent)} {verb} not report {name} #{number:,}, in which the others wait", _names(silent)
    )


def _names(ranks: Iterable[int]) -> str:
    ordered = sorted(ranks)
    shown = ", ".join(map(str, ordered[:_MAX_NAMED]))
    more = f" and {len(ordered) - _MAX_NAMED} more" if len(ordered) > _MAX_NAMED else ""
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {shown}{more}"
