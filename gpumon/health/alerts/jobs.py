"""The alert about a training job that hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpumon.core.text import safe_text
from gpumon.health.alerts.model import AlertFinding, Severity

if TYPE_CHECKING:
    from gpumon.core.ranks import HangVerdict

JOB_HANGS: Final = "job_hangs"
"""Id of the alert."""
JOB_HANGS_LABEL: Final = "Training job hangs"


def hang_finding(job: str, subject: str, verdict: HangVerdict) -> AlertFinding:
    """What is reported of a job that hangs."""
    action = "Ranks and evidence: screen Jobs, or gpumon jobs. For a bug report: S there, or gpumon jobs --dump FOLDER."
    return AlertFinding(
        JOB_HANGS,
        Severity.CRITICAL,
        safe_text(f"{job} hangs: {verdict.summary}"),
        action,
        subject=subject,
        age_seconds=verdict.since_seconds or 0.0,
    )
