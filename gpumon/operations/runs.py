"""Workloads run without the screen: each on its device, together with live frames, until all have ended."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from gpumon.core.model import Device, Frame
from gpumon.core.problems import CommandError, ExitCode, ProblemCode
from gpumon.core.text import safe_text
from gpumon.operations.device_selection import CPU, VISIBLE, RunTarget, gpu_target, is_split, select_devices
from gpumon.operations.gpu_processes import OtherProcess
from gpumon.operations.workload import WorkloadRun, start_question
from gpumon.streams.base import Stream, SupportsOnDemand
from gpumon.workload_runs.protocol import RunEvent, VerdictKind

FRAME_SECONDS: Final = 0.5
_MAX_FRAME_WAIT_SECONDS: Final = 5.0
"""A workload may start without a question about other processes if no frame has arrived by then."""
_CUDA: Final = re.compile(r"cuda:([0-9]{1,4})", re.ASCII)
_NAMES_DEVICE: Final = re.compile(
    r"(gpu-|mig-)?[0-9a-f][0-9a-f:,/-]*|[0-9a-z:,-]*,[0-9a-z:,-]*", re.ASCII | re.IGNORECASE
)
_DRIVER_FILES: Final = (Path("/proc/driver/nvidia/version"), Path("/dev/dxg"))
"""Files that exist where an NVIDIA driver is loaded; the second is that of Windows' subsystem for Linux."""
_PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
_NVIDIA: Final = "0x10de"
_DISPLAY_CLASS: Final = "0x03"
_TICK_SECONDS: Final = 0.25
_END_TIMEOUT_SECONDS: Final = 5.0


class RunOutput(Protocol):
    """Prints what happens, and asks the user for confirmation."""

    def on_event(self, run: WorkloadRun, event: RunEvent) -> None:
        """Print an event of a workload."""

    def on_tick(self, runs: Sequence[WorkloadRun]) -> None:
        """Update what shows progress."""

    def confirm_start(self, run: WorkloadRun, others: Sequence[OtherProcess]) -> bool:
        """Whether a workload may start that asks for confirmation, or whose GPU is in use by other processes."""


class HeadlessRuns:
    """Runs workloads to their end.

    The stream is closed at the end.
    """

    def __init__(self, runs: Sequence[WorkloadRun], stream: Stream, output: RunOutput) -> None:
        self.runs = runs
        self._stream = stream
        self._output = output
        self._arrived = threading.Event()
        self._frame: Frame | None = None
        self._is_stopping = False
        self._confirmed: set[int] = set()
        self._is_refused = False

    def stop(self) -> None:
        """Ask all runs to stop; may be called from a signal handler."""
        self._is_stopping = True
        for run in self.runs:
            run.cancel()
        self._arrived.set()

    def run(self) -> ExitCode:
        """Run all workloads; returns the exit code of the worst result."""
        try:
            for run in self.runs:
                run.child.inbox.on_arrival(self._arrived.set)
                run.start()
            self._stream.inbox.on_arrival(self._arrived.set)
            started_at = time.monotonic()
            while not all(run.ended for run in self.runs):
                self._arrived.wait(_TICK_SECONDS)
                self._arrived.clear()
                self._drain(can_wait=time.monotonic() - started_at < _MAX_FRAME_WAIT_SECONDS)
                self._output.on_tick(self.runs)
        finally:
            self._close()
        return ExitCode.MISSING_PREREQUISITE if self._is_refused else exit_code(self.runs)

    def _drain(self, *, can_wait: bool) -> None:
        for arrival in self._stream.inbox.drain():
            if isinstance(arrival, Frame):
                self._frame = arrival
                for run in self.runs:
                    run.observe(arrival)
                if isinstance(self._stream, SupportsOnDemand):
                    self._stream.request_on_demand({run.device.key for run in self.runs if run.device is not None})
        for run in self.runs:
            for event in run.drain():
                self._output.on_event(run, event)
            waits = run.state.awaits_confirmation and id(run) not in self._confirmed and not self._is_stopping
            if waits and (self._frame is not None or not can_wait):
                self._confirmed.add(id(run))
                self._confirm(run)

    def _confirm(self, run: WorkloadRun) -> None:
        """Let the run start its work, if need be after a question."""
        question = start_question(run, self.runs, self._frame)
        if question is not None and not self._output.confirm_start(run, question.others):
            self._is_refused = True
            run.cancel()
        else:
            run.allow()

    def _close(self) -> None:
        """Stop everything that was started, whatever ended the loop."""
        self._stream.close()
        for run in self.runs:
            run.cancel()
        for run in self.runs:
            run.child.wait(_END_TIMEOUT_SECONDS)


def exit_code(runs: Sequence[WorkloadRun]) -> ExitCode:
    """The exit code of all runs together: the worst result counts."""
    if any(run.state.unsupported_reason is not None for run in runs):
        return ExitCode.MISSING_PREREQUISITE
    verdicts = {None if run.state.result is None else run.state.result.verdict for run in runs}
    return ExitCode.OK if verdicts <= {VerdictKind.OK, VerdictKind.WARN} else ExitCode.BAD_VERDICT


def has_driver() -> bool:
    """Whether an NVIDIA driver is loaded."""
    return any(path.exists() for path in _DRIVER_FILES)


def no_gpu_reason(read_devices: Callable[[], Sequence[Device]]) -> str:
    """Why CUDA cannot run on this host, in a sentence; empty where it can.

    ``read_devices`` is not called where the driver is loaded, since it takes a moment.
    """
    if has_driver() or read_devices():
        return ""
    for vendor in _PCI_DEVICES.glob("*/vendor"):
        with suppress(OSError):
            is_display = (vendor.parent / "class").read_text(encoding="ascii").startswith(_DISPLAY_CLASS)
            if is_display and vendor.read_text(encoding="ascii").strip() == _NVIDIA:
                return "This host has an NVIDIA GPU, but its driver is not loaded."
    return "This host has no NVIDIA GPU."


def expand_devices(devices: Sequence[str], read_devices: Callable[[], Sequence[Device]]) -> list[RunTarget]:
    """The devices that the user means, each once, in CUDA's order.

    They are named by ``cpu``, ``cuda``, ``cuda:N`` or ``cuda:all``, or by what `select_devices` reads.

    Raises:
        CommandError: A device is invalid, or does not exist.
    """
    targets = [target for device in devices for target in _expanded(device, read_devices)]
    return list({(target.device, target.environment.get(VISIBLE)): target for target in targets}.values())


def _expanded(device: str, read_devices: Callable[[], Sequence[Device]]) -> Iterator[RunTarget]:
    if device in {"cuda:all", "all"}:
        count = visible_gpus(len(read_devices()))
        if not count:
            raise CommandError.missing(
                ProblemCode.NO_DEVICES, "This host has no GPU.", "Use --device cpu, or see gpumon status."
            )
        yield from (_by_ordinal(ordinal) for ordinal in range(count))
    elif device in {"cpu", "cuda"}:
        yield _by_ordinal(0) if device == "cuda" else CPU
    elif match := _CUDA.fullmatch(device):
        yield _by_ordinal(int(match[1]))
    elif device.startswith("cuda") or not _NAMES_DEVICE.fullmatch(device):
        reason = f"{safe_text(device, 60)!r} is not a device."
        remedy = "Use cpu, cuda:0, cuda:1 and so on, cuda:all, or an index or UUID of nvidia-smi."
        raise CommandError.usage(ProblemCode.NOT_FOUND, reason, remedy)
    else:
        known = read_devices()
        for chosen in select_devices(device, known):
            by_uuid = gpu_target(chosen, known)
            if chosen.cuda_index is None and (by_uuid is None or VISIBLE in os.environ):
                reason = f"CUDA does not show GPU {chosen.label} in this environment, or it is split by MIG."
                remedy = (
                    f"Name one of its instances, such as {chosen.label}:0."
                    if is_split(chosen)
                    else f"Set {VISIBLE}={chosen.uuid}."
                )
                raise CommandError.missing(ProblemCode.NOT_FOUND, reason, remedy)
            yield by_uuid if chosen.cuda_index is None and by_uuid is not None else _by_ordinal(chosen.cuda_index or 0)


def _by_ordinal(ordinal: int) -> RunTarget:
    """A GPU as CUDA numbers it in this environment."""
    name = f"cuda:{ordinal}"
    return RunTarget(name, name, name, {})


def visible_gpus(installed: int, environment: Mapping[str, str] = os.environ) -> int:
    """How many of the installed GPUs CUDA shows.

    CUDA reads the entries of ``CUDAVISIBLE_DEVICES`` up to the first that names no GPU.
    """
    visible = environment.get("CUDAVISIBLE_DEVICES")
    if visible is None:
        return installed
    count = 0
    for entry in visible.split(","):
        name = entry.strip()
        if not (name.startswith(("GPU-", "MIG-")) or (name.isdecimal() and int(name) < installed)):
            break
        count += 1
    return min(count, installed)
