"""Loads the probe into running programs of many kinds again and again, and counts those that were harmed.

    python -m tests.perf.attach --injections 200 --attaches 20 --kills 100 PYTHON...

Each program checks its own results, and says at its end whether all were right. An injection has the main thread run an
empty request; an attach loads the complete probe and ends it; a kill is a gpumon that makes requests without end and
gets SIGKILL at a random moment. Times are those for which the main thread stood still.
"""

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpumon.core.problems import CommandError
from gpumon.probe.attach import attach, detach
from gpumon.probe.attach.injection import pending_call
from gpumon.probe.attach.target import Target, read_target

MAX_KILL_SECONDS = 0.04
PATIENCE_SECONDS = 30.0
NONE_BLOCKED = "SigBlk:\t0000000000000000"
HEAD = """
import select, sys, time
def goes_on():
    return not select.select([sys.stdin], [], [], 0)[0]
"""
PROGRAMS = dict(
    text.split("\n", 1) for text in Path(__file__).with_name("attach_programs.txt").read_text().split("=== ")[1:]
)
TAIL = "\nprint('right', flush=True)\n"


@contextmanager
def program(python: str, name: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A program that runs."""
    code = HEAD + "print('on', flush=True)\n" + PROGRAMS[name] + TAIL
    if name == "training":
        code = code.replace("print('on', flush=True)\n", "", 1).replace(
            "while goes_on", "print('on', flush=True)\nwhile goes_on", 1
        )
    pipe = subprocess.PIPE
    environment = {**os.environ, "GPUMON_PROBE_DIR": str(folder)}
    with subprocess.Popen(
        [python, "-W", "ignore", "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.1)
            yield process
        finally:
            process.kill()


def harm(process: "subprocess.Popen[str]") -> str:
    """What is wrong with a program at its end; empty if nothing is."""
    now = blocked_signals(process.pid)
    for _ in range(200):  # subprocess blocks signals itself while it forks
        if now == NONE_BLOCKED:
            break
        time.sleep(0.01)
        now = blocked_signals(process.pid)
    try:
        out, err = process.communicate("\n", PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        return "hangs"
    if (process.returncode, out, err) == (0, "right\n", "") and now == NONE_BLOCKED:
        return ""
    return f"status {process.returncode}, blocked signals {now}, {err.strip()[-300:]}"


def blocked_signals(pid: int) -> str:
    """The signals that its main thread blocks."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(line for line in lines if line.startswith("SigBlk"))
    return ""


def inject(target: Target) -> float:
    """Have the main thread run an empty request; return for how long it stood still."""
    with pending_call(target, "pass", time.time() + 60.0) as call:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while call.is_waiting() and time.monotonic() < deadline:
            time.sleep(0.001)
        return call.stopped_seconds


def kill_one(target: Target) -> float:
    """Kill a process that makes requests, at a random moment."""
    child = os.fork()
    if not child:
        try:
            while True:
                inject(target)
        finally:
            os._exit(1)
    time.sleep(random.random() * MAX_KILL_SECONDS)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 0.0


def attach_once(target: Target) -> float:
    """Load the complete probe, and end it."""
    inject(target)  # runs what a killed gpumon has left
    attached = attach(target.pid, PATIENCE_SECONDS)
    detach(target.pid)
    return attached.stopped_seconds or 0.0


class Tally:
    """What was done, and what went wrong."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.stops: list[float] = []
        self.harmed: list[str] = []
        self.refused: list[str] = []

    def exercise(self, title: str, process: "subprocess.Popen[str]", amounts: dict[str, int]) -> None:
        """Do everything to a program in a random order, and check the program."""
        target = read_target(process.pid)
        work = [kind for kind, amount in amounts.items() for _ in range(amount)]
        random.shuffle(work)
        for kind in work:
            try:
                seconds = ACTIONS[kind](target)
            except CommandError as error:
                self.refused.append(f"{title}: {kind}: {error}")
                continue
            self.counts[kind] += 1
            if seconds:
                self.stops.append(seconds)
        self.counts["programs"] += 1
        result = harm(process)
        if result:
            self.harmed.append(f"{title}: {result}")
        print(f"{title}: {result or 'right'}", flush=True)

    def report(self) -> None:
        """Print the totals."""
        print(dict(self.counts), f"harmed: {len(self.harmed)}", f"refused: {len(self.refused)}")
        for line in [*self.harmed, *sorted(set(self.refused))[:20]]:
            print(line)
        if len(self.stops) > 1:
            parts = statistics.quantiles(self.stops, n=100)
            values = {"median": parts[49], "90 %": parts[89], "99 %": parts[98], "longest": max(self.stops)}
            print("stood still:", ", ".join(f"{name} {1000 * value:.2f} ms" for name, value in values.items()))


ACTIONS: dict[str, Callable[[Target], float]] = {"injections": inject, "attaches": attach_once, "kills": kill_one}


def main() -> int:
    """Run it; the exit code is 1 if a program was harmed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", default=[sys.executable])
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    for kind in ACTIONS:
        parser.add_argument(f"--{kind}", type=int, default=10)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gpumon-", dir="/tmp"))
    os.environ["GPUMON_PROBE_DIR"] = str(folder)
    tally = Tally()
    for python in options.pythons:
        has_torch = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0
        for name in options.programs.split(","):
            if name != "training" or has_torch:
                with program(python, name, folder) as process:
                    tally.exercise(f"{python} {name}", process, {kind: getattr(options, kind) for kind in ACTIONS})
    shutil.rmtree(folder, ignore_errors=True)
    tally.report()
    return bool(tally.harmed)


if __name__ == "__main__":
    raise SystemExit(main())
