"""Why values are missing, in documents: told in full beside each, or once a frame for all that lack the same.

In full, a record has its ``problems`` by name. A frame's line would then be the same few sentences over and over, so
the frame has a table ``reasons``, each with the ``fields`` that it is the reason of. A record's ``missing`` are the
places in the table that hold for it, and the fields that it lacks are left out.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from gpumon.core.checks import TEXT_LIMIT, Json, as_object, as_text, as_tuple
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

_NAME_LIMIT: Final = 64
_MOST_FIELDS: Final = 128
"""A record lacks no more than this: what a short line names over and over must not fill the memory."""


def in_full(record: Json, problems: Mapping[str, Problem]) -> Json:
    """The record with its problems beside it."""
    record["problems"] = {subject: _document(problem) for subject, problem in problems.items()}
    return record


class ReasonTable:
    """The reasons of one frame, while it is made into a line."""

    def __init__(self) -> None:
        self._places: dict[tuple[Problem, tuple[str, ...]], int] = {}

    def refer(self, record: Json, problems: Mapping[str, Problem]) -> Json:
        """The record without the fields that it lacks, and with the places of their reasons."""
        if not problems:
            return record
        kept = {field: value for field, value in record.items() if value is not None or field not in problems}
        fields: dict[int, list[str]] = {}
        by_identity = {id(problem): problem for problem in problems.values()}
        for subject, problem in problems.items():
            fields.setdefault(id(problem), []).append(subject)
        kept["missing"] = [
            self._places.setdefault((by_identity[identity], tuple(names)), len(self._places))
            for identity, names in fields.items()
        ]
        return kept

    def document(self) -> list[Json]:
        """The table."""
        return [{**_document(problem), "fields": list(fields)} for problem, fields in self._places]


class ToldReasons:
    """The reasons that a frame's document tells.

    Args:
        raw: Its table; there is none in a document that tells everything in full.
    """

    def __init__(self, raw: object) -> None:
        self._groups = () if raw is None else as_tuple(raw, _group)
        self._merged: dict[tuple[int, ...], Mapping[str, Problem]] = {}

    def of(self, record: Json) -> Mapping[str, Problem]:
        """Why a record lacks what it lacks, by name; the same mapping for all that lack the same."""
        problems = problems_of(record)
        places = record.get("missing")
        if not places:
            return problems
        found = self._of_places(tuple(places))
        return {**found, **problems} if problems else found

    def _of_places(self, places: tuple[int, ...]) -> Mapping[str, Problem]:
        found = self._merged.get(places)
        if found is None:
            made: dict[str, Problem] = {}
            for place in places:
                if type(place) is not int or not 0 <= place < len(self._groups):
                    raise ValueError(f"there is no reason {place!r:.40}")
                made |= self._groups[place]
                if len(made) > _MOST_FIELDS:
                    raise ValueError("too much is missing")
            found = self._merged[places] = made
        return found


def problems_of(record: Json) -> dict[str, Problem]:
    """The problems that stand in full beside a record."""
    raw = record.get("problems")
    if not raw:
        return {}
    return {safe_text(subject, _NAME_LIMIT): _problem(as_object(each)) for subject, each in as_object(raw).items()}


def _document(problem: Problem) -> Json:
    document = {"code": problem.code.value, "reason": problem.reason}
    return document | {"remedy": problem.remedy} if problem.remedy else document


def _group(raw: Json) -> dict[str, Problem]:
    problem = _problem(raw)
    return {safe_text(field, _NAME_LIMIT): problem for field in raw["fields"]}


def _problem(raw: Json) -> Problem:
    code, reason, remedy = raw.get("code"), raw.get("reason"), raw.get("remedy")
    if type(code) is type(reason) is str and remedy is None and len(code) + len(reason) <= TEXT_LIMIT:
        return _usual_problem(code, reason)
    return _made_problem(code, as_text(reason), as_text(remedy))


@lru_cache(maxsize=1024)
def _usual_problem(code: str, reason: str) -> Problem:
    """The same few problems stand in every frame, hundreds of times; foreign text of any length is not kept."""
    return _made_problem(code, as_text(reason), None)


def _made_problem(raw_code: object, reason: str | None, remedy: str | None) -> Problem:
    try:
        code = ProblemCode(raw_code)
    except ValueError:
        code = ProblemCode.UNKNOWN
    return Problem(code, reason or code.value, remedy or "")
