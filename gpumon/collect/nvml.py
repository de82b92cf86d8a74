"""The choke point: the only module that calls NVML.

It calls a fixed list of functions without a setter. Each call is timed and counted, noted in the breadcrumb while it
runs, and its error codes become exceptions that carry a `Problem`.
"""

import ctypes
import mmap
from collections.abc import Callable, Collection, MutableSequence, Sequence
from typing import Any, Final

import pynvml  # noqa: TID251 - the one importer

from gpumon.collect.calls import CALLS, EVENT_CALLS, EVENT_WAIT, CallsInFlight, CallTally
from gpumon.core.collector_contract import BREADCRUMB_BYTES, CRUMB_BYTES
from gpumon.core.model import CallCost
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text_table import table

Handle = Any
Answer = Any
"""What pynvml returns; its structures are not typed."""

THROTTLE_REASONS: Final = (
    (pynvml.nvmlClocksEventReasonGpuIdle, "gpu_idle"),
    (pynvml.nvmlClocksEventReasonApplicationsClocksSetting, "applications_clocks_setting"),
    (pynvml.nvmlClocksEventReasonSwPowerCap, "sw_power_cap"),
    (pynvml.nvmlClocksEventReasonHwSlowdown, "hw_slowdown"),
    (pynvml.nvmlClocksEventReasonSyncBoost, "sync_boost"),
    (pynvml.nvmlClocksEventReasonSwThermalSlowdown, "sw_thermal_slowdown"),
    (pynvml.nvmlClocksEventReasonHwThermalSlowdown, "hw_thermal_slowdown"),
    (pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown, "hw_power_brake_slowdown"),
    (pynvml.nvmlClocksEventReasonDisplayClockSetting, "display_clock_setting"),
)
"""The bits of NVML's clocks event reasons and their names, in NVML's spelling."""

ARCHITECTURES: Final = {
    value: name.removeprefix("NVML_DEVICE_ARCH_").title()
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_DEVICE_ARCH_") and not name.endswith(("_UNKNOWN", "_COUNT"))
}

INIT_FLAG_NO_GPUS: Final = 1
"""Flag of nvmlInitWithFlags: succeed on a host without a GPU."""

MEMORY_INFO_V2: Final = pynvml.nvmlMemory_v2
TEMPERATURE_GPU: Final = pynvml.NVML_TEMPERATURE_GPU
TEMPERATURE_THRESHOLD_SHUTDOWN: Final = pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
TEMPERATURE_THRESHOLD_SLOWDOWN: Final = pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
CLOCK_SM: Final = pynvml.NVML_CLOCK_SM
CLOCK_MEMORY: Final = pynvml.NVML_CLOCK_MEM
CLOCK_VIDEO: Final = pynvml.NVML_CLOCK_VIDEO
PCIE_TRANSMIT: Final = pynvml.NVML_PCIE_UTIL_TX_BYTES
PCIE_RECEIVE: Final = pynvml.NVML_PCIE_UTIL_RX_BYTES
EVENT_XID: Final = pynvml.nvmlEventTypeXidCriticalError

FIELD_ECC_CORRECTED_VOLATILE: Final = pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL
FIELD_ECC_UNCORRECTED_VOLATILE: Final = pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL
FIELD_ECC_CORRECTED_AGGREGATE: Final = pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL
FIELD_ECC_UNCORRECTED_AGGREGATE: Final = pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL
FIELD_RETIRED_CORRECTED: Final = pynvml.NVML_FI_DEV_RETIRED_SBE
FIELD_RETIRED_UNCORRECTED: Final = pynvml.NVML_FI_DEV_RETIRED_DBE
FIELD_RETIRED_PENDING: Final = pynvml.NVML_FI_DEV_RETIRED_PENDING
FIELD_MEMORY_TEMPERATURE: Final = pynvml.NVML_FI_DEV_MEMORY_TEMP
FIELD_POWER_INSTANT: Final = pynvml.NVML_FI_DEV_POWER_INSTANT
FIELD_NVLINK_SPEED: Final = pynvml.NVML_FI_DEV_NVLINK_GET_SPEED
FIELD_NVLINK_STATE: Final = pynvml.NVML_FI_DEV_NVLINK_GET_STATE
FIELD_NVLINK_REPLAYS: Final = pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY
FIELD_NVLINK_RECOVERIES: Final = pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY
FIELD_NVLINK_CRC_ERRORS: Final = pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC
FIELD_NVLINK_TRANSMITTED: Final = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
FIELD_NVLINK_RECEIVED: Final = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX
MAX_NVLINK_LINKS: Final = 18
VGPU_FEATURE: Final = pynvml.NVML_GRID_LICENSE_FEATURE_CODE_VGPU

TOPOLOGY_INTERNAL: Final = pynvml.NVML_TOPOLOGY_INTERNAL
TOPOLOGY_SINGLE: Final = pynvml.NVML_TOPOLOGY_SINGLE
TOPOLOGY_MULTIPLE: Final = pynvml.NVML_TOPOLOGY_MULTIPLE
TOPOLOGY_HOSTBRIDGE: Final = pynvml.NVML_TOPOLOGY_HOSTBRIDGE
TOPOLOGY_NODE: Final = pynvml.NVML_TOPOLOGY_NODE
TOPOLOGY_SYSTEM: Final = pynvml.NVML_TOPOLOGY_SYSTEM
P2P_READ: Final = 0
"""NVML_P2P_CAPS_INDEX_READ, which some releases of pynvml define as a tuple."""

_PROBLEMS: Final = {
    getattr(pynvml, f"NVML_ERROR_{name}"): Problem(ProblemCode[code], *texts)
    for name, code, *texts in (row.split(" | ", 3) for row in table("gpumon.collect", "problems"))
}

_ERROR_NAMES: Final[dict[int, str]] = {
    code: name.removeprefix("NVML_ERROR_").replace("_", " ").lower()
    for name, code in vars(pynvml).items()
    if name.startswith("NVML_ERROR_")
}

ERROR_INVALID_ARGUMENT: Final = pynvml.NVML_ERROR_INVALID_ARGUMENT
ERROR_FUNCTION_NOT_FOUND: Final = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
ERROR_UNKNOWN: Final = pynvml.NVML_ERROR_UNKNOWN
ERROR_NOT_FOUND: Final = pynvml.NVML_ERROR_NOT_FOUND
SUCCESS: Final = pynvml.NVML_SUCCESS


class NvmlError(Exception):
    """An NVML call failed.

    Attributes:
        problem: The reason.
        code: NVML's return code, or None if NVML did not report the failure.
    """

    def __init__(self, problem: Problem, code: int | None = None) -> None:
        super().__init__(problem.reason)
        self.problem = problem
        self.code = code


class ReadingError(NvmlError):
    """This call failed; other calls may succeed."""


class DeviceLostError(NvmlError):
    """The device is gone; every other call on it would fail too."""


class DriverGoneError(NvmlError):
    """The driver is gone or was reloaded; every handle is invalid."""


class Nvml:
    """The choke point.

    Args:
        breadcrumb: Memory shared with the parent process that holds the name of the running call; see
            `gpumon.core.collector_contract`.
        dropped: Names of functions that are never called, because they crashed earlier collectors.
        library: The ``pynvml`` module, or a stand-in.
        in_flight: Holds the running calls for the watchdog of this process.
    """

    def __init__(
        self,
        breadcrumb: MutableSequence[int] | mmap.mmap | None = None,
        dropped: Collection[str] = (),
        library: Any = pynvml,
        in_flight: CallsInFlight | None = None,
    ) -> None:
        self.in_flight = in_flight or CallsInFlight()
        self._breadcrumb: Any = bytearray(BREADCRUMB_BYTES) if breadcrumb is None else breadcrumb
        self._functions: dict[str, tuple[Callable[..., Any], bytes, slice, CallTally]] = {
            name: (_function(library, name), name.encode().ljust(CRUMB_BYTES, b"\0"), _crumb_slice(name), CallTally())
            for name in CALLS
            if hasattr(library, name) and name not in dropped
        }
        self._dropped = frozenset(dropped)
        self._blocked: tuple[tuple[Handle, Problem], ...] = ()
        self._too_new: set[str] = set()
        self._raised: tuple[type[Exception], ...] = (library.NVMLError, pynvml.NVMLLibraryMismatchError)

    @property
    def calls(self) -> int:
        """Number of calls."""
        return sum(tally.count for *_, tally in self._functions.values())

    @property
    def errors(self) -> int:
        """Number of calls that failed."""
        return sum(tally.errors for *_, tally in self._functions.values())

    def costs(self) -> tuple[CallCost, ...]:
        """The cost of each function called so far, without the one that only waits for events."""
        return tuple(
            CallCost(name, tally.count, tally.errors, round(tally.seconds, 6), round(tally.longest_seconds, 6))
            for name, (*_, tally) in self._functions.items()
            if tally.count and name != EVENT_WAIT
        )

    def block(self, handle: Handle, problem: Problem) -> None:
        """Make every further call with this handle object raise `DeviceLostError` with ``problem``."""
        self._blocked = (*self._blocked, (handle, problem))

    def call(self, name: str, *arguments: Any) -> Any:
        """Call one function of `CALLS` and return its result; invalid UTF-8 in a text becomes U+FFFD.

        Raises:
            DriverGoneError: The driver was unloaded or reloaded.
            DeviceLostError: The device fell off the bus.
            ReadingError: The call failed for another reason.
        """
        entry = self._functions.get(name)
        if entry is None:
            raise self._why_missing(name)
        if self._blocked:
            self._refuse_blocked(arguments)
        function, crumb, crumb_slice, tally = entry
        in_flight = self.in_flight
        self._breadcrumb[crumb_slice] = crumb
        started = in_flight.start(name)
        try:
            return function(*arguments)
        except UnicodeDecodeError as error:  # the call succeeded, and pynvml could not decode its text
            return bytes(error.object).decode("utf-8", "replace")
        except self._raised as error:
            tally.errors += 1
            raise _failure_of(error) from None
        finally:  # without calls for what one line does: hundreds of NVML's functions are called in a second
            seconds = in_flight.clock() - started
            tally.count += 1
            tally.seconds += seconds
            tally.longest_seconds = max(tally.longest_seconds, seconds)
            in_flight.finish()  # first: an abandoned thread must not erase the breadcrumb of its replacement
            self._breadcrumb[crumb_slice.start] = 0

    def call_newest(self, newer: str, older: str, *arguments: Any) -> Any:
        """Call ``newer``, or ``older`` if the driver does not have ``newer``; raise what `call` raises."""
        if newer in self._too_new:
            return self.call(older, *arguments)
        try:
            return self.call(newer, *arguments)
        except ReadingError as error:
            if error.problem.code is not ProblemCode.DRIVER_TOO_OLD:
                raise
            answer = self.call(older, *arguments)
            self._too_new.add(newer)
            return answer

    def _refuse_blocked(self, arguments: tuple[Any, ...]) -> None:
        for handle, problem in self._blocked:
            if arguments and arguments[0] is handle:
                raise DeviceLostError(problem)

    def _why_missing(self, name: str) -> NvmlError:
        """Why a function of `CALLS` cannot be called; any other name is a bug in gpumon."""
        if name in self._dropped:
            return ReadingError(Problem(ProblemCode.DROPPED, f"{name} crashed the collector twice; it is disabled."))
        if name not in CALLS:
            raise KeyError(name)
        return failure(ERROR_FUNCTION_NOT_FOUND)


def address(handle: Handle) -> int | None:
    """The address behind a handle. pynvml creates many handle objects for one device; their address is the same."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def gpm_request(metric_ids: Sequence[int]) -> Answer:
    """The structure for `nvmlGpmMetricsGet`: it takes two samples and receives a value and a return code per metric.

    It is pynvml's structure, which has room for more metrics than the headers of some drivers declare.
    """
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metric_ids)
    for index, metric_id in enumerate(metric_ids):
        request.metrics[index].metricId = metric_id
    return request


def failure(code: int) -> NvmlError:
    """The exception for an NVML return code."""
    problem = _PROBLEMS.get(code)
    if problem is None:
        problem = Problem(ProblemCode.UNKNOWN, f"NVML returned: {_error_name(code)}.")
    if code in {pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED}:
        return DriverGoneError(problem, code)
    if code in {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}:
        return DeviceLostError(problem, code)
    return ReadingError(problem, code)


def _function(library: Any, name: str) -> Callable[..., Any]:
    """A function of ``library``; the one that waits for an event returns None on a timeout."""
    function: Callable[..., Any] = getattr(library, name)

    def wait(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except library.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise

    return wait if name == EVENT_WAIT else function


def _crumb_slice(name: str) -> slice:
    """The part of the breadcrumb that holds the name of a call."""
    return slice(CRUMB_BYTES, 2 * CRUMB_BYTES) if name in EVENT_CALLS else slice(0, CRUMB_BYTES)


def _failure_of(error: Exception) -> NvmlError:
    if isinstance(error, pynvml.NVMLLibraryMismatchError):  # pynvml's error where the driver has an older version only
        return failure(ERROR_FUNCTION_NOT_FOUND)
    return failure(getattr(error, "value", ERROR_UNKNOWN))


def _error_name(code: int) -> str:
    """Name of a return code in pynvml. Its exception would ask the library, which may not know the code."""
    return _ERROR_NAMES.get(code, f"error {code}")
