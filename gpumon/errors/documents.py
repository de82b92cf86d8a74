"""Explanations and catalogue entries as JSON documents, whose names are public."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from gpumon.errors.entry import Fix, KnownError
from gpumon.errors.explanation import Explanation
from gpumon.errors.load import shared_fixes
from gpumon.errors.match import Match
from gpumon.errors.narrative import kind_of
from gpumon.errors.rank import INTERNAL, case_of, fixes_of
from gpumon.errors.reading import LogFailure, NumberedLine

_SCHEMA: Final = 1
_OF_MATCH: Final = ("line", "text", "rank", "count", "is_cause", "is_warning")
_OF_ERROR: Final = ("id", "section", "title", "summary", "is_echo", "empty_cache", "said_by")


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """The known errors of a log, the cause first, and the last unknown one."""
    reading, root = explanation.reading, explanation.root
    return {
        "schema": _SCHEMA,
        "lines": reading.lines,
        "matches": [_match_document(match) for match in explanation.matches],
        "unknown": explanation.unknown and _unknown_document(explanation.unknown),
        "last_lines": _lines(reading.last_lines),
        "answer": asdict(explanation.answer),
        "runs": [
            {"first_line": run.first_line, "last_line": run.last_line, "failed": run.failure is not None}
            for run in reading.runs
        ],
        "ending": root and _failure_document(root.end),
        "chain": list(map(_failure_document, root.chain if root else ())),
        "notices": [
            {"line": notice.line, "title": notice.title, "id": notice.match and notice.match.error.id}
            for notice in reading.notices
        ],
        "confidence": root and root.confidence.value,
    }


def catalogue_document(errors: Iterable[KnownError]) -> dict[str, Any]:
    """Entries of the catalogue."""
    return {"schema": _SCHEMA, "errors": [_error_document(error, fixes_of(error, case_of(error))) for error in errors]}


def _failure_document(failure: LogFailure) -> dict[str, Any]:
    named = {"kind": failure.kind.name.lower(), "line": failure.line, "rank": failure.rank, "text": failure.text}
    return {**named, "exit_code": failure.ended and failure.ended.code}


def _unknown_document(error: LogFailure) -> dict[str, Any]:
    return {
        "name": error.name,
        "text": error.first_text,
        "kind": kind_of(error),
        "line": error.line,
        "rank": error.rank,
        "time": error.timestamp and (error.timestamp.text or None),
        "is_cause": True,
        "frame": error.frame and error.frame._asdict(),
        "around": _lines(error.around),
        "fixes": _fixes(shared_fixes(f"unknown-{kind_of(error)}")),
        "attach": _fixes(shared_fixes("unknown-attachments")),
    }


def _match_document(match: Match) -> dict[str, Any]:
    report = match.oom_report
    return {
        **_error_document(match.error, match.fixes),
        "causes": list(match.causes),
        "context": match.context.value,
        **{name: getattr(match, name) for name in _OF_MATCH},
        "ranks": list(match.ranks),
        "time": match.timestamp and (match.timestamp.text or None),
        "memory_cause": match.memory_cause and match.memory_cause.value,
        "figures": {name: value for name, value in match.values.items() if name not in INTERNAL},
        "evidence": dict(match.evidence),
        **({} if report is None else {"story": list(report.sentences), "stack": list(report.stack)}),
    }


def _error_document(error: KnownError, fixes: Sequence[Fix]) -> dict[str, Any]:
    return {
        **{name: getattr(error, name) for name in _OF_ERROR},
        "context": error.context.value,
        "causes": list(error.causes),
        "fixes": _fixes(fixes),
        "see_more": _fixes(error.see_more),
        "sources": list(error.sources),
    }


def _lines(lines: Iterable[NumberedLine]) -> list[dict[str, Any]]:
    return [{"line": line.number, "text": line.text} for line in lines]


def _fixes(fixes: Iterable[Fix]) -> list[dict[str, str]]:
    return [{"text": fix.text, "code": fix.code} for fix in fixes]
