"""Explanations and catalogue entries as JSON documents, whose names are public."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gpumon.diagnosis.explanation import Explanation, Match
from gpumon.diagnosis.known import Fix, KnownError

_SCHEMA: Final = 1


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """The known errors of a log, the cause first."""
    return {
        "schema": _SCHEMA,
        "lines": explanation.lines,
        "matches": [_match_document(match) for match in explanation.matches],
    }


def catalogue_document(errors: Iterable[KnownError]) -> dict[str, Any]:
    """Entries of the catalogue."""
    return {"schema": _SCHEMA, "errors": [_error_document(error, error.fixes) for error in errors]}


def _match_document(match: Match) -> dict[str, Any]:
    cause, report = match.memory_cause, match.oom_report
    return {
        **_error_document(match.error, match.fixes),
        "line": match.line,
        "text": match.text,
        "rank": match.rank,
        "ranks": list(match.ranks),
        "count": match.count,
        "time": None if match.timestamp is None else match.timestamp.text,
        "is_cause": match.is_cause,
        "is_warning": match.is_warning,
        "memory_cause": None if cause is None else cause.value,
        "figures": dict(match.values),
        "evidence": dict(match.evidence),
        **({} if report is None else {"story": list(report.sentences), "stack": list(report.stack)}),
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
