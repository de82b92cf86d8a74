"""What a GPU has done over a run: its use, memory, throttling and energy, added up frame by frame."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from gpumon.core.device_use import is_idle
from gpumon.core.model import Device, Frame
from gpumon.core.throttle_reasons import FAULT_REASONS, POWER_CAP
from gpumon.operations.run_report.statistics import BoundedSeries

_COUNTER_SECONDS: Final = 0.1
"""The driver updates the energy counter about every 100 ms, so its ends are known to that."""
_POWER_ERROR: Final = 0.05
"""NVML states that a power reading is accurate to 5 %."""
_CHARTS: Final = {
    "utilization_gpu_percent": "utilization_percent",
    "sm_activity_percent": "sm_activity_percent",
    "memory_used_bytes": "memory_bytes",
    "power_watts": "power_watts",
    "clock_sm_hertz": "clock_sm_hertz",
}
_MAX_GAP_SECONDS: Final = 120.0
"""A longer time between two frames was not measured."""
_HELD: Final = FAULT_REASONS | {POWER_CAP}


@dataclass(frozen=True, slots=True)
class _Energy:
    """Power over some time, with the bound of its error."""

    seconds: float = 0.0
    joules: float = 0.0
    error_joules: float = 0.0

    def __add__(self, other: "_Energy") -> "_Energy":
        return _Energy(self.seconds + other.seconds, self.joules + other.joules, self.error_joules + other.error_joules)


_NO_ENERGY: Final = _Energy()


def _power_over(seconds: float, before: Device, device: Device) -> _Energy:
    """The power of the time between two samples, by the trapezoidal rule; 0 if it is unknown."""
    powers = before.get("power_watts"), device.get("power_watts")
    if powers[0] is None or powers[1] is None:
        return _Energy(seconds)
    error = abs(powers[0] - powers[1]) / 2 + _POWER_ERROR * powers[1]
    return _Energy(seconds, seconds * (powers[0] + powers[1]) / 2, seconds * error)


class GpuUse:
    """One GPU."""

    def __init__(self) -> None:
        self.series = {name: BoundedSeries() for name in _CHARTS.values()}
        self._device: Device | None = None
        self._first_seconds = 0.0
        self._last: tuple[float, Device] | None = None
        self._measured = 0.0
        self._idle = 0.0
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._spans: defaultdict[str, float] = defaultdict(float)
        self._reasons: defaultdict[str, float] = defaultdict(float)
        self._peaks: dict[str, float] = {}
        self._counter_joules = 0.0
        self._counter_seconds = 0.0
        self._integral = _NO_ENERGY
        self._uncounted = _NO_ENERGY
        """Power over the time since the energy counter was read, which is less often than frames arrive."""
        self._has_counter_start = False
        """Whether a change of the counter was seen, so that the next one is of a known time."""

    def add(self, frame: Frame, device: Device) -> list[str]:
        """Add a frame; returns the throttle reasons that begin with it."""
        now = frame.monotonic_seconds
        if not frame.is_fresh(device):
            self._last = None
            return []
        if self._device is None:
            self._first_seconds = now
        before, self._device = self._last, device
        self._last = (now, device)
        for metric, name in _CHARTS.items():
            value = device.get(metric)
            self.series[name].add(now, value)
            if value is not None:
                peak = device.peak(metric) or value
                self._peaks[name] = max(peak, self._peaks.get(name, peak))
        if (heat := device.peak("temperature_celsius")) is not None:
            self._peaks["temperature_celsius"] = max(heat, self._peaks.get("temperature_celsius", heat))
        held = set(device.throttle_reasons or ()) & _HELD
        if before is None or not 0.0 < now - before[0] <= _MAX_GAP_SECONDS:
            self._add_energy(_NO_ENERGY, None, None)
            return sorted(held)
        self._add_span(now - before[0], before[1], device)
        return sorted(held - set(before[1].throttle_reasons or ()))

    def _add_span(self, seconds: float, before: Device, device: Device) -> None:
        """Add the time between two frames."""
        self._measured += seconds
        self._idle += seconds if is_idle(device) else 0.0
        for metric, name in _CHARTS.items():
            value = device.get(metric)
            if value is not None:
                self._sums[name] += value * seconds
                self._spans[name] += seconds
        for reason in set(device.throttle_reasons or ()) & _HELD:
            self._reasons[reason] += seconds
        self._add_energy(_power_over(seconds, before, device), before.get("energy_joules"), device.get("energy_joules"))

    def _add_energy(self, span: _Energy, before: float | None, after: float | None) -> None:
        """Add the energy between two frames; the counter replaces what was integrated since it was read before."""
        if after is not None and after == before:
            self._uncounted += span
            return
        span += self._uncounted
        rise = after - before if before is not None and after is not None else 0.0
        if rise > 0.0 and self._has_counter_start:
            self._counter_joules += rise
            self._counter_seconds += span.seconds
        else:
            self._integral += span
        self._uncounted, self._has_counter_start = _NO_ENERGY, rise > 0.0

    def document(self, end_seconds: float) -> dict[str, Any]:
        """What is reported of the GPU.

        ``end_seconds`` is on the monotonic clock of the frames.
        """
        device = self._device
        means = {name: self._sums[name] / span for name, span in self._spans.items() if span}
        busy = means.get("sm_activity_percent", means.get("utilization_percent"))
        joules, error = self._energy(means.get("power_watts"), end_seconds)
        source = "counter" if self._counter_seconds >= self._measured / 2 and self._counter_seconds else "power"
        return {
            "index": None if device is None else device.index,
            "uuid": None if device is None else device.uuid,
            "name": None if device is None else device.name,
            "memory_total_bytes": None if device is None else device.get("memory_total_bytes"),
            "measured_seconds": self._measured,
            "idle_seconds": self._idle,
            "busy_share": None if busy is None else busy / 100,
            **{f"mean_{name}": means.get(name) for name in _CHARTS.values()},
            **{f"peak_{name}": self._peaks.get(name) for name in (*_CHARTS.values(), "temperature_celsius")},
            "throttled_seconds": dict(self._reasons),
            "energy_joules": joules,
            "energy_error_joules": error,
            "energy_source": source if joules is not None else None,
            "series": {
                name: {
                    "start_seconds": self._first_seconds,
                    "width_seconds": series.width_seconds,
                    "values": series.means(),
                }
                for name, series in self.series.items()
                if name in self._peaks
            },
        }

    def _energy(self, mean_watts: float | None, end_seconds: float) -> tuple[float | None, float | None]:
        """The energy and the bound of its error; time at the end that no frame covers is estimated, and an error."""
        integral = self._integral + self._uncounted
        if not self._counter_seconds and not integral.joules:
            return None, None
        peak = self._peaks.get("power_watts", 0.0)
        counted = 2 * _COUNTER_SECONDS * peak if self._counter_seconds else 0.0
        missing = max(0.0, end_seconds - self._last[0]) * (mean_watts or 0.0) if self._last is not None else 0.0
        return self._counter_joules + integral.joules + missing, counted + integral.error_joules + missing
