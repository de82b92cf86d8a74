"""The document of ``gpumon hang --json``."""

from collections.abc import Mapping
from typing import Any, Final

from gpumon.core.ranks import RankEvidence
from gpumon.insight.hangs import line_of
from gpumon.operations.hang_files.report import HangReport
from gpumon.operations.training_jobs.document import collective_document, verdict_document
from gpumon.operations.training_jobs.host_report import last_collective

_SCHEMA: Final = 1


def hang_document(report: HangReport) -> Mapping[str, Any]:
    """The verdict, and what is known of each rank."""
    return {
        "schema": _SCHEMA,
        "verdict": verdict_document(report.verdict),
        "last_progress_time_seconds": report.last_progress_seconds,
        "ranks": [_rank(rank) for rank in report.ranks],
        "ranks_missing": list(report.missing),
        "files": dict(report.counts),
        "problems": list(report.problems),
    }


def _rank(rank: RankEvidence) -> Mapping[str, Any]:
    collective = last_collective(rank.recording)
    return {
        "rank": rank.rank,
        "exited": rank.exited,
        "exit_status": rank.exit_status,
        "line": line_of(rank) or None,
        "last_collective": None if collective is None else collective_document(collective),
    }
