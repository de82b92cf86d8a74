"""The workloads that this gpumon runs and has run. It draws nothing and asks nobody."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.model import Device, DeviceState, Frame, Switch
from gpumon.core.store import Store
from gpumon.jobs.catalogue import WorkloadInfo
from gpumon.jobs.interpreter import Interpreter
from gpumon.jobs.parameters import Value
from gpumon.jobs.request import JobRequest
from gpumon.operations.neighbours import Neighbour
from gpumon.operations.workload import WorkloadRun

_MOST_ENDED: Final = 50


class Place(NamedTuple):
    """Where a workload runs.

    Attributes:
        key: The device's key, or ``cpu``.
        words: What it is called, such as ``GPU 3``.
        device: What the workload is told, such as ``cuda:0``.
        environment: Variables that it is given.
    """

    key: str
    words: str
    device: str
    environment: Mapping[str, str]


CPU: Final = Place("cpu", "CPU", "cpu", {})


def is_split(device: Device) -> bool:
    """Whether only its instances can be used (MIG)."""
    return device.instance is None and device.mig_mode is Switch.ENABLED


def gpu_place(device: Device, devices: Sequence[Device]) -> Place | None:
    """A GPU or an instance as a place, or None while it does not answer, has told no UUID or is split itself.

    A number would mean another GPU to CUDA than to NVML, so the GPU is named by its UUID and comes first: it is the
    workload's ``cuda:0``. The others follow, so that a workload that copies between GPUs sees them; beside an instance
    CUDA shows nothing else.
    """
    if device.uuid is None or device.state is not DeviceState.OK or is_split(device):
        return None
    others = [
        each.uuid
        for each in devices
        if each.uuid is not None
        and each.uuid != device.uuid
        and each.state is DeviceState.OK
        and each.instance is None
        and not is_split(each)
    ]
    visible = ",".join([device.uuid, *(others if device.instance is None else ())])
    return Place(device.key, f"GPU {device.label}", "cuda:0", {"CUDA_VISIBLE_DEVICES": visible})


class BoardRun:
    """A run and where it runs.

    Args:
        key: What identifies it on the board.
        run: The run.
        place: Where it runs.
    """

    def __init__(self, key: str, run: WorkloadRun, place: Place) -> None:
        self.key = key
        self.run = run
        self.place = place
        self.stopping = False
        """Whether it was asked to stop."""
        self.ended_seconds: float | None = None
        """Unix time at which its end was seen."""
        self._marks = 0

    def stop(self) -> None:
        """Asks it to stop."""
        self.stopping = True
        self.run.cancel()

    def watch(self, frame: Frame, store: Store) -> None:
        """Notes what its GPU does, and marks the beginning and the end of its work on the GPU's histories."""
        began = self.run.state.began_seconds is not None
        wanted = began + (began and self.run.ended)
        if self.run.ended and self._marks == wanted:
            return
        self.run.watch(frame)
        if self.run.device is not None:
            for _ in range(wanted - self._marks):
                store.mark(self.run.device.key)
            self._marks = wanted


class JobBoard:
    """All runs, the newest first.

    Args:
        ring: Is called from any thread when a run has news.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self.runs: list[BoardRun] = []
        self.began_seconds = time.time()
        self._ring = ring
        self._started = 0

    @property
    def running(self) -> list[BoardRun]:
        """Those that have not ended."""
        return [each for each in self.runs if not each.run.ended]

    def refusal(self, place: Place) -> str:
        """Why nothing can be started there, in a sentence; empty if something can."""
        for each in self.running:
            if each.place.key == place.key:
                name = each.run.request.workload.name
                return f"{place.words} is busy with {name}: one workload at a time runs on a device."
        return ""

    def start(
        self, workload: WorkloadInfo, place: Place, parameters: Mapping[str, Value], python: Interpreter
    ) -> BoardRun:
        """Starts a workload.

        Raises:
            ValueError: Another one runs there; the text is a sentence.
        """
        return self._start(JobRequest(workload, place.device, parameters, python.path, place.environment), place)

    def start_again(self, before: BoardRun) -> BoardRun:
        """Starts the same once more.

        Raises:
            ValueError: Another one runs there; the text is a sentence.
        """
        return self._start(before.run.request, before.place)

    def take(self, now: float) -> None:
        """Takes in what has arrived by ``now`` (Unix time)."""
        for each in self.running:
            each.run.take()
            if each.run.ended:
                each.ended_seconds = now

    def watch(self, frame: Frame, store: Store) -> None:
        """Notes what the GPUs do."""
        for each in self.runs:
            each.watch(frame, store)

    def waiting(self, frame: Frame | None) -> Iterator[tuple[BoardRun, list[Neighbour]]]:
        """Runs that wait for leave to begin, each with the processes that it would meet on its GPU."""
        for each in self.running:
            if each.run.state.waits_for_leave and not each.stopping:
                yield each, [] if frame is None or each.place is CPU else each.run.neighbours(frame)

    def stop_all(self) -> None:
        """Asks all to stop."""
        for each in self.running:
            each.stop()

    def _start(self, request: JobRequest, place: Place) -> BoardRun:
        refusal = self.refusal(place)
        if refusal:
            raise ValueError(refusal)
        self._started += 1
        started = BoardRun(str(self._started), WorkloadRun(request), place)
        self.runs.insert(0, started)
        ended = [each for each in self.runs if each.run.ended]
        for old in ended[_MOST_ENDED:]:
            self.runs.remove(old)
        started.run.job.inbox.on_arrival(self._ring)
        started.run.start()
        return started
