"""Errors that the driver tells of a device (Xid), as they come, without asking for them again and again.

A thread of its own waits in the driver for them. It holds no lock while it waits, and nobody waits for it but the end
of a session, and that not for long. After an Xid that a device does not survive, nothing more is asked of that device:
a driver that must ask a dead GPU may take minutes to find out, and make others wait.
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

WAIT_MILLISECONDS: Final = 500
"""So long does the thread wait in one call: a session that ends, and a device that came, are noticed after it."""

PAUSE_SECONDS: Final = 1.0
"""After a failure, while there is nothing to wait for, and at first: if the library dies in a wait, the call that is to
blame should be the only one under way, not one of the many of the first sweep."""

RETRY_SECONDS: Final = 10.0
"""After this time a device whose events could not be asked for is tried again."""

END_SECONDS: Final = 1.0
"""So long does the end of a session wait for the thread."""

MOST_WAITING: Final = 100
"""As many Xids of one frame are kept, the first ones: what follows in a storm is its echo."""

_RESET: Final = "Reset the GPU or reboot; gpumon asks it again when the driver was restarted, or gpumon itself."
FATAL: Final = {
    79: Problem(
        ProblemCode.GPU_LOST,
        "The GPU has fallen off the bus (Xid 79); it is not asked any more.",
        "Reboot the machine; if it happens again, have the board, its slot and its power checked.",
    ),
    119: Problem(
        ProblemCode.UNRESPONSIVE,
        "The GPU's own firmware (GSP) does not answer the driver (Xid 119); it is not asked any more.",
        _RESET,
    ),
    120: Problem(
        ProblemCode.UNRESPONSIVE,
        "The GPU's own firmware (GSP) has failed (Xid 120); it is not asked any more.",
        _RESET,
    ),
}
"""The Xids that a device does not survive, and what is said of it from then on."""

_NEVER: Final = frozenset({ProblemCode.NOT_SUPPORTED, ProblemCode.DRIVER_TOO_OLD, ProblemCode.DROPPED})
_NO_USE: Final = _NEVER | {ProblemCode.NO_PERMISSION}


class Xid(NamedTuple):
    """An error of a device.

    Attributes:
        device_index: NVML's index of the device.
        number: NVIDIA's number of the error.
        time_seconds: Unix time.
        monotonic_seconds: When it came.
    """

    device_index: int
    number: int
    time_seconds: float
    monotonic_seconds: float


class XidWatch:
    """Waits for the Xids of the devices of one session.

    Args:
        api: The choke point.
        came: Takes what comes, for whoever writes the frames.

    Attributes:
        fatal: What befell the devices that must not be asked any more, by NVML's index.
    """

    def __init__(self, api: Nvml, came: deque[Xid]) -> None:
        self._api = api
        self._came = came
        self.fatal: dict[int, Problem] = {}
        self._handles: dict[int, Handle] = {}
        self._tried: dict[int, tuple[Handle, float]] = {}
        self._indices: dict[int | None, int] = {}
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._ended = threading.Event()
        self._is_overdue = False

    def watch(self, index: int, handle: Handle) -> None:
        """Waits for Xids of a device, too, from the next wait on; one that was looked up anew is told again."""
        if self._handles.get(index) is handle:
            return
        self._handles[index] = handle
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpumon-xids", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Lets the thread give back what it holds of the driver; one that the driver holds is left to itself."""
        self._ending.set()
        if self._thread is not None:
            self._is_overdue = not self._ended.wait(END_SECONDS)

    def _run(self) -> None:
        """Ends with the session, or when this driver tells no events; what else fails is tried again."""
        try:
            while not self._ending.wait(PAUSE_SECONDS):
                try:
                    self._watch_one_set()
                except DeviceLostError:  # the next set is one without that device
                    pass
                except ReadingError as failed:
                    if failed.problem.code in _NEVER:
                        return
        except DriverGoneError:  # the sweep finds the same, and ends the session
            pass
        finally:
            self._ended.set()

    def _watch_one_set(self) -> None:
        """Waits with one event set of the driver for as long as that works.

        Raises:
            NvmlError: It works no more.
        """
        event_set = self._api.call("nvmlEventSetCreate")
        self._tried, self._indices = {}, {}
        try:
            while not self._ending.is_set():
                self._register(event_set)
                if self._indices:
                    self._take(self._api.call(EVENT_WAIT, event_set, WAIT_MILLISECONDS))
                else:
                    self._ending.wait(PAUSE_SECONDS)
        finally:
            if not self._is_overdue:  # else the set went with its session, and a new one may be there already
                with suppress(NvmlError):
                    self._api.call("nvmlEventSetFree", event_set)

    def _register(self, event_set: Handle) -> None:
        """Adds the devices to the set that are not in it yet."""
        now = self._api.flights.clock()
        for index, handle in list(self._handles.items()):
            tried, again_at = self._tried.get(index, (None, 0.0))
            if index in self.fatal or (tried is handle and now < again_at):
                continue
            self._tried[index] = handle, float("inf")
            try:
                if self._api.call("nvmlDeviceGetSupportedEventTypes", handle) & nvml.EVENT_XID:
                    self._api.call("nvmlDeviceRegisterEvents", handle, nvml.EVENT_XID, event_set)
                    self._indices[nvml.address(handle)] = index
            except (ReadingError, DeviceLostError) as failed:
                if failed.problem.code not in _NO_USE:
                    self._tried[index] = handle, now + RETRY_SECONDS

    def _take(self, event: Answer) -> None:
        """Notes what came, if anything came, and silences a device that does not survive it."""
        if event is None or event.eventType != nvml.EVENT_XID:
            return
        index = self._indices.get(nvml.address(event.device))
        if index is None:
            return
        problem = FATAL.get(event.eventData)
        if problem is not None and index not in self.fatal:
            self.fatal[index] = problem  # first: who is refused from here on is to know why
            self._api.silence(self._handles[index], problem)
        if len(self._came) < MOST_WAITING:
            self._came.append(Xid(index, event.eventData, time.time(), self._api.flights.clock()))
