"""What gpumon asks of the driver, counted by the driver's side."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.collect.conftest import Live
from tests.processes import wait_gone

GPUS = 4
CALLS_PER_GPU_SECOND = 14
"""At rest, with processes that come in two calls a list; 12 are usual."""
CALLS_PER_GPU_AT_THE_START = 30
CALLS_PER_GPU_ONCE = 60
"""All of what is read once, or for the first time, after the first tick, and two seconds' usual calls."""
REVIEWED = frozenset({
    "nvmlInitWithFlags", "nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetName",
    "nvmlDeviceGetArchitecture", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetPerformanceState", "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetFieldValues", "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetComputeMode", "nvmlDeviceGetEccMode",
    "nvmlDeviceGetMigMode", "nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetDecoderUtilization", "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetGridLicensableFeatures_v4",
})  # fmt: skip
"""Symbols of the library that a new driver is asked for. Each was looked at: it reads, it is cheap, it is not known to
disturb a GPU. A call that is added here needs the same look."""


EVENTS = frozenset({
    "nvmlDeviceGetSupportedEventTypes", "nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2",
    "nvmlEventSetFree",
})  # fmt: skip
"""Symbols that the event thread calls. They affect this process only; a wait is one call in 0.5 s."""

GLANCES = frozenset({
    "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMigSampleGet", "nvmlGpmSampleFree",
    "nvmlGpmMetricsGet",
})  # fmt: skip
"""Symbols that a busy device is asked every ten seconds, and a MIG instance every two."""

ONCE = frozenset({"nvmlDeviceGetTotalEnergyConsumption"})
"""Symbols that delay other calls for milliseconds and are therefore called once per device, or on demand."""

LOOKED = frozenset({
    "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetProcessUtilization", "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmSampleFree", "nvmlGpmMetricsGet",
})  # fmt: skip
"""Symbols that are called on demand only. Two of them delay the calls of other threads for milliseconds."""


def log_after(path: Path, seconds: float) -> dict[str, Any]:
    """The first call log that was written ``seconds`` after the library was loaded, or later."""
    deadline = time.monotonic() + seconds + 5
    while time.monotonic() < deadline:
        if path.exists():
            log: dict[str, Any] = json.loads(path.read_text())
            if log["t"] >= seconds:
                return log
        time.sleep(0.02)
    raise AssertionError(f"no call log after {seconds} s")


def test_few_calls_all_of_them_reviewed_and_none_a_setter(
    live: Live, tmp_path: Path, sleepers: Callable[[int], list[int]]
) -> None:
    path = tmp_path / "calls.json"
    pids = ",".join(map(str, sleepers(GPUS * 2)))
    live(interval=1.0, gpus=GPUS, NVML_MOCK_LOG=str(path), NVML_MOCK_PIDS=pids, NVML_MOCK_PROCS="2", NVML_MOCK_FAN="1")
    first, early, late = log_after(path, 0.8), log_after(path, 2.8), log_after(path, 6.8)
    assert first["total"] <= CALLS_PER_GPU_AT_THE_START * GPUS
    assert early["total"] - first["total"] <= CALLS_PER_GPU_ONCE * GPUS
    rate = (late["total"] - early["total"]) / (late["t"] - early["t"])
    assert 0 < rate / GPUS <= CALLS_PER_GPU_SECOND
    assert late["setters"] == 0
    assert late["errors"] == first["errors"]
    assert set(late["calls"]) <= REVIEWED | EVENTS | GLANCES | ONCE
    assert [late["calls"][name] for name in ONCE] == [GPUS], "once per device"


def test_on_demand_samples_make_only_reviewed_calls(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    watched = live(gpus=2, NVML_MOCK_LOG=str(path), NVML_MOCK_IDLE="1")
    key = watched.until(lambda frame: bool(frame.devices)).devices[0].key
    watched.stream.request_on_demand([key])
    watched.until(lambda frame: "sm_activity_percent" in frame.devices[0].readings)
    log = log_after(path, json.loads(path.read_text())["t"] + 0.3)
    assert set(log["calls"]) <= REVIEWED | EVENTS | LOOKED
    assert LOOKED - set(log["calls"]) == {"nvmlGpmSampleFree"}
    assert log["setters"] == 0


def test_a_field_that_is_not_supported_is_not_asked_for_at_every_tick(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    live(gpus=1, fault="notsupported:power", NVML_MOCK_LOG=str(path))
    calls = log_after(path, 1)["calls"]
    assert calls["nvmlDeviceGetPowerUsage"] == 1
    assert calls["nvmlDeviceGetUtilizationRates"] > 2


def test_collector_is_gone_after_close(live: Live) -> None:
    watched = live()
    watched.until(lambda frame: True)
    (collector,) = watched.collectors()
    began = time.monotonic()
    watched.stream.close()
    assert time.monotonic() - began < 5
    assert wait_gone(collector, 2)


def test_interval_is_kept_and_can_be_changed(live: Live) -> None:
    watched = live(interval=5.0)
    watched.until(lambda frame: True)
    watched.stream.set_interval(0.1)
    frames = watched.collect(1)
    assert 3 <= len(frames) <= 15, "ten at best, and not one"
    assert frames[-1].interval_seconds == 0.1
