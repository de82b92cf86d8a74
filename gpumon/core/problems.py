"""Why a value is missing, or why nothing can be shown at all.

A missing value is ``None`` together with a `Problem`; it is never zero and never a piece of text in the value's place.
Beside a value there is a problem only if the value is not of this moment: `STALE`.
"""

from dataclasses import dataclass
from enum import Enum


class ProblemCode(str, Enum):
    """Stable, public names; they stand in ``--json`` and in recordings."""

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
    """One cause in one sentence, and one remedy where there is one."""

    code: ProblemCode
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason} {self.remedy}".strip()
