"""How a process that is no child of this one has ended, as far as the kernel reports it."""

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.core.procfs import find_stat
from gpumon.core.units import signal_name

_GET_INFO: Final = 0xC040FF0B
"""PIDFD_GET_INFO of linux/pidfd.h, for the structure of 64 bytes; the exit status exists since Linux 6.15."""
_INFO_EXIT: Final = 1 << 3
_INFO_BYTES: Final = 64
_EXIT_STATUS_OFFSET: Final = 60
_MAX_WATCHED: Final = 512
_GRACE_SECONDS: Final = 5.0
"""The driver drops a process before its parent has taken its exit status."""
LEFT: Final = "left the GPU"
UNKNOWN: Final = "ended"


class EndWatch:
    """Watches processes, so that their exit status can still be read after they have ended."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}

    def watch(self, pid: int) -> None:
        """Watch a process from now on, if the system allows that."""
        if pid not in self._descriptors and len(self._descriptors) < _MAX_WATCHED:
            with suppress(OSError):
                self._descriptors[pid] = os.pidfd_open(pid)

    def how(self, pid: int, start_ticks: int, gone_seconds: float) -> str | None:
        """How a process ended that is no longer on a GPU; None while that may still become known.

        Args:
            pid: The process.
            start_ticks: Its start time in clock ticks.
            gone_seconds: How long it has not been on a GPU.
        """
        status = self.exit_status(pid)
        if status is None:
            stat = find_stat(f"/proc/{pid}")
            is_same = stat is not None and stat.start_ticks == start_ticks
            if gone_seconds < _GRACE_SECONDS and (is_same or pid in self._descriptors):
                return None
            if stat is not None and is_same:
                status = os.waitstatus_to_exitcode(stat.wait_status) if stat.has_ended and stat.wait_status else None
                if not stat.has_ended:
                    return self._forget(pid, LEFT)
        return self._forget(pid, UNKNOWN if status is None else _status_text(status))

    def close(self) -> None:
        """Stop watching."""
        for pid in [*self._descriptors]:
            self._forget(pid, LEFT)

    def exit_status(self, pid: int) -> int | None:
        """The exit code, or minus the signal; None if the process runs, or if the kernel does not report it."""
        buffer = bytearray(_INFO_BYTES)
        struct.pack_into("Q", buffer, 0, _INFO_EXIT)
        try:
            fcntl.ioctl(self._descriptors[pid], _GET_INFO, buffer)
        except (KeyError, OSError):
            return None
        (mask,) = struct.unpack_from("Q", buffer)
        (status,) = struct.unpack_from("i", buffer, _EXIT_STATUS_OFFSET)
        return os.waitstatus_to_exitcode(status) if mask & _INFO_EXIT else None

    def _forget(self, pid: int, how: str) -> str:
        descriptor = self._descriptors.pop(pid, None)
        if descriptor is not None:
            os.close(descriptor)
        return how


def oom_kills() -> int:
    """Processes that the kernel has killed since boot because memory of the host or of a control group ran out."""
    with suppress(OSError, ValueError), Path("/proc/vmstat").open(encoding="ascii") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _status_text(status: int) -> str:
    return signal_name(-status) if status < 0 else f"exit {status}"
