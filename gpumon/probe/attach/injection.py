"""Has a running CPython 3.8 to 3.13 run a text in its main thread, by a pending call that is set through ptrace.

`Py_AddPendingCall` needs no GIL and allocates nothing; the interpreter makes the call at the next bytecode boundary, as
with `sys.remote_exec` of later versions. The main thread alone stands still, for about half a millisecond:

1. It is stopped, and the registers that restore it are written below its stack, as the frame of a signal.
2. It maps memory for the request, the text and a few instructions, which gpumon writes there.
3. It calls `Py_AddPendingCall`.
4. Its registers and blocked signals are put back, and it goes on. The kernel repeats an interrupted system call.

Each of these is one system call of gpumon. If gpumon dies after any of them, the thread goes on where it is: it returns
from the call to ``rt_sigreturn``, which restores what step 4 would have. The request unmaps itself when it has run.
"""

import errno
import hashlib
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from gpumon.core.procfs import age_seconds
from gpumon.probe.attach.address_space import AddressSpace
from gpumon.probe.attach.cpu import cpu
from gpumon.probe.attach.errors import MIN_VERSION, denied, too_old
from gpumon.probe.attach.ptrace import StuckError, Tracee
from gpumon.probe.attach.python_image import NoPythonError, PythonImage
from gpumon.probe.attach.refusals import RefusalError
from gpumon.probe.attach.target import Target

_PAGE_BYTES: Final = 4096
_PROT_READ_EXEC, _MAP_PRIVATE_ANONYMOUS_NORESERVE = 5, 0x4022
"""From sys/mman.h. With MAP_NORESERVE the kernel does not merge the mapping with another one."""
_FAULTS: Final = sum(1 << (number - 1) for number in (4, 5, 7, 8, 11))
"""SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV. The kernel resets the handler of a fault that is blocked."""
_INTERNAL: Final = 7 << 31
"""Signals 32 to 34, which C libraries use themselves; Python would warn of their numbers."""
_BLOCKED: Final = (1 << 64) - 1 - _FAULTS - _INTERNAL
_STOP_SECONDS: Final = 1.0
_CALL_SECONDS: Final = 0.5
_SUITABLE_SECONDS: Final = 2.0
_READY_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.002
_STACK_WORDS: Final = 64
_NOT_READY: Final = "its Python is starting or ending"
_MARK: Final = b"gpumon: "
_HEADER: Final = struct.Struct("<16sQQQQQ")
"""How a request begins: its mark; the deadline in seconds since the epoch, from which on it does nothing; its length;
the signals that are blocked while it runs; `PyRun_SimpleString`; ``CALL_AND_RETURN``. Code and text follow."""
_MARK_BYTES, _DEADLINE_OFFSET, _TEXT_OFFSET = 16, 16, 256
_MAX_ERRNO, _MAX_WORD = 4095, (1 << 64) - 1
_ONE_AT_A_TIME: Final = threading.Lock()
"""Held while a process is stopped: threads of gpumon that wait for its GIL would keep theirs stopped."""
_MAX_GROWTH_BYTES: Final = 8 << 20
"""By which the stack may have grown since its mapping was read."""


class _NotNowError(Exception):
    """The thread was stopped at a place where it must not be used; nothing was changed."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A request in the memory of a process.

    Attributes:
        space: The memory.
        address: Where the request is.
        mark: Its first bytes while it waits.
        stopped_seconds: How long the main thread stood still; 0 for a request that was there before.
    """

    space: AddressSpace
    address: int
    mark: bytes
    stopped_seconds: float

    def is_waiting(self) -> bool:
        """Whether the main thread has not run the request yet."""
        return _has_mark(self.space, self.address, self.mark)

    def expire_at(self, epoch_seconds: float) -> None:
        """Set the time from which on the request does nothing when it is run."""
        try:
            self.space.write(self.address + _DEADLINE_OFFSET, int(epoch_seconds).to_bytes(8, "little"))
        except OSError:
            return  # it has run, or the process has ended


@contextmanager
def pending_call(target: Target, text: str, deadline: float) -> Iterator[PendingCall]:
    """Have the main thread of a process run a text, unless the same request waits there, which then gets the deadline.

    Args:
        target: The process.
        text: Python statements for every version; they raise nothing.
        deadline: Seconds since the epoch; from then on the request does nothing.

    Raises:
        CommandError: The process does not accept the request; it is as before.
    """
    try:
        space = AddressSpace(target.pid, target.proc)
    except PermissionError:
        raise denied(target) from None
    except OSError:
        raise RefusalError("ended", target=target) from None
    try:
        candidates = (item.start for item in space.mappings if item.access == "r-xp" and not item.path)
        mark = _MARK + hashlib.sha256(text.encode()).digest()[: _MARK_BYTES - len(_MARK)]
        address = next((start for start in candidates if _has_mark(space, start, mark)), 0)
        if address:
            call = PendingCall(space, address, mark, 0.0)
            call.expire_at(deadline)
        else:
            call = _on_own_thread(_Injection(target, space, text, mark, deadline))
        yield call
    finally:
        space.close()


def _has_mark(space: AddressSpace, address: int, mark: bytes) -> bool:
    try:
        return space.read(address, len(mark)) == mark
    except OSError:
        return False


def _on_own_thread(injection: "_Injection") -> PendingCall:
    """Trace on a thread that ends: the kernel then detaches it, wherever it was."""
    results: list[PendingCall | BaseException] = []

    def run() -> None:
        try:
            results.append(injection.run())
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            results.append(error)

    thread = threading.Thread(target=run, name="gpumon-attach")
    thread.start()
    try:
        thread.join()
    finally:
        injection.is_cancelled = True
        thread.join()  # a second time after Ctrl-C: at most a second
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


class _Injection:
    """The way of one request into a process.

    Attributes:
        is_cancelled: Whether no further attempt is made.
    """

    def __init__(self, target: Target, space: AddressSpace, text: str, mark: bytes, deadline: float) -> None:
        self.is_cancelled = False
        self._target = target
        self._space = space
        self._text = text.encode()
        self._mark = mark
        self._deadline = int(deadline)
        self._length = -(-(_TEXT_OFFSET + len(self._text) + 1) // _PAGE_BYTES) * _PAGE_BYTES

    def run(self) -> PendingCall:
        """Stop the thread as often as needed until it is at a suitable place.

        Raises:
            CommandError: The request cannot be made.
        """
        target = self._target
        try:
            python = self._python()
            end = time.monotonic() + _SUITABLE_SECONDS
            while True:
                try:
                    with _ONE_AT_A_TIME:
                        return self._attempt(python)
                except _NotNowError as error:
                    if self.is_cancelled or time.monotonic() > end:
                        raise RefusalError("not_now", target=target, detail=error) from None
                time.sleep(_RETRY_SECONDS)
        except StuckError:
            raise RefusalError("not_stopped", target=target) from None
        except OSError as error:
            if target.state is None or error.errno not in {errno.EPERM, errno.EACCES}:
                raise RefusalError("ended", target=target) from None
            raise denied(target) from None

    def _python(self) -> PythonImage:
        """The Python of the process, when it is initialized."""
        target = self._target
        try:
            python = PythonImage(self._space, target.program)
        except NoPythonError:
            if age_seconds(target.start_ticks) < _READY_SECONDS:
                raise RefusalError("not_now", target=target, detail=_NOT_READY) from None
            raise RefusalError("no_symbols", target=target) from None
        if python.version < MIN_VERSION:
            raise too_old(target, target.named_version or python.version)
        if python.is_free_threaded:
            raise RefusalError("no_gil", target=target)
        end = time.monotonic() + _READY_SECONDS
        while not python.is_ready():
            if time.monotonic() > end or self.is_cancelled:
                raise RefusalError("not_now", target=target, detail=_NOT_READY)
            time.sleep(10 * _RETRY_SECONDS)
        return python

    def _attempt(self, python: PythonImage) -> PendingCall:
        """Find the instructions, stop the thread, make the request, and let the thread go on.

        Raises:
            _NotNowError: The thread is at an unsuitable place.
            OSError: The kernel does not allow it, or the process has ended.
            StuckError: The thread does not stop, or does not return from a call; it goes on by itself.
        """
        places = self._space.find_code(cpu.CALL_AND_RETURN, cpu.RESTORER)
        if places is None:
            raise RefusalError("no_symbols", target=self._target)
        self._call_and_return, self._restorer = places
        tracee = Tracee(self._target.pid)
        start = time.perf_counter()
        try:
            tracee.interrupt()
            tracee.wait_for_interrupt(_STOP_SECONDS)
            thread = _StoppedThread(tracee, self._space)
            thread.check(python)
            thread.write_frame(self._restorer)
            address = self._map(thread)
            result = self._add(thread, python, address)
            if result == 0:
                with suppress(OSError):  # Python's main thread is another one, and has run it already
                    self._space.write(address, self._mark)  # only now: a mark without a call would be waited for
            else:
                self._unmap(thread, address)
            thread.restore()
        finally:
            with suppress(OSError):  # it is not stopped, or has ended
                tracee.detach()
        if result != 0:
            raise _NotNowError("its interpreter accepts no more calls")
        return PendingCall(self._space, address, self._mark, time.perf_counter() - start)

    def _map(self, thread: "_StoppedThread") -> int:
        """Have the thread map memory for the request, and fill it; return its address."""
        arguments = (0, self._length, _PROT_READ_EXEC, _MAP_PRIVATE_ANONYMOUS_NORESERVE, -1, 0)
        address = thread.make_system_call(self._call_and_return, cpu.MMAP, *arguments)
        if address > _MAX_WORD - _MAX_ERRNO:
            thread.restore()
            raise _NotNowError(f"it gets no memory ({os.strerror((1 << 64) - address)})")
        run, code = thread.python.run_string, self._call_and_return
        header = _HEADER.pack(bytes(_MARK_BYTES), self._deadline, self._length, _BLOCKED, run, code)
        content = (header.ljust(cpu.RETURN_OFFSET, b"\0") + cpu.CODE).ljust(_TEXT_OFFSET, b"\0") + self._text + b"\0"
        self._space.write(address, content)
        thread.return_to(address + cpu.RETURN_OFFSET)
        return address

    def _add(self, thread: "_StoppedThread", python: PythonImage, address: int) -> int:
        """Have the thread call `Py_AddPendingCall`; return its result."""
        thread.go(
            thread.calling(python.add_pending_call, address + cpu.PENDING_OFFSET, address),
            address + cpu.RETURNED_OFFSET,
            cpu.SIGRETURN,
        )
        return thread.now[cpu.ADDED] & 0xFFFFFFFF

    def _unmap(self, thread: "_StoppedThread", address: int) -> None:
        thread.return_to(self._restorer)
        thread.make_system_call(self._call_and_return, cpu.MUNMAP, address, self._length)


class _StoppedThread:
    """The main thread while it is stopped.

    Attributes:
        old: Its registers when it was stopped.
        now: Its registers at the latest stop.
        stack: Where its frame is.
    """

    def __init__(self, tracee: Tracee, space: AddressSpace) -> None:
        self._tracee = tracee
        self._space = space
        self.old = self.now = self._registers()
        self._vectors = tracee.read_registers(cpu.NT_VECTORS, cpu.MAX_VECTORS_BYTES)
        self._mask = tracee.read_mask()
        self.stack = cpu.frame_address(self.old, self._vectors)
        self._is_blocked = False

    def check(self, python: PythonImage) -> None:
        """Check that the thread can make a call here.

        Raises:
            _NotNowError: It cannot.
            OSError: The process has ended or runs another program.
        """
        self.python = python
        sp, pc = self.old[cpu.SP], self.old[cpu.PC]
        if not python.is_ready():
            raise _NotNowError(_NOT_READY)
        name, bits, value = cpu.MODE
        if self.old[name] & bits != value:
            raise _NotNowError("it runs 32-bit code")
        stack = next((item for item in self._space.mappings if item.path == "[stack]"), None)
        if stack is None or not stack.start - _MAX_GROWTH_BYTES < sp < stack.end:
            raise _NotNowError("its main thread uses another stack, such as that of a signal handler")
        words = struct.unpack(f"<{_STACK_WORDS}Q", self._space.read(sp, 8 * _STACK_WORDS))
        self._is_in_system_call = cpu.is_in_system_call(self.old, self._space.read)
        if not self._is_in_system_call and python.may_hold_lock((pc, self.old.get("x30", 0), *words)):
            raise _NotNowError("its main thread takes a lock")
        self._check_restartable_sequence(pc)

    def _check_restartable_sequence(self, pc: int) -> None:
        """Check that the thread is not in a sequence that the kernel has to abort (rseq(2))."""
        address = self._tracee.rseq_address()
        (section,) = struct.unpack("<Q", self._space.read(address + 8, 8)) if address else (0,)
        if section:
            start, length = struct.unpack("<8xQQ", self._space.read(section, 24))
            if start <= pc < start + length:
                raise _NotNowError("its main thread is in a restartable sequence")

    def write_frame(self, return_address: int) -> None:
        """Write what restores the thread after a call that returns to an address.

        Raises:
            _NotNowError: The stack has no room.
        """
        frame = cpu.frame(self.old, self._mask, self._vectors, self.stack, return_address)
        self._returns_to = return_address
        try:
            self._space.write(self.stack, frame)
        except OSError:
            raise _NotNowError("the stack of its main thread has no room") from None

    def return_to(self, address: int) -> None:
        """Have calls return to another address; in the frame, a handler of signals has it, or the place is not used."""
        self._returns_to = address
        self._space.write(self.stack, struct.pack("<Q", address))

    def calling(self, address: int, *arguments: int, number: int = 0) -> dict[str, int]:
        """Registers that call a function."""
        return cpu.calling(self.old, self.stack, self._returns_to, address, *arguments, number=number)

    def make_system_call(self, call_and_return: int, number: int, *arguments: int) -> int:
        """Have the thread make a system call; return its result, with the thread about to return from it."""
        registers = self.calling(call_and_return, *arguments, number=number)
        self.go(registers, call_and_return + cpu.SYSTEM_CALL_BYTES, number, stops=2)
        return self.now[cpu.RESULT]

    def go(self, registers: dict[str, int], until: int, number: int, stops: int = 1) -> None:
        """Have the thread go on until it makes a system call before ``until``, or, with 2 stops, returns from it.

        Raises:
            StuckError: It has not come there in time.
            OSError: The process has ended.
        """
        self._write(registers)
        if not self._is_blocked:  # only now: without a tracer the thread would keep the mask with its old registers
            self._tracee.write_mask(_BLOCKED)
            self._is_blocked = True
        deadline = time.monotonic() + _CALL_SECONDS
        delivered = 0
        while stops:
            self._tracee.resume(delivered, to_syscall=True)
            stop = self._tracee.wait(deadline - time.monotonic())
            delivered = stop.signal
            if stop.is_syscall:
                self.now = self._registers()
                stops -= (self.now[cpu.PC], self.now[cpu.NUMBER]) == (until, number)
            elif delivered and 1 << (delivered - 1) & _FAULTS:
                self._put_back()
                raise _NotNowError(f"a call ended with signal {delivered}")

    def restore(self) -> None:
        """Put everything back; if a system call was interrupted, in a stop from which the kernel repeats it."""
        if cpu.NO_SYSTEM_CALL is None and not self._is_in_system_call:
            self._put_back()
            return
        self._write({**self.now, cpu.NUMBER: -1})
        self._tracee.interrupt()
        self._tracee.resume()
        self._tracee.wait_for_interrupt(_STOP_SECONDS)
        self._put_back()

    def _put_back(self) -> None:
        self._tracee.write_registers(cpu.NT_VECTORS, self._vectors)
        self._tracee.write_mask(self._mask)
        self._write(self.old)  # the last one: from here on it is as before

    def _write(self, registers: dict[str, int]) -> None:
        """Write registers; a system call that the thread is about to enter is skipped."""
        if cpu.NO_SYSTEM_CALL is not None:
            self._tracee.write_registers(*cpu.NO_SYSTEM_CALL)
        content = struct.pack(f"<{len(cpu.NAMES)}Q", *(registers[name] & _MAX_WORD for name in cpu.NAMES))
        self._tracee.write_registers(cpu.NT_PRSTATUS, content)

    def _registers(self) -> dict[str, int]:
        raw = self._tracee.read_registers(cpu.NT_PRSTATUS, 8 * len(cpu.NAMES))
        return dict(zip(cpu.NAMES, struct.unpack(f"<{len(cpu.NAMES)}Q", raw), strict=True))
