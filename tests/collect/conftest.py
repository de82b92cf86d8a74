"""A live stream on a stand-in host, for tests that go from the driver's library to the frame."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.core.model import Frame
from gpumon.streams.base import Discontinuity
from gpumon.streams.live import LiveStream
from tests.collect.bench import Bench
from tests.nvml_mock import NvmlMock
from tests.processes import kill, tree

WAIT_SECONDS = 15.0
"""How long a test waits for an expected frame: enough on a busy host."""


class Watched:
    """A live stream with everything that it has brought so far.

    Args:
        stream: A stream that was not started yet.
        control: File whose content is the fault of the moment.
    """

    def __init__(self, stream: LiveStream, control: Path) -> None:
        self.stream = stream
        self.frames: list[Frame] = []
        self._control = control

    def fault(self, faults: str) -> float:
        """Sets the faults of the stand-in host; returns the time."""
        self._control.write_text(faults)
        return time.monotonic()

    def heal(self) -> float:
        """Ends every fault that `fault` began; returns the time."""
        self._control.unlink()
        return time.monotonic()

    def collect(self, seconds: float) -> list[Frame]:
        """The frames of the next ``seconds``."""
        start = len(self.frames)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._take(left)
        return self.frames[start:]

    def until(self, accepts: Callable[[Frame], bool], timeout: float = WAIT_SECONDS) -> Frame:
        """The next frame for which ``accepts`` returns True.

        Raises:
            AssertionError: None came in time.
        """
        position = len(self.frames)
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            self._take(left)
            for frame in self.frames[position:]:
                if accepts(frame):
                    return frame
            position = len(self.frames)
        raise AssertionError(f"no such frame in {timeout} s; {self.stream.problem}; last: {self.frames[-1:]}")

    def collectors(self) -> list[int]:
        """PIDs of the collectors that this process has."""
        names = ((pid, Path(f"/proc/{pid}/comm").read_text().strip()) for pid in tree(os.getpid())[1:])
        return [pid for pid, name in names if name == "gpumon-collect"]

    def _take(self, seconds: float) -> None:
        if self.stream.inbox.arrived.wait(seconds):
            self.frames += [arrival for arrival in self.stream.inbox.drain() if not isinstance(arrival, Discontinuity)]


Live = Callable[..., Watched]


@pytest.fixture
def live(nvml_mock: NvmlMock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """Starts a live stream on a stand-in host with ``gpus`` and ``fault``; what else is given is its environment."""
    started: list[Watched] = []

    def start(
        interval: float = 0.1, gpus: int = 3, fault: str = "", mock: NvmlMock | None = None, **more: str
    ) -> Watched:
        control = tmp_path / "control"
        environment = (mock or nvml_mock).environment(gpus, fault=fault, control=control)
        for name, value in (environment | more).items():
            monkeypatch.setenv(name, value)
        watched = Watched(LiveStream(interval), control)
        started.append(watched)
        watched.stream.start()
        return watched

    yield start
    for watched in started:
        watched.stream.close()
    for pid in tree(os.getpid())[1:]:
        if "collect/__main__.py" in Path(f"/proc/{pid}/cmdline").read_text():
            kill(pid)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A sweeper on a fake driver of four devices."""
    made = Bench(tmp_path)
    yield made
    for gate in made.gates:
        gate.open()
