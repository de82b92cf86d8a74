"""Problems in documents: in full next to each record, or once per frame for all records that share them.

In full, a record has its ``problems`` by field name. In the line of a frame the same few sentences would be repeated
hundreds of times, so a frame has a table ``reasons`` instead. Each entry lists the ``fields`` that the reason explains.
The ``missing`` list of a record contains the positions in the table that apply to the record, and the fields that the
record lacks are omitted.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from gpumon.core.groups import grouped
from gpumon.core.json_fields import TEXT_LIMIT, Json, as_object, as_text, as_tuple
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

_NAME_LIMIT: Final = 64
_MAX_FIELDS: Final = 128
"""No record lacks more fields than this; bounds the memory that a short line with many repeated positions can take."""


def with_problems(record: Json, problems: Mapping[str, Problem]) -> Json:
    """Add the problems of a record to its document, in full."""
    record["problems"] = {subject: _document(problem) for subject, problem in problems.items()}
    return record


class ProblemTableWriter:
    """Collects the problems of one frame while the frame is encoded."""

    def __init__(self) -> None:
        self._positions: dict[tuple[Problem, tuple[str, ...]], int] = {}
        self._known: dict[tuple[int | str, ...], int] = {}
        """The same by the identity of the problem, whose hash takes long; the frame keeps its problems alive."""

    def add(self, record: Json, problems: Mapping[str, Problem]) -> Json:
        """Return the record without the fields that it lacks, and with the positions of their problems."""
        if not problems:
            return record
        kept = {field: value for field, value in record.items() if value is not None or field not in problems}
        fields = grouped((id(problem), subject) for subject, problem in problems.items())
        kept["missing"] = [self._position(identity, names, problems) for identity, names in fields.items()]
        return kept

    def _position(self, identity: int, names: list[str], problems: Mapping[str, Problem]) -> int:
        known: tuple[int | str, ...] = (identity, *names)
        if known not in self._known:
            key = (problems[names[0]], tuple(names))
            self._known[known] = self._positions.setdefault(key, len(self._positions))
        return self._known[known]

    def document(self) -> list[Json]:
        """The table."""
        return [{**_document(problem), "fields": list(fields)} for problem, fields in self._positions]


class ProblemTableReader:
    """The problems in the document of a frame.

    Args:
        raw: The table; None for a document in which every record has its problems in full.
    """

    def __init__(self, raw: object) -> None:
        self._groups = () if raw is None else as_tuple(raw, _group)
        self._merged: dict[tuple[int, ...], Mapping[str, Problem]] = {}

    def problems_of(self, record: Json) -> Mapping[str, Problem]:
        """The problems of a record, by field; the same mapping object for all records that lack the same fields.

        Raises:
            ValueError: The record refers to a position that the table does not have.
        """
        problems = parse_problems(record)
        positions = record.get("missing")
        if not positions:
            return problems
        shared = self._at(tuple(positions))
        return {**shared, **problems} if problems else shared

    def _at(self, positions: tuple[int, ...]) -> Mapping[str, Problem]:
        merged = self._merged.get(positions)
        if merged is None:
            problems: dict[str, Problem] = {}
            for position in positions:
                if type(position) is not int or not 0 <= position < len(self._groups):
                    raise ValueError(f"there is no reason {position!r:.40}")
                problems |= self._groups[position]
                if len(problems) > _MAX_FIELDS:
                    raise ValueError("too many fields are missing")
            merged = self._merged[positions] = problems
        return merged


def parse_problems(record: Json) -> dict[str, Problem]:
    """The problems that a record contains in full, by field."""
    raw = record.get("problems")
    if not raw:
        return {}
    return {
        safe_text(subject, _NAME_LIMIT): _parse_problem(as_object(problem))
        for subject, problem in as_object(raw).items()
    }


def _document(problem: Problem) -> Json:
    document = {"code": problem.code.value, "reason": problem.reason}
    return document | {"remedy": problem.remedy} if problem.remedy else document


def _group(raw: Json) -> dict[str, Problem]:
    problem = _parse_problem(raw)
    return {safe_text(field, _NAME_LIMIT): problem for field in raw["fields"]}


def _parse_problem(raw: Json) -> Problem:
    code, reason, remedy = raw.get("code"), raw.get("reason"), raw.get("remedy")
    if type(code) is type(reason) is str and remedy is None and len(code) + len(reason) <= TEXT_LIMIT:
        return _cached_problem(code, reason)
    return _problem(code, as_text(reason), as_text(remedy))


@lru_cache(maxsize=1024)
def _cached_problem(code: str, reason: str) -> Problem:
    """Every frame contains the same few problems hundreds of times; only texts of limited length are cached."""
    return _problem(code, as_text(reason), None)


def _problem(raw_code: object, reason: str | None, remedy: str | None) -> Problem:
    try:
        code = ProblemCode(raw_code)
    except ValueError:
        code = ProblemCode.UNKNOWN
    return Problem(code, reason or code.value, remedy or "")
