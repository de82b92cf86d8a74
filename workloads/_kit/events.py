"""Events of a workload: JSON lines on a separate file descriptor.

CUDA, NCCL and user libraries print to stdout and stderr, so machine-readable output never goes there.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass
from enum import Enum
from typing import Any, Optional

SCHEMA = 1


class Outcome(str, Enum):
    """The outcome of a run."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run with the reason, in sentences."""

    kind: Outcome
    why: str


@dataclass(frozen=True)
class Result:
    """One measured value.

    Attributes:
        name: Name of the measurement, without the unit.
        value: The value.
        unit: Its unit.
        repetitions: Number of measurements behind the value.
        limit: The limit that the value is compared with, in the same unit, or None.
        limit_source: Where the limit comes from. For ``pcie`` and ``nvlink``, gpumon fills in the limit from NVML.
        case: What the value was measured for, such as ``bf16`` or ``batch 64``; empty if the workload has one case. All
            results of a case are one row of a table.
        position: The case as a number, such as 64, if the cases are points of a sweep; otherwise None.
    """

    name: str
    value: float
    unit: str
    repetitions: int
    limit: Optional[float] = None
    limit_source: str = ""
    case: str = ""
    position: Optional[float] = None


class UnsupportedError(Exception):
    """The workload cannot run on this device or with this torch; the text gives the reason and the fix."""


class Reporter:
    """Writes events; drops them silently once the reader is gone.

    Args:
        descriptor: File descriptor to write to.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._is_closed = False

    def send(self, event: str, **fields: Any) -> None:
        """Writes one event."""
        document = {"schema": SCHEMA, "event": event, "time_seconds": round(time.time(), 4), **fields}
        self.relay(json.dumps(document, default=str).encode() + b"\n")

    def relay(self, line: bytes) -> None:
        """Writes a line that is already an encoded event."""
        with self._lock:
            while line and not self._is_closed:
                try:
                    line = line[os.write(self._descriptor, line) :]
                except OSError:  # the reader is gone
                    self._is_closed = True

    def close(self) -> None:
        """Drops every later event, such as one of the memory thread after the last event of the run."""
        with self._lock:
            self._is_closed = True
