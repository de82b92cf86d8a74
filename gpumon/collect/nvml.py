"""The only place that calls NVML: a fixed list of readers, each call counted, marked while it runs, its errors named.

There is no setter in the list, and nothing outside it can be called. This module knows nothing of lanes or frames.
"""

import ctypes
import mmap
from collections.abc import Callable, Collection, MutableSequence, Sequence
from time import perf_counter
from typing import Any, Final

import pynvml  # noqa: TID251 - the one importer

from gpumon.collect.calls import CALLS, EVENT_CALLS, EVENT_WAIT, CallTally
from gpumon.collect.flights import Flights
from gpumon.core.breadcrumb import BREADCRUMB_BYTES, CRUMB_BYTES
from gpumon.core.model import CallCost
from gpumon.core.problems import Problem, ProblemCode

Handle = Any
Answer = Any
"""What pynvml returns: its structures have no types."""

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
"""NVML's clocks-event bits and their names, in NVML's spelling."""

ARCHITECTURES: Final = {
    value: name.removeprefix("NVML_DEVICE_ARCH_").title()
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_DEVICE_ARCH_") and not name.endswith(("_UNKNOWN", "_COUNT"))
}

INIT_FLAG_NO_GPUS: Final = 1
"""nvmlInitWithFlags: succeed on a machine whose driver sees no GPU."""

MEMORY_INFO_V2: Final = pynvml.nvmlMemory_v2
TEMPERATURE_GPU: Final = pynvml.NVML_TEMPERATURE_GPU
TEMPERATURE_THRESHOLD_SLOWDOWN: Final = pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
CLOCK_SM: Final = pynvml.NVML_CLOCK_SM
CLOCK_MEMORY: Final = pynvml.NVML_CLOCK_MEM
EVENT_XID: Final = pynvml.nvmlEventTypeXidCriticalError

FIELD_ECC_CORRECTED_VOLATILE: Final = pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL
FIELD_ECC_UNCORRECTED_VOLATILE: Final = pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL
FIELD_ECC_CORRECTED_AGGREGATE: Final = pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL
FIELD_ECC_UNCORRECTED_AGGREGATE: Final = pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL
FIELD_MEMORY_TEMPERATURE: Final = pynvml.NVML_FI_DEV_MEMORY_TEMP
FIELD_POWER_INSTANT: Final = pynvml.NVML_FI_DEV_POWER_INSTANT
FIELD_NVLINK_SPEED: Final = pynvml.NVML_FI_DEV_NVLINK_GET_SPEED
NVLINK_MOST_LINKS: Final = 18

_PROBLEMS: Final = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: Problem(ProblemCode.NOT_SUPPORTED, "This chip or driver does not offer it."),
    pynvml.NVML_ERROR_NO_PERMISSION: Problem(ProblemCode.NO_PERMISSION, "The driver refuses it to this user."),
    pynvml.NVML_ERROR_NOT_FOUND: Problem(ProblemCode.NOT_FOUND, "The driver has nothing to report."),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Problem(
        ProblemCode.DRIVER_TOO_OLD, "This driver is too old to offer it.", "A newer NVIDIA driver has it."
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: Problem(
        ProblemCode.GPU_LOST,
        "The GPU has fallen off the bus.",
        "Look for an Xid in the kernel log (dmesg | grep -i xid), then reset the GPU or reboot.",
    ),
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Problem(
        ProblemCode.LIBRARY_NOT_FOUND,
        "There is no NVIDIA driver library (libnvidia-ml.so.1) on this machine.",
        "Install the NVIDIA driver; in a container, start it with the NVIDIA container toolkit (--gpus all).",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Problem(
        ProblemCode.DRIVER_NOT_LOADED,
        "The NVIDIA kernel driver is not loaded.",
        "Load it with: sudo modprobe nvidia; if that fails, dmesg says why.",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Problem(
        ProblemCode.LIBRARY_MISMATCH,
        "The NVIDIA library and the loaded kernel driver are of different versions.",
        "Reboot, or unload and reload the nvidia kernel modules, so that both are of one version.",
    ),
    pynvml.NVML_ERROR_UNINITIALIZED: Problem(ProblemCode.DRIVER_RESTARTED, "The driver was restarted."),
    pynvml.NVML_ERROR_INVALID_ARGUMENT: Problem(ProblemCode.UNKNOWN, "The driver does not know this device any more."),
    pynvml.NVML_ERROR_RESET_REQUIRED: Problem(
        ProblemCode.GPU_LOST, "The GPU must be reset before it can be used.", "Reset the GPU or reboot."
    ),
    pynvml.NVML_ERROR_TIMEOUT: Problem(ProblemCode.UNRESPONSIVE, "The driver gave up waiting for the GPU."),
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
_DRIVER_GONE: Final = frozenset({pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})
_DEVICE_GONE: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})


class NvmlError(Exception):
    """An NVML call failed.

    Attributes:
        problem: Why, in words.
        code: NVML's return code, or None where the failure is not one of NVML's.
    """

    def __init__(self, problem: Problem, code: int | None = None) -> None:
        super().__init__(problem.reason)
        self.problem = problem
        self.code = code


class ReadingError(NvmlError):
    """This one reading failed; others may not."""


class DeviceLostError(NvmlError):
    """The device is gone; its other calls would fail as well."""


class DriverGoneError(NvmlError):
    """The driver is gone or was reloaded; every handle is void."""


class Nvml:
    """The choke point.

    Args:
        breadcrumb: Memory shared with the parent, where the running call is noted; see `gpumon.core.breadcrumb`.
        dropped: Names of calls that are never made, because they killed the process before.
        library: The ``pynvml`` module, or a stand-in.
        flights: Where the running call is noted for this process's own watchdog.

    """

    def __init__(
        self,
        breadcrumb: MutableSequence[int] | mmap.mmap | None = None,
        dropped: Collection[str] = (),
        library: Any = pynvml,
        flights: Flights | None = None,
    ) -> None:
        self.flights = flights or Flights()
        self._breadcrumb: Any = bytearray(BREADCRUMB_BYTES) if breadcrumb is None else breadcrumb
        self._functions: dict[str, tuple[Callable[..., Any], bytes, slice, CallTally]] = {
            name: (_function(library, name), name.encode().ljust(CRUMB_BYTES, b"\0"), _place(name), CallTally())
            for name in CALLS
            if hasattr(library, name) and name not in dropped
        }
        self._dropped = frozenset(dropped)
        self._silenced: tuple[tuple[Handle, Problem], ...] = ()
        self._too_new: set[str] = set()
        self._raised: tuple[type[Exception], ...] = (library.NVMLError, pynvml.NVMLLibraryMismatchError)

    @property
    def calls(self) -> int:
        """Calls made."""
        return sum(tally.count for *_, tally in self._functions.values())

    @property
    def errors(self) -> int:
        """Those of them that failed."""
        return sum(tally.errors for *_, tally in self._functions.values())

    def costs(self) -> tuple[CallCost, ...]:
        """What each call that was made has cost; the one that does nothing but wait is left out."""
        return tuple(
            CallCost(name, tally.count, tally.errors, round(tally.seconds, 6), round(tally.longest_seconds, 6))
            for name, (*_, tally) in self._functions.items()
            if tally.count and name != EVENT_WAIT
        )

    def silence(self, handle: Handle, problem: Problem) -> None:
        """Makes no more calls with this very handle; they fail as of a device that is lost, with ``problem``."""
        self._silenced = (*self._silenced, (handle, problem))

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls one function of `CALLS` and returns its answer; what is no UTF-8 in a text becomes U+FFFD.

        Raises:
            DriverGoneError: The driver was unloaded or reloaded.
            DeviceLostError: The device fell off the bus.
            ReadingError: The call failed for another reason.
        """
        found = self._functions.get(name)
        if found is None:
            raise self._missing(name)
        if self._silenced:
            self._refuse_silenced(arguments)
        function, crumb, place, tally = found
        self._breadcrumb[place] = crumb
        self.flights.enter(name)
        failed = False
        began = perf_counter()
        try:
            return function(*arguments)
        except UnicodeDecodeError as answered:  # pynvml found the text, and could not read it
            return bytes(answered.object).decode("utf-8", "replace")
        except self._raised as error:
            failed = True
            raise _failure_of(error) from None
        finally:
            seconds = perf_counter() - began
            self.flights.leave()  # first: a thread that was given up must not wipe out the crumb of the one at work
            self._breadcrumb[place.start] = 0
            tally.add(seconds, failed=failed)

    def call_newest(self, newer: str, older: str, *arguments: Any) -> Any:
        """Calls ``newer``, or ``older`` alike where the driver is too old for it; raises what `call` raises."""
        if newer in self._too_new:
            return self.call(older, *arguments)
        try:
            return self.call(newer, *arguments)
        except ReadingError as failed:
            if failed.problem.code is not ProblemCode.DRIVER_TOO_OLD:
                raise
            answer = self.call(older, *arguments)
            self._too_new.add(newer)
            return answer

    def _refuse_silenced(self, arguments: tuple[Any, ...]) -> None:
        for handle, problem in self._silenced:
            if arguments and arguments[0] is handle:
                raise DeviceLostError(problem)

    def _missing(self, name: str) -> NvmlError:
        """Why a call of the list cannot be made; one that is not in the list is a mistake of gpumon's own."""
        if name in self._dropped:
            return ReadingError(Problem(ProblemCode.DROPPED, f"{name} crashed the collector twice and is not called."))
        if name not in CALLS:
            raise KeyError(name)
        return failure(ERROR_FUNCTION_NOT_FOUND)


def address(handle: Handle) -> int | None:
    """Where the driver's library keeps a device: the same for all handles of it, of which pynvml makes many."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def gpm_request(metric_ids: Sequence[int]) -> Answer:
    """What `nvmlGpmMetricsGet` fills in: two samples go in, and of each metric a value and a return code come out.

    The structure is pynvml's own: it has more room for metrics than the header of some drivers says.
    """
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metric_ids)
    for place, metric_id in enumerate(metric_ids):
        request.metrics[place].metricId = metric_id
    return request


def failure(code: int) -> NvmlError:
    """The failure that an NVML return code stands for."""
    problem = _PROBLEMS.get(code)
    if problem is None:
        problem = Problem(ProblemCode.UNKNOWN, f"NVML answered: {_error_name(code)}.")
    if code in _DRIVER_GONE:
        return DriverGoneError(problem, code)
    if code in _DEVICE_GONE:
        return DeviceLostError(problem, code)
    return ReadingError(problem, code)


def _function(library: Any, name: str) -> Callable[..., Any]:
    """A function of ``library``; that which waits for an event answers None when there was none."""
    function: Callable[..., Any] = getattr(library, name)

    def wait(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except library.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise

    return wait if name == EVENT_WAIT else function


def _place(name: str) -> slice:
    """Where in the breadcrumb a call is noted."""
    return slice(CRUMB_BYTES, 2 * CRUMB_BYTES) if name in EVENT_CALLS else slice(0, CRUMB_BYTES)


def _failure_of(error: Exception) -> NvmlError:
    if isinstance(error, pynvml.NVMLLibraryMismatchError):  # how pynvml says that only an older version of it is there
        return failure(ERROR_FUNCTION_NOT_FOUND)
    return failure(getattr(error, "value", ERROR_UNKNOWN))


def _error_name(code: int) -> str:
    """What pynvml calls a code. Its exception would ask the library for a name that it does not know."""
    return _ERROR_NAMES.get(code, f"error {code}")
