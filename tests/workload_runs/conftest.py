"""Test workloads, run as real children with a stand-in for torch, and followed to their end."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import pytest

from gpumon.workload_runs.catalogue import RunRequest, WorkloadInfo
from gpumon.workload_runs.parameters import Value
from gpumon.workload_runs.protocol import RunEvent, RunEventKind
from gpumon.workload_runs.state import RunResult, RunState
from gpumon.workload_runs.supervised_run import RunArrival, RunEnded, SupervisedRun

PATIENCE = 20.0
"""Seconds that anything may take here; what is tested takes far less."""

TORCH = """
__version__ = "2.9.0+cpu"

class version:
    cuda = None

class device:
    def __init__(self, text):
        self.type = text.partition(":")[0]
"""
"""As much of torch as a workload on the CPU is given."""

NO_TORCH = "raise ImportError('No module named torch')\n"

FINE = """
context.checked += 1
context.result("speed", 3.0, "GB/s", 1)
return context.ok("All is well.")
"""

_FILE = """
import ctypes, os, signal, subprocess, sys, time
from _kit import UnsupportedError, Uses, Workload
{top}

def run(context):
{body}

WORKLOAD = Workload("toy", "A toy.", "nothing", lambda context: {uses}, run, parts={parts}, why_not_cpu={why!r})
"""


def workload_file(
    path: Path, body: str = FINE, *, top: str = "", uses: str = "Uses(0, 1.0)", parts: str = "{}", why: str = ""
) -> Path:
    """Writes a workload whose ``run`` has ``body``."""
    path.write_text(_FILE.format(top=top, body=indent(body.strip(), "    "), uses=uses, parts=parts, why=why))
    return path


class Play:
    """A job that is followed as a front end follows one.

    Args:
        request: What to run.
        leave: Whether the start is confirmed as soon as the workload waits for the confirmation.
    """

    def __init__(self, request: RunRequest, *, leave: bool = True) -> None:
        self.child = SupervisedRun(request)
        self.state = RunState(request)
        self.arrivals: list[RunArrival] = []
        self._leave = leave

    def take(self) -> None:
        """Takes in what has arrived."""
        for arrival in self.child.inbox.drain():
            self.arrivals.append(arrival)
            self.state.apply(arrival)
        if self._leave and self.state.awaits_confirmation:
            self.allow()

    def allow(self) -> None:
        """Confirm the start."""
        self.child.allow()
        self.state.record_start(time.time())

    def follow(self, until: Callable[[], object]) -> None:
        """Takes in what arrives until something is true."""
        deadline = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < deadline, (
                f"waited for too long; {self.arrivals[-3:]}, {list(self.child.log)[-3:]}"
            )
            self.child.inbox.arrived.wait(0.02)
            self.take()

    def to_step(self, text: str) -> None:
        """Follow the run until the workload reports a step."""
        self.follow(lambda: text in [step for _, step in self.state.steps])

    def to_end(self) -> RunEnded:
        """Follows it to its end."""
        self.follow(lambda: self.state.end is not None)
        assert self.child.wait(PATIENCE)
        self.take()
        assert self.state.end is not None
        return self.state.end

    @property
    def result(self) -> RunResult:
        """Its result."""
        assert self.state.result is not None
        return self.state.result

    def of(self, kind: RunEventKind) -> list[RunEvent]:
        """The events of a kind."""
        return [arrival for arrival in self.arrivals if isinstance(arrival, RunEvent) and arrival.kind is kind]


@dataclass
class Stage:
    """Where plays are put on.

    Attributes:
        folder: A folder of the test's own.
        plays: All that were started.
    """

    folder: Path
    plays: list[Play]

    def torch(self, source: str = TORCH) -> Path:
        """A folder with a stand-in for torch."""
        folder = self.folder / f"torch-{abs(hash(source))}"
        (folder / "torch").mkdir(parents=True, exist_ok=True)
        (folder / "torch" / "__init__.py").write_text(source)
        return folder

    def request(
        self,
        body: str = FINE,
        *,
        torch: str = TORCH,
        device: str = "cpu",
        parameters: Mapping[str, Value] | None = None,
        environment: Mapping[str, str] | None = None,
        limit_seconds: float | None = None,
        python: Path | None = None,
        **file: str,
    ) -> RunRequest:
        """A request for a workload whose ``run`` has ``body``."""
        path = workload_file(self.folder / f"toy{len(self.plays)}.py", body, **file)
        return RunRequest(
            WorkloadInfo("toy", path, "A toy.", "nothing", "", ()),
            device,
            parameters or {},
            python or Path(sys.executable),
            {"PYTHONPATH": str(self.torch(torch)), "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
            limit_seconds,
        )

    def play(self, request: RunRequest, *, leave: bool = True) -> Play:
        """Starts a job."""
        play = Play(request, leave=leave)
        self.plays.append(play)
        play.child.start()
        return play


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Plays on it are ended with the test."""
    stage = Stage(tmp_path, [])
    yield stage
    for play in stage.plays:
        play.child.cancel()
    for play in stage.plays:
        assert play.child.wait(PATIENCE)
