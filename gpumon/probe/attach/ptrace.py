"""ptrace(2) for one thread of another process, and its stops; only what a process survives if its tracer is killed.

The kernel detaches a tracer that dies, but single-stepping and debug registers would stay and kill the process, so that
neither is used. `O_TRACESYSGOOD` keeps a stop whose tracer dies from becoming a SIGTRAP.
"""

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from typing import Final

CONT, DETACH, SYSCALL, GETREGSET, SETREGSET = 7, 17, 24, 0x4204, 0x4205
SEIZE, INTERRUPT, GETSIGMASK, SETSIGMASK, GET_RSEQ_CONFIGURATION = 0x4206, 0x4207, 0x420A, 0x420B, 0x420F
"""From linux/ptrace.h."""
_O_TRACESYSGOOD: Final = 1
_EVENT_STOP: Final = 128
_WALL: Final = 0x40000000
_SYSCALL_STOP: Final = signal.SIGTRAP | 0x80
_MASK_BYTES: Final = 8
_SPINS: Final = 50
_POLL_SECONDS: Final = 0.00002


class StuckError(Exception):
    """The thread has not stopped in time: it sleeps in the kernel without interruption, or the host is overloaded."""


@dataclass(frozen=True, slots=True)
class TraceStop:
    """Why a traced thread has stopped.

    Attributes:
        signal: The signal that it is about to receive; 0 for a stop of the tracer's own.
        is_syscall: Whether it enters or leaves a system call.
    """

    signal: int
    is_syscall: bool


class _IoVector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_C: Final = ctypes.CDLL(None, use_errno=True)
_C.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_C.ptrace.restype = ctypes.c_long


class Tracee:
    """The main thread of a process, traced by this thread until `detach`, or until this thread ends.

    Args:
        pid: The process.

    Raises:
        OSError: The kernel does not allow it, another process traces it, or it has ended.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._call(SEIZE, 0, _O_TRACESYSGOOD)

    def interrupt(self) -> None:
        """Have the running thread stop as soon as it returns from the kernel."""
        self._call(INTERRUPT)

    def resume(self, number: int = 0, *, to_syscall: bool = False) -> None:
        """Let the stopped thread go on with a signal, perhaps until it enters or leaves a system call."""
        self._call(SYSCALL if to_syscall else CONT, 0, number)

    def detach(self) -> None:
        """Let the stopped thread go on without a tracer."""
        self._call(DETACH)

    def wait(self, seconds: float) -> TraceStop:
        """Wait until the thread stops.

        Raises:
            ProcessLookupError: The process has ended.
            StuckError: It has not stopped in time.
        """
        deadline = time.monotonic() + seconds
        spins = 0
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG | _WALL)
            if pid:
                break
            spins += 1
            if spins > _SPINS:
                if time.monotonic() > deadline:
                    raise StuckError
                time.sleep(_POLL_SECONDS)
        if not os.WIFSTOPPED(status):
            raise ProcessLookupError("the process has ended")
        number = os.WSTOPSIG(status)
        is_own = status >> 16 == _EVENT_STOP
        return TraceStop(0 if is_own or number == _SYSCALL_STOP else number, number == _SYSCALL_STOP)

    def wait_for_interrupt(self, seconds: float) -> None:
        """Wait for the stop that `interrupt` has requested, and deliver signals of the program meanwhile.

        Raises:
            ProcessLookupError: The process has ended.
            StuckError: It has not stopped in time.
        """
        deadline = time.monotonic() + seconds
        while True:
            stop = self.wait(deadline - time.monotonic())
            if not stop.signal and not stop.is_syscall:
                return
            self.resume(stop.signal)

    def read_registers(self, kind: int, max_bytes: int) -> bytes:
        """A set of registers, such as NT_PRSTATUS, as the kernel lays it out."""
        buffer = ctypes.create_string_buffer(max_bytes)
        vector = _IoVector(ctypes.addressof(buffer), max_bytes)
        self._call(GETREGSET, kind, ctypes.addressof(vector))
        return buffer.raw[: vector.length]

    def write_registers(self, kind: int, content: bytes) -> None:
        """Set a set of registers, in one step."""
        buffer = ctypes.create_string_buffer(content, len(content))
        vector = _IoVector(ctypes.addressof(buffer), len(content))
        self._call(SETREGSET, kind, ctypes.addressof(vector))

    def read_mask(self) -> int:
        """The blocked signals, as a bit set."""
        mask = ctypes.c_uint64()
        self._call(GETSIGMASK, _MASK_BYTES, ctypes.addressof(mask))
        return mask.value

    def write_mask(self, mask: int) -> None:
        """Set the blocked signals."""
        kept = ctypes.c_uint64(mask)  # by a name: the address of a temporary object is freed before the call
        self._call(SETSIGMASK, _MASK_BYTES, ctypes.addressof(kept))

    def rseq_address(self) -> int:
        """The address of ``struct rseq`` of the thread; 0 if it has none, or on kernels before 5.13."""
        buffer = ctypes.create_string_buffer(24)
        try:
            self._call(GET_RSEQ_CONFIGURATION, len(buffer), ctypes.addressof(buffer))
        except OSError:
            return 0
        return int.from_bytes(buffer.raw[:8], "little")

    def _call(self, request: int, address: int = 0, data: int = 0) -> None:
        ctypes.set_errno(0)
        if _C.ptrace(request, self.pid, address, data) == -1:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
