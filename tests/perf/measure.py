"""Measures one monitor in a pseudo-terminal: CPU and memory of its process tree, terminal output, and NVML calls."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.procfs import read_stat
from tests.perf.monitors import Monitor
from tests.processes import PROC, tree
from tests.terminal import Terminal

FIRST_FRAME: Final = r"H200[\s\S]*\d\s?%"
"""A screen with a GPU name followed by a percentage shows values."""

QUIT_TIMEOUT_SECONDS: Final = 8.0
_SAMPLE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Size:
    """Size of the terminal, and duration of the measurement.

    Attributes:
        rows: Height of the terminal.
        cols: Width of the terminal.
        warm_seconds: Time before the measurement window.
        seconds: Length of the measurement window.
    """

    rows: int = 50
    cols: int = 160
    warm_seconds: float = 4.0
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Result:
    """One run; field names carry their unit.

    Attributes:
        first_byte_seconds: From the start to the first byte on the terminal.
        first_frame_seconds: From the start to the first screen with values.
        cpu_percent: CPU of all processes of the monitor in the window; 100 is one core.
        pss_peak_mebibytes: Peak of the proportional set size of all processes of the monitor.
        terminal_bytes_per_second: Bytes written to the terminal in the window.
        nvml_calls_per_gpu_second: NVML calls per GPU and second in the window.
        nvml_setters: Calls of NVML setters in the complete run.
        quit_seconds: From the quit key to the exit.
        exit_code: Exit code, negative for a signal.
    """

    first_byte_seconds: float | None
    first_frame_seconds: float | None
    cpu_percent: float
    pss_peak_mebibytes: float
    terminal_bytes_per_second: float
    nvml_calls_per_gpu_second: float
    nvml_setters: int
    quit_seconds: float
    exit_code: int


class _Snapshot(NamedTuple):
    seconds: float
    cpu_seconds: float
    written: int
    calls: Mapping[str, tuple[float, int]]


def measure(monitor: Monitor, environment: Mapping[str, str], logs: Path, gpus: int, size: Size) -> Result:
    """Run a monitor once.

    Args:
        monitor: The monitor.
        environment: Environment of the stand-in library, with its call log in ``logs``.
        logs: An empty folder for call logs, one per process.
        gpus: Number of GPUs of the stand-in.
        size: Terminal and durations.
    """
    with Terminal(monitor.argv, environment, size.rows, size.cols) as terminal:
        if monitor.keys:
            terminal.wait_for(FIRST_FRAME)
            terminal.send(monitor.keys)
        peak = _peak_pss(terminal, size.warm_seconds)
        before = _snapshot(terminal, logs)
        peak = max(peak, _peak_pss(terminal, size.seconds))
        after = _snapshot(terminal, logs)
        quit_at = time.monotonic()
        terminal.send(monitor.quit_key)
        exit_code = terminal.wait_exit(QUIT_TIMEOUT_SECONDS)
        quit_seconds = time.monotonic() - quit_at
        window = after.seconds - before.seconds
        return Result(
            first_byte_seconds=terminal.arrivals[0][0] if terminal.arrivals else None,
            first_frame_seconds=terminal.first_shown(FIRST_FRAME),
            cpu_percent=100 * (after.cpu_seconds - before.cpu_seconds) / window,
            pss_peak_mebibytes=peak,
            terminal_bytes_per_second=(after.written - before.written) / window,
            nvml_calls_per_gpu_second=_calls_per_second(before.calls, after.calls) / gpus,
            nvml_setters=_setters(logs),
            quit_seconds=quit_seconds,
            exit_code=exit_code,
        )


def _snapshot(terminal: Terminal, logs: Path) -> _Snapshot:
    calls = {path.name: (log["t"], log["total"]) for path, log in _logs(logs)}
    cpu_seconds = sum(_cpu_seconds(pid) for pid in tree(terminal.pid))
    return _Snapshot(time.monotonic(), cpu_seconds, terminal.written, calls)


def _peak_pss(terminal: Terminal, seconds: float) -> float:
    """Wait ``seconds``; returns the peak PSS of the process tree in MiB."""
    peak = 0.0
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _SAMPLE_SECONDS))
        if terminal.process.poll() is not None:
            raise RuntimeError(f"the monitor exited with {terminal.process.returncode}:\n{terminal.screen()}")
        peak = max(peak, sum(pss(pid) for pid in tree(terminal.pid)))
    return peak


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process, in nanosecond resolution, and of its ended children, in clock ticks."""
    try:
        own = time.clock_gettime((~pid << 3) | 2)  # the clock that clock_getcpuclockid(3) returns
        return own + read_stat(PROC / str(pid)).ended_cpu_seconds
    except OSError:
        return 0.0


def pss(pid: int) -> float:
    """Proportional set size of a process in MiB; 0 if the process has ended."""
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _logs(folder: Path) -> list[tuple[Path, dict[str, int]]]:
    return [(path, json.loads(path.read_text())) for path in folder.glob("*.json")]


def _calls_per_second(before: Mapping[str, tuple[float, int]], after: Mapping[str, tuple[float, int]]) -> float:
    rate = 0.0
    for name, (until, total) in after.items():
        since, earlier = before.get(name, (0.0, 0))
        if until > since:
            rate += (total - earlier) / (until - since)
    return rate


def _setters(folder: Path) -> int:
    return sum(log["setters"] for _, log in _logs(folder))
