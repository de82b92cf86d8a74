"""The collector's main loop: requests a sweep at every tick and writes a frame, whether the sweep has ended or not.

The loop makes no driver call itself, so it never blocks: a device that does not respond is a row with that state.
"""

import dataclasses
import json
import os
import select
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from gpumon.collect.calls import Callee, CallInFlight, CallsInFlight
from gpumon.collect.cuda_order import CudaOrder
from gpumon.collect.host import HostReader, OrphanedCollectors
from gpumon.collect.nvml import Nvml
from gpumon.collect.nvml_session import Slot, outage
from gpumon.collect.processes import BACKGROUND_ROUND, ProcessTable
from gpumon.collect.schedule import Period
from gpumon.collect.sweeper import Sweeper
from gpumon.collect.xids import Xid
from gpumon.core.collector_contract import COLLECTOR_OUTDATED
from gpumon.core.frames import encode
from gpumon.core.model import Device, DeviceEvent, DeviceState, Frame, Sweep
from gpumon.core.problems import Problem, ProblemCode

MIN_INTERVAL_SECONDS: Final = 0.1
MAX_INTERVAL_SECONDS: Final = 3600.0
MAX_SWEEP_SECONDS: Final = 2.0
"""While a sweep takes longer than this, the collector writes frames with the last readings."""
_MIN_AGE_SECONDS: Final = 0.05

_DRIVER_NOT_RESPONDING: Final = Problem(
    ProblemCode.UNRESPONSIVE,
    "The driver does not respond for this GPU; its values are as old as shown.",
    "Check the kernel log for an Xid (dmesg | grep -i xid).",
)
_HOST_NOT_RESPONDING: Final = Problem(
    ProblemCode.UNRESPONSIVE,
    "/proc or the user database does not respond, so gpumon could not read this GPU; its values are as old as shown.",
)
_SHARED_UUID: Final = Problem(ProblemCode.INVALID_VALUE, "The driver reports the same UUID for several GPUs.")
_NO_DEVICES: Final = Problem(
    ProblemCode.NO_DEVICES,
    "The NVIDIA driver is loaded but reports no GPU.",
    "Check lspci | grep -i nvidia and dmesg. gpumon shows a new GPU as soon as the driver reports it.",
)


class ReaderGoneError(Exception):
    """The reader of the frames is gone, or the control pipe was closed: the collector ends."""


class CollectorLoop:
    """The producer of frames, until their reader goes away.

    Args:
        api: The choke point.
        in_flight: The calls in flight, the same object that ``api`` uses.
        interval: Seconds between two frames.
        output: File descriptor for the frames.
        control: File descriptor for settings, one JSON object per line: ``interval`` in seconds, ``look`` with the keys
            of the devices to sample on demand, ``processes`` with those of which only the processes are sampled,
            ``count_calls`` to add the cost of each call to the frames. When the
            descriptor reaches its end, the collector ends.
        processes: Facts about processes.
        is_background: Whether the collector runs all the time, and must cost little.
    """

    def __init__(
        self,
        api: Nvml,
        in_flight: CallsInFlight,
        *,
        interval: float,
        output: int,
        control: int,
        processes: ProcessTable | None = None,
        is_background: bool = False,
    ) -> None:
        self._api = api
        self._in_flight = in_flight
        self._xids: deque[Xid] = deque()
        processes = processes or ProcessTable(in_flight, min_round=BACKGROUND_ROUND if is_background else 1)
        self._sweeper = Sweeper(api, processes, in_flight, self._xids, is_background=is_background)
        self._host = HostReader(period=Period.TEN_SECONDS if is_background else Period.TWO_SECONDS)
        self._cuda_order = CudaOrder(os.environ)
        self._output = output
        self._control = control
        self._control_buffer = b""
        self._orphans: OrphanedCollectors | None = None
        self._counts_calls = False
        self._invalid_count = 0
        self.interval = clamp_interval(interval)

    @property
    def call_deadline(self) -> float:
        """Seconds after which a driver call counts as hanging: half the interval, at least 0.25 and at most 1."""
        return min(max(self.interval / 2, 0.25), 1.0)

    def run(self) -> int:
        """Write frames until the reader is gone or the driver was replaced; return the exit code of the process."""
        os.set_blocking(self._output, False)
        next_tick = self._in_flight.clock()
        try:
            while True:
                frame = self.tick()
                if self._sweeper.outdated:
                    return COLLECTOR_OUTDATED
                self._write(frame)
                if self._orphans is None:  # after the first frame, because this reads all of /proc
                    self._orphans = OrphanedCollectors(self._in_flight.clock())
                next_tick = max(next_tick + self.interval, self._in_flight.clock())
                next_tick = self._sleep_until(next_tick)
        except ReaderGoneError:
            return 0

    def tick(self) -> Frame:
        """Sweep the devices and return the frame; if a sweep is still running, wait for that one."""
        if self._sweeper.done.is_set():
            self._sweeper.request()
        stuck = self._await_sweep()
        return self._frame(stuck)

    def _await_sweep(self) -> CallInFlight | None:
        """Wait for the end of the sweep; return the call that blocks the sweep, if one does.

        The loop waits for a slow sweep that makes progress: the interval becomes longer and the frame is complete.
        After `MAX_SWEEP_SECONDS` it writes frames during the sweep, which show the age of each device's readings.
        """
        deadline = self.call_deadline
        started = self._in_flight.clock()
        while not self._sweeper.done.wait(deadline / 4):
            waited = self._in_flight.clock() - started
            stuck = self._sweeper.stuck(deadline)
            if stuck is not None and not self._sweeper.replace(stuck):
                return stuck
            if waited >= (MAX_SWEEP_SECONDS if stuck is None else max(self.interval, 2 * deadline)):
                return None
        return None

    def _frame(self, stuck: CallInFlight | None) -> Frame:
        now = self._in_flight.clock()
        session = self._sweeper.session
        slots = self._sweeper.slots
        rows = (self._device(device, slot, now, stuck) for slot in slots for device in slot.devices)
        devices = tuple(rows) or tuple(self._sweeper.outage_devices)
        seconds = self._sweeper.last_seconds
        devices = self._cuda_order.number(_without_shared_uuids(devices))
        self._invalid_count += sum(map(_invalid_values, devices))
        return Frame(
            time_seconds=time.time(),
            monotonic_seconds=now,
            interval_seconds=self.interval,
            host=self._host.read(),
            driver_version=None if session is None else session.driver_version,
            cuda_driver_version=None if session is None else session.cuda_driver_version,
            devices=devices,
            sweep=Sweep(
                None if seconds is None else round(seconds, 6),
                self._api.calls,
                self._api.errors,
                self._sweeper.threads_stuck,
                self._api.costs() if self._counts_calls else (),
                self._invalid_count,
            ),
            events=tuple(self._events(devices)),
            problems=self._problems(devices, stuck, now),
        )

    def _device(self, last: Device, slot: Slot, now: float, stuck: CallInFlight | None) -> Device:
        """The row of a device or an instance of a slot, from its ``last`` reading."""
        age = None if slot.read_at is None else round(now - slot.read_at, 1)
        fatal = slot.fatal
        if fatal is not None and fatal.code is ProblemCode.GPU_LOST:
            return _aged(outage([last], fatal)[0], age)
        device = _aged(last, age)
        if fatal is not None:
            return _unresponsive(device, fatal)
        if slot.quarantined:
            return _unresponsive(device, _DRIVER_NOT_RESPONDING)
        is_old = device.age_seconds is None or device.age_seconds > self.call_deadline
        if stuck is not None and is_old and device.state is not DeviceState.LOST:
            return _unresponsive(
                device, _DRIVER_NOT_RESPONDING if stuck.callee is Callee.DRIVER else _HOST_NOT_RESPONDING
            )
        return device

    def _events(self, devices: tuple[Device, ...]) -> Iterator[DeviceEvent]:
        """The events of the devices since the last frame."""
        keys = {device.index: device.key for device in devices if device.instance is None}
        while self._xids:
            xid = self._xids.popleft()
            key = keys.get(xid.device_index, f"index:{xid.device_index}")
            yield DeviceEvent(key, xid.number, round(xid.time_seconds, 3), round(xid.monotonic_seconds, 3))

    def _problems(self, devices: tuple[Device, ...], stuck: CallInFlight | None, now: float) -> dict[str, Problem]:
        session = self._sweeper.session
        problems = {} if session is None else dict(session.problems)
        if stuck is not None and all(device.state is not DeviceState.OK for device in devices):
            subject, problem = _no_response(stuck, now)
            problems[subject] = problem
        elif self._sweeper.problem is not None:
            problems["driver"] = self._sweeper.problem
        elif session is not None and not devices:
            problems["driver"] = _NO_DEVICES
        orphans = None if self._orphans is None else self._orphans.problem(now)
        if orphans is not None:
            problems["left_behind"] = orphans
        return problems

    def _sleep_until(self, tick: float) -> float:
        """Sleep until ``tick`` and apply settings meanwhile; return the tick, which a new interval moves.

        Pending settings are applied even when the tick has passed: a driver so slow that there is no time to sleep must
        not keep gpumon from changing its settings.
        """
        while True:
            left = tick - self._in_flight.clock()
            if select.select([self._control], [], [], max(0.0, left))[0]:
                old_interval = self.interval
                self._read_settings()
                if self.interval != old_interval:
                    tick = min(tick, self._in_flight.clock() + self.interval)
            elif left <= 0:
                return tick

    def _write(self, frame: Frame) -> None:
        """Write a complete line; wait for a slow reader, but not for one that is gone."""
        rest = memoryview(encode(frame).encode() + b"\n")
        while rest:
            try:
                rest = rest[os.write(self._output, rest) :]
            except BlockingIOError:
                readable, _, _ = select.select([self._control], [self._output], [])
                if readable:
                    self._read_settings()
            except BrokenPipeError:
                raise ReaderGoneError from None

    def _read_settings(self) -> None:
        data = os.read(self._control, 4096)
        if not data:
            raise ReaderGoneError
        *lines, self._control_buffer = (self._control_buffer + data).split(b"\n")
        for line in lines:
            with suppress(ValueError, TypeError):  # a setting of another version
                self._apply_setting(json.loads(line))

    def _apply_setting(self, setting: dict[str, Any]) -> None:
        if "interval" in setting:
            self.interval = clamp_interval(float(setting["interval"]))
        if "look" in setting:
            self._sweeper.budget.keys = _keys(setting["look"])
        if "processes" in setting:
            self._sweeper.budget.process_keys = _keys(setting["processes"])
        if "count_calls" in setting:
            self._counts_calls = setting["count_calls"] is True


def _keys(setting: Iterable[object]) -> frozenset[str]:
    """The keys of devices in a setting."""
    return frozenset(key for key in setting if isinstance(key, str))


def _invalid_values(device: Device) -> int:
    """Number of invalid values of a device and its processes."""
    problems = chain(device.problems.values(), *(process.problems.values() for process in device.processes or ()))
    return sum(problem.code is ProblemCode.INVALID_VALUE for problem in problems)


def clamp_interval(seconds: float) -> float:
    """The requested interval within the limits."""
    return min(max(MIN_INTERVAL_SECONDS, seconds), MAX_INTERVAL_SECONDS)  # in this order NaN becomes the minimum


def _without_shared_uuids(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Remove a UUID that several devices report, because it would mix their histories."""
    count = Counter(device.uuid for device in devices if device.uuid is not None)
    if len(count) == sum(count.values()):
        return devices
    return tuple(
        dataclasses.replace(device, uuid=None, problems={**device.problems, "uuid": _SHARED_UUID})
        if device.uuid is not None and count[device.uuid] > 1
        else device
        for device in devices
    )


def _aged(device: Device, age: float | None) -> Device:
    """The device with the age of its readings; a healthy device that was just read has none."""
    if age is None or (device.state is DeviceState.OK and age < _MIN_AGE_SECONDS):
        return device
    problems = {field: problem for field, problem in device.problems.items() if field != "age_seconds"}
    return dataclasses.replace(device, age_seconds=age, problems=problems)


def _unresponsive(device: Device, problem: Problem) -> Device:
    """The device in the state UNRESPONSIVE."""
    problems = {**device.problems, "state": problem}
    return dataclasses.replace(device, state=DeviceState.UNRESPONSIVE, problems=problems)


def _no_response(stuck: CallInFlight, now: float) -> tuple[str, Problem]:
    """What blocks every device, and the problem of that."""
    duration = f"{stuck.call} has not returned for {now - stuck.started:.0f} s."
    if stuck.callee is Callee.DRIVER:
        remedy = "Check the kernel log for an Xid (dmesg | grep -i xid). If the driver stays blocked, reboot this host."
        return "driver", Problem(ProblemCode.UNRESPONSIVE, f"The NVIDIA driver does not respond: {duration}", remedy)
    remedy = "Check for processes in state D (ps -eo pid,stat,comm) and whether getent passwd $USER returns."
    return "processes", Problem(
        ProblemCode.UNRESPONSIVE, f"/proc or the user database does not respond: {duration}", remedy
    )
