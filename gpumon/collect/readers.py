"""Which readings are taken how often, and from which call: each reader stands in a lane that fits its cost.

The costs are those measured on H200 under driver 580. Fast: 1 to 20 microseconds, every tick. Processes: 30
microseconds, but 600 on a busy machine, at most once a second; the PCIe generation stands there too, since an idle
link sleeps and a workload wants to know it under load. Medium: up to 350 microseconds with spikes, every ten
seconds, each at a time of its own. Static: milliseconds, but it does not change while the driver is loaded; read once,
and not in the first tick, so that the first frame comes soon.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from gpumon.collect import nvml
from gpumon.collect.fields import Field, Value
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.core.problems import Problem, ProblemCode

Values = tuple[Value, ...]


class Lane(Enum):
    """How often a reader runs; the value is the period in seconds, 0 for every tick."""

    FAST = 0.0
    PROCESSES = 0.9
    MEDIUM = 10.0
    STATIC = float("inf")


class Reader(NamedTuple):
    """One or more metrics that come from one NVML call.

    Attributes:
        metrics: What it reads.
        lane: How often.
        read: Makes the call; one value for each of the metrics.
        waits: Whether the first frame does without it.
    """

    metrics: tuple[str, ...]
    lane: Lane
    read: Callable[[Nvml, Handle], Values]
    waits: bool = False


class FieldReader(NamedTuple):
    """One or more metrics that come from field values; all field readers that are due share one call.

    Attributes:
        metrics: What it reads.
        lane: How often.
        fields: What it needs for that.
        combine: Makes the values of the metrics from those of the fields.
    """

    metrics: tuple[str, ...]
    lane: Lane
    fields: tuple[Field, ...]
    combine: Callable[[Sequence[Value]], Values] = tuple
    waits: bool = True


AnyReader = Reader | FieldReader


def _one(name: str, *arguments: object, scale: float = 1) -> Callable[[Nvml, Handle], Values]:
    def read(api: Nvml, handle: Handle) -> Values:
        return (api.call(name, handle, *arguments) * scale,)

    return read


def _first(name: str) -> Callable[[Nvml, Handle], Values]:
    """The first of several answers; the second one of encoder and decoder is their sample period."""

    def read(api: Nvml, handle: Handle) -> Values:
        return (api.call(name, handle)[0],)

    return read


def _memory(api: Nvml, handle: Handle) -> Values:
    """Total, used, reserved and free; a driver without version 2 counts its reserve as used and does not tell it."""
    reserved: Value
    try:
        memory = api.call("nvmlDeviceGetMemoryInfo", handle, nvml.MEMORY_INFO_V2)
    except ReadingError as failed:
        if failed.problem.code is not ProblemCode.DRIVER_TOO_OLD:
            raise
        memory = api.call("nvmlDeviceGetMemoryInfo", handle)
        reserved = failed.problem
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


def _bar1(api: Nvml, handle: Handle) -> Values:
    window = api.call("nvmlDeviceGetBAR1MemoryInfo", handle)
    if window.bar1Used > window.bar1Total:
        reason = f"The driver answered {window.bar1Used} bytes used of {window.bar1Total} in all."
        raise ReadingError(Problem(ProblemCode.INVALID_VALUE, reason))
    return window.bar1Total, window.bar1Used


def _remapped_rows(api: Nvml, handle: Handle) -> Values:
    correctable, uncorrectable, pending, failed = api.call("nvmlDeviceGetRemappedRows", handle)
    return correctable, uncorrectable, pending, failed


def _nvlink(speeds: Sequence[Value]) -> Values:
    """How many links are up, and their rates (NVML's MB/s) together; why there is none where no link tells its own."""
    told = [speed for speed in speeds if not isinstance(speed, Problem)]
    if not told:
        return speeds[0], speeds[0]
    return sum(speed > 0 for speed in told), sum(told) * _MEGA


def _milli(values: Sequence[Value]) -> Values:
    return tuple(value if isinstance(value, Problem) else value * 0.001 for value in values)


_MEGA: Final = 1_000_000
_LINKS: Final = tuple(Field(nvml.FIELD_NVLINK_SPEED, link) for link in range(nvml.NVLINK_MOST_LINKS))
_ECC_FIELDS: Final = (
    ("ecc_corrected_volatile_count", nvml.FIELD_ECC_CORRECTED_VOLATILE),
    ("ecc_corrected_aggregate_count", nvml.FIELD_ECC_CORRECTED_AGGREGATE),
    ("ecc_uncorrected_volatile_count", nvml.FIELD_ECC_UNCORRECTED_VOLATILE),
    ("ecc_uncorrected_aggregate_count", nvml.FIELD_ECC_UNCORRECTED_AGGREGATE),
)
_ROWS: Final = (
    "remapped_rows_correctable_count",
    "remapped_rows_uncorrectable_count",
    "remapped_rows_pending",
    "remapped_rows_failure",
)

MEMORY_READER: Final = Reader(
    ("memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes", "memory_free_bytes"), Lane.FAST, _memory
)

READERS: Final[tuple[AnyReader, ...]] = (
    MEMORY_READER,
    Reader(("utilization_gpu_percent", "utilization_memory_percent"), Lane.FAST, _utilization),
    Reader(("temperature_celsius",), Lane.FAST, _temperature),
    Reader(("power_watts",), Lane.FAST, _one("nvmlDeviceGetPowerUsage", scale=0.001)),
    Reader(("power_limit_watts",), Lane.MEDIUM, _one("nvmlDeviceGetEnforcedPowerLimit", scale=0.001)),
    Reader(("clock_sm_hertz",), Lane.FAST, _one("nvmlDeviceGetClockInfo", nvml.CLOCK_SM, scale=_MEGA)),
    Reader(("clock_memory_hertz",), Lane.FAST, _one("nvmlDeviceGetClockInfo", nvml.CLOCK_MEMORY, scale=_MEGA)),
    Reader(("performance_state",), Lane.FAST, _one("nvmlDeviceGetPerformanceState")),
    Reader(("pcie_generation",), Lane.PROCESSES, _one("nvmlDeviceGetCurrPcieLinkGeneration")),
    Reader(("pcie_width",), Lane.MEDIUM, _one("nvmlDeviceGetCurrPcieLinkWidth")),
    *(FieldReader((metric,), Lane.MEDIUM, (Field(field),)) for metric, field in _ECC_FIELDS),
    FieldReader(("temperature_memory_celsius",), Lane.MEDIUM, (Field(nvml.FIELD_MEMORY_TEMPERATURE),)),
    FieldReader(("power_instant_watts",), Lane.MEDIUM, (Field(nvml.FIELD_POWER_INSTANT),), _milli),
    Reader(_ROWS, Lane.MEDIUM, _remapped_rows, waits=True),
    Reader(("bar1_total_bytes", "bar1_used_bytes"), Lane.MEDIUM, _bar1, waits=True),
    Reader(("pcie_replay_count",), Lane.MEDIUM, _one("nvmlDeviceGetPcieReplayCounter"), waits=True),
    Reader(("fan_percent",), Lane.MEDIUM, _one("nvmlDeviceGetFanSpeed"), waits=True),
    Reader(("utilization_encoder_percent",), Lane.MEDIUM, _first("nvmlDeviceGetEncoderUtilization"), waits=True),
    Reader(("utilization_decoder_percent",), Lane.MEDIUM, _first("nvmlDeviceGetDecoderUtilization"), waits=True),
    Reader(
        ("temperature_slowdown_celsius",),
        Lane.STATIC,
        _one("nvmlDeviceGetTemperatureThreshold", nvml.TEMPERATURE_THRESHOLD_SLOWDOWN),
        waits=True,
    ),
    Reader(("clock_sm_max_hertz",), Lane.STATIC, _one("nvmlDeviceGetMaxClockInfo", nvml.CLOCK_SM, scale=_MEGA), True),
    Reader(
        ("clock_memory_max_hertz",),
        Lane.STATIC,
        _one("nvmlDeviceGetMaxClockInfo", nvml.CLOCK_MEMORY, scale=_MEGA),
        waits=True,
    ),
    Reader(("pcie_generation_max",), Lane.STATIC, _one("nvmlDeviceGetMaxPcieLinkGeneration"), waits=True),
    Reader(("pcie_width_max",), Lane.STATIC, _one("nvmlDeviceGetMaxPcieLinkWidth"), waits=True),
    Reader(("memory_bus_width_bits",), Lane.STATIC, _one("nvmlDeviceGetMemoryBusWidth"), waits=True),
    FieldReader(("nvlink_links_count", "nvlink_bytes_per_second"), Lane.MEDIUM, _LINKS, _nvlink),
)
"""What is read of a device whether somebody looks at it or not."""
