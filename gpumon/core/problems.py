"""Why a value is missing, why nothing can be shown, and how a command ends without a result.

A missing value is ``None`` together with a `Problem`; it is never zero and never a text in the value's place. A value
that is present has a problem only if the value is not current: `STALE`.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

SIGNAL_BASE: Final = 128
"""A command ended by signal n exits with this plus n."""


class ProblemCode(str, Enum):
    """Stable, public names; they appear in ``--json`` and in recordings."""

    NOT_SUPPORTED = "not_supported"
    NO_PERMISSION = "no_permission"
    NOT_FOUND = "not_found"
    DRIVER_TOO_OLD = "driver_too_old"
    INVALID_VALUE = "invalid_value"
    NOT_READ = "not_read"
    STALE = "stale"
    MEMORY_SHARED = "memory_shared"
    DROPPED = "dropped"
    GPU_LOST = "gpu_lost"
    UNRESPONSIVE = "unresponsive"
    PROCESS_NOT_VISIBLE = "process_not_visible"
    LIBRARY_NOT_FOUND = "library_not_found"
    LIBRARY_MISMATCH = "library_mismatch"
    DRIVER_NOT_LOADED = "driver_not_loaded"
    DRIVER_RESTARTED = "driver_restarted"
    CONTAINER_LOST_GPU = "container_lost_gpu"
    NO_DEVICES = "no_devices"
    NO_TORCH = "no_torch"
    NOT_WRITTEN = "not_written"
    COLLECTOR_DIED = "collector_died"
    COLLECTOR_SILENT = "collector_silent"
    COLLECTOR_LEFT_BEHIND = "collector_left_behind"
    STREAM_ENDED = "stream_ended"
    NEWER_SCHEMA = "newer_schema"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Problem:
    """One cause in one sentence, and one remedy if there is one."""

    code: ProblemCode
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason} {self.remedy}".strip()


class ExitCode(IntEnum):
    """Stable, public exit codes of the command line."""

    OK = 0
    """The command succeeded; warnings are allowed."""
    BAD_VERDICT = 1
    """The command ran, and its verdict is bad."""
    USAGE = 2
    """The arguments make no sense, or the input cannot be read."""
    MISSING_PREREQUISITE = 3
    """A prerequisite is missing: no driver, no GPU, no torch."""
    UNDECIDED = 4
    """A comparison shows neither that a condition holds nor that it does not."""


class CommandError(Exception):
    """Ends a command with a cause, a remedy and an exit code."""

    def __init__(self, problem: Problem, exit_code: ExitCode) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.exit_code = exit_code

    @classmethod
    def missing(cls, code: ProblemCode, reason: str, remedy: str = "") -> "CommandError":
        """A command lacks a prerequisite."""
        return cls(Problem(code, reason, remedy), ExitCode.MISSING_PREREQUISITE)

    @classmethod
    def usage(cls, code: ProblemCode, reason: str, remedy: str = "") -> "CommandError":
        """A command cannot do what its arguments say."""
        return cls(Problem(code, reason, remedy), ExitCode.USAGE)

    @classmethod
    def failure(cls, code: ProblemCode, reason: str, remedy: str = "") -> "CommandError":
        """A command has run, and its result is bad."""
        return cls(Problem(code, reason, remedy), ExitCode.BAD_VERDICT)
