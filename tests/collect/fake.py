"""A scripted stand-in for the ``pynvml`` module: answers and errors by function and device, and a log of the calls."""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml  # noqa: TID251 - its errors are what the stand-in raises

from gpumon.collect import nvml
from gpumon.collect.nvml import CALLS

MIB = 1 << 20


def error(code: int) -> Exception:
    """What pynvml raises for a return code."""
    raised: Exception = pynvml.NVMLError(code)
    return raised


NOT_SUPPORTED = error(pynvml.NVML_ERROR_NOT_SUPPORTED)
NO_PERMISSION = error(pynvml.NVML_ERROR_NO_PERMISSION)
TOO_OLD = error(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
UNKNOWN = error(pynvml.NVML_ERROR_UNKNOWN)
LOST = error(pynvml.NVML_ERROR_GPU_IS_LOST)
UNINITIALIZED = error(pynvml.NVML_ERROR_UNINITIALIZED)
NOT_LOADED = error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
VOID_HANDLE = error(pynvml.NVML_ERROR_INVALID_ARGUMENT)
OTHER_VERSION = error(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
MISMATCH = pynvml.NVMLLibraryMismatchError("Unversioned function called")
NOT_UTF8 = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


def entry(pid: int, mebibytes: int | None = 1000) -> Any:  # noqa: ANN401
    """One entry of a process list."""
    return SimpleNamespace(pid=pid, usedGpuMemory=None if mebibytes is None else mebibytes * MIB)


class FakeNvml:
    """Has one attribute for each function of `CALLS`. Device handles are the devices' indices.

    Args:
        devices: Number of devices.
    """

    NVMLError = pynvml.NVMLError

    def __init__(self, devices: int = 1) -> None:
        self.calls: list[str] = []
        self._devices = devices
        self._answers: dict[tuple[str, int | None], Any] = {}
        for name in CALLS:
            setattr(self, name, self._function(name))
        self.restore()

    def restore(self) -> None:
        """Gives every function its healthy answer back."""
        self._answers = {(name, None): value for name, value in _ANSWERS.items()}
        self.answer("nvmlDeviceGetCount", self._devices)
        self.answer("nvmlDeviceGetHandleByIndex", lambda index: index)
        self.answer("nvmlDeviceGetUUID", lambda handle: f"GPU-{handle}")

    def answer(self, name: str, value: Any, device: int | None = None) -> None:  # noqa: ANN401
        """Sets the answer of a function, of one device or of all: a value, an exception, or a function of its own."""
        self._answers[name, device] = value

    def count(self) -> Counter[str]:
        """How often each function was called since the last time this was asked."""
        counted = Counter(self.calls)
        self.calls.clear()
        return counted

    def _function(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:  # noqa: ANN401
            self.calls.append(name)
            device = arguments[0] if arguments and isinstance(arguments[0], int) else None
            value = self._answers.get((name, device), self._answers.get((name, None), NOT_SUPPORTED))
            if isinstance(value, Exception):
                raise value
            return value(*arguments) if callable(value) else value

        return call


def _memory(handle: int, version: int | None = None) -> Any:  # noqa: ANN401
    total, used, reserved = 143771 * MIB, 3004 * MIB, 629 * MIB
    if version is None:
        return SimpleNamespace(total=total, used=used + reserved, free=total - used - reserved)
    return SimpleNamespace(total=total, used=used, reserved=reserved, free=total - used - reserved)


_ANSWERS: dict[str, Any] = {
    "nvmlInitWithFlags": None,
    "nvmlInit": None,
    "nvmlShutdown": None,
    "nvmlSystemGetDriverVersion": "580.95.05",
    "nvmlSystemGetCudaDriverVersion_v2": 13000,
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:1B:00.0"),
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetArchitecture": 9,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87, memory=41),
    "nvmlDeviceGetTemperatureV": 56,
    "nvmlDeviceGetTemperature": 55,
    "nvmlDeviceGetTemperatureThreshold": 92,
    "nvmlDeviceGetPowerUsage": 612_500,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetClockInfo": lambda handle, clock: 1830 if clock == nvml.CLOCK_SM else 3201,
    "nvmlDeviceGetMaxClockInfo": lambda handle, clock: 1980 if clock == nvml.CLOCK_SM else 3201,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
    "nvmlDeviceGetPerformanceState": 0,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetComputeRunningProcesses": [entry(4000, 3000)],
    "nvmlDeviceGetGraphicsRunningProcesses": [],
    "nvmlDeviceGetMPSComputeRunningProcesses": [],
}
