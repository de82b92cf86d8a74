"""The only place that calls NVML: a fixed list of readers, each call counted, marked while it runs, its errors named.

There is no setter in the list, and nothing outside it can be called. This module knows nothing of lanes or frames.
"""

import mmap
from collections.abc import Callable, Collection, MutableSequence, Sequence
from typing import Any, Final

import pynvml  # noqa: TID251 - the one importer

from gpumon.collect.calls import CALLS
from gpumon.collect.flights import Flights
from gpumon.core.breadcrumb import BREADCRUMB_BYTES
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

    Attributes:
        calls: Calls made.
        errors: Those of them that failed.
    """

    def __init__(
        self,
        breadcrumb: MutableSequence[int] | mmap.mmap | None = None,
        dropped: Collection[str] = (),
        library: Any = pynvml,
        flights: Flights | None = None,
    ) -> None:
        self.calls = self.errors = 0
        self.flights = flights or Flights()
        self._breadcrumb: Any = bytearray(BREADCRUMB_BYTES) if breadcrumb is None else breadcrumb
        self._functions: dict[str, tuple[Callable[..., Any], bytes]] = {
            name: (getattr(library, name), name.encode().ljust(BREADCRUMB_BYTES, b"\0"))
            for name in CALLS
            if hasattr(library, name) and name not in dropped
        }
        self._dropped = frozenset(dropped)
        self._too_new: set[str] = set()
        self._raised: tuple[type[Exception], ...] = (
            library.NVMLError,
            pynvml.NVMLLibraryMismatchError,
            UnicodeDecodeError,
        )

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls one function of `CALLS` and returns its answer.

        Raises:
            DriverGoneError: The driver was unloaded or reloaded.
            DeviceLostError: The device fell off the bus.
            ReadingError: The call failed for another reason.
        """
        found = self._functions.get(name)
        if found is None:
            raise self._missing(name)
        function, crumb = found
        self._breadcrumb[:BREADCRUMB_BYTES] = crumb
        self.flights.enter(name)
        failed = False
        try:
            return function(*arguments)
        except self._raised as error:
            failed = True
            raise _failure_of(error) from None
        finally:
            self.flights.leave()  # first: a thread that was given up must not wipe out the crumb of the one at work
            self._breadcrumb[0] = 0
            self.calls += 1
            self.errors += failed

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

    def _missing(self, name: str) -> NvmlError:
        """Why a call of the list cannot be made; one that is not in the list is a mistake of gpumon's own."""
        if name in self._dropped:
            return ReadingError(Problem(ProblemCode.DROPPED, f"{name} crashed the collector twice and is not called."))
        if name not in CALLS:
            raise KeyError(name)
        return failure(ERROR_FUNCTION_NOT_FOUND)


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


def _failure_of(error: Exception) -> NvmlError:
    if isinstance(error, UnicodeDecodeError):
        return ReadingError(Problem(ProblemCode.INVALID_VALUE, "The driver answered with text that is not UTF-8."))
    if isinstance(error, pynvml.NVMLLibraryMismatchError):  # how pynvml says that only an older version of it is there
        return failure(ERROR_FUNCTION_NOT_FOUND)
    return failure(getattr(error, "value", ERROR_UNKNOWN))


def _error_name(code: int) -> str:
    """What pynvml calls a code. Its exception would ask the library for a name that it does not know."""
    return _ERROR_NAMES.get(code, f"error {code}")
