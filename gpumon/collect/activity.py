"""The sources of the on-demand metrics: hardware counters (GPM), energy, PCIe rates, each process's share of the SMs.

Costs of one sample on H200 under driver 580: 0.5 milliseconds for the counters, 3.3 for the energy, 2.5 for the
processes, 42 for the PCIe rates. The energy and the processes hold a lock in the driver, so that the calls of other
processes wait. The PCIe rates hold no lock, and are only for GPUs whose counters do not include them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from gpumon.collect import nvml
from gpumon.collect.nvml import Answer, Handle, Nvml, NvmlError, ReadingError
from gpumon.collect.readers import Value, invalid
from gpumon.collect.schedule import NEEDS_TWO_SAMPLES
from gpumon.core.metrics import METRICS
from gpumon.core.problems import Problem, ProblemCode

_NO_COUNTERS: Final = Problem(
    ProblemCode.NOT_SUPPORTED, "GPUs before Hopper do not provide these counters (GPM) to every user."
)

_KILOBYTE: Final = 1000
_MAX_PCIE_KILOBYTES: Final = 1_000_000_000
"""More than any link transfers in a second, and less than 4294967295, which drivers return for an unknown value."""
_MEBIBYTE: Final = 1 << 20
SM_COUNTER: Final = (2, "sm_activity_percent")
_COUNTERS: Final = (
    (1, "engine_activity_percent"),
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
"""NVML's GPM metric IDs. NVML returns shares in percent and rates in MiB per second."""
INSTANCE_COUNTERS: Final = (
    (1, "utilization_gpu_percent"),
    *(counter for counter in _COUNTERS if counter[1].endswith("_percent")),
)
"""Those of a MIG instance, of which NVML reports the utilization in no other way. The links belong to the GPU."""

_ROUNDING: Final = 1.0
"""A share is the quotient of two counters and may exceed 100 % by this much."""

_COUNTER_STEP_SECONDS: Final = 2.0
"""The energy counter is updated in steps, which may be this much late."""
_CLOCK_SLACK_SECONDS: Final = 60.0
"""Samples with a timestamp further in the future are ignored: a query for newer samples would return none."""
_NOTHING_RAN: Final = frozenset({nvml.SUCCESS, nvml.ERROR_NOT_FOUND})
"""Return codes of nvmlDeviceGetProcessUtilization without samples; pynvml raises an error with the code SUCCESS."""

GPM_METRICS: Final = tuple(metric for _, metric in _COUNTERS)

SmShares = Mapping[int, Value] | Problem
"""Percent of the multiprocessors by PID, or why the shares are unknown. A process that is not listed had no work."""


class OnDemandSource(Protocol):
    """One source of on-demand metrics."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """IDs of the metrics."""

    def read(self) -> Mapping[str, Value]:
        """Make the calls and return a value for each metric.

        Raises:
            NvmlError: A call failed.
        """

    def close(self) -> None:
        """Free the resources."""


class GpmCounters:
    """Hardware counters (GPM), as differences between two consecutive samples.

    The samples are memory of the driver library, which `close` frees.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        counters: NVML's IDs of the counters, and the metrics that they belong to.
        gpu_instance_id: Sample this instance of the GPU (MIG); None for the GPU.
    """

    def __init__(
        self,
        api: Nvml,
        handle: Handle,
        counters: Sequence[tuple[int, str]] = _COUNTERS,
        gpu_instance_id: int | None = None,
    ) -> None:
        self.metrics = tuple(metric for _, metric in counters)
        self._api = api
        self._handle = handle
        self._instance_id = gpu_instance_id
        self._request = nvml.gpm_request([number for number, _ in counters])
        self._samples: list[Handle] = []
        self._newest: int | None = None

    def read(self) -> Mapping[str, Value]:
        """The counters since the previous call, which must be at least 0.1 s ago.

        Raises:
            NvmlError: A call failed.
        """
        while len(self._samples) < 2:
            if not self._samples and not self._api.call("nvmlGpmQueryDeviceSupport", self._handle).isSupportedDevice:
                raise ReadingError(_NO_COUNTERS)
            self._samples.append(self._api.call("nvmlGpmSampleAlloc"))
        previous, newest = self._newest, 0 if self._newest is None else 1 - self._newest
        if self._instance_id is None:
            self._api.call("nvmlGpmSampleGet", self._handle, self._samples[newest])
        else:
            self._api.call("nvmlGpmMigSampleGet", self._handle, self._instance_id, self._samples[newest])
        self._newest = newest
        if previous is None:
            return dict.fromkeys(self.metrics, NEEDS_TWO_SAMPLES)
        self._request.sample1, self._request.sample2 = self._samples[previous], self._samples[newest]
        self._api.call("nvmlGpmMetricsGet", self._request)
        answers = self._request.metrics
        return {metric: _counter(metric, answers[index]) for index, metric in enumerate(self.metrics)}

    def close(self) -> None:
        """Free the samples."""
        self._newest = None
        while self._samples:
            with suppress(NvmlError):  # a driver that is gone has freed them
                self._api.call("nvmlGpmSampleFree", self._samples.pop())


class EnergyCounter:
    """Energy used since the first reading, from the driver's counter of millijoules.

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
        """Energy so far; a step backward, or one that exceeds the power of any board, does not count.

        Raises:
            NvmlError: The call failed.
        """
        counter = self._api.call("nvmlDeviceGetTotalEnergyConsumption", self._handle)
        now = self._api.in_flight.clock()
        last, self._last = self._last, (now, counter)
        if last is not None:
            step = counter - last[1]
            if not 0 <= step <= 1000 * METRICS["power_watts"].maximum * (now - last[0] + _COUNTER_STEP_SECONDS):
                return {"energy_joules": invalid(step / 1000)}
            self._millijoules += step
        return {"energy_joules": self._millijoules / 1000}

    def close(self) -> None:
        """Free nothing; the energy so far is kept."""


class PcieThroughput:
    """PCIe rates of a GPU without counters: the driver measures each direction during 20 milliseconds.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
    """

    metrics = ("pcie_transmit_bytes_per_second", "pcie_receive_bytes_per_second")

    def __init__(self, api: Nvml, handle: Handle) -> None:
        self._api = api
        self._handle = handle

    def read(self) -> Mapping[str, Value]:
        """The rates now; NVML returns them in kilobytes per second.

        Raises:
            NvmlError: A call failed.
        """
        rates: dict[str, Value] = {}
        for metric, direction in zip(self.metrics, (nvml.PCIE_TRANSMIT, nvml.PCIE_RECEIVE), strict=True):
            kilobytes: int = self._api.call("nvmlDeviceGetPcieThroughput", self._handle, direction)
            rates[metric] = kilobytes * _KILOBYTE if kilobytes < _MAX_PCIE_KILOBYTES else invalid(kilobytes)
        return rates

    def close(self) -> None:
        """Free nothing."""


class ProcessShares:
    """Each process's share of the multiprocessors, from the driver's samples.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        wall_clock: Unix time, which the driver uses for the timestamps of its samples.
    """

    def __init__(self, api: Nvml, handle: Handle, wall_clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._handle = handle
        self._wall_clock = wall_clock
        self._last_seen = 0

    def read(self) -> SmShares:
        """The shares since the previous call; the first call only finds out where the samples start.

        Raises:
            NvmlError: The call failed.
        """
        is_first = self._last_seen == 0
        try:
            samples = self._api.call("nvmlDeviceGetProcessUtilization", self._handle, self._last_seen)
        except ReadingError as error:
            if error.code not in _NOTHING_RAN:
                raise
            samples = []
        latest = {sample.pid: sample for sample in sorted(samples, key=lambda sample: sample.timeStamp)}
        limit = (self._wall_clock() + _CLOCK_SLACK_SECONDS) * 1e6
        timestamps = [sample.timeStamp for sample in samples if sample.timeStamp <= limit]
        self._last_seen = max((self._last_seen, *timestamps)) or 1  # 1: without samples, everything later is new
        return NEEDS_TWO_SAMPLES if is_first else {pid: _share(sample.smUtil) for pid, sample in latest.items()}

    def close(self) -> None:
        """Forget the last sample, so that the samples up to the next selection are skipped."""
        self._last_seen = 0


def _counter(metric: str, answer: Answer) -> Value:
    if answer.nvmlReturn != nvml.SUCCESS:
        error = nvml.failure(answer.nvmlReturn)
        if not isinstance(error, ReadingError):
            raise error
        return error.problem
    value: float = answer.value
    if metric.endswith("_percent"):
        return round(min(value, 100.0) if value <= 100.0 + _ROUNDING else value, 2)
    return round(value * _MEBIBYTE) if value - value == 0 else value  # NaN stays NaN


def _share(percent: int) -> Value:
    return percent if 0 <= percent <= 100 else invalid(percent)
