"""What ``gpumon hang`` says of the planted hangs from their files alone: ``python -m tests.hangs.left [--cases a,b]``.

The ranks run without a probe, with gloo on the CPU. They hang for a time, and are asked for their flight recorders and
their stacks; what a rank can no longer write is missing, as it is after a real hang.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.core.problems import CommandError
from gpumon.core.ranks import HangKind, HangVerdict
from gpumon.operations.hang_files.report import report_hang
from tests.hangs.cases import HANGS, HEALTHY, Case
from tests.hangs.runner import free_port
from tests.processes import tree

HANG_SECONDS: Final = 16.0
DUMP_SECONDS: Final = 8.0
PATIENCE_SECONDS: Final = 90.0
SITE: Final = Path(__file__).with_name("left_site")
EXACT_KINDS: Final = frozenset({HangKind.MISMATCHED, HangKind.DEADLOCK, HangKind.TRANSPORT})
"""What the files themselves show; why a rank sleeps, waits or has ended, only ``/proc`` does."""


def leave(case: Case, folder: Path) -> None:
    """Run a job until it has hung for a time or has ended, and leave its files in a folder."""
    environment = {
        **os.environ,
        "HANGS_LEFT": str(folder),
        "PYTHONPATH": os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(case.ranks_count),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "TORCH_FR_BUFFER_SIZE": "2000",
    }
    ranks = []
    for rank in range(case.ranks_count):
        with (folder / f"rank_{rank}.log").open("wb") as log:
            variables = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            ranks.append(
                subprocess.Popen(
                    [sys.executable, str(case.script)], env=variables, stdin=subprocess.PIPE, stdout=log, stderr=log
                )
            )
    try:
        _wait(case, folder, ranks)
        running = [process for process in ranks if process.poll() is None]
        (folder / "now").touch()
        _wait_for_dumps(folder, len(running))
        for process in running:
            process.send_signal(signal.SIGUSR1)  # last: it interrupts a system call such as a sleep
        time.sleep(1.0)
    finally:
        for pid in {pid for process in ranks for pid in tree(process.pid)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in ranks:
            process.wait(10)
        (folder / "now").unlink(missing_ok=True)


def _wait_for_dumps(folder: Path, count: int) -> None:
    """Wait until the ranks that can have written their dumps."""
    end = time.monotonic() + DUMP_SECONDS
    while time.monotonic() < end and len(list(folder.glob("nccl_trace_rank_*"))) < count:
        time.sleep(0.2)


def _wait(case: Case, folder: Path, ranks: "list[subprocess.Popen[bytes]]") -> None:
    """Wait until the job hangs and its ranks have waited, or until it has ended."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and any(process.poll() is None for process in ranks):
        if case.kind is not None and any("hang" in log.read_text() for log in folder.glob("rank_*.log")):
            time.sleep(HANG_SECONDS)
            return
        time.sleep(0.3)


def mistakes(case: Case, verdict: HangVerdict) -> list[str]:
    """What is wrong with a verdict."""
    if case.kind is None:
        return [f"alarm: {verdict.summary}"] if verdict.is_hang else []
    wrong = [] if verdict.rank == case.rank else [f"rank is {verdict.rank}, not {case.rank}"]
    if case.kind in EXACT_KINDS and verdict.kind is not case.kind:
        wrong.append(f"kind is {verdict.kind.value}, not {case.kind.value}")
    if not verdict.collective.startswith(case.collective):
        wrong.append(f"collective is {verdict.collective}, not {case.collective}")
    if verdict.line not in case.lines | {""}:
        wrong.append(f"line is {verdict.line}, not {sorted(case.lines)}")
    return wrong


def judge(case: Case) -> tuple[HangVerdict | None, list[str]]:
    """The verdict on what a case leaves, and what is wrong with it."""
    with tempfile.TemporaryDirectory(prefix="left-", dir="/tmp") as name:
        leave(case, Path(name))
        try:
            verdict = report_hang([Path(name)]).verdict
        except CommandError as error:
            return None, [] if case.kind is None else [str(error)]
        return verdict, mistakes(case, verdict)


def main() -> int:
    """Run the cases, and return 1 if a verdict is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="", help="names, separated by commas; all by default")
    names = set(filter(None, parser.parse_args().cases.split(",")))
    cases = [case for case in (*HANGS, *HEALTHY) if not names or case.name in names]
    right = 0
    for case in cases:
        verdict, wrong = judge(case)
        right += not wrong
        text = "nothing is shown" if verdict is None else verdict.summary
        print(f"{'ok   ' if not wrong else 'WRONG'} {case.name:22} {'; '.join([*wrong, text])}", flush=True)
    print(f"{right} of {len(cases)} are right")
    return 0 if right == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
