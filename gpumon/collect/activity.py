"""What is read of a device only while somebody looks at it: hardware counters, energy, each process's share.

Costs on H200 under driver 580, each time: a sample of the counters 0.5 milliseconds, energy 3.3, processes 2.5. The
last two hold a lock of the driver's, so that calls of others wait.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from gpumon.collect import nvml
from gpumon.collect.fields import Value
from gpumon.collect.lanes import untrue
from gpumon.collect.nvml import Answer, Handle, Nvml, NvmlError, ReadingError
from gpumon.core.metrics import METRICS
from gpumon.core.problems import Problem, ProblemCode

TWO_READINGS: Final = Problem(ProblemCode.NOT_READ, "It takes two readings to tell.")
_NO_COUNTERS: Final = Problem(ProblemCode.NOT_SUPPORTED, "Chips before Hopper do not show these counters to everyone.")

_MEBIBYTE: Final = 1 << 20
SM_COUNTER: Final = (2, "sm_activity_percent")
_COUNTERS: Final = (
    SM_COUNTER,
    (3, "sm_occupancy_percent"),
    (5, "tensor_activity_percent"),
    (10, "dram_activity_percent"),
    (11, "fp64_activity_percent"),
    (12, "fp32_activity_percent"),
    (13, "fp16_activity_percent"),
    (20, "pcie_transmit_bytes_per_second"),
    (21, "pcie_receive_bytes_per_second"),
    (60, "nvlink_receive_bytes_per_second"),
    (61, "nvlink_transmit_bytes_per_second"),
)
"""NVML's numbers of the counters. Shares come in percent, rates in MiB a second."""

_ROUNDING: Final = 1.0
"""A share is a quotient of two counters, and may come out this much above 100 %."""


GPM_METRICS: Final = tuple(metric for _, metric in _COUNTERS)
"""All that the chip's own counters tell."""


class Part(Protocol):
    """One source of what a look shows."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """What it reads."""

    def read(self) -> Mapping[str, Value]:
        """Makes its calls; a value for each of the metrics.

        Raises:
            NvmlError: A call failed.
        """

    def close(self) -> None:
        """Gives back what it holds."""


class GpmCounters:
    """The chip's own counters (GPM), as differences between a sample and the one before it.

    Samples are memory of the driver's library and must be given back with `close`.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        counters: Which ones: NVML's numbers, and the metrics that they are.
    """

    def __init__(self, api: Nvml, handle: Handle, counters: Sequence[tuple[int, str]] = _COUNTERS) -> None:
        self.metrics = tuple(metric for _, metric in counters)
        self._api = api
        self._handle = handle
        self._request = nvml.gpm_request([number for number, _ in counters])
        self._samples: list[Handle] = []
        self._newest: int | None = None

    def read(self) -> Mapping[str, Value]:
        """The counters since the last call, which must be at least 0.1 s ago.

        Raises:
            NvmlError: A call failed.
        """
        while len(self._samples) < 2:
            self._add_sample()
        before, place = self._newest, 0 if self._newest is None else 1 - self._newest
        self._api.call("nvmlGpmSampleGet", self._handle, self._samples[place])
        self._newest = place
        if before is None:
            return dict.fromkeys(self.metrics, TWO_READINGS)
        self._request.sample1, self._request.sample2 = self._samples[before], self._samples[place]
        self._api.call("nvmlGpmMetricsGet", self._request)
        answers = self._request.metrics
        return {metric: _counter(metric, answers[place]) for place, metric in enumerate(self.metrics)}

    def close(self) -> None:
        """Gives the samples back."""
        self._newest = None
        while self._samples:
            with suppress(NvmlError):  # a driver that has gone has taken them along
                self._api.call("nvmlGpmSampleFree", self._samples.pop())

    def _add_sample(self) -> None:
        if not self._samples and not self._api.call("nvmlGpmQueryDeviceSupport", self._handle).isSupportedDevice:
            raise ReadingError(_NO_COUNTERS)
        self._samples.append(self._api.call("nvmlGpmSampleAlloc"))


class EnergyCounter:
    """Energy drawn since the first reading, from the driver's counter of millijoules.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
    """

    metrics = ("energy_joules",)

    def __init__(self, api: Nvml, handle: Handle) -> None:
        self._api = api
        self._handle = handle
        self._millijoules = 0
        self._last: tuple[float, int] | None = None

    def read(self) -> Mapping[str, Value]:
        """Energy so far; a step that no board can have drawn, or one back, does not count.

        Raises:
            NvmlError: The call failed.
        """
        counter = self._api.call("nvmlDeviceGetTotalEnergyConsumption", self._handle)
        now = self._api.flights.clock()
        last, self._last = self._last, (now, counter)
        if last is not None:
            step = counter - last[1]
            if not 0 <= step <= 1000 * METRICS["power_watts"].maximum * (now - last[0] + _COUNTER_STEP_SECONDS):
                return {"energy_joules": untrue(step / 1000)}
            self._millijoules += step
        return {"energy_joules": self._millijoules / 1000}

    def close(self) -> None:
        """Nothing is held; what was drawn so far is not forgotten."""


class ProcessShares:
    """Each process's share of the multiprocessors, from the driver's own samples.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        wall_clock: Unix time, by which the driver stamps its samples.

    Attributes:
        shares: Percent by PID, or why there are none; who is not in it had no work.
    """

    metrics: tuple[str, ...] = ()

    def __init__(self, api: Nvml, handle: Handle, wall_clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._handle = handle
        self._wall_clock = wall_clock
        self._seen = 0
        self.shares: Mapping[int, Value] | Problem = TWO_READINGS

    def read(self) -> Mapping[str, Value]:
        """Renews `shares` with the samples since the last call; the first call only finds out where they begin.

        Raises:
            NvmlError: The call failed.
        """
        begun = self._seen > 0
        try:
            samples = self._api.call("nvmlDeviceGetProcessUtilization", self._handle, self._seen)
        except ReadingError as failed:
            self.shares = failed.problem
            if failed.code not in _NOTHING_RAN:
                raise
            samples = []
        latest = {sample.pid: sample for sample in sorted(samples, key=lambda sample: sample.timeStamp)}
        limit = (self._wall_clock() + _CLOCK_SLACK_SECONDS) * 1e6
        stamps = [sample.timeStamp for sample in samples if sample.timeStamp <= limit]
        self._seen = max((self._seen, *stamps))
        self._seen = self._seen or 1  # nothing ran so far, so that what comes next is new
        self.shares = {pid: _share(sample.smUtil) for pid, sample in latest.items()} if begun else TWO_READINGS
        return {}

    def close(self) -> None:
        """Forgets where it was: the samples of a time when nobody looked are not wanted."""
        self._seen = 0
        if not isinstance(self.shares, Problem):
            self.shares = TWO_READINGS


_COUNTER_STEP_SECONDS: Final = 2.0
"""The energy counter moves in steps; a step may be this much late."""
_CLOCK_SLACK_SECONDS: Final = 60.0
"""Samples stamped further ahead than this are not believed: asking for what came after them would find nothing."""
_NOTHING_RAN: Final = frozenset({nvml.SUCCESS, nvml.ERROR_NOT_FOUND})
"""How the call fails when there is no sample: the second, or, in pynvml, an error with the code of success."""


def _counter(metric: str, answer: Answer) -> Value:
    if answer.nvmlReturn != nvml.SUCCESS:
        failed = nvml.failure(answer.nvmlReturn)
        if not isinstance(failed, ReadingError):
            raise failed
        return failed.problem
    value: float = answer.value
    if metric.endswith("_percent"):
        return round(min(value, 100.0) if value <= 100.0 + _ROUNDING else value, 2)
    return round(value * _MEBIBYTE) if value - value == 0 else value  # not a number stays what it is


def _share(percent: int) -> Value:
    return percent if 0 <= percent <= 100 else untrue(percent)
