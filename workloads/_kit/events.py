"""Events: what a workload tells, one JSON line each, on a descriptor of their own.

CUDA, NCCL and the user's own libraries print to stdout and stderr, so nothing that is to be understood goes there.
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


class VerdictKind(str, Enum):
    """How a run ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Verdict:
    """How a run ended, and why, in sentences."""

    kind: VerdictKind
    why: str


@dataclass(frozen=True)
class Figure:
    """One result.

    Attributes:
        name: What was measured, unit apart.
        value: The figure.
        unit: Its unit.
        repetitions: How many measurements stand behind it.
        limit: What it is compared with, in the same unit, or None.
        limit_source: Where the limit comes from. ``pcie`` and ``nvlink`` ask gpumon for what NVML says of the link.
    """

    name: str
    value: float
    unit: str
    repetitions: int
    limit: Optional[float] = None
    limit_source: str = ""


class NotHereError(Exception):
    """The workload cannot run on this device or with this torch; the text says why and what to do."""


class Reporter:
    """Writes events; what nobody reads any more is dropped in silence.

    Args:
        descriptor: Where to write.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._gone = False

    def send(self, event: str, **fields: Any) -> None:
        """Writes one event."""
        said = {"schema": SCHEMA, "event": event, "time_seconds": round(time.time(), 4), **fields}
        self.relay(json.dumps(said, default=str).encode() + b"\n")

    def relay(self, line: bytes) -> None:
        """Writes a line that is an event already."""
        with self._lock:
            while line and not self._gone:
                try:
                    line = line[os.write(self._descriptor, line) :]
                except OSError:
                    self._gone = True
