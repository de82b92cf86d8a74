"""A scripted driver with event sets, whose waits end when a test lets an event come."""

import queue
from types import SimpleNamespace
from typing import Any

import pynvml  # noqa: TID251 - its errors are what the stand-in raises

from gpumon.collect import nvml
from tests.collect.fake import FakeNvml, error

TIMEOUT = error(pynvml.NVML_ERROR_TIMEOUT)


class XidDriver(FakeNvml):
    """Event sets are numbers, counted from 1.

    Attributes:
        registered: Devices by event set.
        freed: Sets that were given back.
    """

    def __init__(self, devices: int = 2) -> None:
        super().__init__(devices)
        self.registered: dict[int, list[int]] = {}
        self.freed: list[int] = []
        self._coming: queue.Queue[Any] = queue.Queue()
        self.answer("nvmlEventSetCreate", self._create)
        self.answer("nvmlDeviceGetSupportedEventTypes", nvml.EVENT_XID | 1)
        self.answer("nvmlDeviceRegisterEvents", self._register)
        self.answer("nvmlEventSetWait_v2", self._wait)
        self.answer("nvmlEventSetFree", self._free)

    def come(self, device: int, xid: int, kind: int = nvml.EVENT_XID) -> None:
        """Lets an event come."""
        self._coming.put(SimpleNamespace(device=device, eventType=kind, eventData=xid))

    def fail(self, error: Exception) -> None:
        """Lets a wait end with an error."""
        self._coming.put(error)

    def _create(self) -> int:
        self.registered[len(self.registered) + 1] = []
        return len(self.registered)

    def _register(self, handle: int, kinds: int, event_set: int) -> None:
        assert kinds == nvml.EVENT_XID
        self.registered[event_set].append(handle)

    def _wait(self, event_set: int, milliseconds: int) -> Any:  # noqa: ANN401
        try:
            came = self._coming.get(timeout=min(milliseconds / 1000, 0.02))
        except queue.Empty:
            raise TIMEOUT from None
        if isinstance(came, Exception):
            raise came
        return came

    def _free(self, event_set: int) -> None:
        self.freed.append(event_set)
