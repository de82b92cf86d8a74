"""A sweeper and a collector on a scripted driver, in this process, with calls that hang as long as a test wants."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gpumon.collect.calls import CallsInFlight
from gpumon.collect.loop import CollectorLoop
from gpumon.collect.nvml import Nvml
from gpumon.collect.processes import ProcessTable
from gpumon.collect.sweeper import Sweeper
from tests.collect.fake import FakeNvml

POWER = "nvmlDeviceGetPowerUsage"
DEADLINE = 0.05


class Gate:
    """A driver call that does not return until `open` is called."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._open = threading.Event()

    def __call__(self, *_: object) -> int:
        self.entered.set()
        assert self._open.wait(10)
        return 1000

    def open(self) -> None:
        self._open.set()


class HungFile:
    """A file of a /proc whose reader waits until it is let go.

    Args:
        path: The file that is replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)

    def open(self) -> None:
        """Lets the reader go, who reads nothing, and puts the file back."""
        if self._path.is_fifo():
            writer = os.open(self._path, os.O_RDWR)
            self._path.unlink()
            self._path.write_bytes(self._content)
            os.close(writer)


class Bench:
    """A sweeper on a fake driver of four devices, with process 4000 on each.

    Args:
        proc: Root of its proc file system.
        clock: Monotonic seconds.
    """

    def __init__(self, proc: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.fake = FakeNvml(4)
        self.in_flight = CallsInFlight(clock)
        self.gates: list[Gate | HungFile] = []
        self.proc = proc
        self.api = Nvml(library=self.fake, in_flight=self.in_flight)
        self.table = ProcessTable(self.in_flight, proc)
        self.sweeper = Sweeper(self.api, self.table, self.in_flight)

    def collector(self) -> CollectorLoop:
        """A collector with a separate sweeper; tests request its frames one by one."""
        return CollectorLoop(self.api, self.in_flight, interval=0.1, output=-1, control=-1, processes=self.table)

    def sweep(self) -> bool:
        self.sweeper.request()
        return self.sweeper.done.wait(1)

    def hang(self, device: int | None, call: str = POWER) -> Gate:
        gate = Gate()
        self.gates.append(gate)
        self.fake.answer(call, gate, device)
        return gate

    def hang_file(self, pid: int, name: str = "cmdline") -> HungFile:
        hung = HungFile(self.proc / str(pid) / name)
        self.gates.append(hung)
        return hung

    def sweep_past_what_hangs(self, timeout: float = 2) -> bool:
        """Sweeps, replacing the thread whenever it is stuck; returns whether the sweep came to its end."""
        self.sweeper.request()
        deadline = time.monotonic() + timeout
        while not self.sweeper.done.wait(DEADLINE / 5) and time.monotonic() < deadline:
            stuck = self.sweeper.stuck(DEADLINE)
            if stuck is not None and not self.sweeper.replace(stuck):
                return False
        return self.sweeper.done.is_set()

    def sweep_into(self, gate: Gate) -> bool:
        """Sweeps until ``gate`` holds the thread, and replaces the thread; returns whether that was of use."""
        self.sweeper.request()
        return self.replace_in(gate)

    def replace_in(self, gate: Gate) -> bool:
        assert gate.entered.wait(1)
        time.sleep(DEADLINE)
        stuck = self.sweeper.stuck(DEADLINE)
        assert stuck is not None
        return self.sweeper.replace(stuck)

    def quarantined(self) -> list[bool]:
        return [slot.quarantined for slot in self.sweeper.slots]
