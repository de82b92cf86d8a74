"""What reading real GPUs costs: ``python -m tests.perf.sweep [SECONDS] [SWEEPS_A_SECOND]``.

Prints how long sweeps took and, by call, how often it was made and what it cost. Process lists and all that changes
seldom are not read in every sweep, so at ten sweeps a second the median is that of the fast lane alone; at one a second
the process lists are in it.
"""

import statistics
import sys
import time
from collections import defaultdict
from typing import Any

from gpumon.collect.flights import Flights
from gpumon.collect.nvml import Nvml
from gpumon.collect.processes import ProcessTable
from gpumon.collect.sweeper import Sweeper


class TimedNvml(Nvml):
    """Keeps the duration of every call."""

    def __init__(self, flights: Flights) -> None:
        super().__init__(flights=flights)
        self.durations: dict[str, list[float]] = defaultdict(list)

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls, and notes how long it took."""
        started = time.perf_counter()
        try:
            return super().call(name, *arguments)
        finally:
            self.durations[name].append(time.perf_counter() - started)


def main() -> None:
    """Sweeps for a while and prints what it cost, then once more to see what each call costs."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 12.0
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    flights = Flights()
    sweeps, devices = sweep(Nvml(flights=flights), flights, seconds / 2, rate)
    timed = TimedNvml(flights)  # timing each call costs time itself, so these sweeps are not counted
    sweep(timed, flights, seconds / 2, rate)
    report(sweeps, devices, timed.durations)


def sweep(api: Nvml, flights: Flights, seconds: float, rate: float) -> tuple[list[float], int]:
    """Durations of the sweeps of ``seconds``, and the number of devices."""
    sweeper = Sweeper(api, ProcessTable(flights), flights)
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
    """Prints sweeps, then calls by their share of the time."""
    first, rest = sweeps[0], sorted(sweeps[1:])
    print(
        f"{len(rest)} sweeps of {devices} GPUs: median {1e3 * statistics.median(rest):.3f} ms, "
        f"90 % within {1e3 * rest[int(0.9 * len(rest))]:.3f} ms, longest {1e3 * rest[-1]:.3f} ms; "
        f"the first {1e3 * first:.1f} ms"
    )
    for name, times in sorted(durations.items(), key=lambda item: -sum(item[1])):
        print(
            f"{name:42} {len(times):6} calls, median {1e6 * statistics.median(times):8.1f} us, "
            f"mean {1e6 * statistics.fmean(times):8.1f} us, longest {1e6 * max(times):9.1f} us"
        )


if __name__ == "__main__":
    main()
