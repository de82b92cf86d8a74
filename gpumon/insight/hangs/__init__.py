"""Whether a distributed job hangs, which rank is the reason, and where it stands.

Every source is one vote: the flight recorders say who has entered which collective, the stacks where the main threads
stand, ``/proc`` whether a process runs, sleeps, is stopped or is gone. No module here reads anything.
"""

from gpumon.insight.hangs.hang_verdict import (
    BUSY_FACTOR,
    MAKES_PROGRESS,
    MIN_COUNTED_SECONDS,
    MIN_SECONDS,
    STEPS,
    judge_hang,
)
from gpumon.insight.hangs.standing import description, is_working, kind_of, line_of, standing_of
from gpumon.insight.hangs.stragglers import lateness

__all__ = [
    "BUSY_FACTOR", "MAKES_PROGRESS", "MIN_COUNTED_SECONDS", "MIN_SECONDS", "STEPS", "description", "is_working",
    "judge_hang", "kind_of", "lateness", "line_of", "standing_of",
]  # fmt: skip
