"""What was found, and the catalogue, as JSON documents; their names are public."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gpumon.diagnosis.explanation import Explanation, Match
from gpumon.diagnosis.known import Fix, KnownError

_SCHEMA: Final = 1


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """The matches, the first cause first."""
    return {
        "schema": _SCHEMA,
        "lines": explanation.lines,
        "matches": [_match_document(match) for match in explanation.matches],
    }


def catalogue_document(errors: Iterable[KnownError]) -> dict[str, Any]:
    """Entries of the catalogue."""
    return {"schema": _SCHEMA, "errors": [_error_document(error, error.fixes) for error in errors]}


def _match_document(match: Match) -> dict[str, Any]:
    cause = match.memory_cause
    return {
        **_error_document(match.error, match.fixes),
        "line": match.line,
        "text": match.text,
        "rank": match.rank,
        "ranks": list(match.ranks),
        "count": match.count,
        "time": None if match.moment is None else match.moment.text,
        "is_cause": match.is_cause,
        "is_warning": match.is_warning,
        "memory_cause": None if cause is None else cause.value,
        "figures": dict(match.figures),
        "evidence": dict(match.evidence),
        **({} if match.story is None else {"story": list(match.story.sentences), "stack": list(match.story.stack)}),
    }


def _error_document(error: KnownError, fixes: Sequence[Fix]) -> dict[str, Any]:
    return {
        "id": error.id,
        "section": error.section,
        "title": error.title,
        "summary": error.summary,
        "context": error.context.value,
        "is_echo": error.is_echo,
        "causes": list(error.causes),
        "fixes": _fix_documents(fixes),
        "empty_cache": error.empty_cache,
        "see_more": _fix_documents(error.see_more),
        "sources": list(error.sources),
    }


def _fix_documents(fixes: Iterable[Fix]) -> list[dict[str, str]]:
    return [{"text": fix.text, "code": fix.code} for fix in fixes]
