"""A scripted stand-in for the ``pynvml`` module: answers and errors by function and device, and a log of the calls."""

import ctypes
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml  # noqa: TID251 - its errors are what the stand-in raises

from gpumon.collect import nvml
from gpumon.collect.calls import CALLS

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


def fields(values: dict[int, Any] | None = None) -> Callable[[int, list[Any]], list[Any]]:
    """An answer of `nvmlDeviceGetFieldValues`: by field a value, a return code as an exception, or (type, value)."""
    known = _FIELDS | (values or {})

    def answer(handle: int, asked: list[Any]) -> list[Any]:
        return [_field(known.get(field.id, NOT_SUPPORTED)) for field in asked]

    return answer


def _field(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Exception):
        return SimpleNamespace(nvmlReturn=value.value, valueType=0, value=None)  # type: ignore[attr-defined]
    kind, value = value if isinstance(value, tuple) else (_UNSIGNED, value)
    members = dict.fromkeys(("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal"), -1)
    if 0 <= kind < len(members):
        members[list(members)[kind]] = value
    return SimpleNamespace(nvmlReturn=0, valueType=kind, value=SimpleNamespace(**members))


class FakeGpm:
    """The counters of every device of a fake driver.

    Attributes:
        values: What `nvmlGpmMetricsGet` answers, by NVML's number: a value, or a return code as an exception.
        samples: Those that were allocated and not given back.
    """

    def __init__(self, fake: "FakeNvml", supported: bool = True) -> None:
        self.values: dict[int, Any] = dict.fromkeys((1, 2, 3, 5, 10, 11, 12, 13, 20, 21, 60, 61), 1.0)
        self.samples: list[Any] = []
        self.taken: list[Any] = []
        self.pairs: list[tuple[int, int]] = []
        fake.answer("nvmlGpmQueryDeviceSupport", SimpleNamespace(isSupportedDevice=int(supported)))
        fake.answer("nvmlGpmSampleAlloc", self._allocate)
        fake.answer("nvmlGpmSampleFree", self._free)
        fake.answer("nvmlGpmSampleGet", lambda handle, sample: self.taken.append(_address(sample)))
        fake.answer("nvmlGpmMigSampleGet", lambda handle, instance, sample: self.taken.append(_address(sample)))
        fake.answer("nvmlGpmMetricsGet", self._metrics)

    def _allocate(self) -> Any:  # noqa: ANN401
        sample = pynvml.c_nvmlGpmSample_t(pynvml.struct_c_nvmlGpmSample_t())
        self.samples.append(sample)
        return sample

    def _free(self, sample: Any) -> None:  # noqa: ANN401
        self.samples = [known for known in self.samples if _address(known) != _address(sample)]

    def _metrics(self, request: Any) -> None:  # noqa: ANN401
        self.pairs.append((_address(request.sample1), _address(request.sample2)))
        for place in range(request.numMetrics):
            metric, value = request.metrics[place], self.values[request.metrics[place].metricId]
            failed = isinstance(value, Exception)
            metric.nvmlReturn = value.value if failed else 0
            metric.value = 0 if failed else value


def _address(sample: Any) -> int:  # noqa: ANN401
    address: int = ctypes.cast(sample, ctypes.c_void_p).value or 0
    return address


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
        """Sets the answer of a function, of one device or of all: a value, an exception, or a function."""
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


_UNSIGNED = 1
_FIELDS: dict[int, Any] = {
    nvml.FIELD_ECC_CORRECTED_VOLATILE: (3, 7), nvml.FIELD_ECC_UNCORRECTED_VOLATILE: (3, 0),
    nvml.FIELD_ECC_CORRECTED_AGGREGATE: (3, 70), nvml.FIELD_ECC_UNCORRECTED_AGGREGATE: (3, 1),
    nvml.FIELD_RETIRED_CORRECTED: 4, nvml.FIELD_RETIRED_UNCORRECTED: 1, nvml.FIELD_RETIRED_PENDING: 0,
    nvml.FIELD_MEMORY_TEMPERATURE: 47, nvml.FIELD_POWER_INSTANT: 598_000, nvml.FIELD_NVLINK_SPEED: 26_562,
    nvml.FIELD_NVLINK_STATE: 1, nvml.FIELD_NVLINK_REPLAYS: 0, nvml.FIELD_NVLINK_RECOVERIES: 0,
    nvml.FIELD_NVLINK_CRC_ERRORS: 0,
}  # fmt: skip
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
    "nvmlDeviceGetClockInfo": lambda handle, clock: {nvml.CLOCK_SM: 1830, nvml.CLOCK_VIDEO: 1370}.get(clock, 3201),
    "nvmlDeviceGetMaxClockInfo": lambda handle, clock: {nvml.CLOCK_SM: 1980, nvml.CLOCK_VIDEO: 1545}.get(clock, 3201),
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
    "nvmlDeviceGetPerformanceState": 0,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetFieldValues": fields(),
    "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetVbiosVersion": "96.00.BC.00.01",
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetComputeMode": 0,
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetMemoryBusWidth": 6016,
    "nvmlDeviceGetNumGpuCores": 16_896,
    "nvmlDeviceGetGridLicensableFeatures": SimpleNamespace(
        isGridLicenseSupported=1,
        licensableFeaturesCount=1,
        gridLicensableFeatures=[SimpleNamespace(featureCode=nvml.VGPU_FEATURE, featureState=1)],
    ),
    "nvmlDeviceGetRemappedRows": (2, 0, 0, 0),
    "nvmlDeviceGetBAR1MemoryInfo": SimpleNamespace(bar1Total=262_144 * MIB, bar1Used=5 * MIB, bar1Free=262_139 * MIB),
    "nvmlDeviceGetPcieReplayCounter": 3,
    "nvmlDeviceGetFanSpeed": 35,
    "nvmlDeviceGetEncoderUtilization": [12, 167_000],
    "nvmlDeviceGetDecoderUtilization": [8, 167_000],
    "nvmlDeviceGetComputeRunningProcesses": [entry(4000, 3000)],
    "nvmlDeviceGetGraphicsRunningProcesses": [],
    "nvmlDeviceGetMPSComputeRunningProcesses": [],
    "nvmlDeviceGetNvLinkRemotePciInfo": lambda handle, link: SimpleNamespace(busId=b"00000000:C8:00.0"),
    "nvmlDeviceGetTopologyCommonAncestor": nvml.TOPOLOGY_NODE,
    "nvmlDeviceGetP2PStatus": 0,
}
