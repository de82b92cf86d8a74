"""The thread that makes driver calls, and its replacement when a call does not return.

One thread reads all devices in turn. When a driver call does not return in time, its device is quarantined, the thread
is abandoned, and a new thread continues with the other devices. When the call returns after all, the quarantine ends.
When /proc does not respond, the device is not at fault: the new thread reads the device and skips only the process that
hangs. When several threads are stuck, the driver or /proc does not respond at all; then the last thread waits and no
more threads are created.
"""

import threading
from collections import deque
from typing import Final

from gpumon.collect.calls import Abandoned, Callee, CallInFlight, CallsInFlight
from gpumon.collect.nvml import DriverGoneError, Nvml, NvmlError
from gpumon.collect.nvml_session import NvmlSession, Slot, outage, start_problem
from gpumon.collect.on_demand import SamplingBudget
from gpumon.collect.processes import ProcessTable
from gpumon.collect.schedule import Period
from gpumon.collect.xids import Xid
from gpumon.core.model import Device, DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import uptime
from gpumon.core.text import safe_text

MAX_STUCK_THREADS: Final = 3
"""Maximum number of threads stuck in the driver, and of threads stuck in /proc."""

FIRST_REOPEN_PAUSE_SECONDS: Final = 0.5
MAX_REOPEN_PAUSE_SECONDS: Final = 1.8
"""A little less than two refreshes at an interval of 1 s; within this time gpumon notices that the driver is back."""


class Sweeper:
    """The sweeps over all devices, in a thread that may be replaced.

    Args:
        api: The choke point.
        processes: Facts about processes.
        in_flight: The calls in flight.
        xids: Receives the Xids of the devices; without it gpumon does not wait for Xids.
        is_background: As for `SamplingBudget`.
    """

    def __init__(
        self,
        api: Nvml,
        processes: ProcessTable,
        in_flight: CallsInFlight,
        xids: deque[Xid] | None = None,
        *,
        is_background: bool = False,
    ) -> None:
        self._api = api
        self._processes = processes
        self._in_flight = in_flight
        self._xids = xids
        self.session: NvmlSession | None = None
        self.problem: Problem | None = None
        """Why there is no session."""
        self.outdated = False
        """Whether the driver was replaced by a version that does not match the library of this process."""
        self.outage_devices: list[Device] = []
        """The devices of the session that ended when the driver went away."""
        self.budget = SamplingBudget(in_flight.clock, is_background=is_background)
        """Selects the devices for on-demand samples."""
        self.last_seconds: float | None = None
        self.done = threading.Event()
        self.done.set()
        self._requested = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._slot: Slot | None = None
        self._in_driver: dict[int, Slot] = {}
        self._in_host: set[int] = set()
        self._had_session = False
        self._reopen_at = 0.0
        self._reopen_pause = 0.0
        self._sweep_started = 0.0
        self._forget_at = 0.0
        self._remaining: list[Slot] | None = None

    @property
    def slots(self) -> list[Slot]:
        """The slots of the session; empty without a session."""
        return [] if self.session is None else list(self.session.slots)

    @property
    def threads_stuck(self) -> int:
        """Number of threads stuck in a driver call."""
        return len(self._in_driver)

    def request(self) -> None:
        """Start a sweep in the background; `done` is set at its end."""
        self.done.clear()
        self._sweep_started = self._in_flight.clock()
        self._remaining = None
        self.budget.start_sweep()
        if self._thread is None:
            self._start_thread()
        self._requested.release()

    def stuck(self, deadline: float) -> CallInFlight | None:
        """The call that has been blocking the sweep for ``deadline`` seconds or longer, if there is one."""
        if self.done.is_set() or self._thread is None:
            return None
        call = self._in_flight.of_thread(self._thread.ident)
        return call if call is not None and self._in_flight.clock() - call.started >= deadline else None

    def replace(self, stuck: CallInFlight) -> bool:
        """Abandon the thread in ``stuck`` and continue with the other devices; return False if that cannot help.

        Replacement cannot help when the call concerns no single device, or when `MAX_STUCK_THREADS` threads are stuck.
        """
        slot, thread = self._slot, self._thread
        if slot is None or thread is None or thread.ident is None:
            return False
        replace = self._replace_in_driver if stuck.callee is Callee.DRIVER else self._replace_in_host
        return replace(thread.ident, slot, stuck)

    def _replace_in_driver(self, thread: int, slot: Slot, stuck: CallInFlight) -> bool:
        if len(self._in_driver) >= MAX_STUCK_THREADS:
            return False
        slot.quarantined = True
        self._in_driver[thread] = slot
        if self._in_flight.abandon(thread, stuck):
            self._continue()
        else:  # the call returned at this moment
            del self._in_driver[thread]
            slot.quarantined = False
        return True

    def _replace_in_host(self, thread: int, slot: Slot, stuck: CallInFlight) -> bool:
        if len(self._in_host) >= MAX_STUCK_THREADS:
            return False
        self._in_host.add(thread)
        if self._in_flight.abandon(thread, stuck):
            self._remaining = [slot, *(self._remaining or ())]
            self._continue()
        else:
            self._in_host.discard(thread)
        return True

    def _continue(self) -> None:
        self._start_thread()
        self._requested.release()

    def _start_thread(self) -> None:
        self._slot = None
        self._thread = threading.Thread(target=self._run, name="gpumon-sweep", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        own = threading.get_ident()
        try:
            while True:
                self._requested.acquire()
                started = self._in_flight.clock()
                self._guarded_sweep()
                self.last_seconds = self._in_flight.clock() - started
                self.done.set()
        except Abandoned:
            self._in_host.discard(own)
            slot = self._in_driver.pop(own, None)
            if slot is not None:
                slot.quarantined = False

    def _guarded_sweep(self) -> None:
        try:
            self._sweep()
        except Exception as error:  # noqa: BLE001 - a thread that died silently would look like a driver that hangs
            self._end_session(NvmlError(_bug("the GPUs", error)))

    def _sweep(self) -> None:
        now = self._sweep_started
        if self.session is None and now < self._reopen_at:
            return
        try:
            session = self._open()
            session.count_devices(now)
            if self._remaining is None:
                self._remaining = list(session.slots)
            booted = uptime()
            while self._remaining:
                slot = self._remaining.pop(0)
                if not slot.quarantined:
                    self._read(slot, now, booted)
            self._forget_processes(session, now)
            self._reopen_pause = 0.0
        except NvmlError as error:
            self._end_session(error)

    def _forget_processes(self, session: NvmlSession, now: float) -> None:
        """Forget the processes that are no longer on any device, every ten seconds."""
        if now >= self._forget_at:
            self._forget_at = now + Period.TEN_SECONDS
            devices = (device for slot in session.slots for device in slot.devices)
            self._processes.keep(process.pid for device in devices for process in device.processes or ())

    def _read(self, slot: Slot, now: float, booted: float) -> None:
        self._slot = slot
        try:
            slot.read(now, booted)
        except NvmlError:
            raise
        except Exception as error:  # noqa: BLE001 - what one device returns must not affect the others
            slot.give_up(_bug(f"GPU {slot.device.index}", error), DeviceState.UNRESPONSIVE, now)
        self._slot = None

    def _open(self) -> NvmlSession:
        if self.session is None:
            self.session = NvmlSession.open(self._api, self._processes, self.budget, self._xids)
            self._had_session = True
            self.problem = None
            self.outage_devices = []
        return self.session

    def _end_session(self, error: NvmlError) -> None:
        self._slot = None
        ended, self.session = self.session, None
        self.problem = error.problem if isinstance(error, DriverGoneError) else start_problem(error)
        self.outdated = self._had_session and self.problem.code is ProblemCode.LIBRARY_MISMATCH
        self._remaining = []
        self._reopen_at = self._sweep_started + self._reopen_pause
        self._reopen_pause = min(max(FIRST_REOPEN_PAUSE_SECONDS, 2 * self._reopen_pause), MAX_REOPEN_PAUSE_SECONDS)
        if ended is not None:
            self.outage_devices = outage([device for slot in ended.slots for device in slot.devices], self.problem)
            ended.close()


def _bug(subject: str, error: Exception) -> Problem:
    """The problem of an unexpected exception."""
    description = f"{type(error).__name__}: {safe_text(str(error), 200)}"
    return Problem(ProblemCode.UNKNOWN, f"gpumon failed to read {subject}: {description}.", "Please report this bug.")
