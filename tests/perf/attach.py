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
PROGRAMS = {
    "sleeping": """
while goes_on():
    start = time.monotonic(); time.sleep(0.01); assert time.monotonic() - start > 0.0099
""",
    "allocating": """
while goes_on():
    items = [{str(number): [number] * 10} for number in range(2000)]
    assert sum(len(item) for item in items) == 2000
""",
    "numbers": """
import math
first = math.fsum(math.sin(number) * 1.1 for number in range(3000))
while goes_on():
    assert math.fsum(math.sin(number) * 1.1 for number in range(3000)) == first
""",
    "threads": """
import queue, threading
work, results = queue.Queue(), queue.Queue()
def serve():
    for item in iter(work.get, None):
        results.put(item * item)
for _ in range(3):
    threading.Thread(target=serve, daemon=True).start()
while goes_on():
    for item in range(30): work.put(item)
    assert sum(results.get() for _ in range(30)) == 8555
""",
    "asyncio": """
import asyncio
async def double(number):
    await asyncio.sleep(0.001)
    return 2 * number
async def main():
    while goes_on():
        assert await asyncio.gather(*map(double, range(20))) == list(range(0, 40, 2))
asyncio.run(main())
""",
    "forks": """
import os
while goes_on():
    child = os.fork()
    if child == 0:
        os._exit(7)
    assert os.waitpid(child, 0)[1] == 7 << 8
""",
    "subprocess": """
import subprocess
while goes_on():
    assert subprocess.run(['/bin/echo', 'x'], stdout=subprocess.PIPE).stdout == b'x\\n'
""",
    "c_call": """
import hashlib
content = bytes(20_000_000)
first = hashlib.sha256(content).digest()
while goes_on():
    assert hashlib.sha256(content).digest() == first
""",
    "exceptions": """
def fall(depth):
    if depth: return fall(depth - 1)
    raise KeyError(depth)
while goes_on():
    try: fall(50)
    except KeyError as error: assert error.args == (0,)
    else: assert False
""",
    "signals": """
import signal
count = [0]
signal.signal(signal.SIGALRM, lambda *_: count.__setitem__(0, count[0] + 1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while goes_on():
    assert sum(range(1000)) == 499500
signal.setitimer(signal.ITIMER_REAL, 0)
assert count[0] > 20
""",
    "timeouts": """
import os, select, threading
reading, _ = os.pipe()
poll = select.poll(); poll.register(reading, select.POLLIN)
event = threading.Event()
while goes_on():
    start = time.monotonic(); assert poll.poll(3) == []; assert time.monotonic() - start > 0.0029
    start = time.monotonic(); assert not event.wait(0.003); assert time.monotonic() - start > 0.0029
""",
    "training": """
import torch
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, index): return torch.full((8,), float(index))
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Linear(8, 1); optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, persistent_workers=True)
while goes_on():
    for batch in loader:
        loss = model(batch).pow(2).mean(); optimizer.zero_grad(); loss.backward(); optimizer.step()
    assert torch.isfinite(loss)
""",
}
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
