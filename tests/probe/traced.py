"""Runs `tests.probe.traced_training` under `gpumon watch`, and traces it."""

import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from gpumon.operations.recorded_file import RecordedTrace, connected_watcher, record_traces
from tests.probe import traced_training
from tests.workloads.conftest import TORCH_PYTHON

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 90.0
WORST_SECONDS = 0.3
"""torch.profiler, started on a thread, stalls such a program for 0.5 s."""
OUTPUT_OF_GPUMON = re.compile(
    r"(?i)kineto|cupti|probe_agent|External init|Exception ignored|Segmentation|terminate called"
)
HEADING = (
    f"\n{'':<26}{'median step, ms':^24}{'worst steps, ms':^44}{'took':>6}\n"
    f"{'case':<26}{'before':>8}{'during':>8}{'after':>8}{'before':>10}  {'during (with start and file)':<24}"
    f"{'after':>8}{'s':>6}"
)


class Row(NamedTuple):
    """A line of the table, in milliseconds.

    Attributes:
        medians: The median step before, during and after traces.
        before: The longest step before them.
        during: The longest step from a request to half a second after its file.
        after: The longest step after them.
    """

    medians: list[float]
    before: float
    during: float
    after: float

    def check(self) -> None:
        """Check that the step time is back, and that no step took too long; the host has to be quiet."""
        assert self.medians[2] < 1.25 * self.medians[0] + 0.3, "the step time is not back"
        assert self.during < 1000.0 * WORST_SECONDS + max(self.before, self.after)


class Training:
    """A training run with the probe.

    Args:
        kind: What to train, as in `traced_training`.
        folder: Its folder.
        ranks: Number of processes, each on its own GPU.
        rest_seconds: Undisturbed time before and after traces, which the table compares.
    """

    def __init__(self, kind: str, folder: Path, ranks: int = 1, rest_seconds: float = 3.0) -> None:
        self.kind = kind
        self.folder = folder
        self.pids: list[int] = []
        self.windows: list[tuple[float, float]] = []
        self.stderr = ""
        self.rest_seconds = rest_seconds
        self._ranks = ranks
        python = TORCH_PYTHON or sys.executable
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
        script = [str(Path(traced_training.__file__)), kind, str(folder)]
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(ranks)))
        own = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": ",".join(visible.split(",")[:ranks]),
            "GPUMON_PROBE_DEBUG": str(folder / "complaints"),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "2",
        }
        self._errors = (folder / "stderr").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpumon", "watch", "--", python, *launcher, *script],
            env=own,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
        )

    def wait_ready(self) -> None:
        """Wait until the steps of all ranks are regular."""
        for rank in range(self._ranks):
            self.wait_for(lambda rank=rank: (self.folder / f"ready-{rank}").exists())  # type: ignore[misc]
            self.pids.append(int((self.folder / f"ready-{rank}").read_text()))

    def wait_for(self, is_so: Callable[[], object]) -> None:
        """Wait until a condition holds; fail with the output of the program if it ends."""
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert self.process.poll() is None, f"the program ended: {self._read_errors()}"
            assert time.monotonic() < deadline, f"nothing happened in {PATIENCE} s: {self._read_errors()}"
            time.sleep(0.05)

    def trace(self, milliseconds: int = 500) -> tuple[RecordedTrace, ...]:
        """Record all ranks, after some undisturbed time."""
        time.sleep(self.rest_seconds)
        with connected_watcher(self.pids) as watcher:
            start = time.time()
            traces = record_traces(watcher, self.pids, milliseconds)
            self.windows.append((start, time.time()))
        for trace in traces:
            print(f"\n{self.kind}: {trace.problem or trace.size_bytes} {trace.notes} {self.complaints()}", end="")
            if trace.problem is not None:  # what a reader of the log needs to find out why
                print(f"\n  {sorted(map(str, (self.folder / 'p').rglob('*')))} {threads(trace.pid)}", end="")
        return traces

    def end(self, *, has_own_profile: bool = False) -> dict[str, Any]:
        """Let the program end as it would without gpumon; return what it has written.

        Args:
            has_own_profile: Whether it used torch.profiler, so that Kineto may print something for it.
        """
        if self.windows:
            time.sleep(self.rest_seconds)
        (self.folder / "stop").touch()
        code = self.process.wait(60)
        self.stderr = self._read_errors()
        assert code == 0, f"exit code {code}: {self.stderr}"
        print(f"\n  stderr of the program: {self.stderr[-2000:]!r}", end="")
        assert has_own_profile or not OUTPUT_OF_GPUMON.search(self.stderr), self.stderr
        document: dict[str, Any] = json.loads((self.folder / "steps-0").read_text())
        facts = document["facts"]
        assert facts["python_environment"] == []
        assert set(facts["c_environment"]) <= {"KINETO_IPC_SOCKET_DIR"}, facts["c_environment"]
        assert not list((self.folder / "p").glob("kineto-*")), "the folder of the client's sockets is removed"
        return document

    def complaints(self) -> str:
        """The exceptions in the probe, except those of clients that disconnect."""
        path = self.folder / "complaints"
        lines = path.read_text().splitlines() if path.exists() else []
        return "; ".join(line for line in lines if "Error:" in line and "closed the connection" not in line)

    def print_row(self, document: dict[str, Any], label: str = "") -> "Row":
        """Print its line of the table, and return it."""
        steps = [(end, 1000.0 * seconds) for end, seconds in document["steps"]]
        first, last = self.windows[0][0], self.windows[-1][1] + 0.5
        groups = [
            [duration for end, duration in steps if end < first],
            [duration for end, duration in steps if any(a <= end <= b + 0.5 for a, b in self.windows)],
            [duration for end, duration in steps if end > last],
        ]
        before, during, after = (sorted(group, reverse=True) or [math.nan] for group in groups)
        medians = [statistics.median(group) for group in (before, during, after)]
        took = statistics.mean(end - start for start, end in self.windows)
        print(HEADING)
        print(
            f"{label or self.kind:<26}{medians[0]:8.2f}{medians[1]:8.2f}{medians[2]:8.2f}{before[0]:10.1f}  "
            f"{' '.join(f'{step:.1f}' for step in during[:4]):<24}{after[0]:12.1f}{took:6.1f}"
        )
        print("  facts:", document["facts"])
        return Row(medians, before[0], during[0], after[0])

    def kill(self) -> None:
        """End all processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self._errors.close()

    def _read_errors(self) -> str:
        return (self.folder / "stderr").read_text()


def threads(pid: int) -> list[str]:
    """The names of the threads of a process; Kineto's are among them once it is armed."""
    names = Path(f"/proc/{pid}/task").glob("*/comm")
    with suppress(OSError):
        return sorted(name.read_text().strip() for name in names)
    return []


@contextmanager
def training(kind: str, folder: Path, ranks: int = 1, rest_seconds: float = 3.0) -> Iterator[Training]:
    """A training run whose steps are regular."""
    run = Training(kind, folder, ranks, rest_seconds)
    try:
        run.wait_ready()
        yield run
    finally:
        run.kill()
