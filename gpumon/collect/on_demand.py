"""Metrics that are too expensive to read all the time: they are sampled while a screen shows their GPU.

The control pipe names these GPUs, which are called selected here. It also names the GPUs of which a screen shows only
the processes: of these, the share of each process in the multiprocessors is sampled, and nothing else.

The energy, whose counter the driver updates in steps anyway, is sampled every ten seconds, or every minute in the
background, and the shares of the processes every two: each of the two calls takes milliseconds.

A busy GPU that is not selected gets an idle check: utilization counts copies as work, so a GPU that only copies shows
100 %, and only the SM activity counter shows that no kernel runs. One counter every ten seconds costs half a
millisecond. The energy of a GPU that is not selected is read once, so that the energy that a screen shows counts from
the start of gpumon.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from gpumon.collect.activity import (
    GPM_METRICS,
    SM_COUNTER,
    EnergyCounter,
    GpmCounters,
    OnDemandSource,
    PcieThroughput,
    ProcessShares,
    SmShares,
)
from gpumon.collect.nvml import Handle, Nvml
from gpumon.collect.readers import Value, publish
from gpumon.collect.schedule import NEEDS_TWO_SAMPLES, Period, PolledValue
from gpumon.core.device_use import BUSY_PERCENT
from gpumon.core.problems import Problem, ProblemCode

SAMPLE_SECONDS: Final = Period.ONE_SECOND.value
"""Time between two samples of one device. GPM needs 0.1 s."""

BACKGROUND_SAMPLE_SECONDS: Final = 9.9
"""The same for a collector that runs all the time."""

DRIVER_SHARE: Final = 0.01
"""Samples may take this share of the time, all devices together."""

PROCESS_SHARE: Final = 0.05
"""Samples of processes alone may take this share: 2.5 ms a device, every two seconds up to 40 devices, 10 s for 200."""

_MAX_AGE_SECONDS: Final = 30.0
"""Samples older than this are not shown."""

IDLE_CHECK_METRIC: Final = SM_COUNTER[1]

ON_DEMAND_METRICS: Final = (*GPM_METRICS, *EnergyCounter.metrics)
"""The metrics that are sampled on demand. The idle check also reads `IDLE_CHECK_METRIC`."""

NOT_SELECTED: Final = Problem(ProblemCode.NOT_READ, "Sampled only while the screen of this GPU is open.")
NOT_BUSY: Final = Problem(
    ProblemCode.NOT_READ,
    f"Sampled only while the screen of this GPU is open, or while its utilization is at least {BUSY_PERCENT:.0f} %.",
)
_WAITING: Final = Problem(ProblemCode.NOT_READ, "gpumon samples this value shortly: GPUs are sampled in turn.")
_NO_COUNTER: Final = frozenset({
    ProblemCode.NOT_SUPPORTED, ProblemCode.NO_PERMISSION, ProblemCode.DRIVER_TOO_OLD, ProblemCode.DROPPED
})  # fmt: skip
"""Why a GPU has no counters of its PCIe rates, so that the driver must measure them."""
_NOT_SELECTED_PROBLEMS: Final = dict.fromkeys(ON_DEMAND_METRICS, NOT_SELECTED)


class SamplingBudget:
    """Which devices are sampled, how much driver time that may take, and which device is next.

    Samples are paid for with `DRIVER_SHARE` of the time. The time of one period may be spent in advance, so that a few
    short samples fit in one sweep. The next device is the one whose last sample is the oldest.

    Args:
        clock: Monotonic seconds.

    Attributes:
        keys: UUIDs of the selected devices, or ``index:N`` for a device without a UUID.
        process_keys: Those of the devices of which only the processes are shown.
        is_background: Whether the collector runs all the time, and must cost little: samples are rare, and the shares
            of processes are not sampled.
    """

    def __init__(self, clock: Callable[[], float], *, is_background: bool = False) -> None:
        self.is_background = is_background
        self._sample_seconds = BACKGROUND_SAMPLE_SECONDS if is_background else SAMPLE_SECONDS
        self.keys: frozenset[str] = frozenset()
        self.process_keys: frozenset[str] = frozenset()
        self._clock = clock
        self._free_at = 0.0
        self._last_turn: dict[Hashable, float] = {}
        self._requests: set[Hashable] = set()
        self._last_requests: set[Hashable] = set()

    def is_selected(self, key: str, index: int) -> bool:
        """Whether a device is selected."""
        return bool(self.keys) and (key in self.keys or f"index:{index}" in self.keys)

    def are_processes_selected(self, key: str, index: int) -> bool:
        """Whether the processes of a device are shown."""
        return bool(self.process_keys) and (key in self.process_keys or f"index:{index}" in self.process_keys)

    def start_sweep(self) -> None:
        """Start to record which devices request a turn; other devices stop waiting for one that no longer does."""
        self._last_requests, self._requests = self._requests, set()

    def has_turn(self, turn: Hashable, now: float) -> bool:
        """Request a turn for a device; return whether the device may be sampled now.

        Args:
            turn: The index of a GPU, or what else identifies a device.
            now: Monotonic seconds.
        """
        self._requests.add(turn)
        last = self._last_turn.get(turn, -self._sample_seconds)
        if now + SAMPLE_SECONDS <= self._free_at or now - last < self._sample_seconds:
            return False
        rivals = self._requests | self._last_requests
        return all(last <= self._last_turn.get(rival, -self._sample_seconds) for rival in rivals)

    def has_spare_time(self, now: float) -> bool:
        """Whether a device may be sampled without a turn: no sample is being paid for, so that no device waits."""
        return now >= self._free_at

    @contextmanager
    def charge(self, turn: Hashable, now: float, share: float = DRIVER_SHARE) -> Iterator[None]:
        """Charge the duration of the block to the budget, as the turn of a device in the sweep at ``now``.

        Args:
            turn: As for `has_turn`.
            now: Monotonic seconds.
            share: The share of the time that such blocks may take.
        """
        started = self._clock()
        yield
        self._last_turn[turn] = now
        self._free_at = max(self._free_at, now) + (self._clock() - started) / share

    def release(self, turn: Hashable) -> None:
        """Forget a device that is no longer sampled, so that its next sample need not wait for the period."""
        self._requests.discard(turn)
        self._last_requests.discard(turn)
        self._last_turn.pop(turn, None)


class IdleCheck:
    """The SM activity of one busy device, which shows whether kernels run on the device.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        index: NVML's index of the device.
        budget: Grants the turns.
    """

    def __init__(self, api: Nvml, handle: Handle, index: int, budget: SamplingBudget) -> None:
        self._index = index
        self._budget = budget
        self._counters = GpmCounters(api, handle, (SM_COUNTER,))
        self._polled = PolledValue[Value](Period.TEN_SECONDS, max_stale_polls=0)
        self._opened_at: float | None = None

    def read(self, now: float, readings: Mapping[str, float]) -> Value:
        """SM activity since the last check, or why it is unknown.

        Args:
            now: Monotonic seconds.
            readings: The device's readings of the same sweep.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        if readings.get("utilization_gpu_percent", 0.0) < BUSY_PERCENT:
            self.close()
            return NOT_BUSY
        polled = self._polled
        if now >= polled.due and self._budget.has_turn(self._index, now):
            if self._opened_at is None:
                self._opened_at = now
            with self._budget.charge(self._index, now):
                polled.poll(now, lambda: self._counters.read()[IDLE_CHECK_METRIC])
            if polled.value is NEEDS_TWO_SAMPLES:  # a counter is a difference, so the second sample follows soon
                polled.due = now + SAMPLE_SECONDS
        return polled.problem or _WAITING if polled.value is None else polled.value

    def close(self) -> None:
        """Free the samples. A device whose utilization fluctuates around the limit is not checked more often."""
        if self._opened_at is not None:
            self._polled.due = max(self._polled.due, self._opened_at + Period.TEN_SECONDS)
            self._opened_at = None
            if not isinstance(self._polled.value, Problem):
                self._polled.value = None
            self._budget.release(self._index)
            self._counters.close()


class SampledSource:
    """A source of on-demand metrics, and its last values."""

    def __init__(self, source: OnDemandSource, period: Period = Period.EVERY_SWEEP) -> None:
        self.source = source
        self.metrics = source.metrics
        self.polled = PolledValue[Mapping[str, Value]](period, max_stale_polls=0)

    def poll(self, now: float) -> None:
        """Sample the source if that is due."""
        self.polled.poll(now, self.source.read)

    def publish(self, readings: dict[str, float], problems: dict[str, Problem]) -> None:
        """Add the last values, or why there are none."""
        values = self.polled.value
        if values is None:
            values = dict.fromkeys(self.metrics, self.polled.problem or NEEDS_TWO_SAMPLES)
        for metric, value in values.items():
            publish(metric, value, readings, problems)


class OnDemandReader:
    """The on-demand metrics of one device, sampled while the device is selected.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        index: NVML's index of the device.
        budget: Grants the turns, and knows whether the device is selected.
    """

    def __init__(self, api: Nvml, handle: Handle, index: int, budget: SamplingBudget) -> None:
        self._index = index
        self._budget = budget
        self._idle_check = IdleCheck(api, handle, index, budget)
        energy_period = Period.ONE_MINUTE if budget.is_background else Period.TEN_SECONDS
        self._energy = SampledSource(EnergyCounter(api, handle), energy_period)
        self._sources = [SampledSource(GpmCounters(api, handle)), self._energy]
        self._pcie = SampledSource(PcieThroughput(api, handle), Period.TWO_SECONDS)
        self._reads = 0
        self._process_shares = ProcessShares(api, handle)
        self._polled_shares = PolledValue[SmShares](Period.TWO_SECONDS, max_stale_polls=0)
        self._is_open = False
        self._sampled_at = 0.0
        self._shares_at: float | None = None
        """When the processes' shares were sampled; None while they are not shown."""
        self._readings: dict[str, float] = {}
        self._problems: dict[str, Problem] = {}

    def read(self, key: str, now: float, readings: dict[str, float], problems: dict[str, Problem]) -> SmShares:
        """Add the on-demand metrics to a device's readings and problems; sample them when the device has its turn.

        Args:
            key: The device's key.
            now: Monotonic seconds.
            readings: Readings of the sweep.
            problems: Problems of the sweep.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        if not self._budget.is_selected(key, self._index):
            if self._is_open:
                self._close_sources()
            self._start_energy(now)
            problems |= _NOT_SELECTED_PROBLEMS
            publish(IDLE_CHECK_METRIC, self._idle_check.read(now, readings), readings, problems)
            return self._read_shares(key, now)
        self._idle_check.close()
        if self._budget.has_turn(self._index, now):
            self._is_open = True
            self._sample(now)
        elif not self._is_open or now - self._sampled_at > _MAX_AGE_SECONDS:
            problems.update(dict.fromkeys(ON_DEMAND_METRICS, _WAITING))
            return self._shares(now)
        readings.update(self._readings)
        problems.update(self._problems)
        return self._shares(now)

    def close(self) -> None:
        """Free what the driver library holds for the device; the device may be selected again later."""
        self._close_sources()
        self._close_shares()

    def _close_sources(self) -> None:
        """Free everything except the position in the samples of the processes, which may still be shown."""
        self._is_open = False
        self._idle_check.close()
        self._budget.release(self._index)
        for source in self._sources:
            source.source.close()

    def _read_shares(self, key: str, now: float) -> SmShares:
        """The shares of the processes of a device that is not selected, sampled in turn while they are shown."""
        if not self._budget.are_processes_selected(key, self._index):
            if self._shares_at is not None:
                self._close_shares()
                self._budget.release(self._index)
            return NOT_SELECTED
        if self._budget.has_turn(self._index, now):
            with self._budget.charge(self._index, now, PROCESS_SHARE):
                self._sample_shares(now)
        return self._shares(now)

    def shares_age(self, now: float) -> float | None:
        """Seconds since the shares of the processes were sampled; None while they are not shown."""
        return None if self._shares_at is None else round(now - self._shares_at, 1)

    def _sample_shares(self, now: float) -> None:
        polled = self._polled_shares
        if now >= polled.due:
            self._shares_at = now
        polled.poll(now, self._process_shares.read)
        if polled.value is NEEDS_TWO_SAMPLES:
            polled.due = now

    def _shares(self, now: float) -> SmShares:
        """The last shares, unless they are too old."""
        if self._budget.is_background:
            return NOT_SELECTED
        if self._shares_at is None or now - self._shares_at > _MAX_AGE_SECONDS:
            return _WAITING
        shares, problem = self._polled_shares.value, self._polled_shares.problem
        return problem or NEEDS_TWO_SAMPLES if shares is None else shares

    def _close_shares(self) -> None:
        self._shares_at = None
        self._polled_shares.due = 0.0
        self._process_shares.close()

    def _start_energy(self, now: float) -> None:
        """Read the energy once, after the first sweep, which should be short."""
        self._reads += 1
        polled = self._energy.polled
        if polled.value is None and self._reads > 1 and now >= polled.due and self._budget.has_spare_time(now):
            with self._budget.charge(self._index, now):
                self._energy.poll(now)
            self._budget.release(self._index)

    def _sample(self, now: float) -> None:
        with self._budget.charge(self._index, now):
            for source in self._sources:
                source.poll(now)
            if not self._budget.is_background:
                self._sample_shares(now)
        self._readings, self._problems, self._sampled_at = {}, {}, now
        for source in self._sources:
            source.publish(self._readings, self._problems)
        pcie = self._pcie
        if any(metric in self._problems and self._problems[metric].code in _NO_COUNTER for metric in pcie.metrics):
            pcie.poll(now)  # not charged: no other call waits for this one
            pcie.publish(self._readings, self._problems)
