"""The collector's main loop: asks for a sweep at every tick, and writes a frame whatever became of it.

It makes no driver call itself, so it always comes back: a device that does not answer is a row that says so.
"""

import dataclasses
import json
import os
import select
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from gpumon.collect.cuda_order import CudaOrder
from gpumon.collect.flights import Callee, Flight, Flights
from gpumon.collect.host import HostReader, LeftBehind
from gpumon.collect.nvml import Nvml
from gpumon.collect.processes import ProcessTable
from gpumon.collect.session import Slot, outage
from gpumon.collect.sweeper import Sweeper
from gpumon.collect.xids import Xid
from gpumon.core.exits import COLLECTOR_OUTDATED
from gpumon.core.frames import encode
from gpumon.core.model import Device, DeviceEvent, DeviceState, Frame, Sweep
from gpumon.core.problems import Problem, ProblemCode

SHORTEST_INTERVAL: Final = 0.1
LONGEST_INTERVAL: Final = 3600.0
PATIENCE_SECONDS: Final = 2.0
_FRESH_SECONDS: Final = 0.05


class ReaderGoneError(Exception):
    """Nobody reads the frames any more, or the control pipe was closed: the collector ends."""


class Collector:
    """Produces frames until its reader goes away.

    Args:
        api: The choke point.
        flights: The calls under way, the same that ``api`` notes them in.
        interval: Seconds from frame to frame.
        output: File descriptor that the frames are written to.
        control: File descriptor that settings are read from as JSON lines (``interval``, ``look`` with the keys of the
            devices that somebody looks at, ``count_calls`` while somebody looks at what each call costs), and whose
            end is the end.
        processes: Facts of processes.
        host: The machine.
    """

    def __init__(
        self,
        api: Nvml,
        flights: Flights,
        *,
        interval: float,
        output: int,
        control: int,
        processes: ProcessTable | None = None,
        host: HostReader | None = None,
    ) -> None:
        self._api = api
        self._flights = flights
        self._xids: deque[Xid] = deque()
        self._sweeper = Sweeper(api, processes or ProcessTable(flights), flights, self._xids)
        self._host = host or HostReader()
        self._cuda_order = CudaOrder(os.environ)
        self._output = output
        self._control = control
        self._control_buffer = b""
        self._left_behind: LeftBehind | None = None
        self._counts_calls = False
        self._refused = 0
        self.interval = clamp_interval(interval)

    @property
    def call_deadline(self) -> float:
        """Seconds after which a driver call counts as one that does not return: half the interval, 0.25 to 1."""
        return min(max(self.interval / 2, 0.25), 1.0)

    def run(self) -> int:
        """Writes frames until the reader is gone or the driver was replaced; returns the exit code."""
        os.set_blocking(self._output, False)
        next_tick = self._flights.clock()
        try:
            while True:
                frame = self.tick()
                if self._sweeper.outdated:
                    return COLLECTOR_OUTDATED
                self._write(frame)
                if self._left_behind is None:  # not before the first frame: it takes a look at every process
                    self._left_behind = LeftBehind(self._flights.clock())
                next_tick = max(next_tick + self.interval, self._flights.clock())
                next_tick = self._sleep_until(next_tick)
        except ReaderGoneError:
            return 0

    def tick(self) -> Frame:
        """Sweeps the devices and returns the frame; a sweep still under way is waited for, not joined by another."""
        if self._sweeper.done.is_set():
            self._sweeper.request()
        stuck = self._await_sweep()
        return self._frame(stuck)

    def _await_sweep(self) -> Flight | None:
        """Waits for the sweep's end; returns the call that it is stuck in if it does not come.

        A slow sweep that still moves is waited for: the period stretches, and its frame is whole. Only one that takes
        longer than `PATIENCE_SECONDS` gets frames in between, in which the ages tell.
        """
        deadline = self.call_deadline
        started = self._flights.clock()
        while not self._sweeper.done.wait(deadline / 4):
            waited = self._flights.clock() - started
            stuck = self._sweeper.stuck(deadline)
            if stuck is not None and not self._sweeper.replace(stuck):
                return stuck
            if waited >= (PATIENCE_SECONDS if stuck is None else max(self.interval, 2 * deadline)):
                return None
        return None

    def _frame(self, stuck: Flight | None) -> Frame:
        now = self._flights.clock()
        session = self._sweeper.session
        slots = self._sweeper.slots
        told = (self._device(device, slot, now, stuck) for slot in slots for device in slot.devices)
        devices = tuple(told) or tuple(self._sweeper.outage_devices)
        seconds = self._sweeper.last_seconds
        devices = self._cuda_order.number(_with_keys_of_their_own(devices))
        self._refused += sum(map(_refused, devices))
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
                self._refused,
            ),
            events=tuple(self._events(devices)),
            problems=self._problems(devices, stuck, now),
        )

    def _device(self, last: Device, slot: Slot, now: float, stuck: Flight | None) -> Device:
        """What is told of a device of a slot, or of an instance of it, after its ``last`` reading."""
        age = None if slot.read_at is None else round(now - slot.read_at, 1)
        fatal = slot.fatal
        if fatal is not None and fatal.code is ProblemCode.GPU_LOST:
            return _aged(outage([last], fatal)[0], age)
        device = _aged(last, age)
        if fatal is not None:
            return _unresponsive(device, fatal)
        if slot.quarantined:
            return _unresponsive(device, _DRIVER_SILENT)
        old = device.age_seconds is None or device.age_seconds > self.call_deadline
        if stuck is not None and old and device.state is not DeviceState.LOST:
            return _unresponsive(device, _DRIVER_SILENT if stuck.callee is Callee.DRIVER else _HOST_SILENT)
        return device

    def _events(self, devices: tuple[Device, ...]) -> Iterator[DeviceEvent]:
        """What came of the devices since the last frame."""
        keys = {device.index: device.key for device in devices if device.instance is None}
        while self._xids:
            xid = self._xids.popleft()
            key = keys.get(xid.device_index, f"index:{xid.device_index}")
            yield DeviceEvent(key, xid.number, round(xid.time_seconds, 3), round(xid.monotonic_seconds, 3))

    def _problems(self, devices: tuple[Device, ...], stuck: Flight | None, now: float) -> dict[str, Problem]:
        session = self._sweeper.session
        problems = {} if session is None else dict(session.problems)
        if stuck is not None and all(device.state is not DeviceState.OK for device in devices):
            subject, problem = _silence(stuck, now)
            problems[subject] = problem
        elif self._sweeper.problem is not None:
            problems["driver"] = self._sweeper.problem
        elif session is not None and not devices:
            problems["driver"] = _NO_DEVICES
        left_behind = None if self._left_behind is None else self._left_behind.problem(now)
        if left_behind is not None:
            problems["left_behind"] = left_behind
        return problems

    def _sleep_until(self, tick: float) -> float:
        """Sleeps until ``tick``, taking settings meanwhile; returns the tick, moved if the interval was changed.

        Settings that wait are taken even when the tick has passed: a driver so slow that there is no time left to
        sleep must not make gpumon deaf.
        """
        while True:
            left = tick - self._flights.clock()
            if select.select([self._control], [], [], max(0.0, left))[0]:
                before = self.interval
                self._take_settings()
                if self.interval != before:
                    tick = min(tick, self._flights.clock() + self.interval)
            elif left <= 0:
                return tick

    def _write(self, frame: Frame) -> None:
        """Writes a whole line; waits for a slow reader, but not for one that is gone."""
        rest = memoryview(encode(frame).encode() + b"\n")
        while rest:
            try:
                rest = rest[os.write(self._output, rest) :]
            except BlockingIOError:
                readable, _, _ = select.select([self._control], [self._output], [])
                if readable:
                    self._take_settings()
            except BrokenPipeError:
                raise ReaderGoneError from None

    def _take_settings(self) -> None:
        data = os.read(self._control, 4096)
        if not data:
            raise ReaderGoneError
        *lines, self._control_buffer = (self._control_buffer + data).split(b"\n")
        for line in lines:
            with suppress(ValueError, TypeError):  # a setting of another version
                self._take_setting(json.loads(line))

    def _take_setting(self, setting: dict[str, Any]) -> None:
        if "interval" in setting:
            self.interval = clamp_interval(float(setting["interval"]))
        if "look" in setting:
            self._sweeper.attention.keys = frozenset(key for key in setting["look"] if isinstance(key, str))
        if "count_calls" in setting:
            self._counts_calls = setting["count_calls"] is True


_DRIVER_SILENT: Final = Problem(
    ProblemCode.UNRESPONSIVE,
    "The driver does not answer for this GPU; its values are as old as shown.",
    "Look for an Xid in the kernel log (dmesg | grep -i xid).",
)
_HOST_SILENT: Final = Problem(
    ProblemCode.UNRESPONSIVE,
    "/proc or the directory of users does not answer, so this GPU could not be read; its values are as old as shown.",
)


def _refused(device: Device) -> int:
    """How many values of a device and of its processes cannot be true."""
    told = chain(device.problems.values(), *(process.problems.values() for process in device.processes or ()))
    return sum(problem.code is ProblemCode.INVALID_VALUE for problem in told)


_SHARED_UUID: Final = Problem(ProblemCode.INVALID_VALUE, "The driver gives several GPUs the same UUID.")
_NO_DEVICES: Final = Problem(
    ProblemCode.NO_DEVICES,
    "The NVIDIA driver runs but sees no GPU.",
    "Check lspci | grep -i nvidia and dmesg; a GPU that is added is noticed at once.",
)


def clamp_interval(seconds: float) -> float:
    """The interval that is used for one that was asked for."""
    return min(max(SHORTEST_INTERVAL, seconds), LONGEST_INTERVAL)  # in this order NaN is the shortest one


def _with_keys_of_their_own(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Takes a UUID that several devices claim from all of them: it would mix their histories."""
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
    """The device with the age of its readings, which is nothing to speak of right after they were taken."""
    if age is None or (device.state is DeviceState.OK and age < _FRESH_SECONDS):
        return device
    problems = {field: problem for field, problem in device.problems.items() if field != "age_seconds"}
    return dataclasses.replace(device, age_seconds=age, problems=problems)


def _unresponsive(device: Device, problem: Problem) -> Device:
    """The device as one that somebody does not let us read."""
    problems = {**device.problems, "state": problem}
    return dataclasses.replace(device, state=DeviceState.UNRESPONSIVE, problems=problems)


def _silence(stuck: Flight, now: float) -> tuple[str, Problem]:
    """Who keeps everything waiting, and what is said of it."""
    since = f"{stuck.call} has not returned for {now - stuck.started:.0f} s."
    if stuck.callee is Callee.DRIVER:
        remedy = "Look for an Xid in the kernel log (dmesg | grep -i xid); a driver that stays so needs a reboot."
        return "driver", Problem(ProblemCode.UNRESPONSIVE, f"The NVIDIA driver does not answer: {since}", remedy)
    remedy = "Look for processes in state D (ps -eo pid,stat,comm) and whether names are found (getent passwd $USER)."
    return "processes", Problem(ProblemCode.UNRESPONSIVE, f"This machine says nothing of processes: {since}", remedy)
