"""The GPU of a process while it is observed: means of its metrics, its clocks, and who else uses it."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Final, NamedTuple

from gpumon.core.allocator import AllocatorStatistics
from gpumon.core.gpu_models import model_of
from gpumon.core.model import Device, Frame, Process, short_product_name
from gpumon.insight.bottlenecks.slowness_evidence import GpuEvidence
from gpumon.operations.gpu_processes import owners_of
from gpumon.probe.messages import Probe
from gpumon.streams.live import LiveStream

_INTERVAL_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.1
_PERCENT: Final = 100.0
_SHARES: Final = {
    "utilization_share": "utilization_gpu_percent",
    "sm_share": "sm_activity_percent",
    "tensor_share": "tensor_activity_percent",
    "dram_share": "dram_activity_percent",
    "fp32_share": "fp32_activity_percent",
}
_COMMAND_LENGTH: Final = 60


class DeviceObserver:
    """Reads the frames of a collector, and asks it for the hardware counters of the GPU that a process uses."""

    def __init__(self, pid: int, stream: LiveStream) -> None:
        self._pid = pid
        self._stream = stream
        self._readings: dict[str, list[float]] = {}
        self._clocks: list[float] = []
        self._reasons: Counter[str] = Counter()
        self._sm_shares: dict[str, list[float]] = {}
        self._own_shares: list[float] = []
        self._frames = 0
        self._is_measuring = False
        self._first: AllocatorStatistics | None = None
        self._last: AllocatorStatistics | None = None
        self.device: Device | None = None

    def find(self, probes: Mapping[int, Probe], seconds: float) -> None:
        """Wait until a frame shows the GPU of the process, so that its counters are read during the observation."""
        deadline = time.monotonic() + seconds
        while self.device is None and time.monotonic() < deadline:
            self.poll(probes)
            time.sleep(_POLL_SECONDS)

    def begin(self) -> None:
        """Count the frames from now on."""
        self._is_measuring = True

    def poll(self, probes: Mapping[int, Probe]) -> None:
        """Take the frames that have arrived."""
        for arrival in self._stream.inbox.drain():
            if isinstance(arrival, Frame):
                self._take(arrival, probes)

    def evidence(self) -> GpuEvidence | None:
        """The means since `begin`; None if the process uses no GPU that a frame shows."""
        device = self.device
        if device is None:
            return None
        sent, received = self._mean("pcie_transmit_bytes_per_second"), self._mean("pcie_receive_bytes_per_second")
        others = sorted(
            ((name, sum(values) / self._frames / _PERCENT) for name, values in self._sm_shares.items()),
            key=lambda item: -item[1],
        )
        used, total = self._mean("memory_used_bytes"), self._mean("memory_total_bytes")
        model = model_of(device.name, device.compute_capability, None if total is None else int(total))
        return GpuEvidence(
            label=device.label,
            name=short_product_name(device.name),
            **{name: self._mean(metric, _PERCENT) for name, metric in _SHARES.items()},
            pcie_bytes_per_second=None if sent is None or received is None else sent + received,
            power_watts=self._mean("power_watts"),
            power_limit_watts=self._mean("power_limit_watts"),
            tdp_watts=None if model is None else model.power_watts,
            clock_share=median(self._clocks) if self._clocks else None,
            throttle_reasons=tuple(sorted(name for name, count in self._reasons.items() if 2 * count >= self._frames)),
            others=tuple(others),
            own_sm_share=sum(self._own_shares) / self._frames / _PERCENT if self._own_shares else None,
            memory_used_share=None if used is None or not total else used / total,
            retries_count=_difference(self._first, self._last, "alloc_retries_count"),
            ooms_count=_difference(self._first, self._last, "ooms_count"),
        )

    def _take(self, frame: Frame, probes: Mapping[int, Probe]) -> None:
        match = _match(self._pid, frame, probes)
        if match is None:
            return
        device, process, statistics = match
        if self.device is None:
            self._stream.request_on_demand([device.key], [device.key])
        self.device = device
        if not self._is_measuring or not frame.is_fresh(device):
            return
        self._frames += 1
        self._first = self._first or statistics
        self._last = statistics
        for metric, value in device.readings.items():
            self._readings.setdefault(metric, []).append(value)
        clock, maximum = device.get("clock_sm_hertz"), device.get("clock_sm_max_hertz")
        if clock is not None and maximum:
            self._clocks.append(clock / maximum)
        self._reasons.update(device.throttle_reasons or ())
        if process is not None:  # without a match, the process itself would be one of the others
            self._take_processes(device, process)

    def _take_processes(self, device: Device, own: Process) -> None:
        for process in device.processes or ():
            if process.sm_percent is None:
                continue
            if process.pid == own.pid:
                self._own_shares.append(process.sm_percent)
            elif process.sm_percent > 0:
                name = f"{(process.command or 'a process')[:_COMMAND_LENGTH]} (PID {process.pid})"
                self._sm_shares.setdefault(name, []).append(process.sm_percent)

    def _mean(self, metric: str, scale: float = 1.0) -> float | None:
        values = self._readings.get(metric)
        return sum(values) / len(values) / scale if values else None


@contextmanager
def device_observer(pid: int, *, is_used: bool) -> Iterator[DeviceObserver | None]:
    """Observe the GPU of a process, if it uses one; the collector ends with the block."""
    if not is_used:
        yield None
        return
    stream = LiveStream(_INTERVAL_SECONDS)
    stream.start()
    try:
        yield DeviceObserver(pid, stream)
    finally:
        stream.close()


class _Match(NamedTuple):
    """The GPU of a process, the process in NVML's list, and the statistics of its allocator if it has a probe."""

    device: Device
    process: Process | None
    statistics: AllocatorStatistics | None


def _match(pid: int, frame: Frame, probes: Mapping[int, Probe]) -> _Match | None:
    """The GPU on which the allocator of a process reserves the most memory, or without a probe the process itself."""
    matches = [
        _Match(device, owner.process, owner.statistics)
        for device in frame.devices
        for owner in owners_of(device, probes).owners
        if owner.pid == pid and (owner.statistics is not None or pid not in probes)
    ]
    return max(matches, key=_held_bytes, default=None)


def _held_bytes(match: _Match) -> int:
    if match.statistics is not None:
        return match.statistics.reserved_bytes
    return (match.process.memory_bytes if match.process is not None else None) or 0


def _difference(first: AllocatorStatistics | None, last: AllocatorStatistics | None, name: str) -> int | None:
    before, after = getattr(first, name, None), getattr(last, name, None)
    return None if before is None or after is None else max(0, after - before)
