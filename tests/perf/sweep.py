"""Time that NVML calls take on real GPUs: ``python -m tests.perf.sweep [SECONDS] [SWEEPS_PER_SECOND]``.

Prints the duration of the sweeps and, per NVML function, the number of calls and their duration. Process lists and
values that rarely change are not read in every sweep: at ten sweeps per second, the median is a sweep without them; at
one per second, it includes the process lists.
"""

import statistics
import sys
import time
from collections import defaultdict
from typing import Any

from gpumon.collect.calls import CallsInFlight
from gpumon.collect.nvml import Nvml
from gpumon.collect.processes import ProcessTable
from gpumon.collect.sweeper import Sweeper


class TimedNvml(Nvml):
    """Records the duration of every call."""

    def __init__(self, in_flight: CallsInFlight) -> None:
        super().__init__(in_flight=in_flight)
        self.durations: dict[str, list[float]] = defaultdict(list)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the function and record its duration."""
        started = time.perf_counter()
        try:
            return super().call(name, *arguments)
        finally:
            self.durations[name].append(time.perf_counter() - started)


def main() -> None:
    """Measure sweeps, then measure again with the duration of each call."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 12.0
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    in_flight = CallsInFlight()
    sweeps, devices = sweep(Nvml(in_flight=in_flight), in_flight, seconds / 2, rate)
    timed = TimedNvml(in_flight)  # timing each call takes time itself, so these sweeps are not printed
    sweep(timed, in_flight, seconds / 2, rate)
    report(sweeps, devices, timed.durations)


def sweep(api: Nvml, in_flight: CallsInFlight, seconds: float, rate: float) -> tuple[list[float], int]:
    """Sweep for ``seconds``; returns the duration of each sweep, and the number of devices."""
    sweeper = Sweeper(api, ProcessTable(in_flight), in_flight)
    swept: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sweeper.request()
        sweeper.done.wait()
        if sweeper.problem is not None or sweeper.last_seconds is None:
            sys.exit(f"no sweep: {sweeper.problem}")
        swept.append(sweeper.last_seconds)
        time.sleep(1 / rate)
    return swept, len(sweeper.slots)


def report(sweeps: list[float], devices: int, durations: dict[str, list[float]]) -> None:
    """Print the sweeps, then the functions by their share of the time."""
    first, rest = sweeps[0], sorted(sweeps[1:])
    print(
        f"{len(rest)} sweeps of {devices} GPUs: median {1e3 * statistics.median(rest):.3f} ms, "
        f"90th percentile {1e3 * rest[int(0.9 * len(rest))]:.3f} ms, longest {1e3 * rest[-1]:.3f} ms; "
        f"first {1e3 * first:.1f} ms"
    )
    for name, times in sorted(durations.items(), key=lambda item: -sum(item[1])):
        print(
            f"{name:42} {len(times):6} calls, median {1e6 * statistics.median(times):8.1f} us, "
            f"mean {1e6 * statistics.fmean(times):8.1f} us, longest {1e6 * max(times):9.1f} us"
        )


if __name__ == "__main__":
    main()
