"""Explanations and catalogue entries as JSON documents, whose names are public."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from gpumon.errors.answer import LogAnswer
from gpumon.errors.entry import Fix, KnownError
from gpumon.errors.explanation import Explanation
from gpumon.errors.match import Match
from gpumon.errors.prefixes import Timestamp
from gpumon.errors.rank import case_of, fixes_of
from gpumon.errors.reading import LogFailure, NumberedLine
from gpumon.errors.unknown import attachments, kind_of, next_steps

_SCHEMA: Final = 1


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """The known errors of a log, the cause first, and the last unknown one."""
    unknown = explanation.unknown
    return {
        "schema": _SCHEMA,
        "lines": explanation.lines,
        "matches": [_match_document(match) for match in explanation.matches],
        "unknown": None if unknown is None else _unknown_document(unknown, is_cause=explanation.cause is None),
        "last_lines": [_line_document(line) for line in explanation.last_lines],
        "answer": _answer_document(explanation.answer),
        **_reading_document(explanation),
    }


def _answer_document(answer: LogAnswer) -> dict[str, Any]:
    return asdict(answer)


def _reading_document(explanation: Explanation) -> dict[str, Any]:
    """How the log ended, and why; empty for the report of a probe."""
    reading, root = explanation.reading, explanation.root
    if reading is None:
        return {}
    return {
        "runs": [
            {"first_line": run.first_line, "last_line": run.last_line, "failed": run.failure is not None}
            for run in reading.runs
        ],
        "ending": None if root is None else _failure_document(root.end),
        "chain": [] if root is None else [_failure_document(failure) for failure in root.chain],
        "notices": [
            {"line": notice.line, "title": notice.title, "id": notice.match.error.id if notice.match else None}
            for notice in reading.notices
        ],
        "confidence": None if root is None else root.confidence.value,
    }


def _failure_document(failure: LogFailure) -> dict[str, Any]:
    return {
        "kind": failure.kind.name.lower(),
        "line": failure.line,
        "rank": failure.rank,
        "text": failure.text,
        "exit_code": None if failure.ended is None else failure.ended.code,
    }


def catalogue_document(errors: Iterable[KnownError]) -> dict[str, Any]:
    """Entries of the catalogue."""
    return {"schema": _SCHEMA, "errors": [_error_document(error, fixes_of(error, case_of(error))) for error in errors]}


def _unknown_document(error: LogFailure, *, is_cause: bool) -> dict[str, Any]:
    frame = error.frame
    return {
        "name": error.name,
        "text": error.first_text,
        "kind": kind_of(error).value,
        "line": error.line,
        "rank": error.rank,
        "time": _time(error.timestamp),
        "is_cause": is_cause,
        "frame": None if frame is None else frame._asdict(),
        "around": [_line_document(line) for line in error.around],
        "fixes": _fix_documents(next_steps(error)),
        "attach": _fix_documents(attachments()),
    }


def _time(timestamp: Timestamp | None) -> str | None:
    """When a line was written, if the line itself has a time."""
    return None if timestamp is None or not timestamp.text else timestamp.text


def _line_document(line: NumberedLine) -> dict[str, Any]:
    return {"line": line.number, "text": line.text}


def _match_document(match: Match) -> dict[str, Any]:
    cause, report = match.memory_cause, match.oom_report
    return {
        **_error_document(match.error, match.fixes),
        "causes": list(match.causes),
        "context": match.context.value,
        "line": match.line,
        "text": match.text,
        "rank": match.rank,
        "ranks": list(match.ranks),
        "count": match.count,
        "time": _time(match.timestamp),
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
        "said_by": error.said_by,
    }


def _fix_documents(fixes: Iterable[Fix]) -> list[dict[str, str]]:
    return [{"text": fix.text, "code": fix.code} for fix in fixes]
