"""Whether a distributed job hangs, which rank is the reason, and where it stands.

Every source is one vote: the flight recorders say who has entered which collective, the stacks where the main threads
stand, ``/proc`` whether a process runs, sleeps, is stopped or is gone. No module here reads anything.
"""

from gpumon.diagnosis.hangs.standing import is_working, line_of
from gpumon.diagnosis.hangs.verdict import BUSY_FACTOR, MIN_SECONDS, STEPS, judge_hang

__all__ = ["BUSY_FACTOR", "MIN_SECONDS", "STEPS", "is_working", "judge_hang", "line_of"]
