"""The metrics of one device: which NVML call each one comes from, how often it is read, and its last value.

A new metric needs an entry in `gpumon.core.metrics` and one in `READERS`. The readers that run every ten seconds take
turns: one or two of them run in a sweep, not all at once.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.collect import nvml
from gpumon.collect.nvml import Answer, Handle, Nvml, ReadingError
from gpumon.collect.schedule import NEXT_FRAME, Period, PolledValue
from gpumon.core.metrics import METRICS
from gpumon.core.problems import Problem, ProblemCode

Value = float | Problem
"""A value, or the reason why it is missing."""
Values = tuple[Value, ...]


class Field(NamedTuple):
    """One of NVML's field values (``NVML_FI_*``).

    Attributes:
        id: NVML's field ID.
        scope: The NVLink link or the sensor, where the field has several.
    """

    id: int
    scope: int = 0


class Reader(NamedTuple):
    """One or more metrics that come from one NVML call.

    Attributes:
        metrics: IDs of the metrics.
        period: How often they are read.
        read: Makes the call; returns one value for each metric.
        is_early: Whether a slow reader runs for the first frame too, which the others would delay.
    """

    metrics: tuple[str, ...]
    period: Period
    read: Callable[[Nvml, Handle], Values]
    is_early: bool = False


class FieldReader(NamedTuple):
    """One or more metrics that come from field values; all field readers that are due share one NVML call.

    Attributes:
        metrics: IDs of the metrics.
        period: How often they are read.
        fields: The fields that the metrics need.
        combine: Converts the values of the fields to the values of the metrics.
    """

    metrics: tuple[str, ...]
    period: Period
    fields: tuple[Field, ...]
    combine: Callable[[Sequence[Value]], Values] = tuple
    is_early: bool = False


AnyReader = Reader | FieldReader


def read_fields(api: Nvml, handle: Handle, fields: Sequence[Field]) -> list[Value]:
    """The values of ``fields``, in the same order, from one call.

    The last field is requested twice, because some drivers write past the last one.

    Raises:
        DeviceLostError: The device is gone.
        DriverGoneError: The driver is gone.
        ReadingError: The call itself failed.
    """
    answers = api.call("nvmlDeviceGetFieldValues", handle, [*fields, fields[-1]])
    return [_field_value(answers[index]) for index in range(len(fields))]


def _field_value(answer: Answer) -> Value:
    if answer.nvmlReturn != nvml.SUCCESS:
        error = nvml.failure(answer.nvmlReturn)
        if not isinstance(error, ReadingError):
            raise error
        return error.problem
    if not 0 <= answer.valueType < len(_UNION_MEMBERS):
        reason = f"The driver returned a value of an unknown type ({answer.valueType})."
        return Problem(ProblemCode.INVALID_VALUE, reason)
    value: float = getattr(answer.value, _UNION_MEMBERS[answer.valueType])
    return value


def read_throttle_reasons(api: Nvml, handle: Handle) -> tuple[str, ...]:
    """The reasons why the clocks of a device are reduced now; raises what `Nvml.call` raises."""
    bits = api.call_newest(
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", handle
    )
    return tuple(name for bit, name in nvml.THROTTLE_REASONS if bits & bit)


def _one(name: str, *arguments: object, scale: float = 1) -> Callable[[Nvml, Handle], Values]:
    def read(api: Nvml, handle: Handle) -> Values:
        return (api.call(name, handle, *arguments) * scale,)

    return read


def _first(name: str) -> Callable[[Nvml, Handle], Values]:
    """Read the first of several results; the second one of the encoder and the decoder is the sampling period."""

    def read(api: Nvml, handle: Handle) -> Values:
        return (api.call(name, handle)[0],)

    return read


def _memory(api: Nvml, handle: Handle) -> Values:
    """Total, used, reserved and free memory; version 1 of the call counts reserved memory as used."""
    reserved: Value
    try:
        memory = api.call("nvmlDeviceGetMemoryInfo", handle, nvml.MEMORY_INFO_V2)
    except ReadingError as error:
        if error.problem.code is not ProblemCode.DRIVER_TOO_OLD:
            raise
        memory = api.call("nvmlDeviceGetMemoryInfo", handle)
        reserved = error.problem
    else:
        reserved = memory.reserved
    if memory.total <= 0 or memory.used > memory.total:  # none of the four values can be trusted
        raise _contradiction(memory.used, memory.total)
    return memory.total, memory.used, reserved, memory.free


def _utilization(api: Nvml, handle: Handle) -> Values:
    rates = api.call("nvmlDeviceGetUtilizationRates", handle)
    return rates.gpu, rates.memory


def _temperature(api: Nvml, handle: Handle) -> Values:
    return (api.call_newest("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", handle, nvml.TEMPERATURE_GPU),)


def _bar1(api: Nvml, handle: Handle) -> Values:
    window = api.call("nvmlDeviceGetBAR1MemoryInfo", handle)
    if window.bar1Used > window.bar1Total:
        raise _contradiction(window.bar1Used, window.bar1Total)
    return window.bar1Total, window.bar1Used


def _contradiction(used: int, total: int) -> ReadingError:
    reason = f"The driver returned {used} bytes used of {total} bytes total."
    return ReadingError(Problem(ProblemCode.INVALID_VALUE, reason))


def _vgpu_license(api: Nvml, handle: Handle) -> Values:
    licenses = api.call("nvmlDeviceGetGridLicensableFeatures", handle)
    count = licenses.licensableFeaturesCount if licenses.isGridLicenseSupported else 0  # 0: the GPU is no vGPU
    features = licenses.gridLicensableFeatures[:count]
    return (int(any(feature.featureCode == nvml.VGPU_FEATURE and feature.featureState for feature in features)),)


def _nvlink(speeds: Sequence[Value]) -> Values:
    """The number of active links and their total rate (NVML's MB/s), or the problem of the first link."""
    reported = [speed for speed in speeds if not isinstance(speed, Problem)]
    if not reported:
        return speeds[0], speeds[0]
    return sum(speed > 0 for speed in reported), sum(reported) * _MEGA


def _milli(values: Sequence[Value]) -> Values:
    return tuple(value if isinstance(value, Problem) else value * 0.001 for value in values)


def _retired_pages(values: Sequence[Value]) -> Values:
    """The counts and the flag; GPUs since Ampere have none, because they remap rows."""
    return tuple(
        _NO_RETIRED_PAGES if isinstance(value, Problem) and value.code is ProblemCode.NOT_SUPPORTED else value
        for value in values
    )


_NO_RETIRED_PAGES: Final = Problem(
    ProblemCode.NOT_SUPPORTED, "Not supported by this GPU or driver: GPUs since Ampere remap rows instead."
)
_UNION_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The members of ``nvmlValue_t``, by ``valueType``."""
_MEGA: Final = 1_000_000
_LINKS: Final = tuple(Field(nvml.FIELD_NVLINK_SPEED, link) for link in range(nvml.MAX_NVLINK_LINKS))
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

_RETIRED_PAGES: Final = (
    ("retired_pages_corrected_count", nvml.FIELD_RETIRED_CORRECTED),
    ("retired_pages_uncorrected_count", nvml.FIELD_RETIRED_UNCORRECTED),
    ("retired_pages_pending", nvml.FIELD_RETIRED_PENDING),
)

_SWEEP, _SECOND, _TWO_SECONDS, _SLOW, _, _ONCE = Period  # in the order of their definition

MEMORY_READER: Final = Reader(
    ("memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes", "memory_free_bytes"), _SWEEP, _memory
)
_SLOWDOWN: Final = nvml.TEMPERATURE_THRESHOLD_SLOWDOWN
_SHUTDOWN: Final = nvml.TEMPERATURE_THRESHOLD_SHUTDOWN

READERS: Final[tuple[AnyReader, ...]] = (
    MEMORY_READER,
    Reader(("utilization_gpu_percent", "utilization_memory_percent"), _SWEEP, _utilization),
    Reader(("temperature_celsius",), _SWEEP, _temperature),
    Reader(("power_watts",), _SWEEP, _one("nvmlDeviceGetPowerUsage", scale=0.001)),
    Reader(("power_limit_watts",), _SLOW, _one("nvmlDeviceGetEnforcedPowerLimit", scale=0.001), is_early=True),
    Reader(("clock_sm_hertz",), _SWEEP, _one("nvmlDeviceGetClockInfo", nvml.CLOCK_SM, scale=_MEGA)),
    Reader(("clock_memory_hertz",), _SWEEP, _one("nvmlDeviceGetClockInfo", nvml.CLOCK_MEMORY, scale=_MEGA)),
    Reader(("performance_state",), _SWEEP, _one("nvmlDeviceGetPerformanceState")),
    Reader(("pcie_generation",), _SECOND, _one("nvmlDeviceGetCurrPcieLinkGeneration")),  # an idle link slows down
    Reader(("clock_video_hertz",), _TWO_SECONDS, _one("nvmlDeviceGetClockInfo", nvml.CLOCK_VIDEO, scale=_MEGA)),
    Reader(("pcie_width",), _SLOW, _one("nvmlDeviceGetCurrPcieLinkWidth"), is_early=True),
    *(FieldReader((metric,), _SLOW, (Field(field),)) for metric, field in _ECC_FIELDS),
    *(FieldReader((metric,), _SLOW, (Field(field),), _retired_pages) for metric, field in _RETIRED_PAGES),
    FieldReader(("temperature_memory_celsius",), _SLOW, (Field(nvml.FIELD_MEMORY_TEMPERATURE),)),
    FieldReader(("power_instant_watts",), _SLOW, (Field(nvml.FIELD_POWER_INSTANT),), _milli),
    Reader(_ROWS, _SLOW, lambda api, handle: tuple(api.call("nvmlDeviceGetRemappedRows", handle))),
    Reader(("bar1_total_bytes", "bar1_used_bytes"), _SLOW, _bar1),
    Reader(("pcie_replay_count",), _SLOW, _one("nvmlDeviceGetPcieReplayCounter")),
    Reader(("vgpu_license",), _SLOW, _vgpu_license),
    Reader(("fan_percent",), _SLOW, _one("nvmlDeviceGetFanSpeed")),
    Reader(("utilization_encoder_percent",), _SLOW, _first("nvmlDeviceGetEncoderUtilization")),
    Reader(("utilization_decoder_percent",), _SLOW, _first("nvmlDeviceGetDecoderUtilization")),
    Reader(("temperature_slowdown_celsius",), _ONCE, _one("nvmlDeviceGetTemperatureThreshold", _SLOWDOWN)),
    Reader(("temperature_shutdown_celsius",), _ONCE, _one("nvmlDeviceGetTemperatureThreshold", _SHUTDOWN)),
    Reader(("clock_sm_max_hertz",), _ONCE, _one("nvmlDeviceGetMaxClockInfo", nvml.CLOCK_SM, scale=_MEGA)),
    Reader(("clock_memory_max_hertz",), _ONCE, _one("nvmlDeviceGetMaxClockInfo", nvml.CLOCK_MEMORY, scale=_MEGA)),
    Reader(("clock_video_max_hertz",), _ONCE, _one("nvmlDeviceGetMaxClockInfo", nvml.CLOCK_VIDEO, scale=_MEGA)),
    Reader(("pcie_generation_max",), _ONCE, _one("nvmlDeviceGetMaxPcieLinkGeneration")),
    Reader(("pcie_width_max",), _ONCE, _one("nvmlDeviceGetMaxPcieLinkWidth")),
    Reader(("memory_bus_width_bits",), _ONCE, _one("nvmlDeviceGetMemoryBusWidth")),
    Reader(("cores_count",), _ONCE, _one("nvmlDeviceGetNumGpuCores")),
    FieldReader(("nvlink_links_count", "nvlink_bytes_per_second"), _SLOW, _LINKS, _nvlink),
)
"""The metrics of a device that are always read; `gpumon.collect.on_demand` reads the others."""
_EACH_SECOND: Final = frozenset(
    {"memory_total_bytes", "utilization_gpu_percent", "temperature_celsius", "power_watts", "clock_sm_hertz"}
)
BACKGROUND_READERS: Final = tuple(
    reader if reader.period >= _SLOW or reader.metrics[0] in _EACH_SECOND else reader._replace(period=_SLOW)
    for reader in READERS
)
"""The same for a collector that runs all the time: few metrics are read in every sweep."""


class MetricsReader:
    """The metrics of one device: each is read when it is due, and its last value is kept.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        readers: The metrics to read.
    """

    def __init__(self, api: Nvml, handle: Handle, readers: Sequence[AnyReader] = READERS) -> None:
        self._api = api
        self._handle = handle
        self._all = [
            (reader, PolledValue[Values](reader.period, first_period=first_period))
            for reader, first_period in zip(readers, _first_periods(readers), strict=True)
        ]
        self._fast = [pair for pair in self._all if pair[0].period is Period.EVERY_SWEEP]
        self._slow = [polled for reader, polled in self._all if reader.period is not Period.EVERY_SWEEP]
        self._slow_due = 0.0
        self._readings: dict[str, float] = {}
        self._problems: dict[str, Problem] = {}
        self._is_first = True

    def read(self, now: float) -> tuple[dict[str, float], dict[str, Problem]]:
        """Readings and problems by metric at ``now``, monotonic seconds.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
            ReadingError: Every call rejected the handle.
        """
        calls = rejected = 0
        batch: list[tuple[FieldReader, PolledValue[Values]]] = []
        is_slow_due = now >= self._slow_due
        for reader, polled in self._all if is_slow_due else self._fast:
            if now < polled.due:
                continue
            if self._is_first and reader.period >= Period.TEN_SECONDS and not reader.is_early:
                self._problems.update(dict.fromkeys(reader.metrics, NEXT_FRAME))
            elif isinstance(reader, FieldReader):
                batch.append((reader, polled))
            else:
                calls += 1
                rejected += self._read_one(reader, polled, now)
        if batch:
            calls += 1
            rejected += self._read_batch(batch, now)
        if is_slow_due and not self._is_first:
            self._slow_due = min((polled.due for polled in self._slow), default=Period.ONCE.value)
        self._is_first = False
        if 0 < calls == rejected:
            raise nvml.failure(nvml.ERROR_INVALID_ARGUMENT)
        return self._readings.copy(), self._problems.copy()

    def _read_one(self, reader: Reader, polled: PolledValue[Values], now: float) -> bool:
        """Run one reader; return whether its call rejected the handle."""
        try:
            values = reader.read(self._api, self._handle)
        except ReadingError as error:
            self._fail(reader, polled, error.problem, now)
            return _is_handle_rejected(error)
        self._succeed(reader, polled, values, now)
        return False

    def _read_batch(self, batch: Sequence[tuple[FieldReader, PolledValue[Values]]], now: float) -> bool:
        """Run several field readers with one call; return whether the call rejected the handle."""
        fields = [field for reader, _ in batch for field in reader.fields]
        try:
            values = read_fields(self._api, self._handle, fields)
        except ReadingError as error:
            for reader, polled in batch:
                self._fail(reader, polled, error.problem, now)
            return _is_handle_rejected(error)
        for reader, polled in batch:
            own_values, values = values[: len(reader.fields)], values[len(reader.fields) :]
            combined = reader.combine(own_values)
            problem = combined[0]
            if isinstance(problem, Problem):
                self._fail(reader, polled, problem, now)
            else:
                self._succeed(reader, polled, combined, now)
        return False

    def _succeed(self, reader: AnyReader, polled: PolledValue[Values], values: Values, now: float) -> None:
        polled.succeed(values, now)
        for metric, value in zip(reader.metrics, values, strict=True):
            publish(metric, value, self._readings, self._problems)

    def _fail(self, reader: AnyReader, polled: PolledValue[Values], problem: Problem, now: float) -> None:
        polled.fail(problem, now)
        for metric in reader.metrics:
            if polled.value is None:
                self._readings.pop(metric, None)
            self._problems[metric] = polled.problem or problem if metric in self._readings else problem


def publish(metric: str, value: Value, readings: dict[str, float], problems: dict[str, Problem]) -> None:
    """Put a value into ``readings``, or its problem into ``problems``; a value out of bounds is a problem."""
    if not isinstance(value, Problem) and METRICS[metric].admits(value):
        readings[metric] = value
        if problems:
            problems.pop(metric, None)
    else:
        readings.pop(metric, None)
        problems[metric] = value if isinstance(value, Problem) else invalid(value)


def invalid(value: float) -> Problem:
    """The problem of a value outside its metric's bounds."""
    return Problem(ProblemCode.INVALID_VALUE, f"The driver returned {value:.12g}, which is not a valid value.")


def _is_handle_rejected(error: ReadingError) -> bool:
    return bool(error.code == nvml.ERROR_INVALID_ARGUMENT)


def _first_periods(readers: Sequence[AnyReader]) -> list[float]:
    """Seconds from the first to the second turn of each reader; this spreads the ten-second readers over the period."""
    calls = [reader for reader in readers if reader.period is Period.TEN_SECONDS and isinstance(reader, Reader)]
    parts = len(calls) + 1  # plus the field readers, which share a call
    turn = {id(reader): number for number, reader in enumerate(calls, 1)}
    return [
        reader.period.value * turn.get(id(reader), parts) / parts
        if reader.period is Period.TEN_SECONDS
        else reader.period.value
        for reader in readers
    ]
