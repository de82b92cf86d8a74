"""Runs a job, under ``gpumon watch`` or plainly, watches it as gpumon does, and compares the verdict with the plan."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.ranks import HangKind, HangVerdict, RankEvidence
from gpumon.distributed.environment import RankVariables, TrainingJob
from gpumon.distributed.grouping import JobScanner
from gpumon.operations.hangs import HangWatch
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Answer
from tests.hangs.cases import Case
from tests.processes import tree

TICK_SECONDS: Final = 0.5
PATIENCE: Final = 110.0


@dataclass(frozen=True)
class Outcome:
    """What gpumon said of a job.

    Attributes:
        verdict: The first one of the planted kind, or the last one.
        seconds: From the hang to that verdict; for a healthy job, its duration.
        alarms: The summaries of all verdicts that were hangs.
        evidence: What the verdict was based on.
        output: What the job printed.
    """

    verdict: HangVerdict | None
    seconds: float
    alarms: tuple[str, ...]
    evidence: tuple[RankEvidence, ...]
    output: str


class Job:
    """A job that runs.

    Args:
        case: What to run.
        folder: For sockets and output.
        is_plain: Whether it starts without ``gpumon watch``, so that no rank has a probe.
        interpreter: The Python that has torch.
    """

    def __init__(self, case: Case, folder: Path, *, is_plain: bool = False, interpreter: str = sys.executable) -> None:
        self.case = case
        self.hung_at: float | None = None
        self.lines: list[str] = []
        port = free_port()
        environment = {
            **os.environ,
            "GPUMON_PROBE_DIR": str(folder / "sockets"),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        watch = [interpreter] if is_plain else [sys.executable, "-m", "gpumon", "watch", "--", interpreter]
        if case.has_torchrun:
            options = ["-m", "torch.distributed.run", f"--nproc-per-node={case.ranks_count}", f"--master-port={port}"]
            self.processes = [_start([*watch, *options, str(case.script)], environment)]
        else:
            self.processes = [
                _start([*watch, str(case.script)], {**environment, **_rank(rank, case.ranks_count)})
                for rank in range(case.ranks_count)
            ]
        self._threads = [threading.Thread(target=self._read, args=(item,), daemon=True) for item in self.processes]
        for thread in self._threads:
            thread.start()

    @property
    def pids(self) -> set[int]:
        """The processes that the test has started."""
        return {process.pid for process in self.processes}

    @property
    def has_ended(self) -> bool:
        """Whether all have ended."""
        return None not in [process.poll() for process in self.processes]

    def kill(self) -> None:
        """End everything."""
        for pid in {pid for process in self.processes for pid in tree(process.pid)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process, thread in zip(self.processes, self._threads, strict=True):
            process.wait(10)
            thread.join(10)
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip())
                if line.startswith("hang"):
                    self.hung_at = time.monotonic()


@contextmanager
def running(case: Case, *, is_plain: bool = False) -> Iterator[tuple[Job, Path]]:
    """A job and the folder of its sockets."""
    with tempfile.TemporaryDirectory(prefix="hangs-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "sockets").mkdir(mode=0o700)
        job = Job(case, folder, is_plain=is_plain)
        try:
            yield job, folder
        finally:
            job.kill()


def run(case: Case, *, is_plain: bool = False) -> Outcome:
    """Run a case, and watch it until the planted verdict has come or the job has ended."""
    with running(case, is_plain=is_plain) as (job, folder):
        probes = ProbeWatcher([folder / "sockets"])
        probes.start()
        try:
            return _watch(job, probes)
        finally:
            probes.close()


def mistakes(case: Case, outcome: Outcome, *, is_plain: bool = False) -> list[str]:
    """What is wrong with a verdict. Without a probe, nothing shows the number of a collective or its group."""
    if case.kind is None:
        return [f"alarm: {alarm}" for alarm in outcome.alarms]
    verdict = outcome.verdict
    if verdict is None:
        return ["no verdict"]
    pairs = (("kind", verdict.kind.value, case.kind.value), ("rank", verdict.rank, case.rank))
    wrong = [f"{name} is {actual}, not {wanted}" for name, actual, wanted in pairs if actual != wanted]
    if verdict.line not in case.lines and not (is_plain and case.lines == {""}):  # a probe cannot know it
        wrong.append(f"line is {verdict.line}, not {sorted(case.lines)}")
    wanted = case.collective.partition(" ")[0] if is_plain else case.collective
    if not verdict.collective.startswith(wanted):
        wrong.append(f"collective is {verdict.collective}, not {wanted}")
    limit = max(
        20.0 if is_plain else 10.0,
        10.0 * max((rank.typical_step_seconds or 0.0 for rank in outcome.evidence), default=0.0),
    )
    limit *= 3.0 if case.name == "infinite_loop" else 1.0
    if outcome.seconds > limit + 10.0:
        wrong.append(f"came after {outcome.seconds:.1f} s")
    return wrong


def _watch(job: Job, probes: ProbeWatcher) -> Outcome:
    scanner, watch = JobScanner(), HangWatch(probes.ask)
    started, alarms = time.monotonic(), []
    verdict: HangVerdict | None = None
    evidence: tuple[RankEvidence, ...] = ()
    while time.monotonic() - started < PATIENCE and not (job.has_ended and not job.case.kind):
        time.sleep(TICK_SECONDS)
        now = time.monotonic()
        for message in probes.inbox.drain():
            if isinstance(message, Answer):
                watch.receive(message, now)
        current = probes.probes
        own = _own_job(scanner.scan({pid: _variables(probe) for pid, probe in current.items()}), job)
        verdicts = watch.update(() if own is None else (own,), current, now)
        if own is None:
            continue
        verdict, evidence = verdicts[own.key], watch.evidence(own.key)
        if verdict.is_hang:
            alarms.append(verdict.summary)
        is_planted = verdict.is_hang or verdict.kind is HangKind.WAITING_FOR_DATA
        if job.case.kind is not None and is_planted and job.hung_at is not None:
            break
    end = time.monotonic()
    seconds = end - (started if job.hung_at is None else job.hung_at)
    return Outcome(verdict, seconds, tuple(alarms), evidence, "\n".join(job.lines))


def _own_job(jobs: tuple[TrainingJob, ...], job: Job) -> TrainingJob | None:
    """The job with the rendezvous of the test."""
    script = str(job.case.script)
    return next((item for item in jobs if script in item.command), None)


def _variables(probe: object) -> RankVariables:
    process = probe.process  # type: ignore[attr-defined]
    return RankVariables(process.rank, process.world_size, process.local_rank)


def _rank(rank: int, count: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}


def _start(command: list[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
