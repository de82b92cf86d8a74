"""Xid errors, received as NVML events instead of by polling.

A separate thread waits for events in the driver. It holds no lock while it waits, and only the end of a session waits
for the thread, for a limited time. After an Xid that a device does not survive, gpumon makes no more calls on that
device: a driver that must query a dead GPU may take minutes to notice and block other processes meanwhile.
"""

import threading
import time
from collections import deque
from contextlib import suppress
from typing import Final, NamedTuple

from gpumon.collect import nvml
from gpumon.collect.calls import EVENT_WAIT
from gpumon.collect.nvml import Answer, DeviceLostError, DriverGoneError, Handle, Nvml, NvmlError, ReadingError
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text_table import table

WAIT_MILLISECONDS: Final = 1000
"""Duration of one wait. The end of a session and a new device are noticed after it."""

PAUSE_SECONDS: Final = 1.0
"""Pause after a failure, while there is no device, and before the first wait. If the library crashes in a wait, the
breadcrumb should name only the wait, and not one of the many calls of the first sweep."""

RETRY_SECONDS: Final = 10.0
"""Time until gpumon registers again for the events of a device after a failure."""

STOP_TIMEOUT_SECONDS: Final = 1.5
"""Maximum time that the end of a session waits for the thread."""

MAX_PENDING: Final = 100
"""Maximum number of Xids per frame; the later ones of a burst are consequences of the first ones."""

FATAL: Final = {
    int(xid): Problem(ProblemCode[code], f"{reason} (Xid {xid}); gpumon stopped querying this GPU.", remedy)
    for xid, code, reason, remedy in (row.split(" | ") for row in table("gpumon.collect", "fatal_xids"))
}
"""The Xids that a device does not survive, with the problem that the device shows from then on."""

_PERMANENT: Final = frozenset({ProblemCode.NOT_SUPPORTED, ProblemCode.DRIVER_TOO_OLD, ProblemCode.DROPPED})


class Xid(NamedTuple):
    """An Xid error of a device.

    Attributes:
        device_index: NVML's index of the device.
        number: The Xid.
        time_seconds: Unix time.
        monotonic_seconds: Time of arrival, monotonic.
    """

    device_index: int
    number: int
    time_seconds: float
    monotonic_seconds: float


class XidWatcher:
    """The thread that waits for the Xids of the devices of one session.

    Args:
        api: The choke point.
        queue: Receives the Xids for the next frame.

    Attributes:
        fatal: Problems of the devices that gpumon must not query, by NVML's index.
    """

    def __init__(self, api: Nvml, queue: deque[Xid]) -> None:
        self._api = api
        self._queue = queue
        self.fatal: dict[int, Problem] = {}
        self._handles: dict[int, Handle] = {}
        self._attempts: dict[int, tuple[Handle, float]] = {}
        self._indices: dict[int | None, int] = {}
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._is_overdue = False

    def watch(self, index: int, handle: Handle) -> None:
        """Add a device from the next wait on; a device with a new handle is registered again."""
        if self._handles.get(index) is handle:
            return
        self._handles[index] = handle
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpumon-xids", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread, which frees its event set; a thread that is stuck in the driver is abandoned."""
        self._stopping.set()
        if self._thread is not None:
            self._is_overdue = not self._stopped.wait(STOP_TIMEOUT_SECONDS)

    def _run(self) -> None:
        """Run until the session ends or the driver turns out to have no events; retry after any other failure."""
        try:
            while not self._stopping.wait(PAUSE_SECONDS):
                try:
                    self._wait_with_event_set()
                except DeviceLostError:  # the next event set does not contain that device
                    pass
                except ReadingError as error:
                    if error.problem.code in _PERMANENT:
                        return
        except DriverGoneError:  # the sweep gets the same error and ends the session
            pass
        finally:
            self._stopped.set()

    def _wait_with_event_set(self) -> None:
        """Create an event set and wait with it until the watcher stops.

        Raises:
            NvmlError: A call failed.
        """
        event_set = self._api.call("nvmlEventSetCreate")
        self._attempts, self._indices = {}, {}
        try:
            while not self._stopping.is_set():
                self._register(event_set)
                if self._indices:
                    self._handle_event(self._api.call(EVENT_WAIT, event_set, WAIT_MILLISECONDS))
                else:
                    self._stopping.wait(PAUSE_SECONDS)
        finally:
            if not self._is_overdue:  # otherwise the set was freed with its session
                with suppress(NvmlError):
                    self._api.call("nvmlEventSetFree", event_set)

    def _register(self, event_set: Handle) -> None:
        """Add the devices to the event set that are not in it yet."""
        now = self._api.in_flight.clock()
        for index, handle in list(self._handles.items()):
            attempted, retry_at = self._attempts.get(index, (None, 0.0))
            if index in self.fatal or (attempted is handle and now < retry_at):
                continue
            self._attempts[index] = handle, float("inf")
            try:
                if self._api.call("nvmlDeviceGetSupportedEventTypes", handle) & nvml.EVENT_XID:
                    self._api.call("nvmlDeviceRegisterEvents", handle, nvml.EVENT_XID, event_set)
                    self._indices[nvml.address(handle)] = index
            except (ReadingError, DeviceLostError) as error:
                if error.problem.code not in _PERMANENT | {ProblemCode.NO_PERMISSION}:
                    self._attempts[index] = handle, now + RETRY_SECONDS

    def _handle_event(self, event: Answer) -> None:
        """Record an Xid, if there was one, and block calls on a device that does not survive it."""
        if event is None or event.eventType != nvml.EVENT_XID:
            return
        index = self._indices.get(nvml.address(event.device))
        if index is None:
            return
        problem = FATAL.get(event.eventData)
        if problem is not None and index not in self.fatal:
            self.fatal[index] = problem  # first: a sweep whose call is blocked must see the reason
            self._api.block(self._handles[index], problem)
        if len(self._queue) < MAX_PENDING:
            self._queue.append(Xid(index, event.eventData, time.time(), self._api.in_flight.clock()))
