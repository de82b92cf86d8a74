"""The parent's side of the process that reads Prometheus."""

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Final

from gpumon.core.json_text import json_bytes
from gpumon.core.problems import Problem, ProblemCode
from gpumon.fleet.codec import SnapshotDecoder
from gpumon.fleet.model import FleetError, FleetSnapshot
from gpumon.fleet.settings import FleetSettings

READER: Final = Path(__file__).with_name("__main__.py")
_RESTART_SECONDS: Final = 5.0
_END_SECONDS: Final = 1.0
_DIED: Final = Problem(
    ProblemCode.COLLECTOR_DIED, "The process that reads Prometheus has ended.", "A new one starts in a moment."
)


class FleetPoller:
    """Keeps the newest snapshot, and why there is no newer one.

    Args:
        settings: What is read.

    Attributes:
        snapshot: The newest snapshot, or None before the first.
        problem: Why the last query failed; None after one that succeeded.
    """

    def __init__(self, settings: FleetSettings) -> None:
        self.snapshot: FleetSnapshot | None = None
        self.problem: Problem | None = None
        self._settings = json_bytes(asdict(settings))
        self._ring: Callable[[], None] = lambda: None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpumon-fleet", daemon=True)

    def on_change(self, ring: Callable[[], None]) -> None:
        """Set what is called, in another thread, after every query."""
        self._ring = ring

    def start(self) -> None:
        """Start the process."""
        self._thread.start()

    def refresh(self) -> None:
        """Query now."""
        with self._lock:
            process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):
                process.stdin.write(b"\n")
                process.stdin.flush()

    def close(self) -> None:
        """End the process."""
        self._closing.set()
        with self._lock:
            process = self._process
        if process is not None:
            process.terminate()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._read()
            except (OSError, ValueError, KeyError, TypeError) as error:
                self.problem = Problem(ProblemCode.COLLECTOR_DIED, f"Prometheus cannot be read: {error}.")
            if not self._closing.is_set():
                self.problem = self.problem or _DIED
                self._ring()
                self._closing.wait(_RESTART_SECONDS)

    def _read(self) -> None:
        """Read one process until it ends."""
        process = subprocess.Popen(
            [sys.executable, str(READER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with self._lock:
            self._process = process
        try:
            if self._closing.is_set():
                return
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(self._settings)
            process.stdin.flush()
            self._read_lines(process.stdout)
        finally:
            with self._lock:
                self._process = None
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _read_lines(self, output: IO[bytes]) -> None:
        decoder = SnapshotDecoder()
        for line in output:
            try:
                self.snapshot = decoder.decode(line)
                self.problem = None
            except FleetError as error:
                self.problem = error.problem
            self._ring()
