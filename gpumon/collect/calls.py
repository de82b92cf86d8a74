"""The calls that gpumon makes to NVML, and the tally of one of them."""

from typing import Final

EVENT_WAIT: Final = "nvmlEventSetWait_v2"

EVENT_CALLS: Final = (
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlEventSetCreate",
    "nvmlDeviceRegisterEvents",
    EVENT_WAIT,
    "nvmlEventSetFree",
)
"""Those that a thread of its own makes, beside all others. What is registered is what the driver tells this process."""

CALLS: Final = (
    "nvmlInitWithFlags",
    "nvmlInit",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetName",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetProcessUtilization",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleGet",
    "nvmlGpmSampleFree",
    "nvmlGpmMetricsGet",
    *EVENT_CALLS,
)
"""Every call that gpumon makes. They read; those that allocate take and give back memory of this process alone."""


class CallTally:
    """What one call has cost so far; threads that were given up may add to it, so it is no more than nearly exact.

    Attributes:
        count: How often it was made.
        errors: How often it failed.
        seconds: Time spent in it.
        longest_seconds: The longest time that it took.
    """

    __slots__ = ("count", "errors", "longest_seconds", "seconds")

    def __init__(self) -> None:
        self.count = self.errors = 0
        self.seconds = self.longest_seconds = 0.0

    def add(self, seconds: float, *, failed: bool) -> None:
        """Adds one call."""
        self.count += 1
        self.errors += failed
        self.seconds += seconds
        self.longest_seconds = max(self.longest_seconds, seconds)
