"""What gpumon measures and knows, for scripts and notebooks, as typed records.

    import gpumon

    for gpu in gpumon.snapshot().gpus:
        print(gpu.index, gpu.get("utilization_gpu_percent"))

    picked = gpumon.pick(2, timeout=3600)
    os.environ["CUDA_VISIBLE_DEVICES"] = picked.visible_devices

The names in ``__all__`` are stable: fields and metrics are added, but not renamed or removed. A missing value is None,
and ``problems`` of its record has the reason. What cannot be answered raises `GpumonError`, with the reason and the
remedy. The driver is called in a separate process. Each function imports what it needs at its first call, so that
``import gpumon.api`` costs a script next to nothing.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from gpumon.core.allocator import AllocatorStatistics
    from gpumon.core.model import (
        ComputeMode,
        Device,
        DeviceEvent,
        DeviceState,
        Frame,
        Host,
        MigInstance,
        Process,
        ProcessKind,
        Switch,
    )
    from gpumon.core.problems import Problem, ProblemCode
    from gpumon.core.statistics import HostSummary, MetricSummary
    from gpumon.core.steps import StepProgress
    from gpumon.errors.advice import Advice
    from gpumon.errors.answer import LogAnswer
    from gpumon.errors.entry import Fix, KnownError
    from gpumon.errors.explanation import Explanation
    from gpumon.errors.match import Match
    from gpumon.insight.bottlenecks.cause import Bottleneck
    from gpumon.insight.bottlenecks.slowness_evidence import SlownessEvidence, StepAccount, StepShare
    from gpumon.insight.bottlenecks.slowness_verdict import SlownessVerdict
    from gpumon.operations.host_process import HostProcess
    from gpumon.operations.pick import PickedDevices
    from gpumon.operations.waterfall import GpuProcess, MemoryPart, PartKind
    from gpumon.operations.why.examination import WhyReport
    from gpumon.streams.base import Stream
    from gpumon.streams.live import LiveStream

__all__ = [
    "Advice", "AllocatorStatistics", "Bottleneck", "Collector", "ComputeMode", "Device", "DeviceEvent", "DeviceState",
    "Explanation", "Fix", "Frame", "FrameIterator", "GpuProcess", "GpumonError", "Host", "HostProcess", "HostSummary",
    "KnownError", "LogAnswer", "Match", "MemoryPart", "MetricSummary", "MigInstance", "PartKind", "PickedDevices",
    "Problem", "ProblemCode", "Process", "ProcessKind", "SlownessEvidence", "SlownessVerdict", "StepAccount",
    "StepProgress", "StepShare", "Switch", "WhyReport", "explain", "frames", "memory", "pick", "process", "processes",
    "recording", "select_devices", "send_signal", "snapshot", "why",
]  # fmt: skip

MIN_INTERVAL_SECONDS: Final = 0.1
MAX_INTERVAL_SECONDS: Final = 3600.0
_TICK_SECONDS: Final = 0.25
"""How soon a waiting iterator notices that it was closed."""
_JOIN_SECONDS: Final = 2.0
_ACTIVITY_INTERVAL_SECONDS: Final = 0.25
_ACTIVITY_SECONDS: Final = 8.0
"""Counters need two samples, which the GPUs get in turn."""
_LOG_SUFFIXES: Final = frozenset({".log", ".txt", ".out", ".err", ".gz"})

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        from gpumon.core.text_table import table

        for row in table("gpumon", "records"):
            module, _, names = row.partition(" | ")
            if name in names.split():
                return getattr(import_module(f"gpumon.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class GpumonError(Exception):
    """gpumon cannot answer: the only exception that its functions raise for what happens at run time.

    Attributes:
        problem: The reason, and how to fix it: ``code``, ``reason``, ``remedy``.
    """

    def __init__(self, problem: "Problem") -> None:
        super().__init__(str(problem))
        self.problem = problem


@contextmanager
def _public_errors() -> Iterator[None]:
    """Raise the errors of the commands as `GpumonError`."""
    from gpumon.core.problems import CommandError

    try:
        yield
    except CommandError as error:
        raise GpumonError(error.problem) from None


@final
class FrameIterator:
    """Iterates over the frames of this host, in any thread, until it is closed.

    It is also a context manager, which closes it. A reader that is slower than the interval misses frames, not the
    newest one.

    Args:
        stream: A stream that has not been started.
    """

    def __init__(self, stream: "Stream") -> None:
        from gpumon.operations.one_shot import FrameSource

        self._source = FrameSource(stream)
        self._stream = stream
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._has_frame = False
        self._finalizer: Callable[[], object] = weakref.finalize(self, stream.close)
        stream.start()

    def __iter__(self) -> "FrameIterator":
        return self

    def __next__(self) -> "Frame":
        """The next frame.

        Raises:
            GpumonError: The collector sent no frame.
            StopIteration: The iterator was closed.
        """
        from gpumon.operations.one_shot import FIRST_FRAME_SECONDS, SILENT

        waited = 0.0
        with self._lock:
            while not self._closed.is_set():
                frame = self._source.next_frame(_TICK_SECONDS)
                if frame is not None:
                    self._has_frame = True
                    return frame
                waited += _TICK_SECONDS
                if not self._has_frame and waited >= FIRST_FRAME_SECONDS:
                    self.close()
                    raise GpumonError(self._stream.problem or SILENT)
        raise StopIteration

    def __enter__(self) -> "FrameIterator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the collector; iterators in other threads end too. May be called again."""
        self._closed.set()
        self._finalizer()


def frames(interval: float = 1.0) -> FrameIterator:
    """The frames of this host, from now on.

    Args:
        interval: Seconds between frames, 0.1 to 3600.

    Raises:
        ValueError: The interval is out of range.
    """
    return FrameIterator(_live(interval))


def _live(interval: float) -> "LiveStream":
    if not MIN_INTERVAL_SECONDS <= interval <= MAX_INTERVAL_SECONDS:
        raise ValueError(f"interval must be from {MIN_INTERVAL_SECONDS:g} to {MAX_INTERVAL_SECONDS:g} seconds")
    from gpumon.streams.live import LiveStream

    return LiveStream(interval)


def snapshot(*, activity: bool = False) -> "Frame":
    """One sample of this host; takes about half a second.

    Without a driver, the frame has no devices, and its ``problems`` have the reason.

    Args:
        activity: Whether to also sample what is read on request: activity of the multiprocessors and tensor cores, PCIe
            and NVLink rates, and ``sm_percent`` of each process. This takes some seconds. Energy, which counts from the
            first sample, needs a `Collector`.

    Raises:
        GpumonError: The collector did not respond within ten seconds.
    """
    from gpumon.operations.one_shot import sample_frame

    if not activity:
        with _public_errors():
            return sample_frame()
    with Collector(_ACTIVITY_INTERVAL_SECONDS) as collector:
        deadline = time.monotonic() + _ACTIVITY_SECONDS
        while not _has_activity(frame := collector.frame) and time.monotonic() < deadline:
            time.sleep(_ACTIVITY_INTERVAL_SECONDS)
    return frame


def _has_activity(frame: "Frame") -> bool:
    """Whether each GPU has its activity, or will not have it."""
    from gpumon.core.problems import ProblemCode

    problems = [device.problems.get("sm_activity_percent") for device in frame.devices]
    problems += [item.problems.get("sm_percent") for device in frame.devices for item in device.processes or ()]
    return not any(problem is not None and problem.code is ProblemCode.NOT_READ for problem in problems)


@final
class Collector:
    """Samples this host in the background, for the mean, minimum and maximum of an epoch.

        with gpumon.Collector() as collector:
            for epoch in range(10):
                train()
                log(collector.summary("epoch").flat())

    One thread reads what a separate process samples, which is a new program: nothing of your process is forked, and no
    CUDA context is created.

    Args:
        interval: Seconds between samples, 0.1 to 3600.
        activity: Whether to sample what is read on request too; see `snapshot`.
        pids: Processes that are summarized too, with their memory and SM %; None: this one.

    Raises:
        ValueError: The interval is out of range.
    """

    def __init__(self, interval: float = 1.0, *, activity: bool = True, pids: "Collection[int] | None" = None) -> None:
        from gpumon.core.statistics import Statistics

        self._pids = frozenset({os.getpid()} if pids is None else pids)
        self._stream = _live(interval)
        self._has_activity = activity
        self._lock = threading.Lock()
        self._arrived = threading.Event()
        self._newest: Frame | None = None
        self._error: GpumonError | None = None
        self._since_start = Statistics(self._pids)
        self._by_tag: dict[str, Statistics] = {}
        self._frames: FrameIterator | None = None

    def __enter__(self) -> "Collector":
        """Start, and wait for the first frame.

        Raises:
            GpumonError: The collector did not respond.
        """
        self._frames = FrameIterator(self._stream)
        self._thread = threading.Thread(target=self._run, args=(self._frames,), name="gpumon-collector", daemon=True)
        self._thread.start()
        self._arrived.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def frame(self) -> "Frame":
        """The newest frame."""
        if self._newest is None:
            raise RuntimeError("the collector has not been started: use it in a with statement")
        return self._newest

    def summary(self, tag: str = "") -> "HostSummary":
        """Mean, minimum and maximum since the previous summary with this tag, or since the start.

        Args:
            tag: A name, such as ``epoch``. Each tag has its time range, so that those of epochs and steps overlap.
        """
        from gpumon.core.statistics import Statistics

        with self._lock:
            ended = self._by_tag.get(tag, self._since_start)
            self._by_tag[tag] = Statistics(self._pids)
            return ended.summary(tag)

    def close(self) -> None:
        """End the thread and the process that samples. May be called again."""
        if self._frames is not None:
            self._frames.close()
            self._thread.join(_JOIN_SECONDS)

    def _run(self, frames: FrameIterator) -> None:
        try:
            for frame in frames:
                if self._has_activity and frame.devices:
                    self._stream.request_on_demand([device.key for device in frame.devices])
                with self._lock:
                    for statistics in (self._since_start, *self._by_tag.values()):
                        statistics.add(frame)
                self._newest = frame
                self._arrived.set()
        except GpumonError as error:
            self._error = error
        self._arrived.set()


def recording(path: "str | os.PathLike[str]") -> "Iterator[Frame]":
    """The frames of a recording of ``gpumon record``, oldest first.

    Raises:
        GpumonError: It cannot be opened, or has no frame.
    """
    from pathlib import Path

    from gpumon.streams.recording import RecordingReader

    with _public_errors():
        reader = RecordingReader(Path(path))
    try:
        for record in reader:
            yield record.frame
    finally:
        reader.close()


def select_devices(
    device: str = "all",
    *,
    free: bool = False,
    free_memory_bytes: float | None = None,
    max_utilization_percent: float | None = None,
) -> "tuple[Device, ...]":
    """The GPUs that fit now, those with the most free memory first; nothing is reserved, unlike with `pick`.

    Args:
        device: Choose from these: ``all``, or indices, MIG instances, ranges and UUIDs such as ``0-3,5:0``. Of a GPU in
            MIG mode, its instances.
        free: Whether no process may compute on it.
        free_memory_bytes: Free memory that it needs.
        max_utilization_percent: Its highest utilization; a GPU whose utilization is unknown does not fit.

    Raises:
        GpumonError: A device does not exist, or there is no driver.
    """
    from gpumon.core import device_use
    from gpumon.operations import device_selection

    frame = snapshot()
    problem = frame.problems.get("driver")
    if problem is not None and not frame.devices:
        raise GpumonError(problem)
    with _public_errors():
        chosen = device_selection.select_devices(device, frame.devices)

    def fits(gpu: "Device") -> bool:
        utilization = gpu.get("utilization_gpu_percent")
        is_idle = max_utilization_percent is None or (
            utilization is not None and utilization <= max_utilization_percent
        )
        memory = gpu.get("memory_free_bytes") or 0.0
        return (not free or device_use.is_empty(gpu)) and memory >= (free_memory_bytes or 0.0) and is_idle

    devices = filter(fits, device_selection.with_instances(chosen, frame.devices))
    return tuple(sorted(devices, key=lambda gpu: -(gpu.get("memory_free_bytes") or 0.0)))


def process(pid: int) -> "HostProcess":
    """A process on the GPUs of this host: arguments, parent, children, and its memory and steps. Takes about a second.

    Raises:
        GpumonError: The process uses no GPU, the collector did not respond, or there is no driver.
    """
    from gpumon.operations.host_process import read_process

    with _public_errors():
        return read_process(pid)


def send_signal(target: "HostProcess", signal: str = "TERM") -> None:
    """Send a signal to exactly this process, never to a later one with its PID.

    Args:
        target: What `process` returned.
        signal: ``INT``, ``TERM`` or ``KILL``.

    Raises:
        GpumonError: Nothing was sent, and the reason says why.
        ValueError: There is no such signal.
    """
    from gpumon.operations.host_process import signal_process

    with _public_errors():
        signal_process(target, signal)


def processes() -> "tuple[GpuProcess, ...]":
    """The processes on the GPUs of this host, by GPU and PID; one on two GPUs is there twice. Takes about a second.

    A process with a probe also has the statistics of PyTorch's allocator, and its training run.

    Raises:
        GpumonError: The collector did not respond, or there is no driver.
    """
    from gpumon.operations.waterfall import sample_processes

    with _public_errors():
        return sample_processes()


def memory(pid: int) -> "tuple[GpuProcess, ...]":
    """Where the GPU memory of a process is: its ``parts`` on each GPU that it uses.

    Without a probe in the process, there is one part, with what the driver reports.

    Args:
        pid: The process.

    Raises:
        GpumonError: The process uses no GPU, the collector did not respond, or there is no driver.
    """
    from gpumon.operations.waterfall import sample_process

    with _public_errors():
        return sample_process(pid)


def why(pid: int, seconds: float | None = None, *, trace: bool = False) -> "WhyReport":
    """Why the steps of a training run take as long as they do. Blocks while the process is observed.

    Args:
        pid: A process with a probe: ``gpumon watch -- python train.py``.
        seconds: How long to observe it, 1 to 30; None for 12, or longer where steps take long.
        trace: Whether to also record a few steps with Kineto, which makes the times of the GPU exact. Launches in that
            process stay slower until it ends if it has CUDA graphs.

    Raises:
        GpumonError: There is no such process, it has no probe, or no step ended.
    """
    from gpumon.operations.why.processes import examine_process

    with _public_errors():
        return examine_process(pid, seconds, has_trace=trace)


def explain(text_or_path: "str | os.PathLike[str]", *, live: bool = False) -> "Explanation":
    """How the run that wrote a log ended, why, and what to do.

    Args:
        text_or_path: A `str` is the text of a log or of an error. A `pathlib.Path`, or another `os.PathLike`, is a
            file, which may be compressed, or a folder with the logs of the ranks of one run.
        live: Whether to add what this host reports about the cause now, such as the processes that hold the memory.

    Raises:
        GpumonError: The file cannot be read, or the text is the name of a file.
    """
    from pathlib import Path

    from gpumon.errors.explain import explain_paths, explain_text

    with _public_errors():
        if isinstance(text_or_path, str):
            _refuse_file_name(text_or_path)
            explanation = explain_text(text_or_path)
        else:
            explanation = explain_paths([Path(text_or_path)])
        if not live:
            return explanation
        from gpumon.operations.evidence import with_evidence

        return with_evidence(explanation)


def _refuse_file_name(text: str) -> None:
    """Refuse a text that is the name of a log, of which the answer would be that nothing is wrong.

    Raises:
        GpumonError: It is.
    """
    from gpumon.core.problems import Problem, ProblemCode

    is_word = 0 < len(text) < 4096 and not set(text) & set("\n\0")
    if is_word and (os.path.exists(text) or (" " not in text and os.path.splitext(text)[1] in _LOG_SUFFIXES)):  # noqa: PTH110, PTH122 - pathlib costs the import of a script more
        reason = f"{text!r} is the name of a file, and a str is explained as the text of a log."
        raise GpumonError(Problem(ProblemCode.INVALID_VALUE, reason, f"Pass pathlib.Path({text!r})."))


def pick(
    count: int = 1,
    *,
    device: str = "all",
    free_memory_bytes: float | None = None,
    idle_seconds: float | None = None,
    timeout: float | None = 0.0,
    pid: int | None = None,
) -> "PickedDevices":
    """Choose free GPUs, with NVLink between several, and reserve them: for a minute, or longer while they are used.

    Args:
        count: How many GPUs.
        device: Choose from these: ``all``, or indices, MIG instances, ranges and UUIDs such as ``0-3,5:0``.
        free_memory_bytes: Free memory of each GPU; other processes may then use the GPU too. None: no process may.
        idle_seconds: Also take a GPU whose processes have not computed for this long; they are watched until then.
        timeout: Seconds to wait until enough GPUs fit; None: without end.
        pid: Reserve for this process; None: for this one.

    Raises:
        GpumonError: Too few GPUs fit in time, and the reason names who holds them; or there is no driver.
    """
    from gpumon.operations.pick import pick_devices

    with _public_errors():
        return pick_devices(
            count,
            devices=device,
            free_bytes=free_memory_bytes,
            idle_seconds=idle_seconds,
            wait_seconds=timeout,
            pid=os.getpid() if pid is None else pid,
        )
