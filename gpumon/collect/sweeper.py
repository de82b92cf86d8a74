"""The thread that makes driver calls, and what is done when it does not come back.

One thread reads all devices in turn. When a driver call does not return in time, its device is quarantined, the thread
is left behind and a new one goes on with the others. When the call returns after all, the quarantine ends. When it is
/proc that does not answer, the device is not to blame: the new thread reads it, and only what hangs is left out. When
several threads get stuck, the driver or /proc as a whole does not answer; then the last one waits and no more are made.
"""

import threading
from collections import deque
from typing import Final

from gpumon.collect.attention import Attention
from gpumon.collect.driver import start_problem
from gpumon.collect.flights import Abandoned, Callee, Flight, Flights
from gpumon.collect.host import uptime
from gpumon.collect.nvml import DriverGoneError, Nvml, NvmlError
from gpumon.collect.processes import ProcessTable
from gpumon.collect.readers import Lane
from gpumon.collect.session import Session, Slot, outage
from gpumon.collect.xids import Xid
from gpumon.core.model import Device, DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

MAX_STUCK_THREADS: Final = 3
"""As many threads may wait for the driver, and as many for /proc."""

FIRST_REOPEN_PAUSE: Final = 0.5
LONGEST_REOPEN_PAUSE: Final = 1.8
"""A little less than two refreshes at an interval of 1 s, within which a driver that is back is noticed."""


class Sweeper:
    """Sweeps all devices on request, in a thread that may be replaced.

    Args:
        api: The choke point.
        processes: Facts of processes.
        flights: The calls under way.
        xids: Takes the Xids of the devices; without it, nobody waits for them.
    """

    def __init__(self, api: Nvml, processes: ProcessTable, flights: Flights, xids: deque[Xid] | None = None) -> None:
        self._api = api
        self._processes = processes
        self._flights = flights
        self._xids = xids
        self.session: Session | None = None
        self.problem: Problem | None = None
        """Why there is no session."""
        self.outdated = False
        """Whether the driver was replaced by one that the library in this process does not fit: a new process would."""
        self.outage_devices: list[Device] = []
        """The devices that were there before the driver went away."""
        self.attention = Attention(flights.clock)
        """Which devices somebody looks at."""
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
        """The slots of the session, or none without one."""
        return [] if self.session is None else list(self.session.slots)

    @property
    def threads_stuck(self) -> int:
        """Threads left behind in a driver call."""
        return len(self._in_driver)

    def request(self) -> None:
        """Starts a sweep in the background; `done` is set at its end."""
        self.done.clear()
        self._sweep_started = self._flights.clock()
        self._remaining = None
        self.attention.begin_sweep()
        if self._thread is None:
            self._start_thread()
        self._requested.release()

    def stuck(self, deadline: float) -> Flight | None:
        """The call that keeps the sweep waiting for longer than ``deadline`` seconds, if one does."""
        if self.done.is_set() or self._thread is None:
            return None
        flight = self._flights.of(self._thread.ident)
        return flight if flight is not None and self._flights.clock() - flight.started >= deadline else None

    def replace(self, stuck: Flight) -> bool:
        """Leaves the thread in ``stuck`` behind and goes on with the other devices; False if that is no use.

        It is none when the call concerns no single device, or when as many threads wait already as are allowed.
        """
        slot, thread = self._slot, self._thread
        if slot is None or thread is None or thread.ident is None:
            return False
        leave = self._leave_in_driver if stuck.callee is Callee.DRIVER else self._leave_in_host
        return leave(thread.ident, slot, stuck)

    def _leave_in_driver(self, thread: int, slot: Slot, stuck: Flight) -> bool:
        if len(self._in_driver) >= MAX_STUCK_THREADS:
            return False
        slot.quarantined = True
        self._in_driver[thread] = slot
        if self._flights.abandon(thread, stuck):
            self._go_on()
        else:  # the call came back at this very moment
            del self._in_driver[thread]
            slot.quarantined = False
        return True

    def _leave_in_host(self, thread: int, slot: Slot, stuck: Flight) -> bool:
        if len(self._in_host) >= MAX_STUCK_THREADS:
            return False
        self._in_host.add(thread)
        if self._flights.abandon(thread, stuck):
            self._remaining = [slot, *(self._remaining or ())]
            self._go_on()
        else:
            self._in_host.discard(thread)
        return True

    def _go_on(self) -> None:
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
                begun = self._flights.clock()
                self._guarded_sweep()
                self.last_seconds = self._flights.clock() - begun
                self.done.set()
        except Abandoned:
            self._in_host.discard(own)
            slot = self._in_driver.pop(own, None)
            if slot is not None:
                slot.quarantined = False

    def _guarded_sweep(self) -> None:
        try:
            self._sweep()
        except Exception as error:  # noqa: BLE001 - a thread that died unseen would look like a driver that hangs
            self._end_session(NvmlError(_mistake("the GPUs", error)))

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
        except NvmlError as failed:
            self._end_session(failed)

    def _forget_processes(self, session: Session, now: float) -> None:
        """Forgets now and then the processes that have left all devices."""
        if now >= self._forget_at:
            self._forget_at = now + Lane.MEDIUM.value
            devices = (device for slot in session.slots for device in slot.devices)
            self._processes.keep(process.pid for device in devices for process in device.processes or ())

    def _read(self, slot: Slot, now: float, booted: float) -> None:
        self._slot = slot
        try:
            slot.read(now, booted)
        except NvmlError:
            raise
        except Exception as error:  # noqa: BLE001 - what one device answers must not cost the others
            slot.give_up(_mistake(f"GPU {slot.device.index}", error), DeviceState.UNRESPONSIVE, now)
        self._slot = None

    def _open(self) -> Session:
        if self.session is None:
            self.session = Session.open(self._api, self._processes, self.attention, self._xids)
            self._had_session = True
            self.problem = None
            self.outage_devices = []
        return self.session

    def _end_session(self, failed: NvmlError) -> None:
        self._slot = None
        ended, self.session = self.session, None
        self.problem = failed.problem if isinstance(failed, DriverGoneError) else start_problem(failed)
        self.outdated = self._had_session and self.problem.code is ProblemCode.LIBRARY_MISMATCH
        self._remaining = []
        self._reopen_at = self._sweep_started + self._reopen_pause
        self._reopen_pause = min(max(FIRST_REOPEN_PAUSE, 2 * self._reopen_pause), LONGEST_REOPEN_PAUSE)
        if ended is not None:
            self.outage_devices = outage([device for slot in ended.slots for device in slot.devices], self.problem)
            ended.close()


def _mistake(subject: str, error: Exception) -> Problem:
    """What is said of an exception that nobody expected."""
    what = f"{type(error).__name__}: {safe_text(str(error), 200)}"
    return Problem(ProblemCode.UNKNOWN, f"gpumon failed to read {subject}: {what}.", "Please report this.")
