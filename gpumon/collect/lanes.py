"""Which readings are taken how often: each reader stands in a lane that fits its cost.

The costs are those measured on H200 under driver 580. Fast: 1 to 20 microseconds, every tick. Processes: 30
microseconds, but 600 on a busy machine, at most once a second; the PCIe generation stands there too, since an idle
link sleeps and a workload wants to know it under load. Medium: up to 350 microseconds with spikes, every ten
seconds. Static: milliseconds, but it does not change while the driver is loaded; read once, and not in the first tick,
so that the first frame comes soon.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from gpumon.collect import nvml
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.core.metrics import METRICS
from gpumon.core.problems import Problem, ProblemCode

Values = tuple[float | None, ...]


class Lane(Enum):
    """How often a reader runs; the value is the period in seconds, 0 for every tick."""

    FAST = 0.0
    PROCESSES = 0.9
    MEDIUM = 10.0
    STATIC = float("inf")


class Reader(NamedTuple):
    """One or more metrics that come from one NVML call."""

    metrics: tuple[str, ...]
    lane: Lane
    read: Callable[[Nvml, Handle], Values]


def _one(name: str, *arguments: object, scale: float = 1) -> Callable[[Nvml, Handle], Values]:
    def read(api: Nvml, handle: Handle) -> Values:
        return (api.call(name, handle, *arguments) * scale,)

    return read


def _memory(api: Nvml, handle: Handle) -> Values:
    """Total, used, reserved and free; a driver without version 2 counts its reserve as used and does not tell it."""
    try:
        memory = api.call("nvmlDeviceGetMemoryInfo", handle, nvml.MEMORY_INFO_V2)
    except ReadingError as failed:
        if failed.problem.code is not ProblemCode.DRIVER_TOO_OLD:
            raise
        memory = api.call("nvmlDeviceGetMemoryInfo", handle)
        reserved = None
    else:
        reserved = memory.reserved
    if memory.total <= 0 or memory.used > memory.total:  # then none of the four figures can be trusted
        reason = f"The driver answered {memory.used} bytes used of {memory.total} in all."
        raise ReadingError(Problem(ProblemCode.INVALID_VALUE, reason))
    return memory.total, memory.used, reserved, memory.free


def _utilization(api: Nvml, handle: Handle) -> Values:
    rates = api.call("nvmlDeviceGetUtilizationRates", handle)
    return rates.gpu, rates.memory


def _temperature(api: Nvml, handle: Handle) -> Values:
    return (api.call_newest("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", handle, nvml.TEMPERATURE_GPU),)


_TOO_OLD: Final = nvml.failure(nvml.ERROR_FUNCTION_NOT_FOUND).problem
_NEXT_TICK: Final = Problem(ProblemCode.NOT_READ, "It is read in the next frame.")
_MEGA: Final = 1_000_000

READERS: Final = (
    Reader(
        ("memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes", "memory_free_bytes"), Lane.FAST, _memory
    ),
    Reader(("utilization_gpu_percent", "utilization_memory_percent"), Lane.FAST, _utilization),
    Reader(("temperature_celsius",), Lane.FAST, _temperature),
    Reader(("power_watts",), Lane.FAST, _one("nvmlDeviceGetPowerUsage", scale=0.001)),
    Reader(("power_limit_watts",), Lane.MEDIUM, _one("nvmlDeviceGetEnforcedPowerLimit", scale=0.001)),
    Reader(("clock_sm_hertz",), Lane.FAST, _one("nvmlDeviceGetClockInfo", nvml.CLOCK_SM, scale=_MEGA)),
    Reader(("clock_memory_hertz",), Lane.FAST, _one("nvmlDeviceGetClockInfo", nvml.CLOCK_MEMORY, scale=_MEGA)),
    Reader(("performance_state",), Lane.FAST, _one("nvmlDeviceGetPerformanceState")),
    Reader(("pcie_generation",), Lane.PROCESSES, _one("nvmlDeviceGetCurrPcieLinkGeneration")),
    Reader(("pcie_width",), Lane.MEDIUM, _one("nvmlDeviceGetCurrPcieLinkWidth")),
    Reader(
        ("temperature_slowdown_celsius",),
        Lane.STATIC,
        _one("nvmlDeviceGetTemperatureThreshold", nvml.TEMPERATURE_THRESHOLD_SLOWDOWN),
    ),
    Reader(("clock_sm_max_hertz",), Lane.STATIC, _one("nvmlDeviceGetMaxClockInfo", nvml.CLOCK_SM, scale=_MEGA)),
    Reader(("clock_memory_max_hertz",), Lane.STATIC, _one("nvmlDeviceGetMaxClockInfo", nvml.CLOCK_MEMORY, scale=_MEGA)),
    Reader(("pcie_generation_max",), Lane.STATIC, _one("nvmlDeviceGetMaxPcieLinkGeneration")),
    Reader(("pcie_width_max",), Lane.STATIC, _one("nvmlDeviceGetMaxPcieLinkWidth")),
)

RETRY_SECONDS: Final = 300.0
"""A reading that the chip does not support is asked for again this seldom."""

_PERMANENT: Final = frozenset({ProblemCode.NOT_SUPPORTED, ProblemCode.DRIVER_TOO_OLD, ProblemCode.NO_PERMISSION})


def retry_after(problem: Problem, lane: Lane) -> float:
    """Seconds after which a reading that failed is tried again."""
    if problem.code in _PERMANENT:
        return RETRY_SECONDS
    return Lane.MEDIUM.value if lane is Lane.STATIC else lane.value


class LaneReadings:
    """The readings of one device, each taken when its lane is due.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        readers: What to read.
    """

    def __init__(self, api: Nvml, handle: Handle, readers: tuple[Reader, ...] = READERS) -> None:
        self._api = api
        self._handle = handle
        self._readers = readers
        self._due = [0.0] * len(readers)
        self._every = range(len(readers))
        self._fast = [place for place, reader in enumerate(readers) if reader.lane is Lane.FAST]
        self._next_slow = 0.0
        self._held: dict[str, float] = {}
        self._problems: dict[str, Problem] = {}
        self._begun = False

    def read(self, now: float) -> tuple[dict[str, float], dict[str, Problem]]:
        """Readings and problems at ``now``, monotonic seconds.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
            ReadingError: Not one call knows the handle.
        """
        asked = refused = 0
        for position in self._fast if now < self._next_slow else self._every:
            if now < self._due[position]:
                continue
            reader = self._readers[position]
            if reader.lane is Lane.STATIC and not self._begun:
                self._miss(reader, _NEXT_TICK)
                continue
            asked += 1
            try:
                values = reader.read(self._api, self._handle)
            except ReadingError as failed:
                self._miss(reader, failed.problem)
                refused += failed.code == nvml.ERROR_INVALID_ARGUMENT
                pause = retry_after(failed.problem, reader.lane)
            else:
                self._take(reader, values)
                pause = reader.lane.value
            self._due[position] = now + pause  # not before: after a call that hung it is still to be read
        if now >= self._next_slow and self._begun:
            slow = (self._due[place] for place in self._every if place not in self._fast)
            self._next_slow = min(slow, default=Lane.STATIC.value)
        self._begun = True
        if 0 < asked == refused:
            raise nvml.failure(nvml.ERROR_INVALID_ARGUMENT)
        return self._held.copy(), self._problems.copy()

    def _take(self, reader: Reader, values: Values) -> None:
        for metric, value in zip(reader.metrics, values, strict=True):
            if value is None:
                self._held.pop(metric, None)
                self._problems[metric] = _TOO_OLD
            elif METRICS[metric].admits(value):
                self._held[metric] = value
                if self._problems:
                    self._problems.pop(metric, None)
            else:
                self._held.pop(metric, None)
                self._problems[metric] = Problem(
                    ProblemCode.INVALID_VALUE, f"The driver answered {value:g}, which cannot be true."
                )

    def _miss(self, reader: Reader, problem: Problem) -> None:
        for metric in reader.metrics:
            self._held.pop(metric, None)
            self._problems[metric] = problem
